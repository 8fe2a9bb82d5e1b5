"""The commands that people type, against a running service."""

from __future__ import annotations

import asyncio
import getpass
import json
import shutil
import subprocess

import pytest

from activities.scheduler.protocol import JobState
from recovery.audit import AuditKind
from tests.endtoend.conftest import Servers
from tests.endtoend.service import Service
from tests.endtoend.simulated_jobs import OBSERVE, submit
from tests.simulator.running import RunningSimulator, running, until

pytestmark = [pytest.mark.temporal, pytest.mark.postgres, pytest.mark.timeout(120)]


@pytest.fixture(scope="module")
async def job(simulator: RunningSimulator, simulated_service: Service) -> str:
    """A healthy job under guard in mode act."""
    job_id = await submit(simulator, "healthy")
    await simulated_service.wait_for(job_id, "adopted", lambda state: state.audit_count > 0)
    return job_id


async def test_status_lists_the_jobs_under_guard(simulated_service: Service, job: str) -> None:
    # Temporal's lists follow its histories within a moment.
    await asyncio.sleep(2)
    said = await asyncio.to_thread(simulated_service.relight, "status")
    assert said.returncode == 0, said.stderr
    assert f"{simulated_service.cluster_name}/{job}" in said.stdout
    assert "healthy" in said.stdout
    assert f"cluster {simulated_service.cluster_name}: " in said.stdout
    found = json.loads((await asyncio.to_thread(simulated_service.relight, "status", "--json")).stdout)
    assert {row["job"] for row in found["jobs"]} >= {f"{simulated_service.cluster_name}/{job}"}
    assert found["clusters"][simulated_service.cluster_name]["pause"] is None


async def test_show_tells_where_a_job_stands(simulated_service: Service, job: str) -> None:
    said = await asyncio.to_thread(simulated_service.relight, "show", job)
    assert said.returncode == 0, said.stderr
    assert "watching attempt 0 in mode act" in said.stdout
    state = json.loads((await asyncio.to_thread(simulated_service.relight, "show", job, "--json")).stdout)
    assert state["attempt"] == 0


async def test_show_tells_what_is_read_for_a_job_while_it_runs(
    simulator: RunningSimulator, simulated_service: Service, job: str
) -> None:
    output = (await simulator.scheduler.job(job)).stdout
    reads: list[str] = []
    async with asyncio.timeout(30):
        while not reads:
            shown = await asyncio.to_thread(simulated_service.relight, "show", job, "--json")
            reads = json.loads(shown.stdout)["reads"]
    assert reads == [output]
    said = await asyncio.to_thread(simulated_service.relight, "show", job)
    assert f"  reads     {output}\n" in said.stdout


async def test_a_whole_cluster_is_paused_and_resumed_with_who_and_why(simulated_service: Service, job: str) -> None:
    name = simulated_service.cluster_name
    paused = await asyncio.to_thread(simulated_service.relight, "pause", "--cluster", name, "--reason", "maintenance")
    assert (paused.returncode, paused.stdout) == (0, "pause accepted\n"), paused.stderr

    said = (await asyncio.to_thread(simulated_service.relight, "status")).stdout
    [line] = [line for line in said.splitlines() if line.startswith(f"cluster {name}: ")]
    assert f"the cluster is paused by {getpass.getuser()}: maintenance, since " in line
    again = await asyncio.to_thread(simulated_service.relight, "pause", "--cluster", name)
    assert again.returncode == 1
    assert again.stderr.startswith("error: pause was refused: the cluster is paused by ")

    resumed = await asyncio.to_thread(simulated_service.relight, "resume", "--cluster", name)
    assert (resumed.returncode, resumed.stdout) == (0, "resume accepted\n"), resumed.stderr
    assert "paused" not in (await asyncio.to_thread(simulated_service.relight, "status")).stdout


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ((), "error: pause needs a job or a cluster"),
        (("1", "--cluster", "x"), "error: pause needs a job or a cluster"),
        (("--cluster", "elsewhere"), "error: cluster 'elsewhere' is not configured; configured: "),
    ],
)
async def test_a_pause_of_nothing_that_is_there_is_one_line_and_a_hint(
    simulated_service: Service, words: tuple[str, ...], error: str
) -> None:
    said = await asyncio.to_thread(simulated_service.relight, "pause", *words)
    assert said.returncode == 1
    assert said.stderr.startswith(error)
    assert len(said.stderr.splitlines()) == 2


