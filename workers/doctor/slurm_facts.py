"""What a site's configuration means for relight. Pure: from facts, capabilities and settings to checks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TypeVar

from activities.scheduler.site import Answer, Capabilities, Capability, Known, SiteFacts, Unknown
from recovery.model import Mode
from workers.doctor.checks import Check, failed, ok, unknown, warning
from workers.settings import ClusterSettings

OLDEST_VERSION = (22, 5)
TRIED_VERSIONS = ("22.05", "24.11", "25.11", "26.05")
WANTED_JOB_AGE = timedelta(seconds=120)
"""An act takes a minute where a job is slow to die, and what has left slurmctld's memory can't be brought back."""
READS_BEFORE_GONE = 3
LONG_REQUEUE_DELAY = timedelta(seconds=150)
LARGE_SKEW = timedelta(seconds=10)
FEW_REQUEUES = 3

Thing = TypeVar("Thing")


def check_facts(facts: SiteFacts, cluster: ClusterSettings) -> Iterator[Check]:
    """Yield what the configuration means for `cluster`."""
    yield _known("version", facts.slurm_version, _version)
    yield _known("cluster name", facts.cluster_name, lambda name: _cluster_name(name, cluster))
    yield _known("controllers", facts.controllers, lambda _: _controllers(facts))
    yield _known("clock", facts.clock_skew, _clock)
    yield _known("MinJobAge", facts.min_job_age, lambda age: _min_job_age(age, cluster))
    yield _known("JobRequeue", facts.job_requeue, lambda may: _job_requeue(may, cluster))
    yield _known("requeue delay", facts.requeue_delay, lambda delay: _requeue_delay(delay, cluster))
    yield _known("PreemptMode", facts.preempt_mode, _preempt_mode)
    if isinstance(facts.max_batch_requeue, Known):
        yield _max_batch_requeue(facts.max_batch_requeue.value)
    yield from _accounting(facts)


def check_capabilities(can: Capabilities, facts: SiteFacts, cluster: ClusterSettings) -> Iterator[Check]:
    """Yield what relight's account may do there. In mode observe it needs none of it yet."""
    yield _capability("rights", _first_in_the_way(can), cluster, "may requeue, hold and constrain others' jobs")
    yield _capability("AdminComment", can.admin_comment, cluster, "may write the mark of relight's holds")
    if isinstance(facts.private_data, Known):
        yield _private_data(facts.private_data.value, can)
    if cluster.policy.resubmit:
        yield _resubmission(can.submit_for_others)
    if facts.has_accounting is Answer.YES:
        yield _slurmdbd(can.accounting)


def _known(name: str, fact: Known[Thing] | Unknown, judge: Callable[[Thing], Check]) -> Check:
    return unknown(name, fact.why) if isinstance(fact, Unknown) else judge(fact.value)


def _version(version: str) -> Check:
    parts = re.match(r"(\d{2})\.(\d{1,2})", version)
    if parts is None:
        return unknown("version", f"Slurm calls itself {version[:40]!r}")
    if (int(parts[1]), int(parts[2])) < OLDEST_VERSION:
        return failed("version", f"Slurm {version} is too old", "relight needs Slurm 22.05 or later")
    tried = any(version.startswith(known) for known in TRIED_VERSIONS)
    return ok("version", f"Slurm {version}" + ("" if tried else ", which relight was not tried on"))


def _cluster_name(name: str, cluster: ClusterSettings) -> Check:
    if name == cluster.name:
        return ok("cluster name", name)
    remedy = f"name it {name} in relight.yaml, unless two clusters have the same name"
    return warning("cluster name", f"Slurm calls it {name}, the settings {cluster.name}", remedy)


def _controllers(facts: SiteFacts) -> Check:
    controllers = facts.controllers.value if isinstance(facts.controllers, Known) else ()
    down = [f"{each.host} ({each.role})" for each in controllers if each.answers is Answer.NO]
    if down:
        return warning("controllers", f"no answer from {', '.join(down)}", "start slurmctld there")
    return ok("controllers", ", ".join(f"{each.host} ({each.role})" for each in controllers) + " up")


def _clock(skew: timedelta) -> Check:
    seconds = skew.total_seconds()
    if abs(skew) <= LARGE_SKEW:
        return ok("clock", f"within {LARGE_SKEW.total_seconds():.0f} s of the controller's")
    ahead = "ahead of" if seconds > 0 else "behind"
    says = f"the controller's clock is {abs(seconds):.0f} s {ahead} this host's"
    return failed("clock", says, "run chrony or ntpd on both: times of logs and jobs are compared")


def _min_job_age(age: timedelta, cluster: ClusterSettings) -> Check:
    if age == timedelta():
        return ok("MinJobAge", "0: ended jobs stay in memory")
    least = max(WANTED_JOB_AGE, READS_BEFORE_GONE * timedelta(seconds=cluster.poll_interval_s))
    says = f"ended jobs are forgotten after {age.total_seconds():.0f} s"
    if age < least:
        remedy = f"set MinJobAge={max(300, least.total_seconds()):.0f}: a forgotten job can't be brought back"
        return failed("MinJobAge", says, remedy)
    return ok("MinJobAge", says)


