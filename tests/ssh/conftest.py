"""The fixture ``sshd``: one real sshd for the tests of a module."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from activities.scheduler.ssh import SshRunner
from tests.endtoend.conftest import servers
from tests.ssh.server import SshServer, why_unavailable

__all__ = ["runner", "servers", "sshd"]

pytest.register_assert_rewrite("tests.scheduler.conformance")


@pytest.fixture(scope="module")
def sshd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshServer]:
    reason = why_unavailable()
    if reason is not None:
        pytest.skip(f"tests over ssh skipped: {reason}")
    server = SshServer(tmp_path_factory.mktemp("sshd"))
    server.prepare()
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def runner(sshd: SshServer) -> AsyncIterator[Callable[..., SshRunner]]:
    """Makes runners to the server's shell, or as the changes say, and closes them afterwards."""
    made: list[SshRunner] = []

    def make(*, timeout_s: float = 20, **changes: Any) -> SshRunner:
        made.append(SshRunner(sshd.login(**changes), timeout_s=timeout_s))
        return made[-1]

    yield make
    for each in made:
        await each.close()
