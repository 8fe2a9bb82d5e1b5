"""The sections of the settings that say where jobs' lines are read."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from activities.logs.stores.settings import LokiSettings, VictoriaLogsSettings

MOST_SOURCES = 8


class FileLogs(BaseModel):
    """The files that Slurm says a job writes to, on a file system that this host shares."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["files"] = "files"
    step_files: bool = True
    """Read also the files that a job's batch script names for the output of its steps, as far as they can be told from
    it: ``srun --output``, redirections."""

    @property
    def called(self) -> str:
        """What they are called in evidence and messages."""
        return "files"


LogSettings = Annotated[FileLogs | LokiSettings | VictoriaLogsSettings, Field(discriminator="kind")]


def _told_apart(logs: tuple[LogSettings, ...]) -> tuple[LogSettings, ...]:
    names = [each.called for each in logs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two of the logs are called {twice[0]}: give one of them a `name`")
    return logs


LogsSettings = Annotated[
    tuple[LogSettings, ...], Field(min_length=1, max_length=MOST_SOURCES), AfterValidator(_told_apart)
]
"""In the operator's order."""
