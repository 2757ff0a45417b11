"""From raw rows to figures: medians, spread, paired ratios with an interval, verdicts."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 2000
# Two allocators whose whole interval lies this close together are called the same.
SAME_WITHIN = 0.03


@dataclass(frozen=True)
class Spread:
    """A set of repetitions: median, extremes, coefficient of variation in percent."""

    count: int
    median: float
    low: float
    high: float
    cv_percent: float


@dataclass(frozen=True)
class Ratio:
    """How many times the baseline's value, paired run by run, with a 95 % bootstrap interval."""

    median: float
    low: float
    high: float
    pairs: int

    @property
    def verdict(self) -> str:
        """In terms of a value of which more is better."""
        if self.low >= 1 - SAME_WITHIN and self.high <= 1 + SAME_WITHIN:
            return "same"
        if self.low > 1:
            return "faster"
        return "slower" if self.high < 1 else "inconclusive"


def spread(values: Sequence[float]) -> Spread:
    """Summary of one row's repetitions."""
    mean = statistics.fmean(values)
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return Spread(
        count=len(values),
        median=statistics.median(values),
        low=min(values),
        high=max(values),
        cv_percent=100 * deviation / mean if mean else 0.0,
    )


def paired_ratio(values: Sequence[float], baseline: Sequence[float], seed: int = 1) -> Ratio:
    """Median of value/baseline over blocks, and where it lies when the blocks are drawn anew.

    Both sequences hold one value per block, in the same order: what disturbed a whole block
    cancels out.
    """
    logs = [math.log(value / base) for value, base in zip(values, baseline, strict=True)]
    source = random.Random(seed)
    medians = sorted(statistics.median(source.choices(logs, k=len(logs))) for _ in range(RESAMPLES))
    return Ratio(
        median=math.exp(statistics.median(logs)),
        low=math.exp(medians[int(0.025 * RESAMPLES)]),
        high=math.exp(medians[int(0.975 * RESAMPLES) - 1]),
        pairs=len(logs),
    )


def geometric_mean(values: Sequence[float]) -> float:
    """The mean for ratios."""
    return math.exp(statistics.fmean(math.log(value) for value in values))
