"""The figures that the labelled corpus gives, so that a step back is seen, and what must not change them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from activities.casefile import Case, read_cases
from recovery.attribution.attribute import attribute
from recovery.attribution.incident import Incident, LogLine
from recovery.attribution.score import Prediction, Score, score

CASES = [case for _, case in read_cases(Path(__file__).parent / "dev")]
MADE = [case for _, case in read_cases(Path(__file__).parent / "made")]


def _score(cases: list[Case], change: Callable[[Incident], Incident] = lambda incident: incident) -> Score:
    return score(
        (case.expected, Prediction.of(case.id, attribute(change(case.incident(case.id)))))
        for case in cases
        if case.expected
    )


def test_every_labelled_incident_is_read_as_its_label_says() -> None:
    figures = _score(CASES)
    assert figures.cases == 63
    assert (figures.outcome, figures.category, figures.action, figures.all) == (1.0, 1.0, 1.0, 1.0), figures.wrong
    assert (figures.culprit_precision, figures.culprit_recall) == (1.0, 1.0), figures.wrong


def test_the_kinds_that_dev_lacks_are_read_as_their_labels_say() -> None:
    figures = _score(MADE)
    assert figures.cases == 162
    assert (figures.all, figures.culprit_precision, figures.culprit_recall) == (1.0, 1.0, 1.0), figures.wrong


def _changed(**fields: object) -> Callable[[LogLine], LogLine]:
    return lambda line: line.model_copy(update=fields)


def _of_programs(line: LogLine) -> LogLine:
    return line.model_copy(update={"host": "", "rank": None}) if line.stream in ("stdout", "stderr") else line


def _streams_one_after_the_other(lines: tuple[LogLine, ...]) -> tuple[LogLine, ...]:
    return tuple(
        sorted(
            lines,
            key=lambda line: ("syslog", "slurm").index(line.stream) + 1 if line.stream in ("syslog", "slurm") else 0,
        )
    )


LESS_TOLD: dict[str, Callable[[tuple[LogLine, ...]], tuple[LogLine, ...]]] = {
    "no times": lambda lines: tuple(map(_changed(at=None), lines)),
    "no rank labels": lambda lines: tuple(map(_changed(rank=None), lines)),
    "no host and rank labels on program output": lambda lines: tuple(map(_of_programs, lines)),
    "no stream names": lambda lines: tuple(map(_changed(stream=""), lines)),
    "streams one after the other": _streams_one_after_the_other,
    "no srun lines": lambda lines: tuple(line for line in lines if not line.text.startswith("srun:")),
    "the last lines delivered twice": lambda lines: (*lines, *lines[-20:]),
}


@pytest.mark.parametrize("change", LESS_TOLD.values(), ids=LESS_TOLD.keys())
def test_verdicts_do_not_hang_on_what_a_collector_adds(
    change: Callable[[tuple[LogLine, ...]], tuple[LogLine, ...]],
) -> None:
    figures = _score(CASES, lambda incident: incident.model_copy(update={"lines": change(incident.lines)}))
    assert figures.all == 1.0, figures.wrong


def test_an_incident_keeps_its_verdict_when_it_is_asked_for_again() -> None:
    for case in CASES:
        incident = case.incident()
        assert attribute(incident) == attribute(incident)
