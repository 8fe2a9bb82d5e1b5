"""A real Slurm through its REST interface, slurmrestd.

Tried on Slurm 22.05.8, 24.11.5 and 26.05.5. What can be done depends on the version of the interface, and little of it
before v0.0.45 (Slurm 26.05): see `rest_versions`. What a version has not is `NotPermitted`, and `rest_site` says so
before anything is begun; nothing is put together from verbs that almost fit.

As with the commands, a verb that got no answer may still be carried out, so read before acting, and read again after
it. All jobs are read each time: with ``update_time`` slurmctld tells of all jobs or of none, never of what changed,
and goes by a clock that may step back when another controller takes over.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from activities.scheduler.checked import checked_admin_comment, checked_job_id, checked_node_name
from activities.scheduler.protocol import ClusterReading, JobRecord, NodeRecord, NotOffered, NotPermitted
from activities.scheduler.rest_nodes import read_nodes
from activities.scheduler.rest_site import RestSite
from activities.scheduler.rest_versions import (
    FIRST_WITH_REQUEUE,
    FIRST_WITH_UPDATES,
    ApiVersion,
)
from activities.scheduler.rest_words import ALREADY_OVER
from activities.scheduler.site import Answer
from activities.scheduler.slurm_words import job_unknown
from activities.scheduler.squeue_json import read_jobs
from recovery.model import JobId, NodeName

_NO_TIME_BEFORE_NOW = {"set": True, "infinite": False, "number": 1}
"""A begin time that is past by any clock: Slurm takes its own now for it (seen on 24.11 and 26.05)."""


class SlurmRest(RestSite):
    """The `Scheduler` of one cluster, and what its site is and allows, through slurmrestd."""

    async def jobs(self) -> ClusterReading:
        """Read all jobs with one request."""
        answer = await self._api.read_much("/jobs", about="reading all jobs")
        read_at = datetime.now(UTC)
        return ClusterReading(read_at=read_at, jobs=read_jobs(answer, read_at, teller=self._api.server_name))

    async def job(self, job_id: JobId) -> JobRecord:
        """Read one job freshly."""
        answer = await self._read_job(job_id)
        for record in read_jobs(answer, datetime.now(UTC), teller=self._api.server_name):
            if record.job_id == job_id:
                return record
        raise job_unknown(job_id)

    async def nodes(self) -> tuple[NodeRecord, ...]:
        """Read all nodes with one request."""
        return read_nodes(await self._api.read_much("/nodes", about="reading all nodes"), self._api.server_name)

    async def requeue_hold(self, job_id: JobId) -> None:
        """``POST /jobs/requeue`` with the flag Hold, from v0.0.45 on. It does what ``scontrol requeuehold`` does."""
        await self._requeue(job_id, flags=["Hold"])

    async def requeue(self, job_id: JobId) -> None:
        """``POST /jobs/requeue``, from v0.0.45 on."""
        await self._requeue(job_id, flags=[])

    async def constrain(
        self, job_id: JobId, *, exclude: tuple[NodeName, ...] | None = None, admin_comment: str | None = None
    ) -> None:
        """``POST /job/{id}``, in one request. An empty list changes nothing there (seen on 24.11 and 26.05): a list
        with one empty name clears it."""
        changes: dict[str, Any] = {}
        if exclude is not None:
            changes["excluded_nodes"] = [checked_node_name(node) for node in exclude] or [""]
        if admin_comment is not None:
            changes["admin_comment"] = checked_admin_comment(admin_comment)
        if changes:
            await self._update(job_id, changes)

    async def release(self, job_id: JobId) -> None:
        """Lift anybody's hold."""
        await self._update(job_id, {"hold": False})

    async def start_now(self, job_id: JobId, *, admin_comment: str | None = None) -> None:
        """Set a begin time that is past."""
        comment = {} if admin_comment is None else {"admin_comment": checked_admin_comment(admin_comment)}
        await self._update(job_id, {"begin_time": _NO_TIME_BEFORE_NOW, **comment})

    async def allow_requeue(self, job_id: JobId) -> None:
        """Set Requeue=1."""
        await self._update(job_id, {"requeue": True})

    async def cancel(self, job_id: JobId) -> None:
        """``DELETE /job/{id}``. A job that has ended already is no error.

        Only where the account is known to have the right: without slurmdbd, slurmctld 24.11.5 and 26.05.5 refuse such a
        request of an account without it by never answering anybody again (a lock that it waits for holding it, read in
        ``assoc_mgr.c``). slurmrestd of 22.05 sends another one, which is safe.
        """
        path, about = f"/job/{checked_job_id(job_id)}", f"cancelling job {job_id}"
        version = await self._api.version()
        if version.updates and (may := (await self._rights(version)).act).answer is not Answer.YES:
            raise NotPermitted(f"{about}: {may.reason}")
        await self._api.change("DELETE", path, about=about, passing=ALREADY_OVER)

    async def _requeue(self, job_id: JobId, *, flags: list[str]) -> None:
        body = {"jobs": [checked_job_id(job_id)], "flags": flags}
        about = f"requeueing job {job_id}"
        version = await self._api.version()
        if not version.requeues:
            raise self._not_in(version, FIRST_WITH_REQUEUE, about)
        await self._api.change("POST", "/jobs/requeue", body, about=about)

    async def _update(self, job_id: JobId, changes: Mapping[str, Any]) -> None:
        about = f"setting {' and '.join(changes)} of job {checked_job_id(job_id)}"
        version = await self._api.version()
        if not version.updates:
            raise self._not_in(version, FIRST_WITH_UPDATES, about)
        await self._api.change("POST", f"/job/{await self._number_of(job_id)}", changes, about=about)

    def _not_in(self, version: ApiVersion, since: str, about: str) -> NotOffered:
        return NotOffered(
            f"{about}: {self._api.server_name} speaks {version.name}, which can't; {since} and later can, "
            "and so do Slurm's commands (scheduler kind cli or ssh)"
        )

    async def _number_of(self, job_id: JobId) -> str:
        """An update is refused for ``<array>_<task>``, and the array's id stands for all that is not taken apart yet:
        the task's own JobId names it and no other (seen on 24.11 and 26.05)."""
        if "_" not in job_id:
            return job_id
        return (await self.job(job_id)).job_number

    async def _read_job(self, job_id: JobId) -> str:
        """Read the job, or the array that it is a task of: no version reads one task alone."""
        array_or_job = checked_job_id(job_id).partition("_")[0]
        return await self._api.read(f"/job/{array_or_job}", about=f"reading job {job_id}")
