"""Whatever is thrown at it, attribution answers, and its answer is one that the rest can use."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.attribution.attribute import attribute
from recovery.attribution.incident import Incident, JobFacts, LogLine, MetricSample
from recovery.model import Action, SymptomKind, Verdict
from tests.diagnosis.stories import in_whole_seconds
from tests.diagnosis.test_kinds import KINDS

NODES = ("n1", "n2", "n3")
SCRAPS = [line.text for kind, _ in KINDS for line in kind().lines]
TEXTS = st.one_of(st.sampled_from(SCRAPS), st.text(max_size=120), st.sampled_from(["", "0: ", "[rank1]: ", "n2: "]))
TIMES = st.one_of(
    st.none(), st.integers(0, 10_000).map(lambda s: datetime(2025, 6, 1, tzinfo=UTC) + timedelta(seconds=s))
)
LINES = st.builds(
    LogLine,
    text=TEXTS,
    at=TIMES,
    host=st.sampled_from(["", "n1", "n2.example.org", "elsewhere"]),
    rank=st.one_of(st.none(), st.integers(0, 30)),
    stream=st.sampled_from(["", "stdout", "stderr", "syslog", "slurm"]),
    source=st.sampled_from(["a", "b"]),
)
FACTS = st.builds(
    JobFacts,
    nodes=st.sampled_from([(), NODES]),
    gpus_per_node=st.integers(0, 8),
    tasks_per_node=st.integers(0, 8),
    state=st.sampled_from(["", "RUNNING", "FAILED", "NODE_FAIL", "TIMEOUT", "CANCELLED", "COMPLETED", "nonsense"]),
)
METRICS = st.builds(MetricSample, at=TIMES, host=st.sampled_from(["", "n1"]), text=st.text(max_size=60))
INCIDENTS = st.builds(
    Incident,
    lines=st.lists(LINES, max_size=25).map(tuple),
    metrics=st.lists(METRICS, max_size=5).map(tuple),
    facts=FACTS,
    detected=st.sampled_from(list(SymptomKind)),
    now=TIMES,
)


@given(INCIDENTS)
@settings(deadline=None, max_examples=300)
def test_any_incident_has_a_verdict_that_holds_together(incident: Incident) -> None:
    verdict = attribute(incident)
    assert Verdict.model_validate(verdict.model_dump()) == verdict
    if verdict.suggested is Action.RESTART_EXCLUDE:
        assert verdict.culprits
    if incident.facts.nodes:
        assert set(verdict.culprits) <= set(incident.facts.nodes)
    assert not set(verdict.culprits) & set(verdict.victims)
    assert verdict.summary


@given(data=st.data(), kind=st.sampled_from([kind for kind, _ in KINDS]), whole_seconds=st.booleans())
@settings(deadline=None, max_examples=150)
def test_the_order_of_different_processes_lines_within_a_moment_changes_nothing(
    data: st.DataObject, kind: Callable[[], Incident], whole_seconds: bool
) -> None:
    """Stamps of whole seconds make moments in which much happens."""
    incident = in_whole_seconds(kind()) if whole_seconds else kind()
    moments: dict[datetime | None, list[LogLine]] = {}
    for line in incident.lines:
        moments.setdefault(line.at, []).append(line)
    shuffled = [line for lines in moments.values() for line in _processes_shuffled(data, lines)]
    before, after = attribute(incident), attribute(incident.model_copy(update={"lines": tuple(shuffled)}))
    assert (after.symptom, after.category, after.culprits, after.suggested) == (
        before.symptom,
        before.category,
        before.culprits,
        before.suggested,
    )


def _processes_shuffled(data: st.DataObject, lines: list[LogLine]) -> list[LogLine]:
    """Interleave the processes anew; each one's own lines keep their order."""
    queues: dict[object, list[LogLine]] = {}
    for line in lines:
        queues.setdefault((line.host, line.rank, line.stream), []).append(line)
    turns = data.draw(st.permutations([process for process, queue in queues.items() for _ in queue]))
    return [queues[process].pop(0) for process in turns]
