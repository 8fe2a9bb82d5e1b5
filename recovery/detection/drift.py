"""A lasting slow-down of one series of times against its own recent past.

Times come in blocks of five, and a block counts as its median, so that single outliers (a checkpoint, an evaluation)
don't matter. The baseline is the median of the blocks before. What exceeds it by more than half of the smallest
slow-down that is looked for, and by more than the noise, adds up, and what falls short takes away (a CUSUM chart):
noise never gets far, a small step that stays does. Blocks under suspicion don't enter the baseline, or it would follow
a slow-down up; a series that is back where it was is suspected no more.
"""

from __future__ import annotations

import math
import statistics
from typing import NamedTuple

from recovery.model import Value

BLOCK = 5
BASELINE_BLOCKS = 40
LEAST_BASELINE_BLOCKS = 16
_MOST_SUSPECTED = 20
_SLACK_SIGMAS = 1.25
_LIMIT_SIGMAS = 10.0
_LIMIT_BLOCKS = 1.2
_LEAST_SIGMA = 0.002
_RECENT_BLOCKS = 3


class DriftRule(NamedTuple):
    """What is looked for."""

    smallest: float
    """The smallest slow-down, as a part of the usual time: 0.05 for 5 %."""
    least_blocks: int
    """For how many blocks it must have lasted."""


class Slowdown(Value):
    """A series that became slower and stayed so."""

    baseline: float
    """Its usual time before."""
    now: float
    """Its usual time since."""
    samples: int
    """For about how many samples, as far as they are kept."""

    @property
    def factor(self) -> float:
        """How many times longer it takes now."""
        return self.now / self.baseline


class Drift(Value):
    """What is kept of one series."""

    block: tuple[float, ...] = ()
    """The times of the unfinished block."""
    baseline: tuple[float, ...] = ()
    """Medians of unsuspected blocks, oldest first."""
    suspected: tuple[float, ...] = ()
    """Medians of the blocks since the sum left zero."""
    sum: float = 0.0

    def after(self, time: float, rule: DriftRule) -> Drift:
        """Return the series after one more time; what is no positive number is left out."""
        if not (time > 0 and math.isfinite(time)):
            return self
        block = (*self.block, float(f"{time:.5g}"))
        if len(block) < BLOCK:
            return self.model_copy(update={"block": block})
        return self._after_block(statistics.median(block), rule)

    def slowdown(self, rule: DriftRule) -> Slowdown | None:
        """Return the slow-down that the series is in, if it is in one for certain."""
        limit = max(_LIMIT_BLOCKS * rule.smallest, _LIMIT_SIGMAS * self._sigma)
        if len(self.suspected) < rule.least_blocks or self.sum < limit:
            return None
        usual, now = statistics.median(self.baseline), statistics.median(self.suspected)
        still = min(self.suspected[-_RECENT_BLOCKS:]) >= usual * (1 + rule.smallest / 2)
        large = now >= usual * (1 + 0.8 * rule.smallest)
        if not (still and large and now >= self._seen_before * (1 + 0.2 * rule.smallest)):
            return None
        return Slowdown(baseline=usual, now=now, samples=BLOCK * len(self.suspected))

    def accepted(self) -> Drift:
        """Return the series with its present pace as the new usual one."""
        return Drift(baseline=self.suspected)

    def _after_block(self, median: float, rule: DriftRule) -> Drift:
        if len(self.baseline) < LEAST_BASELINE_BLOCKS:
            return Drift(baseline=(*self.baseline, median))
        usual = statistics.median(self.baseline)
        slack = max(rule.smallest / 2, _SLACK_SIGMAS * self._sigma)
        total = max(0.0, self.sum + median / usual - 1 - slack)
        if total == 0:
            return Drift(baseline=(*self.baseline, *self.suspected, median)[-BASELINE_BLOCKS:])
        suspected = (*self.suspected, median)
        recent = suspected[-_RECENT_BLOCKS:]
        if len(recent) == _RECENT_BLOCKS and max(recent) < usual * (1 + rule.smallest / 2):
            return Drift(baseline=(*self.baseline, *recent)[-BASELINE_BLOCKS:])
        return Drift(baseline=self.baseline, suspected=suspected[-_MOST_SUSPECTED:], sum=round(total, 5))

    @property
    def _sigma(self) -> float:
        """The noise of blocks relative to the baseline, from the median absolute deviation, with a margin for what few
        blocks can't tell."""
        if not self.baseline:
            return _LEAST_SIGMA
        usual = statistics.median(self.baseline)
        spread = 1.4826 * statistics.median(abs(median - usual) for median in self.baseline)
        return max(_LEAST_SIGMA, spread / usual * (1 + 5 / len(self.baseline)))

    @property
    def _seen_before(self) -> float:
        """How slow the series has been before without staying so: its slowest blocks but one in twenty."""
        return sorted(self.baseline)[-1 - max(1, len(self.baseline) // 20)]
