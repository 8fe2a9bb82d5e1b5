from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recovery.detection.forms import ANY_FORM, FORMS
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
from recovery.detection.progress import ProgressPattern, read_marker

MEGATRON = (
    " [2026-11-29 11:15:47.123456] iteration      500/   50000 | consumed samples:       256000 | "
    "elapsed time per iteration (ms): 4979.0 | throughput per GPU (TFLOP/s/GPU): 287.7 | learning rate: 1.500000E-04 | "
    "global batch size:   512 | lm loss: 2.408442E+00 | "
    "loss scale: 1.0 | grad norm: 0.266 | number of skipped iterations:   0 |"
)
TITAN = "2025-05-12 00:00:10,000 - root - INFO - "
BAR = "10%|█         | 180/1752 [08:29<1:14:08,  2.83s/it]"

FORMS_SEEN: list[tuple[str, Marker | None]] = [
    (
        MEGATRON,
        IterationFinished(
            n=500,
            total=50_000,
            loss=2.408442,
            step_time_s=4.979,
            throughput=287.7,
            throughput_unit="TFLOP/s",
            batch=512,
        ),
    ),
    ("saving checkpoint at iteration     500 to /ckpt/run in torch_dist format", CheckpointBegun(iteration=500)),
    ("  scheduled an async checkpoint save at iteration     500 to /ckpt/run", CheckpointBegun(iteration=500)),
    (
        "  successfully saved checkpoint from iteration     500 to /c [ t 1/8, p 1/2 ]",
        CheckpointFinished(iteration=500),
    ),
    (" loading checkpoint from /ckpt/run at iteration 500", CheckpointLoading(iteration=500)),
    (" loading distributed checkpoint from /ckpt/run at iteration 500", CheckpointLoading(iteration=500)),
    ("  successfully loaded checkpoint from /c [ t 0/1, p 0/1 ] at iteration 500", CheckpointLoaded(iteration=500)),
    (
        " validation loss at iteration 270 | lm loss value: 2.251033E+00 | lm loss PPL: 9",
        EvaluationFinished(iteration=270),
    ),
    (" validation loss at the end of training for val data | lm loss value: 5.7", EvaluationFinished()),
    ("Evaluating on 51200 samples", PhaseChanged(phase=Phase.EVALUATE)),
    ("Evaluating iter 1/10", PhaseChanged(phase=Phase.EVALUATE)),
    ("Evaluating iter 7/10", EvaluationStep(n=6, total=10)),
    ("[before the start of training step] datetime: 2026-01-06 14:21:39 ", PhaseChanged(phase=Phase.TRAIN)),
    ("[default0]:[after training is done] datetime: 2026-01-06 14:21:39 ", TrainingCompleted()),
    ("[exiting program at iteration 44101] datetime: 2025-06-14 01:09:37.112901 ", None),
    (
        "Training epoch 0, iteration 4100/9999 | lr: 0.00024 | global_batch_size: 512 | global_step: 4100 |"
        " reduced_train_loss: 2.310 | train_step_timing in s: 6.189 | consumed_samples: 2099712",
        IterationFinished(n=4100, loss=2.31, step_time_s=6.189, batch=512),
    ),
    ("[NeMo I] Scheduled async checkpoint save for /ckpt/m--step=24.ckpt", CheckpointBegun(iteration=24)),
    ("[NeMo I] Scheduled async checkpoint save for /ckpt/last.ckpt", CheckpointBegun()),
    ("[NeMo I] Async checkpoint save for step 25 (/c.ckpt) finalized successfully.", CheckpointFinished(iteration=25)),
    ("Validation: iteration 5/20", EvaluationStep(n=5, total=20)),
    ("Restoring states from the checkpoint path at /c/epoch=1-step=1250.ckpt", CheckpointLoading(iteration=1250)),
    ("Restored all states from the checkpoint file at checkpoints/last.ckpt", CheckpointLoaded()),
    ("Restored all states from the checkpoint at /c/epoch=1-step=1250.ckpt", CheckpointLoaded(iteration=1250)),
    ("`Trainer.fit` stopped: `max_steps=100` reached.", TrainingCompleted()),
    (
        "Epoch 3:  12%|█▏  | 12/100 [00:05<00:40,  2.00it/s, v_num=0, loss=10.30]",
        IterationFinished(n=312, loss=10.3, step_time_s=0.5),
    ),
    (
        "Epoch 0: : 32%|█▏  | 32/100 [00:05<00:40, train_loss=3.1, global_step=132.0, train_step_timing in s=2.5]",
        IterationFinished(n=132, loss=3.1, step_time_s=2.5),
    ),
    ("Validation DataLoader 0:  12%|█▏  | 12/100 [00:05<00:40,  2.20it/s]", EvaluationStep(n=12, total=100)),
    ("Sanity Checking DataLoader 0: 100%|██| 2/2 [00:01<00:00,  1.20it/s]", EvaluationStep(n=2, total=2)),
    (
        "[rank0]:[titan] " + TITAN + "step: 90  loss:  4.10000  grad_norm:  1.2572  memory: 45.12GiB(57.01%)"
        "  tps: 5,123  mfu: 25.28%",
        IterationFinished(n=90, loss=4.1, throughput=5123, throughput_unit="tokens/s"),
    ),
    ("[titan] " + TITAN + "validate step: 90  loss:  4.10000  memory: 45.12GiB", EvaluationFinished(iteration=90)),
    ("[titan] " + TITAN + "Saving the checkpoint (or staging if async is enabled).", CheckpointBegun()),
    ("[titan] " + TITAN + "Saving a full checkpoint at last step, step 1000.", CheckpointBegun(iteration=1000)),
    ("[titan] " + TITAN + "Finished saving the checkpoint (or staging) in 3.20 seconds.", CheckpointFinished()),
    ("[titan] " + TITAN + "Loading the checkpoint from /ckpt/run/step-90.", CheckpointLoading(iteration=90)),
    ("[titan] " + TITAN + "Loading the checkpoint at step 90.", CheckpointLoading(iteration=90)),
    ("[titan] " + TITAN + "Finished loading the checkpoint in 12.01 seconds.", CheckpointLoaded()),
    ("[titan] " + TITAN + "Training completed", TrainingCompleted()),
    (
        "[2024-01-15 00:00:25,000] [INFO] [timer.py:260:stop] epoch=0/micro_step=800/global_step=400, "
        "RunningAvgSamplesPerSec=45.21, CurrSamplesPerSec=44.5, MemAllocated=22.37GB, MaxMemAllocated=61.84GB",
        IterationFinished(n=400, throughput=44.5, throughput_unit="samples/s"),
    ),
    (
        "[logging.py:96:log_dist] [Rank 0] step=400, skipped=0, lr=[9.65e-06], mom=[(0.9, 0.95)]",
        IterationFinished(n=400),
    ),
    ("[Rank 0] [Torch] Checkpoint global_step10 is about to be saved!", CheckpointBegun(iteration=10)),
    ("[Torch] Checkpoint global_step10 is ready now!", CheckpointFinished(iteration=10)),
    ("[Torch] Loading checkpoint from /c/global_step10/mp_rank_00_model_states.pt...", CheckpointLoading(iteration=10)),
    ("[Torch] Loaded checkpoint from /c/global_step10/mp_rank_00_model_states.pt.", CheckpointLoaded(iteration=10)),
    (
        "completed step: 17, seconds: 3.212, TFLOP/s/device: 200.1, Tokens/s/device: 3333.3, loss: 8.123",
        IterationFinished(n=17, loss=8.123, step_time_s=3.212, throughput=200.1, throughput_unit="TFLOP/s"),
    ),
    ("Started an asynchronous checkpoint save for step 50", CheckpointBegun(iteration=50)),
    ("Saved a checkpoint at step 50.", CheckpointFinished(iteration=50)),
    (
        "Finished async_save (blocking + background). Time taken: 124.1s. directory=gs://b/c/checkpoints/50",
        CheckpointFinished(iteration=50),
    ),
    ("restoring from this run's directory step 50", CheckpointLoading(iteration=50)),
    (
        "{'loss': 1.4, 'grad_norm': 1.257401, 'learning_rate': 7.4e-06, 'epoch': 0.07}",
        IterationFinished(n=None, loss=1.4),
    ),
    (
        "{'loss': '1.4', 'grad_norm': '1.2', 'learning_rate': '7e-06', 'epoch': '0.07'}",
        IterationFinished(n=None, loss=1.4),
    ),
    ("{'eval_loss': 1.4, 'eval_runtime': 3.2, 'epoch': 0.07}", EvaluationFinished()),
    ("{'train_runtime': 1234.5, 'train_loss': 1.2, 'epoch': 3.0}", TrainingCompleted()),
    ("***** Running training *****", PhaseChanged(phase=Phase.TRAIN)),
    ("***** Running Evaluation *****", PhaseChanged(phase=Phase.EVALUATE)),
    ("Saving model checkpoint to /out/checkpoint-500", CheckpointBegun(iteration=500, blocks_training=True)),
    ("Loading model from /out/checkpoint-500.", CheckpointLoading(iteration=500)),
    ("  Continuing training from global step 500", CheckpointLoaded(iteration=500)),
    ("  " + BAR, IterationFinished(n=180, total=1752, step_time_s=2.83, from_bar=True)),
    ("[rank0]:  " + BAR, IterationFinished(n=180, total=1752, step_time_s=2.83, from_bar=True)),
    ("node03:  " + BAR, IterationFinished(n=180, total=1752, step_time_s=2.83, from_bar=True)),
    ("Steps:  " + BAR, IterationFinished(n=180, step_time_s=2.83)),
    ("  0%|          | 0/1752 [00:00<1:22:38,  2.83s/it]", None),
    ("Map (num_proc=8):  12%|█▏  | 12/100 [00:05<00:40,  2.20 examples/s]", None),
    ("Tokenizing train dataset:  12%|█▏  | 12/100 [00:05<00:40,  2.20 examples/s]", None),
    ("Generating test split:  12%|█▏  | 12/100 [00:05<00:40,  2.20 examples/s]", None),
    ("Train:  12%|█▏  | 12/100 [00:05<00:40,  2.00it/s]", IterationFinished(n=12, step_time_s=0.5)),
    ("Training on dataset a:  12%|█▏  | 12/100 [00:05<00:40,  2.00it/s]", IterationFinished(n=12, step_time_s=0.5)),
    ("Loading checkpoint shards:  50%|█▏  | 1/2 [00:05<00:05,  5.20s/it]", None),
    ("Downloading shards:  50%|█▏  | 1/2 [00:05<00:05,  5.20s/it]", None),
    ("Saving current state to /out/step_200", CheckpointBegun(iteration=200)),
    ("Random states saved in /out/step_200/random_states_0.pkl", CheckpointFinished()),
    ("Loading states from /out/step_200", CheckpointLoading(iteration=200)),
    ("All states loaded successfully", CheckpointLoaded()),
    ('[AtorchTrainerV2] [#step] [END] {"global_step": 177019, "epoch": 0.74}', IterationFinished(n=177019)),
    ('[AtorchTrainerV2] [#step] [BEGIN] {"global_step": 177018, "epoch": 0.74}', None),
    ('[AtorchTrainerV2] [#save] [BEGIN] {"global_step": 177215}', CheckpointBegun(iteration=177215)),
    ('[AtorchTrainerV2] [#save] [END] {"global_step": 177215}', CheckpointFinished(iteration=177215)),
    ("step 3200 | loss 2.1000 | lr 1.2e-04 | host_rss_gb 880", IterationFinished(n=3200, loss=2.1)),
    ('{"step": 0, "loss": 2.300}', IterationFinished(n=0, loss=2.3)),
    ("iter 500: loss 1.2, time 250.11ms", IterationFinished(n=500, loss=1.2)),
    ("(TaskRunner pid=2211) step:12 - global_seqlen/min:2048 - actor/grad_norm:0.2", IterationFinished(n=12)),
    ("[11/01 10:01 d2.utils.events]:  eta: 1 day, 3:12:11  iter: 20  total_loss: 3.1", IterationFinished(n=20)),
    ("[olmo.train] [step=120/5000,epoch=0]  train/CrossEntropyLoss=2.1", IterationFinished(n=120, total=5000)),
    ("[epoch=1][batch=5/3200]:", IterationFinished(n=5)),
    ("| epoch 002:    100 / 5000 loss=12.1, ppl=4400, num_updates=5100", IterationFinished(n=10_100, loss=12.1)),
    ("Train: 3 [  50/1251 (  4%)]  Loss: 6.8 (6.9)  Time: 0.512s", IterationFinished(n=3_803)),
    ("Epoch: [3]  [10/1250]  eta: 0:31:11  lr: 0.0001  loss: 3.91 (4.01)", IterationFinished(n=3_760, loss=3.91)),
    ("Epoch: [3][  10/1250]\tTime  0.5 ( 0.5)", IterationFinished(n=3_760)),
    ("Test:  [10/50]  eta: 0:00:11  loss: 0.91 (0.91)", EvaluationStep(n=10, total=50)),
    ("[default] Worker group FAILED. 3/3 attempts left; will restart worker group", PhaseChanged(phase=Phase.START_UP)),
    ("Compiling the model with torch.compile", PhaseChanged(phase=Phase.COMPILE)),
    ("Unexpected result 18422.3 on rank 29 at iteration #44101 invocation #3 (message='spiky loss')", None),
    ("[rank51]:     loss = step(batch)", None),
    ("slurmstepd: error: *** STEP 764917.0 ON node01 CANCELLED AT 2025-04-02T00:18:26 ***", None),
    ("heartbeat: still alive, all GPUs at 100 %", None),
    ("", None),
]


