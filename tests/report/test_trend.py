"""Growth that a series shows, and fluctuation that is none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hakmem.report import trend
from hakmem.report.series import Point, Series
from tests.inspect.support.synthetic import make_snapshot

KIB = 1 << 10


def series(live: Callable[[int], int], large: Callable[[int], int], count: int = 40) -> Series:
    """A snapshot a second; `live` is of class 112, in KiB, `large` of large blocks."""
    snapshot = make_snapshot(superslab_count=1)
    points = tuple(
        Point(at * 10**9, 8192 * KIB, {"large": large(at) * KIB}, {16: 64, 112: live(at) * KIB})
        for at in range(count)
    )
    return Series(snapshot, snapshot, points, count)


def still(_at: int) -> int:
    return 500


def test_steady_growth_is_found_with_its_rate() -> None:
    (found,) = trend.findings(series(lambda at: 100 + 20 * at, still))
    assert "class 112 B grew all along: from 100.0 KiB to 880.0 KiB in 39 s" in found.text
    assert "1.2 MiB a minute" in found.text
    (found,) = trend.findings(series(still, lambda at: 100 + 20 * at))
    assert "large blocks grew" in found.text


@pytest.mark.parametrize(
    "live",
    [
        still,
        lambda at: 100 + at // 2,  # too little
        lambda at: 5000 if at % 2 else 100,  # to and fro
        lambda at: min(100 + 100 * at, 1000),  # filled, then still
        lambda at: 1000 - 20 * at,
    ],
)
def test_what_is_no_growth(live: Callable[[int], int]) -> None:
    assert trend.findings(series(live, still)) == ()


def test_too_few_points_show_nothing() -> None:
    assert trend.findings(series(lambda at: 1000 * at, still, count=7)) == ()
    assert trend.findings(None) == ()


def test_growth_through_noise() -> None:
    (found,) = trend.findings(series(lambda at: 100 + 20 * at + (at * 37) % 90, still))
    assert found.kind == "growing"
