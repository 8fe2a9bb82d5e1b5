"""A disk of its own for one directory, which can be full: a file system in memory whose size is changed while it is in
use. Only root may mount one; elsewhere no disk is ever full."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SIZE = "2g"
SPARE_KIB = (4, 64, 256, 1024)
"""What is left of a full disk: as little as its writers let us."""


class Disk:
    """The file system below `directory`."""

    def __init__(self, directory: Path, *, mounted: bool) -> None:
        self._directory = directory
        self.can_be_full = mounted

    def fill(self) -> None:
        """Leave no room for anything. Who writes meanwhile may need more than was counted a moment before."""
        for spare_kib in SPARE_KIB:
            used_kib = shutil.disk_usage(self._directory).used // 1024
            if self._resize(f"{used_kib + spare_kib}k"):
                return
        raise RuntimeError(f"the disk of {self._directory} could not be made as small as what it holds")

    def free(self) -> None:
        """Give the room back."""
        if not self._resize(SIZE):
            raise RuntimeError(f"the disk of {self._directory} could not be given its room back")

    def _resize(self, size: str) -> bool:
        command = ["mount", "-o", f"remount,size={size}", str(self._directory)]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0


@contextmanager
def disk(directory: Path, *, mode: int = 0o711) -> Iterator[Disk]:
    """Mount a disk on `directory`, which is made where it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(mode)
    mounted = _mount(directory, mode)
    try:
        yield Disk(directory, mounted=mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(directory)], check=False)


def _mount(directory: Path, mode: int) -> bool:
    if sys.platform != "linux" or os.geteuid() != 0:
        return False
    options = f"size={SIZE},mode={mode:o}"
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "relight-chaos", str(directory)], capture_output=True
    )
    return mounting.returncode == 0
