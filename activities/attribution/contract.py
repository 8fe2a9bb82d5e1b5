"""The contract with a site's own attribution service: one POST with a `Request`, answered by an `Answer`, as JSON.

docs/attribution-service.schema.json is made from these models. Fields may be added to a request at any time; of an
answer, what is not known is passed over.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, JsonValue, StringConstraints
from pydantic.json_schema import models_json_schema

from activities.attribution.protocol import AskPhase, Question
from recovery.model import Category, Confidence, NodeName, SymptomKind, Value
from recovery.opinion import Hint
from recovery.redaction import redact

MAX_LINES = 200
MAX_LINE_CHARS = 2_000
MAX_NAMED_NODES = 4_096


class Job(Value):
    """The job. Slurm reuses ids: the time of its first submission belongs to its identity."""

    cluster: str
    job_id: str
    submitted_at: AwareDatetime
    name: str
    user: str
    partition: str


class Ending(Value):
    """What Slurm says of the attempt."""

    state: str
    """Such as FAILED; RUNNING while it runs, REQUEUED after a requeue that was not relight's."""
    exit_code: int
    exit_signal: int
    started_at: AwareDatetime | None
    ended_at: AwareDatetime | None


class Line(Value):
    """One line of the attempt's output, without secrets."""

    text: str
    at: datetime | None
    host: str
    rank: int | None
    source: str


class OwnVerdict(Value):
    """What relight itself says."""

    category: Category
    cause: str
    culprits: tuple[NodeName, ...]
    victims: tuple[NodeName, ...]
    confidence: Confidence
    summary: str
    fingerprint: str
    """The same failure at the same place gives the same one, on any node."""
    evidence: tuple[str, ...]


class Request(Value):
    """The question."""

    version: Literal[1] = 1
    key: str
    """The same for the same question: the service may be asked it again, also by another process of relight."""
    phase: AskPhase
    """``fast``: beside relight's own attribution. ``slow``: with its verdict and the attempt's last lines."""
    time_limit_s: float
    """An answer that comes later than this is not heard."""
    job: Job
    attempt: int
    """From 0."""
    failed: bool
    """Whether the attempt has failed beyond doubt, or there is only a fatal line while it runs."""
    symptom: SymptomKind
    ending: Ending
    nodes: tuple[NodeName, ...]
    """The attempt's allocation."""
    iteration: int | None
    """The last finished one."""
    checkpoint: int | None
    """The iteration of the last finished checkpoint."""
    lines: tuple[Line, ...]
    """The last ones."""
    verdict: OwnVerdict | None


class Answer(BaseModel):
    """The answer."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")

    status: Literal["completed", "pending"]
    """``pending``: ask again after Retry-After, or some seconds."""
    action: Hint = Field(default=Hint.UNKNOWN, strict=False)
    """``stop``: another try is a waste. ``restart``; ``continue``: no failure is seen; ``unknown``."""
    cause: str = Field(default="", max_length=200)
    category: Category = Field(default=Category.UNKNOWN, strict=False)
    nodes: list[Annotated[str, StringConstraints(max_length=254)]] = Field(default=[], max_length=MAX_NAMED_NODES)
    """The culprits. Only nodes of the attempt count."""
    confidence: Confidence = Field(default=Confidence.LIKELY, strict=False)
    """A ``guess`` is put on record and not followed."""
    text: str = Field(default="", max_length=100_000)
    """Why, for people; the first line or so is kept."""


def request_of(question: Question, phase: AskPhase, time_limit_s: float) -> Request:
    """Return what is posted; nothing in it holds a secret that is known as one."""
    job, ending, verdict = question.job, question.ending, question.verdict
    return Request(
        key=question.key,
        phase=phase,
        time_limit_s=time_limit_s,
        job=Job(
            cluster=job.cluster,
            job_id=job.job_id,
            submitted_at=job.submitted_at,
            name=question.job_name,
            user=question.user,
            partition=question.partition,
        ),
        attempt=question.attempt,
        failed=question.failed,
        symptom=question.symptom,
        ending=Ending(
            state=ending.state,
            exit_code=ending.exit_code,
            exit_signal=ending.exit_signal,
            started_at=question.started_at,
            ended_at=question.ended_at,
        ),
        nodes=question.nodes,
        iteration=question.progress.iteration,
        checkpoint=question.progress.checkpoint,
        lines=tuple(
            Line(
                text=redact(line.text[:MAX_LINE_CHARS]),
                at=line.at,
                host=line.host,
                rank=line.rank,
                source=line.source,
            )
            for line in question.lines[-MAX_LINES:]
        ),
        verdict=None
        if verdict is None
        else OwnVerdict(
            category=verdict.category,
            cause=verdict.cause,
            culprits=verdict.culprits,
            victims=verdict.victims,
            confidence=verdict.confidence,
            summary=verdict.summary,
            fingerprint=verdict.fingerprint,
            evidence=tuple(each.text for each in verdict.evidence),
        ),
    )


def schema() -> dict[str, JsonValue]:
    """Return the JSON schema of both, as it is published."""
    models: list[Any] = [(Request, "validation"), (Answer, "validation")]
    _, defined = models_json_schema(models, title="relight's attribution service", ref_template="#/$defs/{model}")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **defined}
