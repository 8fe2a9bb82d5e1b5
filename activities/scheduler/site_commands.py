"""What a site is and allows, through Slurm's own commands: scontrol, sacct, sacctmgr and sbatch.

Seen on 22.05.8: sacctmgr and sacct answer at once when slurmdbd is away (exit code 1); a batch script that can't be had
is exit code 0 and a line on stderr from scontrol, and the word NONE from sacct. No job has the number 0, and sbatch
submits nothing without a script: so it is found out what a forced command lets through.
"""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo

from activities.scheduler import asked_json, sacct_table, show_config, show_records
from activities.scheduler.checked import checked_job_id
from activities.scheduler.command import Runner
from activities.scheduler.protocol import (
    Invalid,
    JobRecord,
    JobUnknown,
    NotPermitted,
    SchedulerError,
    SchedulerUnavailable,
)
from activities.scheduler.rights import Rights, rights_by_level, rights_without_levels, same_for_both
from activities.scheduler.sbatch_options import sbatch_options
from activities.scheduler.site import (
    AccountedAttempt,
    Answer,
    Capabilities,
    Capability,
    Partition,
    Reservation,
    SiteFacts,
    Unknown,
)
from activities.scheduler.slurm_words import error_from, last_line
from activities.scheduler.submission import Irrecoverable, Submission
from activities.scheduler.tables import TableError, read_table
from recovery.model import JobId

NO_JOB = "0"
_NOTHING_SUBMITTED = "batch script is empty"
_OPTION = "in authorized_keys (deploy/ssh/README.md) give it"
_TABLE = ("--noheader", "--parsable2")


