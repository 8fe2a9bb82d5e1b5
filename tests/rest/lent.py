"""A real cluster that is read, and as far as its version goes acted upon, through slurmrestd."""

from __future__ import annotations

from activities.scheduler.protocol import ClusterReading, JobRecord, NodeRecord, Scheduler
from activities.scheduler.rest import SlurmRest
from activities.scheduler.rest_versions import ApiVersion
from recovery.model import JobId, NodeName
from tests.scheduler.test_cli_conformance import RealCluster
from tests.slurm.cluster import SlurmCluster


class RestCluster(RealCluster):
    """The real cluster through slurmrestd; the verbs that its version has not are lent by Slurm's commands."""

    def __init__(self, slurm: SlurmCluster, rest: SlurmRest, version: ApiVersion) -> None:
        super().__init__(slurm)
        self._lent = _Lent(rest, version, self._scheduler)

    @property
    def scheduler(self) -> Scheduler:
        return self._lent


class _Lent:
    def __init__(self, rest: SlurmRest, version: ApiVersion, commands: Scheduler) -> None:
        self._rest = rest
        self._updating: Scheduler = rest if version.updates else commands
        self._requeueing: Scheduler = rest if version.requeues else commands

    async def jobs(self) -> ClusterReading:
        return await self._rest.jobs()

    async def job(self, job_id: JobId) -> JobRecord:
        return await self._rest.job(job_id)

    async def nodes(self) -> tuple[NodeRecord, ...]:
        return await self._rest.nodes()

    async def requeue_hold(self, job_id: JobId) -> None:
        await self._requeueing.requeue_hold(job_id)

    async def requeue(self, job_id: JobId) -> None:
        await self._requeueing.requeue(job_id)

    async def constrain(
        self, job_id: JobId, *, exclude: tuple[NodeName, ...] | None = None, admin_comment: str | None = None
    ) -> None:
        await self._updating.constrain(job_id, exclude=exclude, admin_comment=admin_comment)

    async def release(self, job_id: JobId) -> None:
        await self._updating.release(job_id)

    async def start_now(self, job_id: JobId, *, admin_comment: str | None = None) -> None:
        await self._updating.start_now(job_id, admin_comment=admin_comment)

    async def allow_requeue(self, job_id: JobId) -> None:
        await self._updating.allow_requeue(job_id)

    async def cancel(self, job_id: JobId) -> None:
        await self._rest.cancel(job_id)
