"""What of a simulated cluster outlives its process, as slurmctld's saved state does, never older than the last call.

One file in the state directory, replaced as a whole. It is removed when the cluster ends in good order, so that only
one that was killed comes back with its jobs.
"""

from __future__ import annotations

from pathlib import Path

from recovery.model import Value
from workers.simulator.job import Job

STATE = "state.json"


class SavedCluster(Value):
    """All that `workers.simulator.cluster.Cluster` knows."""

    journal_bytes: int = 0
    """How long the journal was: a call whose effect was not saved never happened, and its line goes."""
    next_number: int
    down: tuple[str, ...]
    jobs: tuple[Job, ...]


class StateFile:
    """The file of one cluster."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / STATE

    def write(self, saved: SavedCluster) -> None:
        """Replace what is there."""
        beside = self._path.with_suffix(".new")
        beside.write_text(saved.model_dump_json())
        beside.replace(self._path)

    def read(self) -> SavedCluster | None:
        """Return what a killed process left; None where there is nothing."""
        try:
            return SavedCluster.model_validate_json(self._path.read_bytes())
        except FileNotFoundError:
            return None

    def remove(self) -> None:
        """Leave nothing for the next process."""
        self._path.unlink(missing_ok=True)
