"""Verdicts on made-up runs: only what the interval proves counts."""

from __future__ import annotations

import io
import itertools
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hakmem.options import read_options
from hakmem.project import find_project
from hakmem.tune import session
from hakmem.tune.execution import Run
from hakmem.tune.format import read_format
from hakmem.tune.profile_file import Profile, parse, render
from hakmem.tune.proposal import (
    FOR_MEMORY,
    LEAN,
    LITTLE_FREE,
    Change,
    Goal,
    compose,
    small_slab_pages,
)
from hakmem.tune.trial import Comparison, compare, is_better, is_worse, screen
from harness.figures import Ratio

SIZE_CLASSES = Path(__file__).parents[2] / "src/space/size_class.def"

LEANER = Change("leaner", "takes less", {"retain_slabs": "0"})
FASTER = Change("faster", "takes less long", {"retain_slabs": "9"})
SLOW = Change("slow", "takes less, but long", {"purge_delay_ms": "0"})
NOISE = Change("noise", "does nothing", {"purge_delay_ms": "7"})
COSTS = {"retain_slabs=0": (0.8, 1.0), "retain_slabs=9": (1.0, 0.8), "purge_delay_ms=0": (0.7, 1.5)}


def fake(noise: tuple[float, ...] = (1.0,)) -> Callable[[Profile], Run]:
    """Runs that cost what COSTS says of the settings, times noise that comes round."""
    turns = itertools.cycle(noise)

    def once(profile: Profile) -> Run:
        rss, seconds = 1e8, 1.0
        for setting in profile.settings:
            by_rss, by_time = COSTS.get(f"{setting.name}={setting.value}", (1.0, 1.0))
            rss, seconds = rss * by_rss, seconds * by_time
        seconds *= next(turns)
        return Run(seconds, seconds, int(rss), 100, ())

    return once


@pytest.mark.parametrize(
    ("goal", "kept"),
    [
        (Goal.MEMORY, {"leaner"}),
        (Goal.TIME, {"faster"}),
        (Goal.BALANCED, {"leaner"}),
    ],
)
def test_screening_keeps_what_serves_the_goal(goal: Goal, kept: set[str]) -> None:
    tried = [LEANER, SLOW, NOISE] + ([FASTER] if goal is Goal.TIME else [])
    found = screen(fake(), tried, goal, "cpu", "", "")
    assert {each.change.name for each in found if each.kept} == kept


def test_what_one_slow_run_speaks_against_is_run_again() -> None:
    """Of the first two pairs both runs with the change were disturbed, of the others none."""
    noise = (1.0, 2.0, 1.0, 2.0) + (1.0,) * 8
    (found,) = screen(fake(noise), [LEANER], Goal.MEMORY, "cpu", "", "")
    assert found.kept
    assert found.time == pytest.approx(1.0)


def of(rss: tuple[float, float, float], time: tuple[float, float, float]) -> Comparison:
    """Median, low and high of both ratios."""
    return Comparison(Ratio(*rss, pairs=9), Ratio(*time, pairs=9), (), ())


SAME = (1.0, 0.99, 1.01)


@pytest.mark.parametrize(
    ("rss", "time", "goals"),
    [
        ((0.9, 0.89, 0.91), SAME, {"memory", "balanced"}),
        (SAME, (0.9, 0.88, 0.95), {"time", "balanced"}),
        ((0.9, 0.89, 0.91), (0.9, 0.88, 0.95), {"memory", "time", "balanced"}),
        (SAME, SAME, set()),
        ((0.9, 0.7, 1.01), SAME, set()),  # the interval holds 1
        ((0.995, 0.994, 0.996), SAME, set()),  # certain, but next to nothing
        ((0.8, 0.79, 0.81), (1.2, 1.1, 1.3), set()),  # leaner, but slower
        ((1.2, 1.1, 1.3), (0.8, 0.79, 0.81), set()),  # faster, but larger
        ((0.9, 0.89, 0.91), (1.01, 0.9, 1.2), {"memory", "balanced"}),  # noise alone is no loss
    ],
)
def test_only_what_is_proved_counts(
    rss: tuple[float, float, float], time: tuple[float, float, float], goals: set[str]
) -> None:
    assert {goal.value for goal in Goal if is_better(of(rss, time), goal)} == goals


