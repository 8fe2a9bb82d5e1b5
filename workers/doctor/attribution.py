"""One cluster's attribution service looked at: whether it answers, what it is, and whether it sees what it reads."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from activities.attribution.copies import COPY_MODE, SUFFIX
from activities.attribution.http import HttpService
from activities.attribution.nvrx_api import NvrxApi, Refused
from activities.attribution.settings import HttpSettings, NvrxSettings
from activities.scheduler.protocol import JobState, SchedulerError
from activities.stores.errors import StoreError
from workers.doctor.checks import Check, failed, ok, unknown, warning
from workers.schedulers import open_scheduler
from workers.settings import ClusterSettings

MOST_FILES = 5


async def examine(cluster: ClusterSettings) -> tuple[Check, ...]:
    """Return every check of the cluster's service. Without an answer to the first, the others are not tried."""
    settings = cluster.attribution
    if settings is None:
        says = "no service is configured: relight decides by itself"
        return (unknown("service", says, "set attribution: docs/attribution-services.md"),)
    if isinstance(settings, HttpSettings):
        return (await _reached(settings),)
    return await _nvrx(settings, cluster)


async def _reached(settings: HttpSettings) -> Check:
    service = HttpService(settings)
    try:
        return ok("reach", f"{await service.reached()}; no question was put to it")
    except StoreError as error:
        return _trouble("reach", error)
    finally:
        await service.close()


async def _nvrx(settings: NvrxSettings, cluster: ClusterSettings) -> tuple[Check, ...]:
    api = NvrxApi(settings)
    try:
        health = await api.health()
        checks = [ok("reach", api.shown), _health(health), await _release(api)]
        if settings.copy_dir is None:
            return (*checks, await _visible(api, "output", await _outputs(cluster)))
        return (*checks, await _copies(api, settings.copy_dir))
    except StoreError as error:
        return (_trouble("reach", error),)
    finally:
        await api.close()


def _health(said: str) -> Check:
    if said == "ok":
        return ok("health", "ok")
    return warning("health", f"it calls itself {said[:40]!r}", "see the log of the service, and its /stats")


async def _release(api: NvrxApi) -> Check:
    if await api.takes_attempts():
        return ok("release", "0.7 or newer: it tells the attempts of a job apart")
    return warning("release", "0.6: it can't tell the attempts of a job apart", "install nvidia-resiliency-ext 0.7")


async def _copies(api: NvrxApi, copy_dir: Path) -> Check:
    """Put a file where copies go, have the service look at it, and remove it."""
    try:
        with _left_in(copy_dir) as path:
            return await _visible(api, "copies", [path])
    except OSError as error:
        remedy = "make the directory, and let relight's account write there"
        return failed("copies", f"{copy_dir} can't be written to from here: {error.strerror}", remedy)


@contextmanager
def _left_in(copy_dir: Path) -> Iterator[str]:
    path = copy_dir / f"doctor-{secrets.token_hex(4)}{SUFFIX}"
    path.touch(mode=COPY_MODE)
    try:
        path.write_text("relight doctor attribution\n")
        yield str(path)
    finally:
        path.unlink(missing_ok=True)


async def _visible(api: NvrxApi, name: str, paths: Sequence[str]) -> Check:
    if not paths:
        return unknown(
            name, "no job runs whose output could be looked for", "look again while one does, or set copy_dir"
        )
    for path in paths:
        try:
            await api.preview(path)
        except Refused as refusal:
            return failed(name, f"the service can't read {path}", refusal.remedy)
    return ok(
        name, f"the service sees {paths[0] if len(paths) == 1 else f'the output of the {len(paths)} newest jobs'}"
    )


async def _outputs(cluster: ClusterSettings) -> list[str]:
    """The output files of the newest running jobs; none where the scheduler gives no answer."""
    try:
        async with open_scheduler(cluster) as scheduler:
            jobs = (await scheduler.jobs()).jobs
    except SchedulerError:
        return []
    running = [job for job in jobs if job.state is JobState.RUNNING and job.stdout.startswith("/")]
    return [job.stdout for job in running[-MOST_FILES:]]


def _trouble(name: str, error: StoreError) -> Check:
    says, _, remedy = str(error).rpartition("; ")
    return failed(name, says or str(error), remedy if says else "check `url`")
