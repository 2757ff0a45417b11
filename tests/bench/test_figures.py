"""Statistics on made-up values whose answers are known."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

import pytest

from harness import figures


def test_spread() -> None:
    found = figures.spread([1.0, 2.0, 3.0, 4.0, 10.0])
    assert (found.count, found.median, found.low, found.high) == (5, 3.0, 1.0, 10.0)
    assert found.cv_percent == pytest.approx(88.4, abs=0.1)
    assert figures.spread([5.0]).cv_percent == 0


def test_paired_ratio_removes_what_disturbs_a_whole_block() -> None:
    """The machine slows down fourfold over the blocks; the pair's ratio stays at a half."""
    baseline = [100.0, 200.0, 300.0, 350.0, 400.0]
    found = figures.paired_ratio([value / 2 for value in baseline], baseline)
    assert (found.median, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert found.verdict == "faster"


# Blocks, which of the ordered ratios are the ends, and how often they hold the true median: from
# tables of the sign test.
INTERVALS = [
    (2, 1, 0.5), (3, 1, 0.75), (4, 1, 0.875), (5, 1, 0.9375), (6, 1, 0.96875), (7, 1, 0.984375),
    (8, 1, 0.9921875), (9, 2, 0.9609375), (10, 2, 0.978515625), (11, 2, 0.98828125),
    (12, 3, 0.96142578125), (20, 6, 0.95861053466796875),
]  # fmt: skip


@pytest.mark.parametrize(("count", "outer", "coverage"), INTERVALS)
def test_interval_lies_between_ordered_ratios(count: int, outer: int, coverage: float) -> None:
    values = [1 + 0.01 * number for number in range(1, count + 1)]
    random.Random(count).shuffle(values)
    found = figures.paired_ratio(values, [1.0] * count)
    assert (found.low, found.high) == (1 + 0.01 * outer, 1 + 0.01 * (count + 1 - outer))
    assert found.coverage == coverage
    assert found.pairs == count


def test_interval_of_a_few_blocks_holds_the_truth_as_often_as_it_says() -> None:
    """Over many experiments, also of noise that is far from symmetric."""
    source = random.Random(7)
    for count, _, coverage in INTERVALS:
        missed = 0
        for _ in range(2000):
            values = [source.expovariate(math.log(2)) for _ in range(count)]  # of median 1
            found = figures.paired_ratio(values, [1.0] * count)
            missed += not found.low <= 1 <= found.high
        spread = 4 * math.sqrt(2000 * coverage * (1 - coverage))
        assert abs(missed - 2000 * (1 - coverage)) < spread


def test_one_pair_says_nothing() -> None:
    found = figures.paired_ratio([1.0], [2.0])
    assert found.median == pytest.approx(0.5)
    assert found.verdict == "inconclusive"


def test_intervals_say_what_they_are() -> None:
    seven, five, one = (figures.paired_ratio([1.0] * n, [1.0] * n) for n in (7, 5, 1))
    assert figures.interval_words([seven, seven, one]) == "interval of 98.4 % (7 pairs)"
    both = "interval of 93.8 % (5 pairs) or 98.4 % (7 pairs)"
    assert figures.interval_words([seven, five]) == both
    apart = figures.unpaired_ratio([1.0] * 5, [1.0] * 5)
    assert figures.interval_words([apart]) == "95 % bootstrap interval"
    assert figures.interval_words([one, one]) == "interval that is not known (1 pair)"
    assert figures.interval_words([]) == "interval that is not known (1 pair)"


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(1.1, 1.2, "slower"), (0.8, 0.9, "faster"), (0.9, 1.2, "inconclusive"), (0.98, 1.02, "same"),
     (1.005, 1.02, "same"), (1.01, 1.2, "slower")],
)  # fmt: skip
def test_verdict(low: float, high: float, verdict: str) -> None:
    assert figures.Ratio(median=1.0, low=low, high=high, pairs=5).verdict == verdict


def test_unequal_numbers_of_runs_are_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        figures.paired_ratio([1.0, 2.0], [1.0])


def test_geometric_mean() -> None:
    assert figures.geometric_mean([0.5, 2.0]) == pytest.approx(1.0)
    assert figures.geometric_mean([1.0, 8.0, 27.0]) == pytest.approx(6.0)


def test_slope_ignores_wild_points() -> None:
    at = [float(t) for t in range(20)]
    values = [3 * t + 5 for t in at]
    values[4] = 1e6
    values[11] = -1e6
    assert figures.slope(at, values) == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("pairs", "verdict"), [(1, "inconclusive"), (2, "inconclusive"), (3, "faster")]
)
def test_two_pairs_say_nothing(pairs: int, verdict: str) -> None:
    """Their interval covers half."""
    assert figures.paired_ratio([0.9] * pairs, [1.0] * pairs).verdict == verdict


@pytest.mark.parametrize("count", [5, 24, 25, 33, 47, 95, 1000])
def test_a_trend_is_through_so_many_points_at_most(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stretch of residuals is then a quarter of the series."""
    seen: list[int] = []

    def noted(times: Sequence[float], points: Sequence[float]) -> float:
        seen.append(len(points))
        return 0.0

    monkeypatch.setattr(figures, "slope", noted)
    figures.drift([float(at) for at in range(count)], [1.0] * count)
    assert min(count, 12) <= seen[0] <= figures.DRIFT_SEGMENTS


def test_drift_of_a_level_series_holds_zero() -> None:
    source = random.Random(3)
    at = [float(t) for t in range(600)]
    found = figures.drift(at, [100 + source.gauss(0, 1) for _ in at])
    assert found.low <= 0 <= found.high
    assert abs(found.percent) < 1


def test_drift_of_a_rising_series_is_its_rise() -> None:
    """From 100 to 110: nearly ten percent of the middle."""
    source = random.Random(3)
    at = [float(t) for t in range(600)]
    values = [100 + 10 * t / 600 + source.gauss(0, 1) for t in at]
    found = figures.drift(at, values)
    assert found.percent == pytest.approx(9.5, abs=0.7)
    assert 0 < found.low < found.percent < found.high
    assert found == figures.drift(at, values)


def test_drift_of_a_series_whose_neighbours_are_alike_is_no_more_certain_than_it_is() -> None:
    """A level series with an autocorrelation of 0.6: drawn one by one its residuals would say of
    nearly half of such series that they drift."""
    at = [float(t) for t in range(24)]
    held = 0
    for seed in range(60):
        source = random.Random(seed)
        values, state = [], 0.0
        for _ in at:
            state = 0.6 * state + source.gauss(0, 1)
            values.append(100 + state)
        found = figures.drift(at, values)
        held += found.low <= 0 <= found.high
    assert held >= 44


def test_drift_of_too_few_points_is_an_error() -> None:
    with pytest.raises(ValueError, match="three points"):
        figures.drift([0.0, 1.0], [1.0, 1.0])
