"""`relight watchdog` on a simulated cluster: the command, its gate, and how it ends."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from activities.audit_spool import AuditSpool
from activities.scheduler.marker import Account, Marker, read_marker, write_marker
from activities.scheduler.protocol import Hold
from activities.scheduler.rounds import Outcome
from activities.scheduler.simulated_wire import JobSpec
from recovery.audit import AuditEvent, AuditKind
from recovery.model import JobKey
from tests.protocol.parts import an_advice
from tests.simulator.running import RunningSimulator, held, running, running_simulator, until, until_line
from tests.watchdog.process import ACT, command, configure, once, running_watchdog
from workers.settings import Settings, load_settings
from workers.watchdog import SPOOL, look_once


@pytest.fixture(scope="module")
async def simulator() -> AsyncIterator[RunningSimulator]:
    with tempfile.TemporaryDirectory(prefix="relight-sim-") as directory:
        async with running_simulator(Path(directory)) as simulator:
            yield simulator


def settings(simulator: RunningSimulator, directory: Path, **watchdog: Any) -> Path:
    return configure(directory, {"kind": "simulated", "socket": str(simulator.socket)}, ACT | watchdog)


async def left_held(simulator: RunningSimulator) -> str:
    """A job as a worker leaves it that is killed between hold and release."""
    job_id = await simulator.cluster.submit(JobSpec(argv=("sleep", "60")))
    record = await until(simulator, job_id, running)
    job = JobKey(cluster="alpha", job_id=job_id, submitted_at=record.submitted_at)
    mark = Marker(holds=an_advice(job=job).key, since=datetime.now(UTC))
    await simulator.scheduler.constrain(job_id, admin_comment=write_marker("", mark))
    await simulator.scheduler.requeue_hold(job_id)
    await until(simulator, job_id, held)
    return job_id


def impatient(config: Path) -> Settings:
    """The settings with a deadline that no file may set."""
    found = load_settings(config)
    (cluster,) = found.clusters
    watchdog = cluster.watchdog.model_copy(update={"deadline_s": 1.0})
    return found.model_copy(update={"clusters": (cluster.model_copy(update={"watchdog": watchdog}),)})


def spooled(config: Path, job_id: str) -> list[AuditEvent]:
    files = AuditSpool(config.parent / "state" / SPOOL).waiting()
    events = [AuditEvent.model_validate_json(file.read_text()) for file in files]
    return [event for event in events if event.job.job_id == job_id]


async def test_a_job_left_held_is_released_within_the_deadline_and_one_interval(
    simulator: RunningSimulator, tmp_path: Path
) -> None:
    config = settings(simulator, tmp_path)
    with running_watchdog(config) as process:
        await until_line(tmp_path / "watchdog.log", "watching for holds")
        job_id = await left_held(simulator)
        began = datetime.now(UTC)
        record = await until(simulator, job_id, lambda job: isinstance(read_marker(job.admin_comment), Account), 45)
        took_s = (datetime.now(UTC) - began).total_seconds()
        assert 25 <= took_s <= 33
        assert record.hold is Hold.NONE
        assert process.poll() is None
    assert process.returncode == 0
    assert [event.kind for event in spooled(config, job_id)] == [
        AuditKind.ORDERED,
        AuditKind.ACTED,
        AuditKind.RECONCILED,
    ]
    await simulator.scheduler.start_now(job_id)
    await until(simulator, job_id, running)


async def test_one_look_says_in_json_and_in_a_table_what_it_saw_and_left(
    simulator: RunningSimulator, tmp_path: Path
) -> None:
    config = settings(simulator, tmp_path, mode="observe")
    job_id = await left_held(simulator)
    done = await once(config, "--json")
    assert done.returncode == 0, done.stderr
    (look,) = json.loads(done.stdout)
    (seen,) = [seen for seen in look["seen"] if seen["job_id"] == job_id]
    assert (look["cluster"], look["mode"], look["silence"]) == ("alpha", "observe", "")
    assert seen["outcome"] == "left"
    assert 0 <= seen["held_for_s"] < 30
    table = (await once(config)).stdout
    assert f"alpha/{job_id}" in table
    assert (await simulator.scheduler.job(job_id)).hold is Hold.REQUEUED


@pytest.mark.parametrize("gate", [{"mode": "observe"}, {"acknowledge_scheduler_actions": False}])
async def test_without_mode_and_acknowledgement_nothing_is_touched(
    gate: dict[str, Any], simulator: RunningSimulator, tmp_path: Path
) -> None:
    config = settings(simulator, tmp_path, **gate)
    job_id = await left_held(simulator)
    before = await simulator.scheduler.job(job_id)
    await asyncio.sleep(1)
    for _ in range(2):
        (look,) = await look_once(impatient(config))
        assert {seen.job_id: seen.outcome for seen in look.seen}[job_id] is Outcome.WOULD_RELEASE
    assert await simulator.scheduler.job(job_id) == before
    assert [event.kind for event in spooled(config, job_id)] == [AuditKind.ADVISED]


async def test_with_both_it_is_released_and_a_persons_hold_is_not(simulator: RunningSimulator, tmp_path: Path) -> None:
    config = settings(simulator, tmp_path)
    ours, theirs, admins = [await left_held(simulator) for _ in range(3)]
    await simulator.cluster.hold(theirs)
    await simulator.cluster.hold(admins, admin=True)
    await asyncio.sleep(1)
    (look,) = await look_once(impatient(config))
    outcomes = {seen.job_id: seen.outcome for seen in look.seen}
    assert (outcomes[ours], outcomes[theirs], outcomes[admins]) == (Outcome.RELEASED, Outcome.LEFT, Outcome.LEFT)
    assert (await simulator.scheduler.job(ours)).hold is Hold.NONE
    assert (await simulator.scheduler.job(theirs)).hold is Hold.USER
    assert (await simulator.scheduler.job(admins)).hold is Hold.ADMIN


async def test_a_silent_scheduler_is_no_error_of_one_look(tmp_path: Path) -> None:
    config = configure(tmp_path, {"kind": "simulated", "socket": str(tmp_path / "nobody.sock")}, ACT)
    done = await once(config)
    assert done.returncode == 0
    assert "nothing done" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_running_watchdog_survives_silence_and_ends_in_good_order(
    number: signal.Signals, tmp_path: Path
) -> None:
    config = configure(tmp_path, {"kind": "simulated", "socket": str(tmp_path / "nobody.sock")}, ACT)
    with running_watchdog(config) as process:
        await until_line(tmp_path / "watchdog.log", "blind")
        await asyncio.sleep(2.5)
        process.send_signal(number)
        assert await asyncio.to_thread(process.wait, 10) == 0
    log = (tmp_path / "watchdog.log").read_text()
    assert log.count("blind") == 1
    assert "Traceback" not in log


def test_it_needs_no_temporal_while_there_is_no_database() -> None:
    look = "import sys, workers.watchdog, workers.cli.watchdog; sys.exit('temporalio' in sys.modules)"
    assert subprocess.run([command(Path())[0], "-c", look], timeout=60, check=False).returncode == 0


@pytest.mark.parametrize(
    ("words", "said"), [(("--json",), "--json goes with --once"), ((), "no cluster is configured")]
)
def test_what_cannot_work_is_said_in_one_line(words: tuple[str, ...], said: str, tmp_path: Path) -> None:
    config = configure(tmp_path, {"kind": "cli"}, ACT)
    if not words:
        config.write_text("{}")
    done = subprocess.run(command(config, *words), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert said in done.stderr


def test_a_deadline_below_half_a_minute_is_no_setting(tmp_path: Path) -> None:
    config = configure(tmp_path, {"kind": "cli"}, ACT | {"deadline_s": 29})
    done = subprocess.run(command(config, "--once"), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "deadline_s" in done.stderr
