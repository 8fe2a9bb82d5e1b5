"""The stacks of a job's Python processes, by py-spy, in a job step beside those that run.

The step takes nothing from the others (``--overlap``, no memory, no GPUs), reads the processes without stopping them
(``--nonblocking``), and everything about it is bounded: nodes, processes' output, time. Nothing in it comes from the
job but its id, and its owner's name where the operator wants the step to run as the owner.

Seen on Slurm 22.05.8: Slurm refuses a step to everybody but the job's owner, root included; ``--jobid`` takes the raw
id of an array task, not ``<array>_<task>``; a step that fails or is cut off does nothing to the job. py-spy 0.4.3.
"""

from __future__ import annotations

import re
from typing import Protocol, runtime_checkable

from activities.evidence_settings import EvidenceSettings
from activities.scheduler.command import Runner
from activities.scheduler.protocol import JobRecord, Refused, SchedulerUnavailable
from recovery.model import NodeName

MAX_NODES = 16
TIMEOUT_S = 15
"""For the whole step, below the time limit of a runner's command: what was said until then is kept."""
_PROCESS_TIMEOUT_S = 5
_PROCESS_BYTES = 8_192
_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.@-]{0,63}")

_ON_EACH_NODE = f"""
command -v "$1" >/dev/null || {{ echo "$1 is not there on $SLURMD_NODENAME"; exit 0; }}
scontrol listpids "$SLURM_JOB_ID" "$SLURMD_NODENAME" | while read -r pid job step rest; do
  case $pid in ''|*[!0-9]*) continue ;; esac
  [ "$step" = "$SLURM_STEP_ID" ] && continue
  case $(readlink "/proc/$pid/exe") in *python*) ;; *) continue ;; esac
  echo "$SLURMD_NODENAME, step $step"
  timeout -k 1 {_PROCESS_TIMEOUT_S} "$1" dump --nonblocking --pid "$pid" 2>&1 | head -c {_PROCESS_BYTES}
done
"""


@runtime_checkable
class ShowsStacks(Protocol):
    """A transport that can run a step inside a job."""

    async def stacks(self, job: JobRecord, nodes: tuple[NodeName, ...], settings: EvidenceSettings) -> str:
        """Return what py-spy says of the job's Python processes on `nodes`, or why it says nothing.

        Raises `SchedulerUnavailable` when nothing at all came back, `Refused` when the scheduler wants no such step.
        """
        ...


async def dump_stacks(runner: Runner, job: JobRecord, nodes: tuple[NodeName, ...], settings: EvidenceSettings) -> str:
    """Do it with commands that `runner` runs; see `ShowsStacks.stacks`."""
    nodes = nodes[:MAX_NODES]
    step = (
        *("srun", f"--jobid={await _raw_id(runner, job)}", "--overlap", "--mem=0", "--gres=none", "--input=none"),
        *(f"--nodelist={','.join(nodes)}", f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", "--ntasks-per-node=1"),
        *("--label", "sh", "-c", _ON_EACH_NODE, "stacks", settings.py_spy),
    )
    finished = await runner.run(*_as_owner(job.user, settings), "timeout", "-k", "1", str(TIMEOUT_S), *step)
    if not finished.stdout:
        raise Refused(f"no stacks of job {job.job_id}: {finished.stderr.strip()[:300] or 'srun said nothing'}")
    return finished.stdout


def _as_owner(user: str, settings: EvidenceSettings) -> tuple[str, ...]:
    if settings.as_owner and not _USER.fullmatch(user):
        raise Refused(f"{user[:80]!r} is no user name to run srun as")
    return tuple(word.replace("{user}", user) for word in settings.as_owner)


async def _raw_id(runner: Runner, job: JobRecord) -> str:
    if "_" not in job.job_id:
        return job.job_id
    finished = await runner.run("squeue", "--noheader", f"--jobs={job.job_id}", "--format=%A")
    raw = finished.stdout.strip()
    if not re.fullmatch(r"[0-9]{1,12}", raw):
        raise SchedulerUnavailable(f"squeue does not tell the raw id of job {job.job_id}: {finished.stderr[:200]}")
    return raw
