"""The dumps of PyTorch's flight recorder in a directory: one file for each rank, the rank at the end of its name."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NamedTuple

import re2

from recovery.attribution.flight_dump import MAX_RANKS, Dump, load_dump
from recovery.attribution.plain_pickle import MAX_PICKLE_BYTES, NotPlainData

_RANK = re2.compile(r"^(.*?)([0-9]{1,5})(?:\.(?:json|pkl|pickle))?$")


class DumpsRead(NamedTuple):
    """What a directory holds."""

    dumps: tuple[Dump, ...]
    problems: tuple[str, ...]
    """One sentence for each file that could not be read."""


def read_dumps(directory: Path) -> DumpsRead:
    """Read all dumps in `directory`, such as ``nccl_trace_rank_0`` or ``_dump_0``; blocking. Dumps are the files of the
    commonest name, the others are left alone. Raises OSError when the directory itself can't be read."""
    dumps: list[Dump] = []
    problems: list[str] = []
    for rank, path in _dump_files(directory):
        try:
            dumps.append(load_dump(_read(path), rank))
        except (OSError, NotPlainData) as error:
            problems.append(f"{path.name}: {error}")
    return DumpsRead(tuple(dumps), tuple(problems))


def _dump_files(directory: Path) -> list[tuple[int, Path]]:
    by_name: dict[str, list[tuple[int, Path]]] = {}
    for path in sorted(directory.iterdir()):
        found = _RANK.match(path.name)
        if found is not None and int(found.group(2)) < MAX_RANKS:
            by_name.setdefault(found.group(1), []).append((int(found.group(2)), path))
    return max(by_name.values(), key=len, default=[])


def _read(path: Path) -> bytes:
    """Read one more byte than is allowed, so that the limit is noticed where it is enforced."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError("it is not a regular file")
        return file.read(MAX_PICKLE_BYTES + 1)