class SiteCommands:
    """Implements `SiteReader` and `Resubmission` of `activities.scheduler.site` with commands that `runner` runs."""

    def __init__(self, runner: Runner, *, account: str = "") -> None:
        """`account`: the user name that the commands run under; empty: not known, and so what it may do is not."""
        self._runner = runner
        self._account = account
        self._zone: tzinfo | None = None

    async def facts(self) -> SiteFacts:
        """Read the configuration and ask the controllers for a sign of life."""
        config, asked_at = await self._config()
        ping = await self._runner.run(*show_config.PING_COMMAND)
        # A cluster of which one controller is down is exit code 1, with the same lines.
        try:
            return show_config.read_facts(config, ping.stdout, show_config.zone_of(config, asked_at), asked_at)
        except show_config.ConfigError as error:
            raise SchedulerUnavailable(f"reading the configuration: {error}") from error

    async def partitions(self) -> tuple[Partition, ...]:
        """Read all partitions."""
        return show_records.read_partitions(await self._said(*show_records.PARTITIONS_COMMAND))

    async def reservations(self) -> tuple[Reservation, ...]:
        """Read all reservations."""
        zone = await self._host_zone()
        return show_records.read_reservations(await self._said(*show_records.RESERVATIONS_COMMAND), zone)

    async def accounting(self, job_id: JobId) -> tuple[AccountedAttempt, ...]:
        """Read all attempts of a job with one sacct."""
        job_id = checked_job_id(job_id)
        zone = await self._host_zone()
        said = await self._said(*sacct_table.command(job_id))
        accounts = sacct_table.read_attempts(said, zone)
        if accounts.unreadable:
            raise SchedulerUnavailable(f"sacct's answer for job {job_id} has {accounts.unreadable} unreadable lines")
        return tuple(attempt for attempt in accounts.attempts if attempt.job_id == job_id)

    async def capabilities(self) -> Capabilities:
        """Find out from the configuration, and from the account's AdminLevel, what can be done."""
        try:
            facts = await self.facts()
        except SchedulerError as error:
            return Capabilities.all_unknown(str(error))
        try:
            rights = await self._rights(facts)
        except SchedulerError as error:
            rights = same_for_both(Capability.unknown(str(error)))
        return Capabilities(
            requeue=rights.act,
            hold=rights.act,
            exclude=rights.act,
            admin_comment=rights.admin_comment,
            batch_script=await self._scripts(rights),
            submit_for_others=await self._submitting(),
            accounting=await self._accounting(facts),
        )

    async def batch_script(self, job_id: JobId) -> str:
        """Return the script from the controller, else from accounting (AccountingStoreFlags=job_script)."""
        job_id = checked_job_id(job_id)
        try:
            return await self._held_script(job_id)
        except JobUnknown:
            return await self._accounted_script(job_id)

    async def submission_of(self, job: JobRecord) -> Submission:
        """Return what submits the job again: as the controller tells while it knows it, then as accounting does."""
        self._may_submit_for(job.user)
        job_id = checked_job_id(job.job_id)
        told = await self._runner.run("squeue", "--json", "--all", "--states=all", f"--jobs={job_id}")
        try:
            if told.exit_code:
                raise error_from(told.stderr, about=f"reading job {job_id}")
            return asked_json.read_submission(told.stdout, job, await self._held_script(job_id), teller="squeue")
        except (JobUnknown, asked_json.ArgumentsUnknown) as error:
            try:
                return await self._accounted_submission(job)
            except SchedulerUnavailable:
                if (await self.facts()).has_accounting is not Answer.NO:
                    raise
                raise Irrecoverable(f"{error}; and this site keeps no accounting that would") from error

    async def submit(self, submission: Submission) -> JobId:
        """Submit with one sbatch, the script as its input."""
        if not submission.script.startswith("#!"):
            raise Invalid("a batch script begins with #! and an interpreter")
        if submission.owner:
            self._may_submit_for(submission.owner)
        options = sbatch_options(submission, for_another=submission.owner not in ("", self._account))
        finished = await self._runner.run("sbatch", "--parsable", *options, stdin=submission.script)
        job_id = finished.stdout.strip().partition(";")[0]
        if finished.exit_code or not job_id.isdigit():
            raise error_from(f"{finished.stdout}\n{finished.stderr}", about="submitting a batch job")
        return job_id

    def _may_submit_for(self, owner: str) -> None:
        if self._account not in ("root", owner):
            raise Irrecoverable(f"sbatch submits for another user ({owner}) only {self._as_root}")

    @property
    def _as_root(self) -> str:
        who = self._account or "an account that is not known"
        way = "run it as root, over ssh with the forced command's --submit, or let people submit by hand"
        return f"as root, and relight is {who} there: {way}"

    async def _scripts(self, rights: Rights) -> Capability:
        """Whether scripts are given out to who has the rights: a forced command may refuse to ask for them."""
        if rights.act.answer is not Answer.YES:
            return rights.act
        try:
            await self._held_script(NO_JOB)
        except NotPermitted:
            return Capability.no(f"the forced command gives no batch scripts out: {_OPTION} --scripts")
        except JobUnknown:
            return Capability.yes()
        except SchedulerError as error:
            return Capability.unknown(str(error))
        return Capability.yes()

    async def _submitting(self) -> Capability:
        if self._account != "root":
            return Capability.no(f"sbatch submits for other users only {self._as_root}")
        try:
            finished = await self._runner.run("sbatch", "--parsable")
        except NotPermitted:
            return Capability.no(f"the forced command refuses sbatch: {_OPTION} --submit, without --read-only")
        except SchedulerError as error:
            return Capability.unknown(str(error))
        if _NOTHING_SUBMITTED in finished.stderr.lower():
            return Capability.yes()
        return Capability.unknown(f"sbatch without a script: {last_line(finished.stderr) or 'no answer'}")

    async def _held_script(self, job_id: JobId) -> str:
        """Return the script that the controller has."""
        held = await self._runner.run("scontrol", "write", "batch_script", job_id, "-")
        if not held.stdout.strip():
            raise error_from(held.stderr, about=f"reading the batch script of job {job_id}")
        return held.stdout

    async def _accounted_submission(self, job: JobRecord) -> Submission:
        said = await self._said(*sacct_table.submission_command(job.job_id))
        submission = sacct_table.read_submission(said, job, await self._host_zone())
        try:
            script = await self.batch_script(job.job_id)
        except JobUnknown as error:
            raise Irrecoverable(f"{error}: AccountingStoreFlags=job_script keeps it") from error
        return submission.model_copy(update={"script": script})

    async def _accounted_script(self, job_id: JobId) -> str:
        kept = await self._said("sacct", "--batch-script", f"--jobs={job_id}")
        _, _, script = kept.partition("-" * 80 + "\n")
        if not script.startswith("#!"):
            raise JobUnknown(f"neither slurmctld nor accounting has the batch script of job {job_id}")
        return script

    async def _config(self) -> tuple[str, datetime]:
        return await self._said(*show_config.COMMAND), datetime.now(UTC)

    async def _host_zone(self) -> tzinfo:
        """The time zone of the host where the commands run: our own, unless that host is elsewhere."""
        if self._zone is None:
            self._zone = show_config.zone_of(*await self._config())
        return self._zone

    async def _rights(self, facts: SiteFacts) -> Rights:
        settled = rights_without_levels(self._account, facts)
        if settled is not None:
            return settled
        user = ("show", "user", "where", f"name={self._account}", "format=User,AdminLevel")
        said = await self._said("sacctmgr", *_TABLE, *user)
        try:
            rows = read_table(said, "|", ("User", "AdminLevel")).rows
        except TableError as error:
            raise SchedulerUnavailable(f"sacctmgr: {error}") from error
        return rights_by_level(self._account, frozenset(row["AdminLevel"] for row in rows))

    async def _accounting(self, facts: SiteFacts) -> Capability:
        if isinstance(facts.accounting_storage_type, Unknown):
            return Capability.unknown(facts.accounting_storage_type.why)
        if facts.has_accounting is Answer.NO:
            return Capability.no(f"AccountingStorageType is {facts.accounting_storage_type.value}: set up slurmdbd")
        try:
            await self._said("sacctmgr", *_TABLE, "show", "cluster", "format=Cluster,ControlHost")
        except SchedulerError as error:
            return Capability.unknown(f"slurmdbd does not answer: {error}")
        return Capability.yes()

    async def _said(self, *command: str) -> str:
        finished = await self._runner.run(*command)
        if finished.exit_code:
            said = last_line(finished.stderr) or last_line(finished.stdout)
            raise error_from(said, about=" ".join(command[:3]))
        return finished.stdout
