"""A real Slurm through its C library, with pyslurm, on a host of the cluster.

pyslurm has the release of the Slurm that it is built for in its own version, and speaks to no other: that is looked at
before the first question. It runs in a process of its own for each call, see `slurm_library_program`. What pyslurm
25.11 cannot do, and Slurm's commands can (seen with pyslurm 25.11.2 on Slurm 25.11.8, and in their sources):

* Empty an exclusion list or an admin comment: an update takes no empty value. `Refused`.
* Cancel the task of an array that has the array's own number (the last one to start): all would end. `Refused`.
* Tell an administrator's hold put upon ours from ours alone: it says one reason only, and that is ours. The hold is
  lifted with ours.
* Tell exit codes from 128 on: they come less 128.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from activities.scheduler.checked import checked_admin_comment, checked_job_id, checked_node_name
from activities.scheduler.command import Runner
from activities.scheduler.protocol import (
    ClusterReading,
    JobRecord,
    NodeRecord,
    Refused,
    SchedulerError,
    SchedulerUnavailable,
)
from activities.scheduler.rest_nodes import read_nodes
from activities.scheduler.site import Capabilities, SiteFacts
from activities.scheduler.slurm_library_program import CANNOT_IMPORT
from activities.scheduler.slurm_library_site import capabilities_of, read_site
from activities.scheduler.slurm_words import error_from, job_unknown, last_line
from activities.scheduler.squeue_json import read_jobs
from recovery.model import JobId, NodeName

_PROGRAM = Path(__file__).with_name("slurm_library_program.py")
_TELLER = "pyslurm"
_OTHER_WAYS = "or reach the cluster with scheduler kind cli, ssh or rest"


class _Releases(BaseModel):
    pyslurm: str
    controller: str


class _Script(BaseModel):
    script: str


class SlurmLibrary:
    """The `Scheduler` of one cluster, and what its site is and allows, through pyslurm."""

    def __init__(self, runner: Runner, *, python: str = "", account: str = "") -> None:
        """`runner`: this host; `python`: the Python that has pyslurm, empty for the one that runs relight; `account`:
        the user name that it runs under, empty: not known."""
        self._runner = runner
        self._account = account
        self._python = python or sys.executable
        self._releases_match = False

    async def facts(self) -> SiteFacts:
        """``slurmctld.Config.load()``, and ``slurmctld.ping_all()`` for the controllers."""
        return read_site(await self._ask("site", about="reading the configuration"))

    async def capabilities(self) -> Capabilities:
        """Find out from the configuration and the account what can be done."""
        try:
            return capabilities_of(self._account, await self.facts())
        except SchedulerError as error:
            return Capabilities.all_unknown(str(error))

    async def batch_script(self, job_id: JobId) -> str:
        """``Job.get_batch_script()``: from the controller, for as long as that knows the job."""
        about = f"reading the batch script of job {job_id}"
        answer = await self._ask("script", about=about, job=int(await self._number_of(job_id)))
        try:
            return _Script.model_validate_json(answer).script
        except ValidationError as error:
            raise SchedulerUnavailable(f"{about}: pyslurm's answer cannot be read") from error

    async def jobs(self) -> ClusterReading:
        """``Jobs.load()``: all jobs in one request."""
        answer = await self._ask("jobs", about="reading all jobs")
        read_at = datetime.now(UTC)
        return ClusterReading(read_at=read_at, jobs=read_jobs(answer, read_at, teller=_TELLER))

    async def job(self, job_id: JobId) -> JobRecord:
        """``Job.load()``, which knows jobs by their number only: a task of an array is looked up among all jobs."""
        answer = await self._read(job_id)
        for record in read_jobs(answer, datetime.now(UTC), teller=_TELLER):
            if record.job_id == job_id:
                return record
        raise job_unknown(job_id)

    async def nodes(self) -> tuple[NodeRecord, ...]:
        """``Nodes.load()``: all nodes with their partitions."""
        return read_nodes(await self._ask("nodes", about="reading all nodes"), _TELLER)

    async def requeue_hold(self, job_id: JobId) -> None:
        """``Job.requeue(hold=True)``. It does what ``scontrol requeuehold`` does, to one task of an array as well."""
        await self._act("requeue", job_id, about=f"requeueing job {job_id}", hold=True)

    async def requeue(self, job_id: JobId) -> None:
        """``Job.requeue()``."""
        await self._act("requeue", job_id, about=f"requeueing job {job_id}", hold=False)

    async def constrain(
        self, job_id: JobId, *, exclude: tuple[NodeName, ...] | None = None, admin_comment: str | None = None
    ) -> None:
        """``Job.modify()``, in one request. What is to become empty and is not yet is `Refused`."""
        changes: dict[str, Any] = {}
        if exclude is not None:
            changes["excluded_nodes"] = [checked_node_name(node) for node in exclude]
        if admin_comment is not None:
            changes["admin_comment"] = checked_admin_comment(admin_comment)
        if not all(changes.values()):
            _refuse_to_empty(changes, await self.job(job_id))
        if changes:
            await self._modify(job_id, **changes)

    async def release(self, job_id: JobId) -> None:
        """``Job.release()``. It lifts anybody's hold."""
        await self._act("release", job_id, about=f"releasing job {job_id}")

    async def start_now(self, job_id: JobId, *, admin_comment: str | None = None) -> None:
        """Set the begin time to now, as ``scontrol`` does with StartTime."""
        comment = {} if admin_comment is None else {"admin_comment": checked_admin_comment(admin_comment)}
        await self._modify(job_id, begin_time="now", **comment)

    async def allow_requeue(self, job_id: JobId) -> None:
        """Set Requeue=1."""
        await self._modify(job_id, is_requeueable=True)

    async def cancel(self, job_id: JobId) -> None:
        """``Job.cancel()``. A job that has ended already is no error."""
        number = await self._number_of(job_id)
        if number == job_id.partition("_")[0] != job_id:
            raise Refused(
                f"job {job_id} has the number of its array, and pyslurm would cancel all tasks with it: "
                f"cancel it with scancel, {_OTHER_WAYS}"
            )
        await self._ask("cancel", about=f"cancelling job {job_id}", job=int(number))

    async def _modify(self, job_id: JobId, **changes: object) -> None:
        await self._act("modify", job_id, about=f"setting {' and '.join(changes)} of job {job_id}", changes=changes)

    async def _act(self, verb: str, job_id: JobId, *, about: str, **details: object) -> None:
        await self._ask(verb, about=about, job=int(await self._number_of(job_id)), **details)

    async def _number_of(self, job_id: JobId) -> str:
        """A task's own number names it alone for a requeue and an update (read in 25.11's ``job_mgr.c``)."""
        if "_" not in checked_job_id(job_id):
            return job_id
        return (await self.job(job_id)).job_number

    async def _read(self, job_id: JobId) -> str:
        about = f"reading job {job_id}"
        if "_" in checked_job_id(job_id):
            return await self._ask("jobs", about=about)
        return await self._ask("job", about=about, job=int(job_id))

    async def _ask(self, verb: str, *, about: str, **details: object) -> str:
        if not self._releases_match:
            await self._match_releases()
        return await self._answer_of(verb, about=about, **details)

    async def _match_releases(self) -> None:
        about = "asking for the release of Slurm, which must be pyslurm's"
        answer = await self._answer_of("releases", about=about)
        try:
            releases = _Releases.model_validate_json(answer)
        except ValidationError as error:
            raise SchedulerUnavailable(f"{about}: pyslurm's answer cannot be read") from error
        wanted = _release(releases.controller)
        if _release(releases.pyslurm) != wanted:
            raise SchedulerUnavailable(
                f"pyslurm {releases.pyslurm} does not fit the site's Slurm {releases.controller}: "
                f"install pyslurm {wanted}.*, {_OTHER_WAYS}"
            )
        self._releases_match = True

    async def _answer_of(self, verb: str, *, about: str, **details: object) -> str:
        question = json.dumps({"verb": verb, **details})
        try:
            finished = await self._runner.run(self._python, "-P", str(_PROGRAM), stdin=question)
        except SchedulerUnavailable as error:
            raise SchedulerUnavailable(f"{about} through pyslurm: {error}") from error
        if finished.exit_code == CANNOT_IMPORT:
            raise SchedulerUnavailable(
                f"{self._python} cannot import pyslurm ({last_line(finished.stderr)}): install relight[pyslurm] for "
                f"it, built against the site's Slurm, {_OTHER_WAYS}"
            )
        if finished.exit_code:
            raise error_from(finished.stderr, about=about)
        return finished.stdout


def _refuse_to_empty(changes: dict[str, Any], job: JobRecord) -> None:
    """Leave out what is to become empty and is so already; `Refused` for the rest."""
    for field in [field for field, value in changes.items() if not value]:
        if getattr(job, field):
            raise Refused(
                f"{field} of job {job.job_id} cannot be emptied: pyslurm takes no empty value; "
                f"do it with scontrol update, {_OTHER_WAYS}"
            )
        del changes[field]


def _release(version: str) -> str:
    """Return year and month of a version."""
    return ".".join(version.split(".")[:2])