def _job_requeue(may: bool, cluster: ClusterSettings) -> Check:
    if may:
        return ok("JobRequeue", "jobs may be requeued unless they say --no-requeue")
    if cluster.policy.override_no_requeue:
        return ok("JobRequeue", "0, and policy.override_no_requeue is set")
    remedy = "set JobRequeue=1, or policy.override_no_requeue, or have jobs say --requeue"
    return failed("JobRequeue", "0: no job may be requeued that does not ask for it", remedy)


def _requeue_delay(delay: timedelta, cluster: ClusterSettings) -> Check:
    says = f"a requeued job waits {delay.total_seconds():.0f} s"
    if cluster.policy.clear_requeue_delay:
        return ok("requeue delay", f"{says} unless relight clears it, which it does")
    if delay > LONG_REQUEUE_DELAY:
        remedy = "set policy.clear_requeue_delay, or a smaller cred_expire in AuthInfo"
        return warning("requeue delay", says, remedy)
    return ok("requeue delay", says)


def _preempt_mode(mode: frozenset[str]) -> Check:
    says = f"PreemptMode={','.join(sorted(mode)) or 'OFF'}"
    if "CANCEL" in mode:
        return warning("PreemptMode", f"{says}: preempted jobs end", "set PreemptMode=REQUEUE: they come back at once")
    if "SUSPEND" in mode:
        remedy = "expect no progress of a suspended job; PreemptMode=REQUEUE frees its nodes"
        return warning("PreemptMode", f"{says}: preempted jobs stand still", remedy)
    return ok("PreemptMode", says)


def _max_batch_requeue(times: int) -> Check:
    if times < FEW_REQUEUES:
        says = f"Slurm holds a job after {times} requeues of its own"
        return warning("MaxBatchRequeue", says, "set MaxBatchRequeue=5: a job that Slurm holds waits for a person")
    return ok("MaxBatchRequeue", f"{times} requeues by Slurm itself")


def _accounting(facts: SiteFacts) -> Iterator[Check]:
    if facts.has_accounting is Answer.NO:
        remedy = "set up slurmdbd: without it the end of a job that slurmctld forgot stays unknown"
        yield warning("accounting", "this cluster keeps no accounts", remedy)
        return
    if isinstance(facts.accounting_store_flags, Known):
        yield _store_flags(facts.accounting_store_flags.value)


def _store_flags(flags: frozenset[str]) -> Check:
    said = f"AccountingStoreFlags={','.join(sorted(flags)) or '(none)'}"
    if "job_comment" in flags:
        return ok("AccountingStoreFlags", said)
    remedy = "add job_comment: how a job opted in is lost once slurmctld forgets it"
    return warning("AccountingStoreFlags", said, remedy)


def _first_in_the_way(can: Capabilities) -> Capability:
    needed = (can.requeue, can.hold, can.exclude)
    return next((each for each in needed if each.answer is not Answer.YES), Capability.yes())


def _capability(name: str, can: Capability, cluster: ClusterSettings, says: str) -> Check:
    if can.answer is Answer.YES:
        return ok(name, says)
    if can.answer is Answer.UNKNOWN:
        return unknown(name, can.reason)
    what, _, remedy = can.reason.partition(": ")
    if cluster.effective_mode is Mode.ACT:
        return failed(name, f"mode act is refused: {what}", remedy)
    return warning(name, f"not before mode act, {what}", remedy)


def _resubmission(can: Capability) -> Check:
    if can.answer is Answer.YES:
        return ok("resubmission", "may submit jobs as their owners")
    if can.answer is Answer.UNKNOWN:
        return unknown("resubmission", can.reason)
    what, _, remedy = can.reason.partition(": ")
    return warning("resubmission", f"policy.resubmit is set, and others' jobs can't be submitted anew: {what}", remedy)


def _private_data(hidden: frozenset[str], can: Capabilities) -> Check:
    if "jobs" not in hidden or can.requeue.answer is Answer.YES:
        return ok("PrivateData", "all jobs can be seen")
    says = "PrivateData=jobs hides other users' jobs from relight's account"
    return failed("PrivateData", says, "give the account an AdminLevel: see deploy/slurm/README.md")


def _slurmdbd(can: Capability) -> Check:
    if can.answer is Answer.YES:
        return ok("slurmdbd", "answers")
    if can.answer is Answer.NO:
        what, _, remedy = can.reason.partition(": ")
        return warning(
            "slurmdbd", f"not asked, so the end of a job that slurmctld forgot stays unknown: {what}", remedy
        )
    return failed("slurmdbd", can.reason[:200], "start slurmdbd, and its database before it")
