"""The line forms that training programs print, as a table: where each was seen, its pattern, and what it means.

Sources, looked up in 2026: Megatron-LM ``megatron/training/{training,checkpointing}.py``; NeMo 1 and 2 job logs;
Lightning ``checkpoint_connector.py``; torchtitan ``components/{metrics,checkpoint}.py``; DeepSpeed ``utils/timer.py``
and ``torch_checkpoint_engine.py``; Transformers ``trainer.py``; Accelerate ``checkpointing.py``; MaxText
``metric_logger.py`` and ``checkpointing.py``; Orbax's ``async_save`` lines; DLRover event files; tqdm bars; in public
issues also verl, Detectron2, OLMo-core, Composer, fairseq, timm and torchvision's reference scripts.

The order of the table is the order of preference when a line fits several forms: the special before the general.
"""

from __future__ import annotations

import re2

from recovery.detection.form_readers import (
    NUMBER,
    Form,
    always,
    bar,
    begun,
    begun_and_waited_for,
    evaluated,
    evaluation_step,
    evaluation_step_begins,
    form,
    iteration,
    iteration_of,
    iteration_of_epoch,
    iteration_without_number,
    loaded,
    loading,
    written,
)
from recovery.detection.markers import (
    CheckpointBegun,
    CheckpointFinished,
    CheckpointLoaded,
    EvaluationFinished,
    Phase,
    PhaseChanged,
    TrainingCompleted,
)

_STEP_IN_PATH = rb"(?:.*?(?:step|checkpoint|iter)[-=_]?<N>)?"