@pytest.mark.parametrize(("line", "marker"), FORMS_SEEN, ids=[line[:60] for line, _ in FORMS_SEEN])
def test_a_line_is_read_as_what_it_says(line: str, marker: Marker | None) -> None:
    assert read_marker(line) == marker


@pytest.mark.parametrize(
    "prefix", ["[rank12]: ", "12: ", "node03: ", "[default7]:", "gpu-c-011: 3: ", "(main, pid=4112) "]
)
def test_prefixes_change_nothing(prefix: str) -> None:
    for line, marker in FORMS_SEEN:
        assert read_marker(prefix + line) == marker


def test_every_form_of_the_table_is_covered_by_an_example() -> None:
    read = {FORMS[min(hits)].name for line, _ in FORMS_SEEN if (hits := ANY_FORM.Match(line.encode()))}
    assert {form.name for form in FORMS} - read <= {"bar without an end", "Lightning checkpoint"}


def test_a_loss_that_is_no_number_is_read_as_such() -> None:
    marker = read_marker("{'loss': nan, 'grad_norm': nan, 'learning_rate': 7.4e-06, 'epoch': 0.21}")
    assert isinstance(marker, IterationFinished)
    assert marker.loss is not None
    assert math.isnan(marker.loss)


def test_a_loss_that_megatron_leaves_out_is_unknown() -> None:
    marker = read_marker(MEGATRON.replace("lm loss: 2.408442E+00 | ", ""))
    assert isinstance(marker, IterationFinished)
    assert (marker.n, marker.loss) == (500, None)


