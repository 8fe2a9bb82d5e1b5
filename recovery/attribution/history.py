"""The same failure again: on one GPU it is the GPU, on different nodes it is the software or the data."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import re2

from recovery.attribution.finding import Finding
from recovery.attribution.reading import Reading
from recovery.attribution.scene import Scene
from recovery.model import Action, Category, Confidence

_REPEATED_XIDS = frozenset({"gpu_sm_exception", "gpu_mmu_fault"})
_STRIKES_THAT_MAKE_A_PATTERN = 2
_APART = timedelta(minutes=5)
"""Exceptions of one GPU this far apart are of different runs of the program, whatever their order in the log."""
_SAMPLE = re2.compile(r"(?i)\b(?:shard|file|sample|document|batch|part|path)\w*[=: ]+['\"]?([\w./-]*\d[\w./-]*)")
_DATA_CAUSES = frozenset(
    {"device_side_assert", "python_exception_one_rank", "python_exception_all_ranks", "corrupt_shard"}
)
_NEAR = 40
"""How many lines before an error are searched for what was being read."""


def same_gpu_again(scene: Scene) -> Finding | None:
    """An application-kind Xid that strikes the same GPU in attempt after attempt: a faulty unit of that GPU."""
    struck: dict[tuple[str, str], list[Reading]] = {}
    for attempt in (*scene.earlier, scene.readings):
        begins = attempt[0].order if attempt else 0
        for r in attempt:
            if r.cause in _REPEATED_XIDS and r.node:
                strikes = struck.setdefault((r.node, r.field("gpu")), [])
                if not strikes or strikes[-1].order < begins or _far_apart(strikes[-1], r):
                    strikes.append(r)
    repeated = {place: lines for place, lines in struck.items() if len(lines) >= _STRIKES_THAT_MAKE_A_PATTERN}
    if len(repeated) != 1 or len(struck) != 1:
        return None
    (node, gpu), lines = next(iter(repeated.items()))
    return Finding(
        category=Category.HARDWARE_GPU,
        cause="gpu_repeated_sm_exception",
        action=Action.RESTART_EXCLUDE,
        summary=f"the same GPU ({gpu}) raised exceptions in {len(lines)} runs: the GPU, not the program",
        evidence=tuple(lines),
        culprits=(node,),
        confidence=Confidence.ESTABLISHED,
        place="gpu exception",
    )


def _far_apart(one: Reading, other: Reading) -> bool:
    return one.at is not None and other.at is not None and abs(other.at - one.at) >= _APART


def bad_data(finding: Finding, scene: Scene) -> Finding:
    """Turn a program error into a data error when attempts died with the same error on the same file or sample."""
    if finding.cause not in _DATA_CAUSES or not finding.evidence:
        return finding
    error = finding.evidence[0]
    read_now = _being_read(error, scene.readings)
    for attempt in scene.earlier:
        before = next((r for r in attempt if _same_error(error, r)), None)
        same = read_now & _being_read(before, attempt) if before else frozenset()
        if before and same:
            return replace(
                finding,
                category=Category.DATA,
                cause="bad_sample_in_data",
                action=Action.STOP,
                summary=f"{finding.summary}, in two attempts while reading {', '.join(sorted(same))[:120]}",
                confidence=Confidence.ESTABLISHED,
                evidence=(before, *finding.evidence[:2]),
            )
    return finding


def _same_error(one: Reading, other: Reading) -> bool:
    return one.signature is other.signature if one.match else one.text == other.text


def _being_read(error: Reading, attempt: tuple[Reading, ...]) -> frozenset[str]:
    """The file and sample names that the failing process printed shortly before."""
    before = [r for r in attempt if error.order - _NEAR <= r.order <= error.order and r.rank == error.rank]
    return frozenset(
        name
        for r in before
        if r.marker is None and r.match is None
        for name in _SAMPLE.findall(r.text)
        if len(name) > 3
    )
