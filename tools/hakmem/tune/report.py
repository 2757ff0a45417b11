"""What tune says: sentences for people, JSON for programs, and the comments of the profile."""

from __future__ import annotations

import datetime
import os
import shlex
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hakmem.inspect.model import REQUEST_STEP_BYTES
from hakmem.render import size
from hakmem.tune.execution import Run
from hakmem.tune.profile_file import Profile, render
from hakmem.tune.proposal import Change, Goal
from hakmem.tune.recording import Moment, Recording
from hakmem.tune.trial import Comparison, Screened
from harness.figures import Ratio, interval_words

SCHEMA = "hakmem.tune/1"
METRICS = {"cpu": "processor time", "wall": "time"}
# Characters of the command that a profile repeats: one of more than 64 KiB counts for nothing.
COMMAND_SHOWN = 2000

Json = dict[str, Any]


def percent(ratio: float) -> str:
    """A ratio as a change: -12.3 %."""
    return f"{100 * (ratio - 1):+.1f} %"


def interval(ratio: Ratio) -> str:
    return f"{percent(ratio.median)} ({percent(ratio.low)} to {percent(ratio.high)})"


def describe(recording: Recording) -> str:
    """One paragraph: what was seen of the program."""
    peak, idle = recording.peak, recording.idle
    resident = max(moment.rss_bytes for moment in recording.moments)
    life = recording.half_life_ns
    lives = f", half of the blocks live at most {_duration(life)}" if life is not None else ""
    how = "" if recording.exact else " (sizes estimated by class)"
    return (
        f"{recording.program}: {recording.allocations:,} allocations{lives}; "
        f"{recording.threads} {'thread' if recording.threads == 1 else 'threads'}, "
        f"{100 * recording.remote_share:.1f} % of the frees are of other threads' blocks; at its "
        f"peak {size(peak.requested_bytes)} asked for in small blocks{how}, "
        f"{size(idle.requested_bytes)} at the end; {size(resident)} resident at most, in "
        f"{len(recording.moments)} {'look' if len(recording.moments) == 1 else 'looks'}"
    )


def _duration(nanoseconds: int) -> str:
    value = float(nanoseconds)
    for unit in ("ns", "us", "ms"):
        if value < 1000:
            return f"{value:.0f} {unit}"
        value /= 1000
    return f"{value:.1f} s"


def screened_text(found: Screened, metric: str) -> str:
    """One line for each change that was tried."""
    verdict = "kept" if found.kept else "left out"
    return (
        f"{found.change.name}: peak RSS {percent(found.rss)}, {METRICS[metric]} "
        f"{percent(found.time)}: {verdict}"
    )


def reasons(found: Sequence[Screened], metric: str) -> dict[str, str]:
    """Why each kept change is in the profile, with its figures."""
    return {
        each.change.name: f"{_sentence(each.change.reason)} On top of those kept before: peak RSS "
        f"{percent(each.rss)}, {METRICS[metric]} {percent(each.time)}, in a few runs."
        for each in found
        if each.kept
    }


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def gain_text(found: Comparison, metric: str) -> str:
    """The figures of the verdict."""
    return (
        f"peak RSS {interval(found.rss)}, {METRICS[metric]} {interval(found.time)}, page faults "
        f"{percent(found.faults)}, in {found.rss.pairs} interleaved pairs (median and "
        f"{interval_words([found.rss, found.time])})"
    )


def _command(words: Sequence[str]) -> str:
    """As typed; a byte that is no text as its number."""
    text = os.fsencode(shlex.join(words)).decode(errors="backslashreplace")
    return text if len(text) <= COMMAND_SHOWN else f"{text[:COMMAND_SHOWN]} ..."


def measured_about(
    recording: Recording, found: Comparison, words: Sequence[str], goal: Goal, metric: str
) -> list[str]:
    """The comments at the head of a measured profile."""
    peak = statistics.median(each.peak_rss_bytes for each in found.ours)
    base = statistics.median(each.peak_rss_bytes for each in found.default)
    return [
        f"hakmem profile for {recording.program}, made by hakmem tune on "
        f"{datetime.date.today().isoformat()}, goal {goal.value}.",
        f"Recorded and measured: {_command(words)}",
        f"Against the default: {gain_text(found, metric)}; "
        f"{size(round(peak))} instead of {size(round(base))}.",
        describe(recording) + ".",
    ]


