"""What is read from a line that fits a form: numbers, times and rates, and the marker that they make."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import re2

from recovery.detection.markers import (
    CheckpointBegun,
    CheckpointFinished,
    CheckpointLoaded,
    CheckpointLoading,
    EvaluationFinished,
    EvaluationStep,
    IterationFinished,
    Marker,
    Phase,
    PhaseChanged,
)


class Groups(Protocol):
    """The part of an RE2 match that is used here."""

    def group(self, group: bytes, /) -> bytes | None:
        """Return what a named group captured."""
        ...


class Pattern(Protocol):
    """A compiled RE2 pattern over bytes."""

    def search(self, text: bytes, /) -> Groups | None:
        """Find the first match in `text`."""
        ...


class Form(NamedTuple):
    """One line form."""

    name: str
    pattern: Pattern
    source: bytes
    """The pattern's text."""
    read: Callable[[Groups, bytes], Marker | None]
    """Turn a match, and the whole line, into a marker."""


def integer(text: bytes | None) -> int | None:
    """Read a whole number such as ``500``; None when it is none or has more than 15 digits."""
    return int(text) if text is not None and text.isdigit() and len(text) <= 15 else None


def number(text: bytes | None) -> float | None:
    """Read a number such as ``5,123.0``, ``2.4E+00`` or ``nan``; None when it is none."""
    try:
        return None if text is None else float(text.replace(b",", b""))
    except ValueError:
        return None


NUMBER = rb"[-+]?(?:(?:nan|inf)\b|[0-9][0-9,]*(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)"


def _value_of(keys: bytes) -> Pattern:
    """Return a pattern for ``key: value``, ``key=value`` and ``'key': value``."""
    compiled: Pattern = re2.compile(rb"(?:" + keys + rb")['\"]?\s*[:=]\s*'?(?P<value>" + NUMBER + rb")")
    return compiled


_LOSS: Pattern = re2.compile(rb"(?:\b|train_)loss['\"]?(?:\s*[:=]\s*'?|\s+)(?P<value>" + NUMBER + rb")")
_STEP_MS = _value_of(rb"elapsed time per iteration \(ms\)")
_STEP_S = _value_of(rb"train_step_timing in s|\bseconds|\bstep_time")
_BATCH = _value_of(rb"global[ _]batch[ _]size")
_BAR_RATE: Pattern = re2.compile(rb"[\[,]\s*(?P<value>[0-9.]+)(?P<unit>s/it|it/s)")
_THROUGHPUTS = (
    (_value_of(rb"throughput per GPU \(TFLOP/s/GPU\)|TFLOP/s/device|\btflops"), "TFLOP/s"),
    (_value_of(rb"\btps|Tokens/s/device"), "tokens/s"),
    (_value_of(rb"CurrSamplesPerSec"), "samples/s"),
)


def _value(pattern: Pattern, text: bytes) -> float | None:
    found = pattern.search(text)
    return None if found is None else number(found.group(b"value"))


def _batch(text: bytes) -> int | None:
    size = _value(_BATCH, text)
    return None if size is None or not math.isfinite(size) else int(size)


def _step_time_s(text: bytes) -> float | None:
    if (milliseconds := _value(_STEP_MS, text)) is not None:
        return milliseconds / 1000
    if (seconds := _value(_STEP_S, text)) is not None:
        return seconds
    bar = _BAR_RATE.search(text)
    if bar is None or not (rate := number(bar.group(b"value"))):
        return None
    return rate if bar.group(b"unit") == b"s/it" else 1 / rate


def _finished(n: int | None, text: bytes, *, total: int | None = None, from_bar: bool = False) -> IterationFinished:
    throughput, unit = next(
        ((value, unit) for pattern, unit in _THROUGHPUTS if (value := _value(pattern, text)) is not None), (None, "")
    )
    return IterationFinished(
        n=n,
        total=total,
        loss=_value(_LOSS, text),
        step_time_s=_step_time_s(text),
        throughput=throughput,
        throughput_unit=unit,
        batch=_batch(text),
        from_bar=from_bar,
    )


def iteration(found: Groups, text: bytes) -> Marker | None:
    """Read an iteration that prints its number."""
    n = integer(found.group(b"n"))
    return None if n is None else _finished(n, text)


def iteration_of(found: Groups, text: bytes) -> Marker | None:
    """Read an iteration that also prints how many there will be."""
    n = integer(found.group(b"n"))
    return None if n is None else _finished(n, text, total=integer(found.group(b"total")))


