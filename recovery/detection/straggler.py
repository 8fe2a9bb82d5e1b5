"""Stragglers: a job that became slower than it was, the rank that holds it up, and an imbalance between the ranks.

A straggler is judged against the past, never against the other ranks alone: ranks that were always slower (an uneven
split of the model, a smaller share of a GPU) hold up nobody more than before. A slow place that moves from rank to rank
is imbalance of the work, and names none.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from recovery.detection.drift import BLOCK, Drift, DriftRule, Slowdown
from recovery.model import Value

OF_THE_JOB = DriftRule(smallest=0.05, least_blocks=4)
"""The whole job's step time: 5 %, for twenty samples."""
OF_A_RANK = (DriftRule(smallest=0.1, least_blocks=2), DriftRule(smallest=0.05, least_blocks=8))
"""One rank's time relative to the others': 10 % for ten samples; failing that, 5 % for forty."""
OF_THE_SPREAD = DriftRule(smallest=0.3, least_blocks=16)
"""The spread of all ranks, which every hiccup of any of them moves."""

_MOST_SLOW = 0.25
"""When more of the ranks than this are slow, it is not them."""


class SlowRank(Value):
    """A rank that became slower than the others, and stayed so for a while."""

    rank: int
    factor: float
    """How many times longer it takes, relative to the others, than before."""
    first: int
    """The sample at which it was certain."""
    last: int
    """The last sample at which it was slow."""


def slowdown_of_job(step_times: Sequence[float]) -> Slowdown | None:
    """Return the first lasting slow-down in a job's step times, in any unit."""
    return _first_slowdown(step_times, OF_THE_JOB)


def slow_ranks(times: Mapping[int, Sequence[float]]) -> tuple[SlowRank, ...]:
    """Return the ranks that hold up the others, from the times of each rank for the same steps.

    The times must not contain the waiting for the others, which makes all alike. None when the slow place moves.
    """
    samples = min((len(series) for series in times.values()), default=0)
    if len(times) < 2 or not samples:
        return ()
    usual = [statistics.median_low(series[sample] for series in times.values()) for sample in range(samples)]
    relative = {rank: _relative(series, usual) for rank, series in sorted(times.items())}
    return next((found for rule in OF_A_RANK if (found := _slow_by(rule, relative))), ())


def imbalance_emerged(variations: Sequence[float], ranks: int) -> Slowdown | None:
    """Return whether one rank fell behind the others, from the coefficient of variation of their times at each step.

    The variation is read as the slowness of a single rank: one of N that takes 1 + x times as long as the others makes
    a variation of about x √(N-1) / N.
    """
    share = math.sqrt(ranks - 1) / ranks if ranks > 1 else 1.0
    return _first_slowdown([1 + variation / share for variation in variations], OF_THE_SPREAD)


def _first_slowdown(series: Sequence[float], rule: DriftRule) -> Slowdown | None:
    drift = Drift()
    for time in series:
        drift = drift.after(time, rule)
        found = drift.slowdown(rule)
        if found is not None:
            return found
    return None


def _relative(series: Sequence[float], usual: Sequence[float]) -> list[float]:
    return [time / base if base > 0 else math.nan for time, base in zip(series, usual, strict=False)]


def _slow_by(rule: DriftRule, relative: Mapping[int, Sequence[float]]) -> tuple[SlowRank, ...]:
    spells = (_slow_spell(rank, series, rule) for rank, series in relative.items())
    found = tuple(spell for spell in spells if spell is not None)
    if len(found) > max(1, _MOST_SLOW * len(relative)) or not _overlap(found) or _moves(found, relative):
        return ()
    return found


def _slow_spell(rank: int, relative: Sequence[float], rule: DriftRule) -> SlowRank | None:
    """Return the first spell in which the rank was slow for certain."""
    drift, spell = Drift(), None
    for sample, time in enumerate(relative):
        drift = drift.after(time, rule)
        found = drift.slowdown(rule)
        if found is not None and spell is None:
            spell = SlowRank(rank=rank, factor=found.factor, first=sample, last=sample)
        elif spell is not None and found is None:
            return spell
        elif spell is not None:
            spell = spell.model_copy(update={"last": sample})
    return spell


def _moves(found: Sequence[SlowRank], relative: Mapping[int, Sequence[float]]) -> bool:
    """Whether many others were about as slow as these at some time."""
    if not found:
        return False
    as_slow = 1 + 0.8 * (min(slow.factor for slow in found) - 1)
    named = {slow.rank for slow in found}
    alike = [rank for rank, series in relative.items() if rank not in named and _slowest_block(series) >= as_slow]
    return len(alike) > _MOST_SLOW * len(relative)


def _slowest_block(series: Sequence[float]) -> float:
    """Return the largest block median against the usual one of the series."""
    blocks = [statistics.median(series[start : start + BLOCK]) for start in range(0, len(series) - BLOCK + 1, BLOCK)]
    return max(blocks) / statistics.median(blocks) if blocks else 0.0


def _overlap(found: Sequence[SlowRank]) -> bool:
    """Whether all were slow at the same time."""
    return not found or max(slow.first for slow in found) <= min(slow.last for slow in found) + BLOCK
