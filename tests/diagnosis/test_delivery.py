"""However a job's lines are delivered, its verdict is the same: prefixes, stamps, torn writes, lines sent again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.attribution.attribute import attribute
from recovery.attribution.incident import Incident, LogLine
from recovery.signatures.lines import LineSplitter
from tests.diagnosis.stories import in_whole_seconds
from tests.diagnosis.test_kinds import KINDS, old_fault_forwarded_late

IN_ONE_FILE = [kind for kind, _ in KINDS if kind is not old_fault_forwarded_late]
"""That one is about a collector's stamp that contradicts the line's own; a file has only one of them."""


def _by_task(line: LogLine, incident: Incident) -> str:
    return f"{incident.facts.nodes.index(line.host)}: {line.text}" if line.host in incident.facts.nodes else line.text


def _by_rank(line: LogLine, incident: Incident) -> str:
    if line.rank is None or line.text.startswith("[rank"):
        return _by_node(line, incident) if line.rank is None else line.text
    return f"[rank{line.rank}]: {line.text}"


def _by_node(line: LogLine, incident: Incident) -> str:
    return f"{line.host}: {line.text}" if line.host else line.text


def _by_task_and_rank(line: LogLine, incident: Incident) -> str:
    labelled = line.model_copy(update={"text": _by_rank(line, incident) if line.rank is not None else line.text})
    return _by_task(labelled, incident)


STYLES: list[Callable[[LogLine, Incident], str]] = [_by_task, _by_rank, _by_node, _by_task_and_rank]


def _without_times(incident: Incident) -> Incident:
    return incident.model_copy(update={"lines": tuple(line.model_copy(update={"at": None}) for line in incident.lines)})


def _as_it_is(incident: Incident) -> Incident:
    return incident


@dataclass(frozen=True)
class Stamp:
    """A form of time stamp, and what it leaves of the times."""

    of: Callable[[datetime], str]
    leaves: Callable[[Incident], Incident]


STAMPS = [
    Stamp(lambda at: "", _without_times),
    Stamp(lambda at: f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z ", _as_it_is),
    Stamp(lambda at: f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d} ", _as_it_is),
    Stamp(lambda at: f"[{at:%Y-%m-%d %H:%M:%S}] ", in_whole_seconds),
]


def _as_file(incident: Incident, style: Callable[[LogLine, Incident], str], stamp: Stamp) -> bytes:
    """Everything in one file, as `srun --label` or a collector without labels of its own would write it."""
    texts = []
    for line in incident.lines:
        text = style(line, incident) if line.stream in ("stdout", "stderr") else line.text
        texts.append((stamp.of(line.at) if line.at else "") + text)
    return "".join(f"{text}\n" for text in texts).encode()


def _from_pieces(incident: Incident, pieces: Iterable[bytes]) -> Incident:
    splitter = LineSplitter()
    texts = [text for piece in pieces for text in splitter.feed(piece)] + splitter.flush()
    lines = tuple(LogLine(text=text, source="job.out", number=number) for number, text in enumerate(texts, 1))
    return incident.model_copy(update={"lines": lines})


def _verdict(incident: Incident) -> tuple[object, ...]:
    verdict = attribute(incident)
    return verdict.symptom, verdict.category, verdict.culprits, verdict.suggested


@given(kind=st.sampled_from(IN_ONE_FILE), style=st.sampled_from(STYLES), stamp=st.sampled_from(STAMPS), data=st.data())
@settings(deadline=None, max_examples=150)
def test_one_file_in_any_style_and_torn_at_any_byte_has_the_verdict_of_the_labelled_lines(
    kind: Callable[[], Incident],
    style: Callable[[LogLine, Incident], str],
    stamp: Stamp,
    data: st.DataObject,
) -> None:
    incident = kind()
    written = _as_file(incident, style, stamp)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(written)), max_size=6), label="cuts"))
    pieces = [written[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(written)], strict=True)]
    assert _verdict(_from_pieces(incident, pieces)) == _verdict(stamp.leaves(incident))


@given(kind=st.sampled_from([kind for kind, _ in KINDS]), data=st.data())
@settings(deadline=None, max_examples=100)
def test_lines_that_a_collector_sends_again_change_nothing(kind: Callable[[], Incident], data: st.DataObject) -> None:
    """A collector that lost its place starts again some lines earlier."""
    incident = kind()
    lines = list(incident.lines)
    lost_at = data.draw(st.integers(0, len(lines)), label="lost at")
    again_from = data.draw(st.integers(max(0, lost_at - 30), lost_at), label="again from")
    again = incident.model_copy(update={"lines": (*lines[:lost_at], *lines[again_from:])})
    assert _verdict(again) == _verdict(incident)


@pytest.mark.parametrize("kind", [kind for kind, _ in KINDS], ids=lambda kind: kind.__name__)
def test_a_log_sent_twice_from_its_beginning_is_one_attempt(kind: Callable[[], Incident]) -> None:
    incident = kind()
    twice = incident.model_copy(update={"lines": (*incident.lines, *incident.lines)})
    assert _verdict(twice) == _verdict(incident)
