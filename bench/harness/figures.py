"""From raw rows to figures: medians, spread, paired ratios with an interval, verdicts, trends.

All of it is about values of which less is better: times and bytes.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

RESAMPLES = 2000
# Percentiles of the resampled figures: the ends of a 95 % interval.
INTERVAL = (2.5, 97.5)
# A paired interval holds the true median at least so often, where it has pairs enough.
COVERAGE_LEAST = 0.95
# Two allocators whose whole interval lies this close together are called the same.
SAME_WITHIN = 0.03
# A verdict wants an interval that covers as much: that of two pairs covers half.
VERDICT_COVERAGE_LEAST = 0.7


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
    """How many times the baseline's value, with an interval.

    `coverage`: the share of experiments like this one whose interval holds the true median, exactly
    (paired_ratio). None: not known; a bootstrap that aims at 95 % (unpaired_ratio).
    """

    median: float
    low: float
    high: float
    pairs: int
    coverage: float | None = None

    @property
    def covers_enough(self) -> bool:
        """Whether its interval is one that a verdict can be given by."""
        return self.coverage is None or self.coverage >= VERDICT_COVERAGE_LEAST

    @property
    def verdict(self) -> str:
        """Of times. `same`: the whole interval is within SAME_WITHIN of 1; `inconclusive`: the
        interval holds 1 and reaches further, so that the noise hides which is faster, or it is of
        so few pairs that it covers little."""
        if not self.covers_enough:
            return "inconclusive"
        if self.low >= 1 - SAME_WITHIN and self.high <= 1 + SAME_WITHIN:
            return "same"
        if self.high < 1:
            return "faster"
        return "slower" if self.low > 1 else "inconclusive"


@dataclass(frozen=True)
class Drift:
    """A trend over a series, in percent of its median from one end to the other, with a 95 %
    interval."""

    percent: float
    low: float
    high: float


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


def coverage(count: int, outer: int = 1) -> float:
    """How often the true median lies between the `outer`-th least and the `outer`-th largest of so
    many independent values: unless fewer than `outer` of them fall on one side of it, which is a
    matter of tossing coins (Thompson, "On confidence ranges for the median", 1936)."""
    return 1.0 - 2 * sum(math.comb(count, few) for few in range(outer)) / float(2**count)


def outer_values(count: int) -> int:
    """The largest `outer` whose coverage is COVERAGE_LEAST; 1, the whole range, when none is."""
    outer = 1
    while coverage(count, outer + 1) >= COVERAGE_LEAST:
        outer += 1
    return outer


def paired_ratio(values: Sequence[float], baseline: Sequence[float]) -> Ratio:
    """Median of value/baseline over blocks, and its exact interval from the ordered ratios: of 5
    blocks the whole range, which covers 93.8 %, of 7 as well (98.4 %), of 11 from the second to the
    tenth (98.8 %). It supposes nothing of the noise but that blocks are independent.

    Both sequences hold one value per block, in the same order: what disturbed a whole block
    cancels out. One pair alone has an interval that says nothing: from 0 to infinity.
    """
    ratios = sorted(value / base for value, base in zip(values, baseline, strict=True))
    median = math.exp(statistics.median(map(math.log, ratios)))
    count = len(ratios)
    if count == 1:
        return Ratio(median=median, low=0.0, high=math.inf, pairs=1, coverage=1.0)
    outer = outer_values(count)
    low, high = ratios[outer - 1], ratios[-outer]
    return Ratio(median, low, high, pairs=count, coverage=coverage(count, outer))


def interval_words(ratios: Iterable[Ratio]) -> str:
    """What the intervals of these ratios are: "interval of 98.4 % (7 pairs)"."""
    meant = [ratio for ratio in ratios if ratio.pairs > 1]
    exact = {ratio.pairs: ratio.coverage for ratio in meant if ratio.coverage is not None}
    if not exact:
        return "95 % bootstrap interval" if meant else "interval that is not known (1 pair)"
    shares = [f"{100 * share:.1f} % ({pairs} pairs)" for pairs, share in sorted(exact.items())]
    return f"interval of {' or '.join(shares)}"


def unpaired_ratio(values: Sequence[float], baseline: Sequence[float], seed: int = 1) -> Ratio:
    """The ratio of two medians whose runs have nothing to do with each other, and where it lies
    when each side is drawn anew by itself (the percentile bootstrap: Efron, "Bootstrap Methods",
    1979)."""
    median = statistics.median(values) / statistics.median(baseline)
    pairs = min(len(values), len(baseline))
    if pairs == 1:
        return Ratio(median=median, low=0.0, high=math.inf, pairs=1)
    source = np.random.default_rng(seed)
    own = np.median(source.choice(values, size=(RESAMPLES, len(values))), axis=1)
    base = np.median(source.choice(baseline, size=(RESAMPLES, len(baseline))), axis=1)
    low, high = np.percentile(own / base, INTERVAL)
    return Ratio(median=median, low=float(low), high=float(high), pairs=pairs)


def geometric_mean(values: Sequence[float]) -> float:
    """The mean for ratios."""
    return math.exp(statistics.fmean(math.log(value) for value in values))


def slope(at: Sequence[float], values: Sequence[float]) -> float:
    """The median of the slopes between all pairs of points: a few wild ones do not move it (Theil
    1950, Sen 1968)."""
    slopes = [
        (values[j] - values[i]) / (at[j] - at[i])
        for i in range(len(at))
        for j in range(i + 1, len(at))
        if at[j] > at[i]
    ]
    return statistics.median(slopes)


DRIFT_SEGMENTS = 24
DRIFT_RESAMPLES = 400
# Of a soak's segments neighbours are alike (0.6 of one's residual is the next one's): so many are
# drawn together, or the interval would be half as wide as it is.
DRIFT_BLOCK = 6


def _places_drawn(count: int, seed: int) -> npt.NDArray[np.int64]:
    """Which of `count` points each resample has: stretches of DRIFT_BLOCK neighbours from anywhere,
    the first behind the last (the circular block bootstrap: Politis and Romano, 1992)."""
    starts = np.random.default_rng(seed).integers(
        count, size=(DRIFT_RESAMPLES, math.ceil(count / DRIFT_BLOCK), 1)
    )
    places = (starts + np.arange(DRIFT_BLOCK)) % count
    return places.reshape(DRIFT_RESAMPLES, -1)[:, :count]


def drift(at: Sequence[float], values: Sequence[float], seed: int = 1) -> Drift:
    """How far a series moves over its length, by the robust slope through the medians of at most
    DRIFT_SEGMENTS equal parts. The interval comes from drawing the residuals anew, in stretches."""
    size = max(1, math.ceil(len(values) / DRIFT_SEGMENTS))
    count = len(values) // size
    if count < 3:
        raise ValueError("a trend needs at least three points")
    times = [statistics.fmean(at[i * size : (i + 1) * size]) for i in range(count)]
    points = [statistics.median(values[i * size : (i + 1) * size]) for i in range(count)]
    middle = statistics.median(points)
    scale = 100 * (at[-1] - at[0]) / middle if middle else 0.0
    trend = slope(times, points)
    residuals = [point - trend * time for point, time in zip(points, times, strict=True)]
    slopes = [
        slope(times, [trend * time + float(rest) for time, rest in zip(times, line, strict=True)])
        for line in np.array(residuals)[_places_drawn(count, seed)]
    ]
    low, high = (float(end) * scale for end in np.percentile(slopes, INTERVAL))
    return Drift(percent=trend * scale, low=low, high=high)


def drift_in_equal_states(
    at: Sequence[float],
    values: Sequence[float],
    states: Sequence[float],
    within: float,
    length: float,
    seed: int = 1,
) -> Drift | None:
    """As drift(), over `length` in the unit of `at`, of points of which only those can be compared
    whose states differ by the part `within` at most: the median of the slopes, in logarithms,
    between all such pairs that lie at least a quarter of the length apart. The interval comes from
    drawing the points anew, in stretches. None when less than half of the points have a partner, or
    one is not positive.
    """
    if min(*values, *states) <= 0:
        return None
    times, levels, logs = np.array(at), np.log(np.array(values)), np.log(np.array(states))
    one, other = np.triu_indices(len(times), 1)
    gaps = times[other] - times[one]
    is_pair = (np.abs(logs[other] - logs[one]) <= math.log1p(within)) & (4 * gaps >= length)
    one, other, gaps = one[is_pair], other[is_pair], gaps[is_pair]
    if 2 * len(np.union1d(one, other)) < len(times):
        return None
    slopes = (levels[other] - levels[one]) / gaps
    order = np.argsort(slopes)
    slopes, one, other = slopes[order], one[order], other[order]

    def middle(counts: npt.NDArray[np.int64]) -> float | None:
        """Percent; None where no pair was drawn."""
        weights = np.cumsum(counts[one] * counts[other])
        if weights[-1] == 0:
            return None
        both = [np.searchsorted(weights, weights[-1] / 2, side=side) for side in ("left", "right")]
        return 100 * math.expm1(float(np.mean(slopes[both])) * length)

    whole = middle(np.ones(len(times), dtype=np.int64))
    drawn = [
        middle(np.bincount(places, minlength=len(times)))
        for places in _places_drawn(len(times), seed)
    ]
    assert whole is not None
    low, high = (
        float(end) for end in np.percentile([each for each in drawn if each is not None], INTERVAL)
    )
    return Drift(percent=whole, low=low, high=high)
