"""Runs a profile against the default, in interleaved pairs, and says which is better for a goal."""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hakmem.folders import temporary_folder
from hakmem.tune.execution import Command, Run, RunFailedError, run
from hakmem.tune.profile_file import Profile, render
from hakmem.tune.proposal import Change, Goal, compose
from harness.figures import SAME_WITHIN, Ratio, paired_ratio

# What the library says of a profile that it does not take begins so.
REFUSAL = re.compile(r"^hakmem: profile '.*?'(?: line \d+:)? ")
# Less is not worth a profile, however certain.
LEAST_GAIN = 0.01
# While screening: so much better, or it is left out. Times of so few runs say little: what seems to
# cost more time than it may gets more runs before it is left out.
SCREEN_GAIN_MEMORY = 0.004
SCREEN_GAIN_TIME = 0.015
SCREEN_LOSS = 0.04
SCREEN_PAIRS = 2
SCREEN_PAIRS_MORE = 4

Runner = Callable[[Profile], Run]


class ProgramRunner(Protocol):
    """A Runner that may be told which program's processes are tuned."""

    def __call__(self, profile: Profile, exe: str = "") -> Run:
        """`exe`: as in execution.run."""


@dataclass(frozen=True)
class Comparison:
    """A profile against the default: ratios below 1 are better for the profile."""

    rss: Ratio
    time: Ratio
    ours: tuple[Run, ...]
    default: tuple[Run, ...]

    @property
    def faults(self) -> float:
        """Minor faults, ratio of the medians."""
        own = statistics.median(each.minor_faults for each in self.ours)
        base = statistics.median(each.minor_faults for each in self.default)
        return own / base if base else 1.0


def improved(ratio: Ratio) -> bool:
    """The whole interval is better, and by more than nothing."""
    return ratio.high < 1 and ratio.median <= 1 - LEAST_GAIN


def not_worse(ratio: Ratio) -> bool:
    """About the same: neither the median nor all of the interval says otherwise."""
    bound = 1 + SAME_WITHIN
    return ratio.median <= bound and (ratio.low <= 1 or ratio.high <= bound)


def is_better(found: Comparison, goal: Goal) -> bool:
    """Whether the interval says that the profile serves the goal, and costs nothing else."""
    leaner = improved(found.rss) and not_worse(found.time)
    faster = improved(found.time) and not_worse(found.rss)
    return {Goal.MEMORY: leaner, Goal.TIME: faster, Goal.BALANCED: leaner or faster}[goal]


@contextmanager
def runner(
    command: Command, timeout_s: float, progress: Callable[[], None] = lambda: None
) -> Iterator[ProgramRunner]:
    """Runs the command with a profile. RunFailedError when the largest process of those that are
    tuned did not take it."""
    with temporary_folder("hakmem-tune-") as folder:
        # The program may run as another user.
        folder.chmod(0o755)
        written: dict[str, Path] = {}

        def once(profile: Profile, exe: str = "") -> Run:
            text = render(profile)
            if text not in written:
                written[text] = folder / f"{len(written)}.profile"
                written[text].write_text(text, encoding="utf-8")
            settings = {} if profile.is_empty else {"HAKMEM_PROFILE": str(written[text])}
            done = run(command, settings, timeout_s, exe=exe)
            _require_taken(profile, done)
            progress()
            return done

        yield once


def _require_taken(profile: Profile, done: Run) -> None:
    """Without this the default would be compared with itself."""
    if profile.is_empty or done.largest is None or done.largest.profile:
        return
    # The file that it names is a copy, which is gone by now.
    refusal = REFUSAL.sub("", done.refusal).removesuffix("; the default is used")
    why = refusal or "its options are read by nobody (AT_SECURE), or it changed HAKMEM_PROFILE"
    raise RunFailedError(f"{Path(done.largest.exe).name} did not take the profile: {why}")


def time_of(done: Run, metric: str) -> float:
    """Seconds: processor time of all processes, or from start to end."""
    return done.cpu_s if metric == "cpu" else done.wall_s


def compare(once: Runner, profile: Profile, pairs: int, metric: str, seed: int = 1) -> Comparison:
    """So many pairs of runs, in random order within each pair."""
    order = random.Random(seed)
    ours: list[Run] = []
    default: list[Run] = []
    nothing = Profile()
    for _ in range(pairs):
        if order.random() < 0.5:
            ours.append(once(profile))
            default.append(once(nothing))
        else:
            default.append(once(nothing))
            ours.append(once(profile))
    return Comparison(
        rss=paired_ratio(
            [each.peak_rss_bytes for each in ours], [each.peak_rss_bytes for each in default]
        ),
        time=paired_ratio(
            [time_of(each, metric) for each in ours], [time_of(each, metric) for each in default]
        ),
        ours=tuple(ours),
        default=tuple(default),
    )


@dataclass(frozen=True)
class Screened:
    """What a change did on top of those kept before it: ratios of few runs."""

    change: Change
    rss: float
    time: float
    kept: bool


def _best(runs: Sequence[Run], metric: str) -> tuple[float, float]:
    """Of a few runs: the median of memory, and the shortest time, which is disturbed least."""
    return (
        statistics.median(each.peak_rss_bytes for each in runs),
        min(time_of(each, metric) for each in runs),
    )


def _serves(goal: Goal, rss: float, time: float) -> bool:
    leaner = rss <= 1 - SCREEN_GAIN_MEMORY and time <= 1 + SCREEN_LOSS
    faster = time <= 1 - SCREEN_GAIN_TIME and rss <= 1 + SAME_WITHIN
    return {Goal.MEMORY: leaner, Goal.TIME: faster, Goal.BALANCED: leaner or faster}[goal]


def _try(
    once: Runner, change: Change, both: tuple[Profile, Profile], goal: Goal, metric: str
) -> Screened:
    """Runs of a profile without and with a change, in turns."""
    before: list[Run] = []
    after: list[Run] = []
    for pairs in (SCREEN_PAIRS, SCREEN_PAIRS_MORE):
        for _ in range(pairs):
            before.append(once(both[0]))
            after.append(once(both[1]))
        rss_before, time_before = _best(before, metric)
        rss_after, time_after = _best(after, metric)
        rss, time = rss_after / rss_before, time_after / time_before
        # Decided, unless only the noisier of the two speaks against it.
        if _serves(goal, rss, time) or not _serves(goal, rss, min(time, 1.0)):
            break
    return Screened(change, rss, time, _serves(goal, rss, time))


def screen(
    once: Runner, tried: Sequence[Change], goal: Goal, metric: str, build_id: str, version: str
) -> list[Screened]:
    """Adds one change after the other, and keeps those that seem to serve the goal."""
    kept: list[Change] = []
    found: list[Screened] = []
    for change in tried:
        before = compose(kept, build_id=build_id, version=version)
        after = compose([*kept, change], build_id=build_id, version=version)
        found.append(_try(once, change, (before, after), goal, metric))
        if found[-1].kept:
            kept.append(change)
    return found


def is_worse(found: Comparison) -> bool:
    """Whether the whole interval of time or memory is worse, beyond what counts as the same."""
    return any(
        ratio.low > 1 and ratio.median > 1 + SAME_WITHIN for ratio in (found.rss, found.time)
    )