def iteration_of_epoch(found: Groups, text: bytes) -> Marker | None:
    """Read an iteration that is counted from the start of its epoch."""
    n, total, epoch = (integer(found.group(name)) for name in (b"n", b"total", b"epoch"))
    return None if n is None or total is None or epoch is None else _finished(epoch * total + n, text)


def iteration_without_number(_: Groups, text: bytes) -> Marker | None:
    """Read an iteration that prints no number."""
    return _finished(None, text)


def evaluation_step(found: Groups, _: bytes) -> Marker | None:
    """Read a step of an evaluation."""
    n = integer(found.group(b"n"))
    return None if n is None else EvaluationStep(n=n, total=integer(found.group(b"total")))


def evaluation_step_begins(found: Groups, _: bytes) -> Marker | None:
    """Megatron-LM prints the number before it computes the step: the one before is what is done."""
    n = integer(found.group(b"n"))
    if n is None or n <= 1:
        return PhaseChanged(phase=Phase.EVALUATE)
    return EvaluationStep(n=n - 1, total=integer(found.group(b"total")))


_BAR_IS_PREPARATION: Pattern = re2.compile(
    rb"(?i)(?:^|[\s\]:])(?:tokeni[sz]|generat|pack|add|apply|extract|truncat|convert|load|download|fetch|filter|group|map"
    rb"|preprocess|cach)(?:ing)?\b.*\b(?:dataset|split|shards|files)|(?:^|[\s\]:])(?:map|filter)\b"
)
_BAR_IS_EVALUATION: Pattern = re2.compile(rb"(?i)valid|eval|test|predict|sanity")
_BAR_IS_TRAINING: Pattern = re2.compile(rb"(?i)\bepoch|\btrain|\bsteps?\b|\biter")
_BAR_IS_UNNAMED: Pattern = re2.compile(rb"^\s*(?:(?:\[[\w.-]+\]:?|[\w.-]*[0-9][\w.-]*:|\([^()]*\):?)\s*)*$")
_BAR_EPOCH: Pattern = re2.compile(rb"(?i)\bepoch (?P<epoch>[0-9]{1,6})\b")
_BAR_GLOBAL_STEP: Pattern = re2.compile(rb"global_step=(?P<n>[0-9]{1,15})")


def bar(found: Groups, text: bytes) -> Marker | None:
    """A bar at 0 has finished nothing; a named bar that is neither training nor evaluation is some other loop's."""
    n, total, name = integer(found.group(b"n")), integer(found.group(b"total")), found.group(b"name") or b""
    if not n or _BAR_IS_PREPARATION.search(name):
        return None
    if _BAR_IS_EVALUATION.search(name):
        return EvaluationStep(n=n, total=total)
    if _BAR_IS_TRAINING.search(name):
        return _finished(_step_of_bar(n, total, name, text), text, total=None)
    if _BAR_IS_UNNAMED.search(name):
        return _finished(n, text, total=total, from_bar=True)
    return None


def _step_of_bar(n: int, total: int | None, name: bytes, text: bytes) -> int | None:
    """Lightning's bar starts again in each epoch: count on over the epochs before."""
    if (known := _BAR_GLOBAL_STEP.search(text)) is not None:
        return integer(known.group(b"n"))
    epoch = _BAR_EPOCH.search(name)
    if epoch is None or total is None:
        return n
    return (integer(epoch.group(b"epoch")) or 0) * total + n


def _numbered(kind: Callable[[int | None], Marker]) -> Callable[[Groups, bytes], Marker]:
    return lambda found, _text: kind(integer(found.group(b"n")))


begun = _numbered(lambda n: CheckpointBegun(iteration=n))
begun_and_waited_for = _numbered(lambda n: CheckpointBegun(iteration=n, blocks_training=True))
written = _numbered(lambda n: CheckpointFinished(iteration=n))
loading = _numbered(lambda n: CheckpointLoading(iteration=n))
loaded = _numbered(lambda n: CheckpointLoaded(iteration=n))
evaluated = _numbered(lambda n: EvaluationFinished(iteration=n))


def always(marker: Marker) -> Callable[[Groups, bytes], Marker]:
    """Return a reader for lines that always mean the same."""
    return lambda _found, _text: marker


def form(name: str, pattern: bytes, read: Callable[[Groups, bytes], Marker | None]) -> Form:
    """Return a form whose pattern may say ``<N>`` for the number, ``<T>`` for how many there will be and ``<E>``
    for the epoch."""
    source = pattern.replace(b"<N>", rb"(?P<n>[0-9]{1,15})").replace(b"<T>", rb"(?P<total>[0-9]{1,15})")
    source = source.replace(b"<E>", rb"(?P<epoch>[0-9]{1,6})")
    return Form(name, re2.compile(source), source, read)