FORMS: tuple[Form, ...] = (
    form("Megatron-LM checkpoint written", rb"(?i)successfully saved checkpoint (?:from|at) iteration\s+<N>", written),
    form("Megatron-LM checkpoint begun", rb"\bsaving checkpoint at iteration\s+<N>", begun),
    form("Megatron-LM async checkpoint", rb"scheduled an async checkpoint save at iteration\s+<N>", begun),
    form("Megatron-LM loaded", rb"successfully loaded checkpoint from .*? at iteration\s+<N>", loaded),
    form("Megatron-LM loading", rb"loading (?:\w+ )?checkpoint from .*? at iteration\s+<N>", loading),
    form("Megatron-LM evaluated", rb"validation loss at (?:iteration\s+<N>|the end of training)", evaluated),
    form("Megatron-LM evaluation step", rb"Evaluating iter <N>/<T>", evaluation_step_begins),
    form(
        "Megatron-LM iteration",
        rb"iteration\s+<N>/\s*<T> \|.*?(?:consumed samples|elapsed time per iteration)",
        iteration_of,
    ),
    form("Megatron-LM done", rb"\[after training is done\] datetime", always(TrainingCompleted())),
    form("NeMo checkpoint written", rb"Async checkpoint save for step <N> .*finalized successfully", written),
    form("NeMo checkpoint begun", rb"Scheduled async checkpoint save for " + _STEP_IN_PATH, begun),
    form("NeMo evaluation step", rb"Validation: iteration <N>/<T>", evaluation_step),
    form("NeMo iteration", rb"Training epoch [0-9]+, iteration [0-9]+/[0-9]+ \|.*?global_step: <N>", iteration),
    form("Lightning loaded", rb"Restored all states from the checkpoint (?:file )?at " + _STEP_IN_PATH, loaded),
    form("Lightning loading", rb"Restoring states from the checkpoint path at " + _STEP_IN_PATH, loading),
    form("Lightning checkpoint", rb"Epoch [0-9]+, global step <N>: .*saving model to", begun_and_waited_for),
    form("Lightning done", rb"Trainer\.fit. stopped: .max_\w+=[^ ]+ reached", always(TrainingCompleted())),
    form("torchtitan evaluated", rb"validate step:\s*<N>\s+loss:", evaluated),
    form("torchtitan iteration", rb"step:\s*<N>\s+loss:", iteration),
    form("torchtitan checkpoint written", rb"Finished saving the checkpoint", always(CheckpointFinished())),
    form("torchtitan last checkpoint begun", rb"Saving a .*checkpoint.* at last step, step <N>", begun),
    form("torchtitan checkpoint begun", rb"Saving the checkpoint", always(CheckpointBegun())),
    form("torchtitan loaded", rb"Finished loading the checkpoint", always(CheckpointLoaded())),
    form("torchtitan loading", rb"Loading the checkpoint (?:at step |from .*?step-)<N>", loading),
    form("torchtitan done", rb"- INFO - Training completed", always(TrainingCompleted())),
    form("DeepSpeed iteration", rb"epoch=[0-9]+/micro_step=[0-9]+/global_step=<N>, RunningAvg", iteration),
    form("DeepSpeed step", rb"\[Rank [0-9]+\] step=<N>, skipped=[0-9]+", iteration),
    form("DeepSpeed checkpoint begun", rb"Checkpoint \S*?<N> is about to be saved!", begun),
    form("DeepSpeed checkpoint written", rb"Checkpoint \S*?<N> is ready now!", written),
    form("DeepSpeed loaded", rb"\[\w*Torch\w*\] Loaded checkpoint from \S*?global_step<N>", loaded),
    form("DeepSpeed loading", rb"\[\w*Torch\w*\] Loading checkpoint from \S*?global_step<N>", loading),
    form("MaxText iteration", rb"completed step: <N>, seconds:", iteration),
    form("MaxText checkpoint written", rb"(?i)\bsaved a checkpoint at step <N>", written),
    form("MaxText checkpoint begun", rb"Started an asynchronous checkpoint save for step <N>", begun),
    form("Orbax checkpoint written", rb"Finished async_save \(blocking \+ background\).*directory=\S*/<N>", written),
    form("MaxText loading", rb"restoring from this run's directory (?:latest )?step <N>", loading),
    form("DLRover iteration", rb'\[#step\] \[END\] .*?"global_step": <N>', iteration),
    form("DLRover checkpoint begun", rb'\[#save\] \[BEGIN\] .*?"global_step": <N>', begun),
    form("DLRover checkpoint written", rb'\[#save\] \[END\] .*?"global_step": <N>', written),
    form("HF Trainer iteration", rb"\{'loss': .*'epoch': ", iteration_without_number),
    form("HF Trainer evaluated", rb"\{'eval_\w+': ", always(EvaluationFinished())),
    form("HF Trainer done", rb"\{'train_runtime': |Training completed\. Do not forget", always(TrainingCompleted())),
    form("HF Trainer checkpoint", rb"Saving model checkpoint to \S*?checkpoint-<N>", begun_and_waited_for),
    form("HF Trainer loaded", rb"Continuing training from global step <N>", loaded),
    form("HF Trainer loading", rb"Loading model from \S*?checkpoint-<N>", loading),
    form("HF Trainer trains", rb"\*\*\*\*\* Running training \*\*\*\*\*", always(PhaseChanged(phase=Phase.TRAIN))),
    form(
        "HF Trainer evaluates",
        rb"\*\*\*\*\* Running (?:Evaluation|Prediction)",
        always(PhaseChanged(phase=Phase.EVALUATE)),
    ),
    form("Accelerate checkpoint begun", rb"Saving current state to " + _STEP_IN_PATH, begun),
    form("Accelerate checkpoint written", rb"Random states saved in", always(CheckpointFinished())),
    form("Accelerate loading", rb"Loading states from " + _STEP_IN_PATH, loading),
    form("Accelerate loaded", rb"All states loaded successfully", always(CheckpointLoaded())),
    form("Megatron-LM evaluates", rb"Evaluating on [0-9]+ samples", always(PhaseChanged(phase=Phase.EVALUATE))),
    form("Megatron-LM trains", rb"\[before the start of training step\]", always(PhaseChanged(phase=Phase.TRAIN))),
    form("torchrun restarts workers", rb"; will restart worker group", always(PhaseChanged(phase=Phase.START_UP))),
    form(
        "compilation",
        rb"Compiling (?:the model|each |jit\()|Finished XLA compilation|torch\._dynamo.*[Rr]ecompil",
        always(PhaseChanged(phase=Phase.COMPILE)),
    ),
    form("verl iteration", rb"\bstep:<N> - \w+/", iteration),
    form("Detectron2 iteration", rb"\beta: .{1,40}?\biter: <N>\b", iteration),
    form("OLMo iteration", rb"\[step=<N>/<T>,epoch=", iteration_of),
    form("Composer iteration", rb"\[batch=<N>/<T>\]:", iteration),
    form("fairseq iteration", rb"epoch <E>: +<N> / *<T> loss=", iteration_of_epoch),
    form("timm iteration", rb"\bTrain: <E> \[ *<N>/ *<T> ", iteration_of_epoch),
    form("torchvision iteration", rb"\bEpoch: *\[<E>\] *\[ *<N>/ *<T>\]", iteration_of_epoch),
    form("torchvision evaluation step", rb"\b(?:Test|Val\w*|Eval\w*): *\[ *<N>/ *<T>\]", evaluation_step),
    form("bar", rb"^(?P<name>[^|]{0,80}?)\s*(?:[0-9]{1,3}%\|[^|]*\|)?\s*<N>/<T> \[[0-9]+:[0-9]{2}(?::[0-9]{2})?<", bar),
    form("bar without an end", rb"^(?P<name>[^|]{0,80}?)\s*<N>it \[[0-9]+:[0-9]{2}(?P<total>)", bar),
    form(
        "step and loss",
        rb"(?i)\b(?:global_?)?(?:step|iteration|iter)[\"']?[ :=]+<N>\b.*?(?:\b|train_)loss[\"']?\s*[:= ]\s*'?" + NUMBER,
        iteration,
    ),
)


_AUTOMATON_BYTES = 64 << 20
"""Room for the automaton's states: without enough, RE2's set would give up on a line and miss it."""


def _any_form() -> re2.Set:
    options = re2.Options()
    options.max_mem = _AUTOMATON_BYTES
    together = re2.Set.SearchSet(options)
    for known in FORMS:
        together.Add(known.source)
    together.Compile()
    return together


ANY_FORM = _any_form()
"""All patterns in one automaton: most lines fit none, and are told so in a microsecond."""
