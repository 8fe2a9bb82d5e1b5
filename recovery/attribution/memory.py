"""Whose memory it was when a whole node had none left: the kernel prints a table of all processes before it kills."""

from __future__ import annotations

import re2

from recovery.attribution.finding import Finding
from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.model import Action, Category

_ROW = re2.compile(r"\[ *(\d{1,10})\] +\d+ +\d+ +\d+ +(\d{1,15}) +\d+ +\d+ +-?\d+ \S")
_KILLED_IN_JOB = re2.compile(r"task_memcg=\S*/job_(\d+)/\S*,pid=(\d{1,10})")


def own_process_too_big(first: Reading, scene: Scene) -> Finding | None:
    """Return that the job ran its node out of memory, when what was killed is its own process and the biggest of the
    kernel's table. A smaller one was a victim of somebody else's."""
    there = [r for r in scene.readings if r.node == first.node]
    rows = [(int(found.group(2)), found.group(1), r) for r in there if (found := _ROW.search(r.text))]
    if not rows:
        return None
    deaths = [found for r in there if (found := _KILLED_IN_JOB.search(r.text))]
    killed = {found.group(2) for found in deaths if _is_own(found.group(1), scene)}
    _, biggest, row = max(rows, key=lambda entry: entry[0])
    if biggest not in killed:
        return None
    return Finding(
        category=Category.USER_CODE,
        cause="host_memory_leak",
        action=Action.RESTART,
        summary="the job's own process was the biggest when its node ran out of memory",
        evidence=(first, row),
        place="host memory",
    )


def _is_own(job: str, scene: Scene) -> bool:
    return scene.facts.is_named(job)
