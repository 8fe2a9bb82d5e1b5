"""Mode act is refused where something that it needs can't be done, and nothing else is."""

from __future__ import annotations

import asyncio

import pytest
import structlog

from activities.scheduler.cli import SlurmCli
from activities.scheduler.command import Finished
from activities.scheduler.site import Capabilities, Capability
from recovery.governor import GovernorSettings
from recovery.model import Mode
from workers.act_gate import gated
from workers.cli.looking import in_words
from workers.settings import ClusterSettings
from workflows.cluster_state import ClusterStanding

WANTS_ACTS = ClusterSettings(name="alpha", mode=Mode.ACT, acknowledge_scheduler_actions=True)
YES, NO = Capability.yes(), Capability.no("relight has AdminLevel Operator: sacctmgr modify user ...")
UNKNOWN = Capability.unknown("slurmctld does not answer")


class NeverAsked:
    async def run(self, *command: str, stdin: str = "") -> Finished:
        raise AssertionError(f"asked {command}")


class Site(SlurmCli):
    """A transport that says what it can do."""

    def __init__(self, *, admin_comment: Capability, others: Capability = YES, silent: bool = False) -> None:
        super().__init__(NeverAsked())
        self._can = Capabilities.all_unknown("").model_copy(
            update={"requeue": others, "hold": others, "exclude": others, "admin_comment": admin_comment}
        )
        self._silent = silent

    async def capabilities(self) -> Capabilities:
        if self._silent:
            await asyncio.sleep(3600)
        return self._can


async def test_where_all_can_be_done_acts_go_on() -> None:
    assert await gated(WANTS_ACTS, Site(admin_comment=YES)) == (WANTS_ACTS, "")


async def test_where_one_thing_can_not_be_done_the_cluster_is_only_observed_and_the_log_says_why() -> None:
    with structlog.testing.capture_logs() as said:
        cluster, refused = await gated(WANTS_ACTS, Site(admin_comment=NO))

    assert cluster.effective_mode is Mode.OBSERVE
    assert refused == f"admin comment: {NO.reason}"
    (loud,) = [line for line in said if line["log_level"] == "error"]
    assert loud["because"] == refused


async def test_one_reason_is_told_once_however_much_it_keeps_from_being_done() -> None:
    _, refused = await gated(WANTS_ACTS, Site(admin_comment=NO, others=NO))

    assert refused.count(NO.reason) == 1


async def test_what_is_only_unknown_refuses_nothing() -> None:
    with structlog.testing.capture_logs() as said:
        cluster, refused = await gated(WANTS_ACTS, Site(admin_comment=UNKNOWN, others=UNKNOWN))

    assert (cluster, refused) == (WANTS_ACTS, "")
    assert {line["need"] for line in said if line["log_level"] == "warning"} == {
        "requeue",
        "hold",
        "exclude",
        "admin_comment",
    }


async def test_a_scheduler_that_says_nothing_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("workers.act_gate.WAIT_S", 0.05)

    assert await gated(WANTS_ACTS, Site(admin_comment=NO, silent=True)) == (WANTS_ACTS, "")


async def test_in_mode_observe_nothing_is_refused() -> None:
    observed = WANTS_ACTS.model_copy(update={"mode": Mode.OBSERVE})

    assert await gated(observed, Site(admin_comment=NO)) == (observed, "")


def test_status_shows_why_a_cluster_is_only_observed() -> None:
    standing = ClusterStanding(pause=None, restarts=0, excluded_nodes=0, tripped=None, refused="admin comment: no")

    assert in_words(standing, GovernorSettings()) == "mode act is refused, only observed: admin comment: no"
