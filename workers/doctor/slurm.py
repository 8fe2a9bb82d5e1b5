"""One cluster looked at through the transport that its settings choose. Reads only."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence

from activities.logs.steps import BatchScripts
from activities.scheduler.protocol import JobRecord, JobState, Scheduler, SchedulerError
from activities.scheduler.site import PlacesReader, SiteReader
from workers.doctor.batch_scripts import scripts_check, wants_scripts
from workers.doctor.checks import Check, failed, ok, unknown, warning
from workers.doctor.slurm_facts import check_capabilities, check_facts
from workers.settings import ClusterSettings

SLOW_SHARE = 0.25
"""Of the interval; a slower answer makes the poller wait longer by itself."""


async def examine(cluster: ClusterSettings, scheduler: Scheduler) -> tuple[Check, ...]:
    """Return every check of `cluster`. Without an answer to the first, the others are not tried."""
    how = f"through {cluster.scheduler.kind}"
    began_s = time.monotonic()
    try:
        reading = await scheduler.jobs()
    except SchedulerError as error:
        return (failed("reach", f"no answer {how}: {error}", "see that slurmctld runs and that the settings reach it"),)
    reach = ok("reach", f"{len(reading.jobs)} jobs {how}")
    answer_time = _answer_time(cluster, time.monotonic() - began_s)
    running = [job for job in reading.jobs if job.state is JobState.RUNNING]
    return (reach, answer_time, *[check async for check in _beyond(cluster, scheduler, running)])


def _answer_time(cluster: ClusterSettings, took_s: float) -> Check:
    if took_s > SLOW_SHARE * cluster.poll_interval_s:
        says = f"reading all jobs took {took_s:.1f} s, asked every {cluster.poll_interval_s:g} s"
        return warning("answer time", says, f"set poll_interval_s: {max(5, round(10 * took_s))}")
    return ok("answer time", f"{took_s:.2f} s for all jobs")


async def _beyond(cluster: ClusterSettings, scheduler: Scheduler, running: Sequence[JobRecord]) -> AsyncIterator[Check]:
    yield _acknowledged(cluster)
    if isinstance(scheduler, SiteReader):
        try:
            facts = await scheduler.facts()
        except SchedulerError as error:
            yield unknown("configuration", str(error), "see that this account may read Slurm's configuration")
            return
        for check in check_facts(facts, cluster):
            yield check
        can = await scheduler.capabilities()
        for check in check_capabilities(can, facts, cluster):
            yield check
        if isinstance(scheduler, BatchScripts) and wants_scripts(cluster):
            yield await scripts_check(cluster, scheduler, running, can.batch_script)
    if isinstance(scheduler, PlacesReader):
        yield await _partitions(cluster, scheduler)
    yield await _nodes(scheduler)


def _acknowledged(cluster: ClusterSettings) -> Check:
    if cluster.mode is cluster.effective_mode:
        return ok("mode", cluster.mode.value)
    remedy = "set acknowledge_scheduler_actions: true"
    return warning("mode", "act is set, and without an acknowledgement stays observe", remedy)


async def _partitions(cluster: ClusterSettings, scheduler: PlacesReader) -> Check:
    try:
        there = {partition.name for partition in await scheduler.partitions()}
    except SchedulerError as error:
        return unknown("partitions", str(error))
    if missing := sorted({*cluster.partitions, *cluster.act_partitions} - there):
        says = f"the settings name {', '.join(missing)}, which Slurm does not have"
        return failed("partitions", says, f"there are: {', '.join(sorted(there))}")
    return ok("partitions", ", ".join(sorted(there)))


async def _nodes(scheduler: Scheduler) -> Check:
    try:
        nodes = await scheduler.nodes()
    except SchedulerError as error:
        return unknown("nodes", str(error))
    usable = sum(node.usable for node in nodes)
    if not usable:
        return warning("nodes", f"none of {len(nodes)} can be used", "see sinfo --list-reasons")
    return ok("nodes", f"{usable} of {len(nodes)} can be used")
