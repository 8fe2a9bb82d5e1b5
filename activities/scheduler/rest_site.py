"""What a site is and allows, as far as slurmrestd tells: its configuration, and what can be done through it.

What the version of its interface has not is a plain no, with the way out; what depends on the account's rights, which
only slurmdbd's part of the interface tells, may stay unknown.
"""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

from pydantic import ValidationError

from activities.scheduler.checked import checked_job_id
from activities.scheduler.protocol import JobUnknown, NotOffered, SchedulerError, SchedulerUnavailable
from activities.scheduler.rest_accounts import read_attempts, read_script
from activities.scheduler.rest_api import RestApi
from activities.scheduler.rest_conf import read_facts
from activities.scheduler.rest_versions import FIRST_WITH_REQUEUE, FIRST_WITH_UPDATES, ApiVersion
from activities.scheduler.rights import Rights, rights_by_level, rights_without_levels, same_for_both
from activities.scheduler.site import AccountedAttempt, Capabilities, Capability, SiteFacts
from activities.scheduler.slurm_json import Part, Words, first_fault
from recovery.model import JobId

_OTHER_WAY = "use scheduler kind cli or ssh"
_NO_PLUGIN = "slurmrestd is started without its slurmdbd plugin"


class _User(Part):
    administrator_level: Words = ()


class _Users(Part):
    users: tuple[_User, ...]


class RestSite:
    """Implements `SiteReader` and `AccountsReader` of `activities.scheduler.site` with one slurmrestd."""

    def __init__(self, api: RestApi) -> None:
        self._api = api

    async def facts(self) -> SiteFacts:
        """Read the configuration and ask the controllers for a sign of life."""
        version = await self._api.version()
        ping = await self._api.read("/ping", about="asking for a sign of life")
        conf = await self._api.read("/conf", about="reading the configuration") if version.configures else ""
        return read_facts(ping, conf, datetime.now(UTC), self._api.server_name)

    async def capabilities(self) -> Capabilities:
        """Find out from the version of the interface, and from the account's AdminLevel, what can be done."""
        try:
            version = await self._api.version()
            rights = await self._rights(version)
        except SchedulerError as error:
            return Capabilities.all_unknown(str(error))
        requeueing = rights.act if version.requeues else _not_in(version, "requeue a job", FIRST_WITH_REQUEUE)
        excluding = rights.act if version.updates else _not_in(version, "exclude nodes", FIRST_WITH_UPDATES)
        marking = rights.admin_comment if version.updates else _not_in(version, "set AdminComment", FIRST_WITH_UPDATES)
        return Capabilities(
            requeue=requeueing,
            hold=requeueing,
            exclude=excluding,
            admin_comment=marking,
            batch_script=await self._scripts(version),
            submit_for_others=Capability.no(f"nothing is submitted through slurmrestd: {_OTHER_WAY}"),
            accounting=await self._accounts(version),
        )

    async def accounting(self, job_id: JobId) -> tuple[AccountedAttempt, ...]:
        """Read all attempts of a job with one request; an array's task among all of its array."""
        about = f"reading the accounts of job {checked_job_id(job_id)}"
        if not (await self._api.version()).accounts:
            raise SchedulerUnavailable(f"{about}: {_NO_PLUGIN}")
        answer = await self._api.read_accounts(f"/job/{job_id.partition('_')[0]}", about=about)
        return read_attempts(answer, job_id, teller=self._api.server_name)

    async def batch_script(self, job_id: JobId) -> str:
        """Return the script from accounting: the controller's is not given out by slurmrestd."""
        about = f"reading the batch script of job {checked_job_id(job_id)}"
        version = await self._api.version()
        if not version.scripts:
            raise NotOffered(f"{about}: {(await self._scripts(version)).reason}")
        query = {"step": job_id.partition("_")[0], "show_duplicates": "true", "show_batch_script": "true"}
        answer = await self._api.read_accounts("/jobs/", about=about, query=query)
        if script := read_script(answer, job_id, teller=self._api.server_name):
            return script
        raise JobUnknown(f"{about}: accounting has none; AccountingStoreFlags=job_script keeps it")

    async def _accounts(self, version: ApiVersion) -> Capability:
        if not version.accounts:
            return Capability.no(f"{_NO_PLUGIN}: have its option -s name that one, too")
        try:
            await self._api.read_accounts("/clusters/", about="asking slurmdbd for a sign of life")
        except SchedulerError as error:
            return Capability.unknown(f"slurmdbd does not answer: {error}")
        return Capability.yes()

    async def _scripts(self, version: ApiVersion) -> Capability:
        if not version.accounts:
            return Capability.unknown(_NO_PLUGIN)
        if not version.scripts:
            return Capability.no(f"slurmrestd's {version.name} gives no batch script out: {_OTHER_WAY}")
        return await self._accounts(version)

    async def _rights(self, version: ApiVersion) -> Rights:
        account = await self._api.account()
        settled = rights_without_levels(account, await self.facts())
        if settled is not None:
            return settled
        if not version.accounts:
            return same_for_both(Capability.unknown(f"{_NO_PLUGIN}, which knows AdminLevel"))
        return rights_by_level(account, await self._levels(account))

    async def _levels(self, account: str) -> frozenset[str]:
        about = f"reading the AdminLevel of {account}"
        answer = await self._api.read_accounts(f"/user/{quote(account, safe='')}", about=about)
        try:
            users = _Users.model_validate_json(answer).users
        except ValidationError as error:
            raise SchedulerUnavailable(f"{about} through {self._api.server_name}: {first_fault(error)}") from error
        return frozenset(level for user in users for level in user.administrator_level)


def _not_in(version: ApiVersion, what: str, since: str) -> Capability:
    return Capability.no(f"slurmrestd's {version.name} can't {what}, {since} and later can: {_OTHER_WAY}")
