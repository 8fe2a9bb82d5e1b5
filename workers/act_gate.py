"""Mode act only where the transport can do all that acting needs: asked for once, before a cluster is served."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import structlog

from activities.scheduler.protocol import Scheduler
from activities.scheduler.site import Answer, Capabilities, SiteReader
from recovery.model import Mode
from workers.settings import ClusterSettings

WAIT_S = 10.0
"""For an answer; a scheduler that is silent keeps nobody from looking after its jobs."""

log = structlog.get_logger(__name__)


class Gated(NamedTuple):
    """How far a cluster may be served."""

    cluster: ClusterSettings
    """The operator's settings, in mode observe where acts can't be done."""
    refused: str = ""
    """Why mode act was refused; empty: it was not."""


async def gated(cluster: ClusterSettings, scheduler: Scheduler) -> Gated:
    """Say in the log what can be done on `cluster`, and refuse mode act where one thing that acts need can't.

    The other clusters, and the watch over this one, go on. What is only unknown is no reason: each verb says by itself
    that it can't, before anything is begun.
    """
    if not isinstance(scheduler, SiteReader):
        return Gated(cluster)
    can = await _asked(scheduler)
    answers = {name: capability["answer"] for name, capability in can.model_dump(mode="json").items()}
    log.info("what can be done here", cluster=cluster.name, **answers)
    if cluster.effective_mode is not Mode.ACT:
        return Gated(cluster)
    in_the_way = can.in_the_way_of_acts()
    for name, capability in in_the_way.items():
        if capability.answer is Answer.UNKNOWN:
            log.warning("not known whether acts are possible", cluster=cluster.name, need=name, why=capability.reason)
    refusals = {capability.reason: name for name, capability in in_the_way.items() if capability.answer is Answer.NO}
    if not refusals:
        return Gated(cluster)
    refused = "; ".join(f"{name.replace('_', ' ')}: {reason}" for reason, name in refusals.items())
    log.error("mode act is refused: this cluster is only observed", cluster=cluster.name, because=refused)
    return Gated(cluster.model_copy(update={"mode": Mode.OBSERVE}), refused)


async def _asked(scheduler: SiteReader) -> Capabilities:
    try:
        async with asyncio.timeout(WAIT_S):
            return await scheduler.capabilities()
    except TimeoutError:
        return Capabilities.all_unknown(f"no answer within {WAIT_S:g} s")
