"""The line forms that training programs print, as a table: where each was seen, its pattern, and what it means.

Sources, looked up in 2026: Megatron-LM ``megatron/training/{training,checkpointing}.py``; NeMo 1 and 2 job logs;
Lightning ``checkpoint_connector.py``; torchtitan ``components/{metrics,checkpoint}.py``; DeepSpeed ``utils/timer.py``
and ``torch_checkpoint_engine.py``; Transformers ``trainer.py``; Accelerate ``checkpointing.py``; MaxText
``metric_logger.py`` and ``checkpointing.py``; Orbax's ``async_save`` lines; DLRover event files; tqdm bars.

The order of the table is the order of preference when a line fits several forms: the special before the general.
"""

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
    TrainingCompleted,
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


_NUMBER = rb"[-+]?(?:(?:nan|inf)\b|[0-9][0-9,]*(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)"


def _value_of(keys: bytes) -> Pattern:
    """Return a pattern for ``key: value``, ``key=value`` and ``'key': value``."""
    compiled: Pattern = re2.compile(rb"(?:" + keys + rb")['\"]?\s*[:=]\s*'?(?P<value>" + _NUMBER + rb")")
    return compiled


_LOSS: Pattern = re2.compile(rb"(?:\b|train_)loss['\"]?(?:\s*[:=]\s*'?|\s+)(?P<value>" + _NUMBER + rb")")
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


def _iteration(found: Groups, text: bytes) -> Marker | None:
    n = integer(found.group(b"n"))
    return None if n is None else _finished(n, text)


def _iteration_of(found: Groups, text: bytes) -> Marker | None:
    n = integer(found.group(b"n"))
    return None if n is None else _finished(n, text, total=integer(found.group(b"total")))


def _iteration_without_number(_: Groups, text: bytes) -> Marker | None:
    return _finished(None, text)


def _evaluation_step(found: Groups, _: bytes) -> Marker | None:
    n = integer(found.group(b"n"))
    return None if n is None else EvaluationStep(n=n, total=integer(found.group(b"total")))


def _evaluation_step_begins(found: Groups, _: bytes) -> Marker | None:
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


def _bar(found: Groups, text: bytes) -> Marker | None:
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


_begun = _numbered(lambda n: CheckpointBegun(iteration=n))
_begun_and_waited_for = _numbered(lambda n: CheckpointBegun(iteration=n, blocks_training=True))
_written = _numbered(lambda n: CheckpointFinished(iteration=n))
_loading = _numbered(lambda n: CheckpointLoading(iteration=n))
_loaded = _numbered(lambda n: CheckpointLoaded(iteration=n))
_evaluated = _numbered(lambda n: EvaluationFinished(iteration=n))


def _always(marker: Marker) -> Callable[[Groups, bytes], Marker]:
    return lambda _found, _text: marker


def _form(name: str, pattern: bytes, read: Callable[[Groups, bytes], Marker | None]) -> Form:
    source = pattern.replace(b"<N>", rb"(?P<n>[0-9]{1,15})").replace(b"<T>", rb"(?P<total>[0-9]{1,15})")
    return Form(name, re2.compile(source), source, read)


_STEP_IN_PATH = rb"(?:.*?(?:step|checkpoint|iter)[-=_]?<N>)?"