@pytest.mark.parametrize("words", [("show", "424242"), ("pause", "424242")], ids=["show", "pause"])
async def test_a_job_that_is_not_under_guard_is_one_line_and_a_hint(
    simulated_service: Service, words: tuple[str, ...]
) -> None:
    said = await asyncio.to_thread(simulated_service.relight, *words)
    assert said.returncode == 1
    assert said.stdout == ""
    lines = said.stderr.splitlines()
    assert lines[0] == "error: job 424242 is not under guard"
    assert lines[1].startswith("hint:")
    assert len(lines) == 2


async def test_a_persons_word_is_answered_carried_out_and_on_record(simulated_service: Service, job: str) -> None:
    for words in (
        ("pause", job, "-m", "maintenance"),
        ("resume", job),
        ("exclude", job, "node07", "-m", "smells of HBM"),
        ("readmit", job, "node07"),
        ("mode", job, "observe"),
        ("mode", job, "act"),
    ):
        said = await asyncio.to_thread(simulated_service.relight, *words)
        assert said.returncode == 0, said.stderr
        assert said.stdout.startswith(f"{words[0]} accepted")
        assert said.stdout.count("\n") == 1
    state = await simulated_service.wait_for(job, "obeyed", lambda state: not state.commands)
    told = [entry.text for entry in state.timeline]
    assert "pause: maintenance" in told
    assert "exclude node07: smells of HBM" in told
    await asyncio.sleep(1)
    events = await simulated_service.audited(job)
    assert {event.who for event in events if event.kind is AuditKind.OVERRIDE} != {"policy"}


async def test_what_cannot_be_done_now_is_refused_with_the_reason(simulated_service: Service, job: str) -> None:
    said = await asyncio.to_thread(simulated_service.relight, "approve", job)
    assert said.returncode == 1
    assert said.stderr.splitlines()[0] == "error: approve was refused: no advice is waiting for approval"


async def test_restart_in_observe_mode_is_refused(simulator: RunningSimulator, simulated_service: Service) -> None:
    job_id = await submit(simulator, "watched", comment=OBSERVE)
    await simulated_service.wait_for(job_id, "adopted", lambda state: state.audit_count > 0)
    said = await asyncio.to_thread(simulated_service.relight, "restart", job_id)
    assert said.returncode == 1
    assert "the mode is observe" in said.stderr
    assert (await simulator.scheduler.job(job_id)).restart_count == 0


async def test_restart_requeues_without_the_excluded_node_and_stop_ends_the_job(
    simulator: RunningSimulator, simulated_service: Service
) -> None:
    job_id = await submit(simulator, "moved")
    await simulated_service.wait_for(job_id, "adopted", lambda state: state.audit_count > 0)
    at_first = await until(simulator, job_id, running)
    await asyncio.to_thread(simulated_service.relight, "exclude", job_id, at_first.nodes[0])
    said = await asyncio.to_thread(simulated_service.relight, "restart", job_id, "-m", "move it")
    assert said.stdout == "restart accepted\n"
    await simulated_service.wait_for(job_id, "restarted", lambda state: state.attempt == 1)
    moved = await until(simulator, job_id, running)
    assert moved.restart_count == 1
    assert not set(moved.nodes) & set(at_first.nodes)

    assert (await asyncio.to_thread(simulated_service.relight, "stop", job_id)).returncode == 0
    state = await simulated_service.closed(job_id)
    assert state.closed.startswith("stopped by")
    assert (await simulator.scheduler.job(job_id)).state is JobState.CANCELLED