def test_the_jobs_own_pattern_goes_first() -> None:
    own = ProgressPattern(r"tick (?P<iteration>\d+)(?: loss (?P<loss>[\d.]+))?")
    assert read_marker("tick 7 loss 0.5", own) == IterationFinished(n=7, loss=0.5)
    assert read_marker("tick 7", own) == IterationFinished(n=7)
    assert read_marker(MEGATRON, own) == read_marker(MEGATRON)


@pytest.mark.parametrize(
    "pattern", ["(", "step", "(?P<step>x)", "(?P<iteration>" + "x" * 400 + ")", "(?P<iteration>(x{1000}){1000})"]
)
def test_a_pattern_that_cannot_be_used_says_why(pattern: str) -> None:
    with pytest.raises(ValueError, match="the progress pattern"):
        ProgressPattern(pattern)


@given(st.text())
def test_no_text_is_too_strange_to_read(text: str) -> None:
    read_marker(text)
    read_marker(text, ProgressPattern("(?P<iteration>.*)"))


@given(st.lists(st.sampled_from([*(line for line, _ in FORMS_SEEN), " | ", "loss", "step 1", "1/2 ["]), max_size=4))
def test_the_one_automaton_finds_what_the_single_patterns_find(parts: list[str]) -> None:
    text = "".join(parts).encode()[:4_096]
    single = [index for index, form in enumerate(FORMS) if form.pattern.search(text) is not None]
    assert sorted(ANY_FORM.Match(text) or []) == single
