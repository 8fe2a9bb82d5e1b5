"""Reads the JSON cases of the labelled corpus."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from recovery.attribution.incident import Incident, JobFacts, LogLine, MetricSample
from recovery.attribution.score import Label
from recovery.model import Value


class UnreadableInput(ValueError):
    """A file cannot be read or is not what it should be. The message names the file and the reason."""


class CaseLine(Value):
    """One line of a corpus case."""

    text: str
    t: datetime | None = None
    host: str | None = None
    rank: int | None = None
    stream: str | None = None


class CaseMetric(Value):
    """One metric sample of a corpus case."""

    text: str
    t: datetime | None = None
    host: str | None = None


class CaseJob(Value):
    """The job of a corpus case: node i holds the global ranks i*gpus_per_node and up."""

    job_id: int | None = None
    nodes: tuple[str, ...] = ()
    gpus_per_node: int = 0


class Case(Value):
    """One labelled case."""

    id: str
    title: str = ""
    lines: tuple[CaseLine, ...]
    metrics: tuple[CaseMetric, ...] = ()
    job: CaseJob = CaseJob()
    expected: Label | None = None

    def incident(self, source: str = "") -> Incident:
        """Return the case as attribution takes it, without its label."""
        return Incident(
            lines=tuple(
                LogLine(
                    text=line.text,
                    at=line.t,
                    host=line.host or "",
                    rank=line.rank,
                    stream=line.stream or "",
                    source=source,
                    number=number,
                )
                for number, line in enumerate(self.lines, start=1)
            ),
            metrics=tuple(MetricSample(at=m.t, host=m.host or "", text=m.text) for m in self.metrics),
            facts=JobFacts(
                job_id=str(self.job.job_id or ""), nodes=self.job.nodes, gpus_per_node=self.job.gpus_per_node
            ),
        )


def read_case(path: Path) -> Case:
    """Read one case, plain or gzipped. Raises `UnreadableInput`."""
    try:
        data = path.read_bytes()
        text = gzip.decompress(data) if path.suffix == ".gz" else data
        return Case.model_validate(json.loads(text))
    except OSError as error:
        raise UnreadableInput(f"{path}: {error.strerror or error}") from error
    except (ValueError, ValidationError) as error:
        raise UnreadableInput(f"{path}: not a corpus case: {_first_line(error)}") from error


def read_cases(folder: Path) -> Iterator[tuple[Path, Case]]:
    """Read all cases of a folder in order of their names. Raises `UnreadableInput`."""
    paths = sorted({*folder.glob("*.json"), *folder.glob("*.json.gz")})
    if not paths:
        raise UnreadableInput(f"{folder}: no case files (*.json or *.json.gz) in it")
    for path in paths:
        yield path, read_case(path)


def _first_line(error: Any) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