def unmeasured_about(recording: Recording, goal: Goal) -> list[str]:
    """The comments at the head of a profile that nobody measured."""
    return [
        f"hakmem profile for {recording.program}, proposed by hakmem tune --pid on "
        f"{datetime.date.today().isoformat()}, goal {goal.value}.",
        "NOT measured: compare a run with it and one without before you trust it.",
        describe(recording) + ".",
    ]


def ratio_json(ratio: Ratio) -> Json:
    return {
        "median": ratio.median, "low": ratio.low, "high": ratio.high, "pairs": ratio.pairs,
        "coverage": ratio.coverage,
    }  # fmt: skip


def runs_json(runs: Sequence[Run]) -> list[Json]:
    """What each run cost."""
    return [
        {
            "wall_s": each.wall_s,
            "cpu_s": each.cpu_s,
            "peak_rss_bytes": each.peak_rss_bytes,
            "minor_faults": each.minor_faults,
        }
        for each in runs
    ]


def _requests_json(moment: Moment) -> dict[str, int]:
    """Live blocks by what was asked for."""
    return {
        str(REQUEST_STEP_BYTES * step): int(blocks)
        for step, blocks in enumerate(moment.requests)
        if blocks
    }


def recording_json(recording: Recording) -> Json:
    peak = recording.peak
    return {
        "program": recording.program,
        "exe": recording.exe,
        "seconds": recording.seconds,
        "looks": len(recording.moments),
        "exact_sizes": recording.exact,
        "threads": recording.threads,
        "heaps_per_class": recording.heaps_per_class,
        "allocations": recording.allocations,
        "remote_share": recording.remote_share,
        "median_lifetime_ns": recording.half_life_ns,
        "peak_requested_bytes": peak.requested_bytes,
        "idle_requested_bytes": recording.idle.requested_bytes,
        "peak_rss_bytes": max(moment.rss_bytes for moment in recording.moments),
        "requests": _requests_json(peak),
        "demand": [
            {"at_s": moment.at_s, "requested_bytes": moment.requested_bytes,
             "rss_bytes": moment.rss_bytes, "requests": _requests_json(moment)}
            for moment in recording.moments
        ],
    }  # fmt: skip


def _change_json(change: Change) -> Json:
    return {
        "name": change.name,
        "reason": change.reason,
        "settings": dict(change.settings),
        "size_classes": list(change.table),
        "prewarm": [list(pair) for pair in change.prewarm],
        "small_slabs": change.small_slabs,
    }


def _measured_json(found: Comparison) -> Json:
    return {
        "rss": ratio_json(found.rss),
        "time": ratio_json(found.time),
        "profile_runs": runs_json(found.ours),
        "default_runs": runs_json(found.default),
    }


def check_json(found: Comparison, goal: Goal, metric: str, *, better: bool, worse: bool) -> Json:
    """What measuring an existing profile found."""
    return {
        "schema": SCHEMA,
        "goal": goal.value,
        "metric": metric,
        "measured": _measured_json(found),
        "better": better,
        "worse": worse,
    }


def as_json(
    recording: Recording,
    goal: Goal,
    metric: str,
    *,
    proposed: Sequence[Change],
    profile: Profile,
    written: Path | None,
    screened: Sequence[Screened] = (),
    comparison: Comparison | None = None,
    better: bool | None = None,
) -> Json:
    """Everything; `better` is None where nothing was measured. A profile that was measured and not
    proved better is nobody's to use: it is left out."""
    return {
        "schema": SCHEMA,
        "goal": goal.value,
        "metric": metric,
        "recording": recording_json(recording),
        "proposed": [_change_json(change) for change in proposed],
        "screened": [
            {"name": each.change.name, "rss": each.rss, "time": each.time, "kept": each.kept}
            for each in screened
        ],
        "measured": _measured_json(comparison) if comparison is not None else None,
        "better": better,
        "profile": render(profile) if better is not False and not profile.is_empty else None,
        "output": str(written) if written is not None else None,
    }
