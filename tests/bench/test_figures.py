"""Statistics and tables on made-up rows whose answers are known."""

from __future__ import annotations

import pytest

from harness import figures, peers, tables
from harness.errors import BenchError
from harness.programs import Case

CASE = Case(name="made_up", about="a", program="tiny", arguments={"ops": 1})


def made_up(allocator: str, times: list[int]) -> list[dict[str, object]]:
    return [
        {"case": "made_up", "allocator": allocator, "block": block, "ops": 1000, "unit": "calls",
         "wall_ns": time, "cpu_ns": time // 2, "peak_rss_bytes": 2048, "minor_faults": 3}
        for block, time in enumerate(times)
    ]  # fmt: skip


def test_spread() -> None:
    found = figures.spread([1.0, 2.0, 3.0, 4.0, 10.0])
    assert (found.count, found.median, found.low, found.high) == (5, 3.0, 1.0, 10.0)
    assert found.cv_percent == pytest.approx(88.4, abs=0.1)
    assert figures.spread([5.0]).cv_percent == 0


def test_paired_ratio_removes_what_disturbs_a_whole_block() -> None:
    """The machine slows down fourfold over the blocks; the pair's ratio stays at two."""
    baseline = [100.0, 200.0, 300.0, 350.0, 400.0]
    found = figures.paired_ratio([2 * value for value in baseline], baseline)
    assert (found.median, found.low, found.high) == pytest.approx((2, 2, 2))
    assert found.verdict == "faster"


def test_interval_holds_the_truth_and_is_repeatable() -> None:
    values = [1.9, 2.1, 2.0, 2.2, 1.8, 2.05, 1.95]
    ones = [1.0] * len(values)
    found = figures.paired_ratio(values, ones)
    assert 1.8 <= found.low < 2 < found.high <= 2.2
    assert found == figures.paired_ratio(values, ones)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(1.1, 1.2, "faster"), (0.8, 0.9, "slower"), (0.9, 1.2, "inconclusive"), (0.98, 1.02, "same"),
     (1.005, 1.02, "same")],
)  # fmt: skip
def test_verdict(low: float, high: float, verdict: str) -> None:
    assert figures.Ratio(median=1.0, low=low, high=high, pairs=5).verdict == verdict


def test_unequal_numbers_of_runs_are_an_error() -> None:
    with pytest.raises(ValueError, match="shorter"):
        figures.paired_ratio([1.0, 2.0], [1.0])


def test_report_pairs_by_block_and_shows_both_clocks() -> None:
    rows = made_up("base", [1000, 2000, 4000]) + made_up("quick", [500, 1000, 2000])
    text = tables.report(rows, [CASE], ["quick", "base"], "base", "wall")
    assert "| quick | 1000.0 | 500.0 | 2000.0 |" in text
    assert "2.00 [2.00, 2.00] | faster | 2 | 3 |" in text
    assert "| geometric mean of all rows | 2.00 | 1.00 |" in text
    assert "| quick | 2000.0 |" in tables.report(rows, [CASE], ["quick", "base"], "base", "cpu")


def test_lost_block_is_left_out_of_the_pairs() -> None:
    rows = made_up("base", [1000, 2000, 4000]) + made_up("quick", [500, 1000])
    assert "2.00 [2.00, 2.00]" in tables.report(rows, [CASE], ["quick", "base"], "base", "wall")


def test_allocator_without_rows_shows_a_dash() -> None:
    text = tables.report(made_up("base", [1000]), [CASE], ["gone", "base"], "base", "wall")
    assert "| made_up | - | 1000.0 |" in text


def test_unknown_names_are_usage_errors() -> None:
    with pytest.raises(BenchError, match="no allocator 'nonesuch'"):
        peers.choose(["nonesuch"], [])
    with pytest.raises(BenchError, match="NAME=PATH"):
        peers.choose(["glibc"], ["just-a-name"])
