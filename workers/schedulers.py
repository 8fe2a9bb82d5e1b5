"""From a cluster's settings to the transport that speaks to its scheduler."""

from __future__ import annotations

import os
import pwd
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from activities.scheduler.pace import Pace, PacedRunner
from activities.scheduler.protocol import Scheduler
from activities.scheduler.simulated import SimulatedScheduler
from workers.scheduler_settings import CliScheduler, PyslurmScheduler, RestScheduler, SshScheduler
from workers.settings import ClusterSettings

if TYPE_CHECKING:
    from activities.scheduler.rest_token import TokenKeeper


@asynccontextmanager
async def open_scheduler(cluster: ClusterSettings) -> AsyncIterator[Scheduler]:
    """Yield the transport that the settings of `cluster` choose. It connects at its first call; what it then keeps open
    is closed at the end of the context."""
    settings = cluster.scheduler
    pace = Pace(cluster.max_calls_per_s)
    if isinstance(settings, CliScheduler):
        from activities.scheduler.cli import SlurmCli
        from activities.scheduler.command import LocalRunner

        runner = LocalRunner(
            bin_dir=settings.bin_dir, slurm_conf=settings.slurm_conf, timeout_s=settings.command_timeout_s
        )
        yield SlurmCli(PacedRunner(runner, pace), account=own_account())
    elif isinstance(settings, SshScheduler):
        async with _open_ssh(cluster.name, settings, pace) as scheduler:
            yield scheduler
    elif isinstance(settings, RestScheduler):
        async with _open_rest(cluster.name, settings, pace) as scheduler:
            yield scheduler
    elif isinstance(settings, PyslurmScheduler):
        from activities.scheduler.command import LocalRunner
        from activities.scheduler.slurm_library import SlurmLibrary

        here = LocalRunner(slurm_conf=settings.slurm_conf, timeout_s=settings.call_timeout_s)
        yield SlurmLibrary(PacedRunner(here, pace), python=settings.python, account=own_account())
    else:
        yield SimulatedScheduler(settings.socket)


@asynccontextmanager
async def _open_ssh(cluster: str, settings: SshScheduler, pace: Pace) -> AsyncIterator[Scheduler]:
    from activities.scheduler.cli import SlurmCli
    from activities.scheduler.login_host import LoginHosts
    from activities.scheduler.ssh import SshRunner

    login = LoginHosts(
        cluster=cluster,
        hosts=settings.hosts,
        user=settings.user,
        known_hosts=settings.known_hosts,
        identity_files=settings.identity_files,
        proxy_jump=settings.proxy_jump,
        connect_timeout_s=settings.connect_timeout_s,
    )
    runner = SshRunner(login, timeout_s=settings.command_timeout_s)
    try:
        yield SlurmCli(PacedRunner(runner, pace), account=settings.user)
    finally:
        await runner.close()


@asynccontextmanager
async def _open_rest(cluster: str, settings: RestScheduler, pace: Pace) -> AsyncIterator[Scheduler]:
    from activities.scheduler.rest import SlurmRest
    from activities.scheduler.rest_api import RestApi
    from activities.scheduler.rest_client import RestClient, RestServer

    server = RestServer(
        url=settings.url,
        cluster=cluster,
        user=settings.user,
        ca_file=settings.ca_file,
        client_cert_file=settings.client_cert_file,
        client_key_file=settings.client_key_file,
    )
    client = RestClient(server, _tokens(settings), timeout_s=settings.request_timeout_s, pace=pace)
    try:
        yield SlurmRest(RestApi(client))
    finally:
        await client.close()


def own_account() -> str:
    """Return the user name that this process runs under; empty where the user has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return ""


def _tokens(settings: RestScheduler) -> TokenKeeper | None:
    from activities.scheduler.command import LocalRunner
    from activities.scheduler.rest_token import TokenKeeper, token_command, token_file, token_variable

    if settings.token_file:
        return TokenKeeper(token_file(settings.token_file))
    if settings.token_variable:
        return TokenKeeper(token_variable(settings.token_variable))
    if settings.token_command:
        return TokenKeeper(token_command(settings.token_command, LocalRunner()))
    return None
