"""Slurm's filename patterns in ``--output`` and ``--error``, expanded as slurmd expands them for a batch script.

Tried on 22.05.8, where ``squeue --json`` gives the pattern as it was submitted and slurmd opens: ``%A`` and ``%j`` with
the job's id when it is no array task, ``%a`` with 4294967294 then, ``%J`` with the bare job id, ``%n`` and ``%t`` with
0, ``%s`` with ``batch``, numbers padded with zeros on request (``%5j``), an unknown letter as it stands, and ``%%`` as
one percent sign.
A backslash anywhere switches all of this off, and is itself removed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import NamedTuple

_NO_TASK = "4294967294"
_PLACEHOLDER = re.compile(r"%%|%([0-9]{0,9})([a-zA-Z])")
_MAX_WIDTH = 10
_NUMBERS = "AajJnt"


class BatchFile(NamedTuple):
    """What the patterns of one job's batch script stand for."""

    job_number: str
    """SLURM_JOB_ID; of an array task another number than in ``<array>_<task>``."""
    array_job_id: str
    """Empty when the job is no array task."""
    array_task_id: str
    name: str
    user: str
    batch_host: str
    """Empty before the job has started."""
    work_dir: str


def expanded_path(pattern: str, job: BatchFile) -> str:
    """Return the absolute path that `pattern` names, an empty pattern being Slurm's default file. Empty when there is
    no such file (``none``, ``/dev/null``), or when it cannot be known before the job has started."""
    name = _expanded(pattern or ("slurm-%A_%a.out" if job.array_job_id else "slurm-%j.out"), job)
    path = PurePosixPath(job.work_dir, name)
    return str(path) if name and path.is_absolute() and str(path) != "/dev/null" else ""


def _expanded(pattern: str, job: BatchFile) -> str:
    if "\\" in pattern:
        return re.sub(r"\\(.?)", r"\1", pattern)
    if not job.batch_host and "N" in letters_of(pattern):
        return ""
    return filled(pattern, _meanings(job))


def letters_of(pattern: str) -> frozenset[str]:
    """Return the letters that `pattern` asks to be filled in."""
    return frozenset(letter for _, letter in _PLACEHOLDER.findall(pattern) if letter)


def filled(pattern: str, meanings: Mapping[str, str], *, unknown: str | None = None) -> str:
    """Return `pattern` with each letter's meaning in its place; for a letter without one `unknown`, or, where that is
    None, what stands there."""

    def meaning_of(match: re.Match[str]) -> str:
        if match[0] == "%%":
            return "%"
        width, letter = match.groups()
        meaning = meanings.get(letter, match[0] if unknown is None else unknown)
        padded = width and letter in _NUMBERS and meaning.isdigit()
        return meaning.zfill(min(int(width), _MAX_WIDTH)) if padded else meaning

    return _PLACEHOLDER.sub(meaning_of, pattern)


def _meanings(job: BatchFile) -> dict[str, str]:
    return {
        "A": job.array_job_id or job.job_number,
        "a": job.array_task_id or _NO_TASK,
        "j": job.job_number,
        "J": job.job_number,
        "N": job.batch_host.split(".")[0],
        "n": "0",
        "s": "batch",
        "t": "0",
        "u": job.user,
        "x": job.name,
    }