async def test_temporals_own_command_can_signal_a_job(servers: Servers, simulated_service: Service, job: str) -> None:
    temporal = shutil.which("temporal") or ".venv/bin/temporal"
    command = [
        *(temporal, "workflow", "signal", "--address", servers.temporal.address, "--name", "pause"),
        *("--workflow-id", f"recovery/{simulated_service.cluster_name}/{job}"),
        *("--input", '{"who": "ana", "reason": "from the Temporal UI"}'),
    ]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    state = await simulated_service.wait_for(job, "paused", lambda state: state.paused)
    assert state.timeline[-1].who == "ana"
    await asyncio.to_thread(simulated_service.relight, "resume", job)


async def test_watch_takes_a_job_without_opt_in_under_guard_in_observe_mode(
    simulator: RunningSimulator, simulated_service: Service
) -> None:
    job_id = await submit(simulator, "by-hand", comment="no opt-in here")
    await until(simulator, job_id, running)
    said = await asyncio.to_thread(simulated_service.relight, "watch", job_id)
    assert said.stdout == f"job {simulated_service.cluster_name}/{job_id} is under guard in mode observe\n"
    again = await asyncio.to_thread(simulated_service.relight, "watch", job_id)
    assert again.returncode == 0, "to watch a job twice is no error"
    state = await simulated_service.wait_for(job_id, "adopted", lambda state: state.audit_count > 0)
    assert state.timeline[0].text == "watching attempt 0 in mode observe"


async def test_watch_of_an_unknown_job_says_so(simulated_service: Service) -> None:
    said = await asyncio.to_thread(simulated_service.relight, "watch", "424242")
    assert said.returncode == 1
    assert "does not know job 424242" in said.stderr


async def test_an_approval_lets_the_advice_through(
    own_simulator: RunningSimulator, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    simulator = own_simulator
    service = servers.service(tmp_path_factory.mktemp("approval"))
    scheduler = {"kind": "simulated", "socket": str(simulator.socket)}
    service.configure(scheduler, poll_interval_s=0.5, policy={"approval": True})
    service.start()
    try:
        job_id = await submit(simulator, "careful", "--fault", "keyerror", "--fault-iteration", "3")
        state = await service.wait_for(job_id, "waiting", lambda state: state.phase.value == "awaiting_approval")
        assert (await simulator.scheduler.job(job_id)).restart_count == 0
        said = await asyncio.to_thread(service.relight, "approve", job_id, "-m", "go")
        assert said.returncode == 0, said.stderr
        state = await service.wait_for(job_id, "acted", lambda state: state.attempt == 1)
        assert any(entry.kind == "approved" and entry.text == "approve: go" for entry in state.timeline)
    finally:
        service.stop()


async def test_watch_if_opted_in_leaves_other_jobs_alone(
    simulator: RunningSimulator, simulated_service: Service
) -> None:
    job_id = await submit(simulator, "nobodys", comment="no opt-in here")
    said = await asyncio.to_thread(simulated_service.relight, "watch", "--if-opted-in", job_id)
    assert said.returncode == 0, said.stderr
    assert said.stdout.endswith("did not opt in and is left alone\n")
    assert await simulated_service.state(job_id) is None


async def test_outside_the_partitions_to_act_in_a_job_is_only_observed(
    own_simulator: RunningSimulator, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> None:
    service = servers.service(tmp_path_factory.mktemp("canary"))
    scheduler = {"kind": "simulated", "socket": str(own_simulator.socket)}
    service.configure(scheduler, poll_interval_s=0.5, act_partitions=["canary"])
    service.start()
    try:
        job_id = await submit(own_simulator, "elsewhere", "--fault", "keyerror", "--fault-iteration", "3")
        state = await service.wait_for(job_id, "ended", lambda state: state.ended)
        assert state.timeline[0].text == "watching attempt 0 in mode observe"
        assert (await own_simulator.scheduler.job(job_id)).restart_count == 0
        said = await asyncio.to_thread(service.relight, "mode", job_id, "act")
        assert said.returncode == 1
        assert "act_partitions" in said.stderr
    finally:
        service.stop()