@pytest.mark.parametrize(
    ("rss", "time", "worse"),
    [
        (SAME, SAME, False),
        (SAME, (1.2, 1.1, 1.3), True),
        ((1.2, 1.1, 1.3), (0.8, 0.7, 0.9), True),
        (SAME, (1.02, 1.01, 1.03), False),  # certain, but next to nothing
        (SAME, (1.06, 0.93, 1.07), False),  # the interval holds 1
    ],
)
def test_only_what_is_proved_is_worse(
    rss: tuple[float, float, float], time: tuple[float, float, float], worse: bool
) -> None:
    assert is_worse(of(rss, time)) is worse


def test_pairs_cancel_what_disturbs_both() -> None:
    """A machine that gets slower and slower makes both runs of a pair slower."""
    drift = tuple(1 + place / 10 for place in range(22) for _ in range(2))
    found = compare(fake(drift), compose([FASTER]), 11, "cpu")
    assert found.time.median == pytest.approx(0.8, rel=0.03)
    assert found.time.high < 0.85


def test_noise_proves_nothing() -> None:
    noise = (1.0, 1.3, 0.8, 1.1, 0.9, 1.25, 1.05, 0.85)
    found = compare(fake(noise), compose([NOISE]), 9, "cpu")
    assert not any(is_better(found, goal) for goal in Goal)


def test_of_two_values_the_later_holds() -> None:
    profile = compose([SLOW, NOISE], {"noise": "measured"})
    assert [(each.name, each.value, each.reason) for each in profile.settings] == [
        ("purge_delay_ms", "7", "measured")
    ]


def test_leaner_caches_lift_no_bound_on_free_memory() -> None:
    """Presets of a mode are weaker than what was kept before it."""
    kept = compose([LITTLE_FREE, LEAN]).settings
    assert {each.name: each.value for each in kept} == {**LITTLE_FREE.settings, "mode": "lean"}
    assert FOR_MEMORY.index(LITTLE_FREE) < FOR_MEMORY.index(LEAN)


def test_small_slabs_are_no_longer_than_those_of_the_default_table() -> None:
    rows = re.findall(r"SIZE_CLASS\(\d+, \d+, (\d+), (\d+)\)", SIZE_CLASSES.read_text())
    pages = {int(block_bytes): int(slab_pages) for block_bytes, slab_pages in rows}
    small = {block_bytes: small_slab_pages(block_bytes) for block_bytes in pages}
    assert all(small[block_bytes] <= pages[block_bytes] for block_bytes in pages)
    assert small[65536] == pages[65536] == 8
    assert small[10240] < pages[10240]


def test_small_slabs_are_those_of_the_table_that_holds() -> None:
    small = Change("small", "empty sooner", table=(16, 4096, 65536), small_slabs=True)
    learned = Change("learned", "fits", table=(16, 48, 65536))
    assert compose([small]).size_classes == ((16, 1), (4096, 1), (65536, 8))
    for order in ([small, learned], [learned, small]):
        profile = compose(order)
        assert profile.size_classes == ((16, 1), (48, 1), (65536, 8))
        assert profile.classes_reason == "fits empty sooner"


@pytest.mark.parametrize("table", [(), (16, 96, 32768, 65536)])
def test_what_is_made_ready_is_what_a_profile_may_hold(table: tuple[int, ...]) -> None:
    """Two sizes may be one class of a learned table, and large blocks are soon too many bytes."""
    ready = Change("ready", "at once", prewarm=((80, 40), (96, 50), (32768, 256), (65536, 256)))
    learned = [Change("learned", "fits", table=table)] if table else []
    text = render(compose([*learned, ready]))
    limits = read_format(find_project())
    found = parse(text, read_options(find_project().options_table), limits)
    assert found.prewarm[-1] == (32768, 127)


def test_progress_says_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured decides on how many runs there are beyond the least."""

    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    screen_of_runs = Screen()
    monkeypatch.setattr(sys, "stderr", screen_of_runs)
    session.Progress(0).step()
    progress = session.Progress(2)
    for _ in range(3):
        progress.step()
    session.say("done")
    session.say("well")
    lines = re.sub(" +", " ", screen_of_runs.getvalue()).split("\n")
    assert lines == [
        "\r1 runs of at least 2\r2 runs of at least 2\r3 runs ",
        "hakmem tune: done",
        "hakmem tune: well",
        "",
    ]
