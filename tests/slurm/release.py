"""Which Slurm a test cluster runs: this host's own, or another release in a folder that make_root.sh made."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

OWN = "own"
IN_FOLDERS = ("24.11", "26.05")
_WRAPPED_COMMANDS = (
    *("sacct", "sacctmgr", "salloc", "sbatch", "scancel", "scontrol", "sdiag", "sinfo", "sprio", "squeue", "srun"),
    *("slurmctld", "slurmd", "slurmdbd", "slurmrestd"),
)
# Debian's, and those of Slurm's own make install and packages.
_PLUGIN_FOLDERS = ("lib/*/slurm-wlm", "lib/slurm", "lib64/slurm")
_ENTER = Path(__file__).with_name("enter_root.sh")
_COMMAND_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class SlurmRelease:
    """One installed Slurm. Its daemons and commands authenticate through this host's own munged in either case."""

    name: str = OWN
    """``own``, or the release in a folder: ``24.11``, ``26.05``."""

    @property
    def root(self) -> Path:
        """The folder that this release's files lie in."""
        return Path("/") if self.name == OWN else cache_directory() / f"slurm-{self.name}"

    def why_missing(self) -> str | None:
        """Return why this release cannot be used here, in a few words, or None when it can."""
        if self.root.is_dir():
            return None
        return f"there is no Slurm {self.name} here; tests/slurm/make_root.sh {self.name} makes it"

    @cached_property
    def version(self) -> tuple[int, int]:
        """Year and month of the release, from its own slurmctld."""
        command = ["slurmctld", "-V"] if self.name == OWN else ["chroot", str(self.root), "slurmctld", "-V"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_COMMAND_TIMEOUT_S)
        found = re.search(r"(\d+)\.(\d+)\.", done.stdout)
        if found is None:
            raise ValueError(f"slurmctld -V answered {done.stdout!r}")
        return int(found[1]), int(found[2])

    def has_plugin(self, name: str) -> bool:
        """Whether Slurm's plugin `name`, such as ``auth_jwt``, is installed."""
        slurmctld = shutil.which("slurmctld") if self.name == OWN else None
        prefix = Path(slurmctld).parents[1] if slurmctld else self.root / "usr"
        return any(file for folder in _PLUGIN_FOLDERS for file in prefix.glob(f"{folder}/{name}.so"))

    def write_commands(self, directory: Path) -> None:
        """Fill `directory` with commands that run this release's from a folder; with none for this host's own."""
        directory.mkdir()
        if self.name == OWN:
            return
        for name in _WRAPPED_COMMANDS:
            command = directory / name
            command.write_text(f'#!/bin/sh\nexec unshare --mount -- {_ENTER} {self.root} {name} "$@"\n')
            command.chmod(0o755)


def cache_directory() -> Path:
    """Return where make_root.sh keeps its folders."""
    return Path(os.environ.get("SLURM_TEST_CACHE") or Path.home() / ".cache" / "relight")