FORMS: tuple[Form, ...] = (
    _form(
        "Megatron-LM checkpoint written", rb"(?i)successfully saved checkpoint (?:from|at) iteration\s+<N>", _written
    ),
    _form("Megatron-LM checkpoint begun", rb"\bsaving checkpoint at iteration\s+<N>", _begun),
    _form("Megatron-LM async checkpoint", rb"scheduled an async checkpoint save at iteration\s+<N>", _begun),
    _form("Megatron-LM loaded", rb"successfully loaded checkpoint from .*? at iteration\s+<N>", _loaded),
    _form("Megatron-LM loading", rb"loading (?:\w+ )?checkpoint from .*? at iteration\s+<N>", _loading),
    _form("Megatron-LM evaluated", rb"validation loss at (?:iteration\s+<N>|the end of training)", _evaluated),
    _form("Megatron-LM evaluation step", rb"Evaluating iter <N>/<T>", _evaluation_step_begins),
    _form(
        "Megatron-LM iteration",
        rb"iteration\s+<N>/\s*<T> \|.*?(?:consumed samples|elapsed time per iteration)",
        _iteration_of,
    ),
    _form("Megatron-LM done", rb"\[after training is done\] datetime", _always(TrainingCompleted())),
    _form("NeMo checkpoint written", rb"Async checkpoint save for step <N> .*finalized successfully", _written),
    _form("NeMo checkpoint begun", rb"Scheduled async checkpoint save for " + _STEP_IN_PATH, _begun),
    _form("NeMo evaluation step", rb"Validation: iteration <N>/<T>", _evaluation_step),
    _form("NeMo iteration", rb"Training epoch [0-9]+, iteration [0-9]+/[0-9]+ \|.*?global_step: <N>", _iteration),
    _form("Lightning loaded", rb"Restored all states from the checkpoint (?:file )?at " + _STEP_IN_PATH, _loaded),
    _form("Lightning loading", rb"Restoring states from the checkpoint path at " + _STEP_IN_PATH, _loading),
    _form("Lightning checkpoint", rb"Epoch [0-9]+, global step <N>: .*saving model to", _begun_and_waited_for),
    _form("Lightning done", rb"Trainer\.fit. stopped: .max_\w+=[^ ]+ reached", _always(TrainingCompleted())),
    _form("torchtitan evaluated", rb"validate step:\s*<N>\s+loss:", _evaluated),
    _form("torchtitan iteration", rb"step:\s*<N>\s+loss:", _iteration),
    _form("torchtitan checkpoint written", rb"Finished saving the checkpoint", _always(CheckpointFinished())),
    _form("torchtitan last checkpoint begun", rb"Saving a .*checkpoint.* at last step, step <N>", _begun),
    _form("torchtitan checkpoint begun", rb"Saving the checkpoint", _always(CheckpointBegun())),
    _form("torchtitan loaded", rb"Finished loading the checkpoint", _always(CheckpointLoaded())),
    _form("torchtitan loading", rb"Loading the checkpoint (?:at step |from .*?step-)<N>", _loading),
    _form("torchtitan done", rb"- INFO - Training completed", _always(TrainingCompleted())),
    _form("DeepSpeed iteration", rb"epoch=[0-9]+/micro_step=[0-9]+/global_step=<N>, RunningAvg", _iteration),
    _form("DeepSpeed step", rb"\[Rank [0-9]+\] step=<N>, skipped=[0-9]+", _iteration),
    _form("DeepSpeed checkpoint begun", rb"Checkpoint \S*?<N> is about to be saved!", _begun),
    _form("DeepSpeed checkpoint written", rb"Checkpoint \S*?<N> is ready now!", _written),
    _form("DeepSpeed loaded", rb"\[\w*Torch\w*\] Loaded checkpoint from \S*?global_step<N>", _loaded),
    _form("DeepSpeed loading", rb"\[\w*Torch\w*\] Loading checkpoint from \S*?global_step<N>", _loading),
    _form("MaxText iteration", rb"completed step: <N>, seconds:", _iteration),
    _form("MaxText checkpoint written", rb"(?i)\bsaved a checkpoint at step <N>", _written),
    _form("MaxText checkpoint begun", rb"Started an asynchronous checkpoint save for step <N>", _begun),
    _form("Orbax checkpoint written", rb"Finished async_save \(blocking \+ background\).*directory=\S*/<N>", _written),
    _form("MaxText loading", rb"restoring from this run's directory (?:latest )?step <N>", _loading),
    _form("DLRover iteration", rb'\[#step\] \[END\] .*?"global_step": <N>', _iteration),
    _form("DLRover checkpoint begun", rb'\[#save\] \[BEGIN\] .*?"global_step": <N>', _begun),
    _form("DLRover checkpoint written", rb'\[#save\] \[END\] .*?"global_step": <N>', _written),
    _form("HF Trainer iteration", rb"\{'loss': .*'epoch': ", _iteration_without_number),
    _form("HF Trainer evaluated", rb"\{'eval_\w+': ", _always(EvaluationFinished())),
    _form("HF Trainer done", rb"\{'train_runtime': |Training completed\. Do not forget", _always(TrainingCompleted())),
    _form("HF Trainer checkpoint", rb"Saving model checkpoint to \S*?checkpoint-<N>", _begun_and_waited_for),
    _form("HF Trainer loaded", rb"Continuing training from global step <N>", _loaded),
    _form("HF Trainer loading", rb"Loading model from \S*?checkpoint-<N>", _loading),
    _form("HF Trainer trains", rb"\*\*\*\*\* Running training \*\*\*\*\*", _always(PhaseChanged(phase=Phase.TRAIN))),
    _form(
        "HF Trainer evaluates",
        rb"\*\*\*\*\* Running (?:Evaluation|Prediction)",
        _always(PhaseChanged(phase=Phase.EVALUATE)),
    ),
    _form("Accelerate checkpoint begun", rb"Saving current state to " + _STEP_IN_PATH, _begun),
    _form("Accelerate checkpoint written", rb"Random states saved in", _always(CheckpointFinished())),
    _form("Accelerate loading", rb"Loading states from " + _STEP_IN_PATH, _loading),
    _form("Accelerate loaded", rb"All states loaded successfully", _always(CheckpointLoaded())),
    _form("Megatron-LM evaluates", rb"Evaluating on [0-9]+ samples", _always(PhaseChanged(phase=Phase.EVALUATE))),
    _form("Megatron-LM trains", rb"\[before the start of training step\]", _always(PhaseChanged(phase=Phase.TRAIN))),
    _form("torchrun restarts workers", rb"; will restart worker group", _always(PhaseChanged(phase=Phase.START_UP))),
    _form(
        "compilation",
        rb"Compiling (?:the model|each |jit\()|Finished XLA compilation|torch\._dynamo.*[Rr]ecompil",
        _always(PhaseChanged(phase=Phase.COMPILE)),
    ),
    _form(
        "bar", rb"^(?P<name>[^|]{0,80}?)\s*(?:[0-9]{1,3}%\|[^|]*\|)?\s*<N>/<T> \[[0-9]+:[0-9]{2}(?::[0-9]{2})?<", _bar
    ),
    _form("bar without an end", rb"^(?P<name>[^|]{0,80}?)\s*<N>it \[[0-9]+:[0-9]{2}(?P<total>)", _bar),
    _form(
        "step and loss",
        rb"(?i)\b(?:global_?)?(?:step|iteration|iter)[\"']?[ :=]+<N>\b.*?(?:\b|train_)loss[\"']?\s*[:= ]\s*'?"
        + _NUMBER,
        _iteration,
    ),
)


_AUTOMATON_BYTES = 64 << 20
"""Room for the automaton's states: without enough, RE2's set would give up on a line and miss it."""


def _any_form() -> re2.Set:
    options = re2.Options()
    options.max_mem = _AUTOMATON_BYTES
    together = re2.Set.SearchSet(options)
    for form in FORMS:
        together.Add(form.source)
    together.Compile()
    return together


ANY_FORM = _any_form()
"""All patterns in one automaton: most lines fit none, and are told so in a microsecond."""
