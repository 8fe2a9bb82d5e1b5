"""What commands get from the command line's shared options."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from workers.cli.output import CliError

if TYPE_CHECKING:
    from workers.settings import ClusterSettings, Settings

SIGTERM_EXIT_CODE = 128 + signal.SIGTERM

Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Options:
    """The shared options, and the settings that they lead to."""

    config: Path | None
    debug: bool

    def settings(self) -> Settings:
        """Read the settings, and mask from now on what they say. Raises `SettingsError`."""
        from recovery.redaction import mask_also
        from workers.settings import load_settings

        settings = load_settings(self.config)
        mask_also(settings.redaction.patterns)
        return settings


def run(work: Coroutine[None, None, Result]) -> Result:
    """Run `work` to its end; Ctrl-C and SIGTERM cancel it and let it clean up."""
    from workers.logs import set_up_logging

    set_up_logging(debug=False, quiet=True)
    try:
        return asyncio.run(_cancelled_by_sigterm(work))
    except asyncio.CancelledError:
        raise typer.Exit(SIGTERM_EXIT_CODE) from None


async def _cancelled_by_sigterm(work: Coroutine[None, None, Result]) -> Result:
    task = asyncio.current_task()
    if task is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await work


def job_reference(text: str, settings: Settings) -> tuple[ClusterSettings, str]:
    """Return cluster and job id of ``123``, ``123_4`` or ``cluster/123``. Raises `CliError`."""
    import re

    from recovery.model import JOB_ID_PATTERN

    name, _, job_id = text.rpartition("/")
    if not re.fullmatch(JOB_ID_PATTERN, job_id):
        raise CliError(f"{text[:60]!r} is not a job", "give a Slurm job id such as 123 or 123_4, or cluster/123")
    clusters = {cluster.name: cluster for cluster in settings.clusters}
    if not name and len(clusters) == 1:
        return next(iter(clusters.values())), job_id
    if not clusters:
        raise CliError(
            "no cluster is configured", "add one under `clusters:` in relight.yaml, or name it with --config"
        )
    if name not in clusters:
        known = ", ".join(clusters) or "none"
        what = f"cluster {name!r} is not configured" if name else "the cluster is not clear"
        raise CliError(f"{what}; configured: {known}", "write the job as cluster/id")
    return clusters[name], job_id
