"""The planned jobs as they are submitted: the example training program, with a fault on request."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from activities.scheduler.protocol import Hold, JobRecord, JobState
from activities.scheduler.simulated_wire import JobSpec
from recovery.model import NodeName
from tests.chaos.kinds import COMPLETES, FAULTS, JobKind
from tests.chaos.plan import PlannedJob
from workers.simulator.scenario import TRAIN_PY

ITERATIONS = 90
STEP_S = 0.15
HANG_AFTER_S = 8.0
LONG = 100_000
"""Iterations of a job that ends by a person's word only."""

AIM = """
# The fault sits on the last node of the first allocation, for good.
culprit=culprit-$SLURM_JOB_ID
if [ ! -f "$culprit" ]; then
    ${HOSTNAMES:-printf %s,} "$SLURM_JOB_NODELIST" | tr , '\\n' | tail -n 1 > "$culprit.$$"
    mv "$culprit.$$" "$culprit"
fi
FAULT_NODE=$(cat "$culprit")
"""
"""Shell code. HOSTNAMES is what expands Slurm's node list; the simulated cluster's needs nothing."""
_TRAIN = f"""{AIM}
exec "$@" --fault-node "$FAULT_NODE"
"""


def spec_of(job: PlannedJob, directory: Path, user_excluded: tuple[NodeName, ...]) -> JobSpec:
    """Return `job` as the simulated cluster takes it; its log and its checkpoints go to `directory`."""
    fault = FAULTS.get(job.kind, "none")
    train = (
        *(sys.executable, str(TRAIN_PY), "--iterations", str(iterations(job)), "--step-s", str(STEP_S)),
        *("--checkpoint-dir", str(directory / f"ckpt-{job.name}"), "--checkpoint-every", "10"),
        *("--fault", fault, "--fault-iteration", str(fault_iteration(job))),
    )
    return JobSpec(
        name=job.name,
        nodes=job.nodes,
        comment=comment(job),
        exclude=user_excluded,
        requeueable=job.kind is not JobKind.NO_REQUEUE,
        working_directory=str(directory),
        output="%x-%j.log",
        label=True,
        argv=("sh", "-c", _TRAIN, "train", *train),
    )


def comment(job: PlannedJob) -> str:
    """Return what the job says of relight."""
    if not job.kind.opted_in:
        return "my best run so far"
    opt_in: dict[str, object] = {"mode": "act" if job.kind.may_be_touched else "observe"}
    if job.kind is JobKind.HANG:
        opt_in["hang_after_s"] = HANG_AFTER_S
    return json.dumps({"relight": opt_in})


def iterations(job: PlannedJob) -> int:
    """Return how long the job trains."""
    return LONG if job.kind is JobKind.CANCELLED else ITERATIONS


def fault_iteration(job: PlannedJob) -> int:
    """Return when the job fails: one that a person holds, well after the hold."""
    return job.fault_iteration + 45 if job.kind is JobKind.HELD else job.fault_iteration


def has_settled(kind: JobKind, record: JobRecord) -> bool:
    """Whether the job is where it has to come to in the end."""
    if record.flags:
        return False
    if kind in COMPLETES:
        return record.state is JobState.COMPLETED
    held_by_a_person = kind in (JobKind.HELD, JobKind.HELD_TWICE) and record.hold in (Hold.USER, Hold.ADMIN)
    return record.state.ended or held_by_a_person
