"""`hakmem soak`: a server's heap for minutes or hours, and whether anything drifts.

The workload prints a line per interval; beside it this process counts the memory mappings. What is
judged is the second half: the first may still grow towards its level. Again and again the workload
is stopped and the floor runs for a few intervals, so that the noise of the machine is known of the
same minutes: a virtual machine may be twice as fast for a while (docs/decisions/0071).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from . import figures, measure, workshop
from .environment import CLEAN_ENVIRONMENT
from .errors import MeasureError
from .peers import Allocator

PASS, FAIL, INCONCLUSIVE = "PASS", "FAIL", "INCONCLUSIVE"
PROGRAM = "soak"
# Silence of this many intervals, and this many seconds, means that the workload hangs.
SILENT_INTERVALS, SILENT_SECONDS = 10, 120.0
# Thresholds. RSS may fall and throughput may rise as they like.
DRIFT_PERCENT_MOST = 1.0
CV_NAME = "throughput CV"
CV_PERCENT_MOST = 2.0
# Where the floor itself is less steady, nobody can be held to more than its noise and half of it.
NOISE_FACTOR = 1.5
MAPPINGS_PERCENT_MOST, MAPPINGS_MOST = 5.0, 16
SAMPLES_LEAST = 8
# Of stretches in which the machine is steady: with fewer of them all of the half counts.
STEADY_LEAST = 8
# For a drift between them: the interval of so many holds the truth in 83 to 93 of 100, that of
# eight in 57 to 75 (docs/decisions/0095).
EQUAL_LEAST = 16
# The floor's turn: so many intervals, but at least so long: on a busy machine lines come late. The
# first is left out: in it the floor touches its memory.
FLOOR_INTERVALS, FLOOR_MS_LEAST = 3, 1000
# Between two turns the workload has so many times as long, as STRETCHES of them fit.
STRETCH_LEAST, STRETCH_MOST, STRETCHES = 2, 9, 24
# Clocks of whole milliseconds: an interval may seem to be held for so long, and is not. One that is
# shorter than this part, as what is left of it after a hold, tells little.
HELD_MS_LEAST, WHOLE_PART = 3, 0.9
# Whoever is stopped must not stay so when this process is killed.
WITH_PARENT = ("setpriv", "--pdeathsig", "KILL")


@dataclass(frozen=True)
class Sample:
    """One interval: milliseconds and operations since the start, and the throughput of the
    interval itself, without the time for which it was held. No mappings: the process had ended when
    its line was read."""

    ms: int
    ops: int
    rss_bytes: int
    mappings: int
    ops_per_second: float
    held_ms: int = 0
    whole: bool = True  # not held, and as long as it should be


@dataclass(frozen=True)
class Verdict:
    """One threshold: its state, the figure in words, value and limit in the unit of the name."""

    name: str
    state: str
    text: str
    value: float
    limit: float


@dataclass(frozen=True)
class Run:
    """The samples of one soak and its proven result line."""

    samples: list[Sample]
    row: dict[str, Any]


def _mappings(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}/maps").read_bytes().count(b"\n")
    except OSError:
        return 0


def _lines(process: subprocess.Popen[bytes], silence_seconds: float) -> Iterator[bytes]:
    """The lines of the program as they come."""
    assert process.stdout is not None
    rest = b""
    while True:
        if not select.select([process.stdout], [], [], silence_seconds)[0]:
            raise MeasureError(f"silent for {silence_seconds:.0f} s")
        got = os.read(process.stdout.fileno(), 65536)
        if not got:
            break
        *whole, rest = (rest + got).split(b"\n")
        yield from whole
    if rest:
        yield rest


def turn_intervals(interval_ms: int) -> int:
    """How many intervals a turn of the floor has."""
    return max(FLOOR_INTERVALS, -(-FLOOR_MS_LEAST // interval_ms))


def stretch_intervals(seconds: float, interval_ms: int) -> int:
    """How many intervals the workload has between two turns of the floor."""
    turn = turn_intervals(interval_ms)
    fitting = round(seconds * 1000 / interval_ms / STRETCHES) - turn
    return max(STRETCH_LEAST * turn, min(STRETCH_MOST * turn, fitting))


def seconds_least(interval_ms: int) -> float:
    """Shorter soaks have too few intervals of the floor in the half that is judged."""
    turn = turn_intervals(interval_ms)
    turns = 2 * -(-SAMPLES_LEAST // (turn - 1))
    return turns * (STRETCH_LEAST + 1) * turn * interval_ms / 1000


@dataclass
class Pauses:
    """After each `stretch` intervals the workload is stopped, and `beside` is called with the
    milliseconds since its start. `holds`: when that was, on the clock of its lines."""

    stretch: int
    beside: Callable[[int], None]
    holds: list[tuple[int, int]] = field(default_factory=list)

    def hold(self, pid: int, ms: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        try:
            # Returns, too, when it has just ended, and leaves it to be waited for.
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
            since = time.monotonic_ns() // 1_000_000
            self.beside(ms)
            self.holds.append((since, time.monotonic_ns() // 1_000_000))
        finally:
            os.kill(pid, signal.SIGCONT)

    def held_ms(self, since: int, until: int) -> int:
        return sum(max(0, min(until, end) - max(since, start)) for start, end in self.holds)


def run(
    allocator: Allocator,
    *,
    seconds: float,
    interval_ms: int = 1000,
    folder: Path | None = None,
    arguments: Mapping[str, object] | None = None,
    on_sample: Callable[[Sample], None] | None = None,
    pauses: Pauses | None = None,
) -> Run:
    """Runs the workload for so long, pauses included; its result line must prove the allocator.

    `folder`: where the workload was built, so that nothing is built while another one is held.
    """
    command = [
        *WITH_PARENT,
        *measure.command_line(
            (folder or workshop.build()) / PROGRAM,
            {"ms": round(seconds * 1000), "interval_ms": interval_ms},
            arguments or {},
            allocator.arguments,
        ),
    ]
    with subprocess.Popen(
        command,
        env={**CLEAN_ENVIRONMENT, **allocator.settings()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            samples, row = _collect(process, interval_ms, on_sample, pauses)
            process.wait(timeout=SILENT_SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        errors = process.stderr.read().decode(errors="replace") if process.stderr else ""
    if process.returncode != 0 or row is None:
        raise MeasureError(f"soak ended with status {process.returncode}: {errors.strip()[-500:]}")
    measure.verify(row, allocator)
    return Run(samples, row)


def _collect(
    process: subprocess.Popen[bytes],
    interval_ms: int,
    on_sample: Callable[[Sample], None] | None,
    pauses: Pauses | None,
) -> tuple[list[Sample], dict[str, Any] | None]:
    samples: list[Sample] = []
    row = None
    silence = max(SILENT_SECONDS, SILENT_INTERVALS * interval_ms / 1000)
    for line in _lines(process, silence):
        try:
            found = json.loads(line)
        except json.JSONDecodeError as error:
            raise MeasureError(f"not a line of the soak: {line[:200]!r}") from error
        if "proof" in found:
            row = found
            continue
        before_ms, before_ops = (samples[-1].ms, samples[-1].ops) if samples else (0, 0)
        at_ms, passed_ms = found["at_ms"], found["ms"] - before_ms
        held_ms = pauses.held_ms(at_ms - passed_ms, at_ms) if pauses is not None else 0
        samples.append(
            Sample(
                ms=found["ms"],
                ops=found["ops"],
                rss_bytes=found["rss_bytes"],
                mappings=_mappings(process.pid),
                ops_per_second=(found["ops"] - before_ops) * 1000 / max(1, passed_ms - held_ms),
                held_ms=held_ms,
                whole=held_ms < HELD_MS_LEAST and passed_ms >= WHOLE_PART * interval_ms,
            )
        )
        if on_sample is not None:
            on_sample(samples[-1])
        if pauses is not None and len(samples) % pauses.stretch == 0:
            pauses.hold(process.pid, found["ms"])
    return samples, row


def second_half(samples: Sequence[Sample]) -> list[Sample]:
    """What is judged."""
    end = samples[-1].ms if samples else 0
    half = [sample for sample in samples if 2 * sample.ms >= end]
    whole = sum(sample.whole for sample in half)
    if whole < SAMPLES_LEAST:
        raise MeasureError(
            f"only {whole} intervals to judge, {SAMPLES_LEAST} are needed: run it for longer"
        )
    return half


def beside_at(ms: int, floor: Run) -> list[Sample]:
    """The intervals of one turn of the floor that count, on the clock of the soak."""
    return [replace(sample, ms=ms + sample.ms) for sample in floor.samples[1:]]


def _speeds(samples: Sequence[Sample]) -> tuple[list[float], list[float]]:
    """When, and how fast, in the intervals of the workload alone."""
    whole = [sample for sample in samples if sample.whole]
    return [float(sample.ms) for sample in whole], [sample.ops_per_second for sample in whole]


@dataclass(frozen=True)
class Stretch:
    """From when to when, in milliseconds, between two turns of the floor all of whose intervals are
    as fast, the machine was steady; and the floor's operations a second there."""

    start_ms: int
    end_ms: int
    floor_per_second: float


@dataclass(frozen=True)
class Noise:
    """How unsteady the machine itself is, in percent of the floor's throughput. A gain is a
    negative loss. `steady`: the stretches in which it was steady."""

    cv_percent: float
    loss: figures.Drift
    steady: tuple[Stretch, ...] = ()


def noise_of(turns: Sequence[Sequence[Sample]]) -> Noise:
    """The floor's intervals of the second half; its turns in their order."""
    at, speeds = _speeds(second_half([sample for turn in turns for sample in turn]))
    trend = figures.drift(at, speeds)
    steady = tuple(
        Stretch(before[-1].ms, after[0].ms, _median_speed([*before, *after]))
        for before, after in itertools.pairwise(turn for turn in turns if turn)
        if _cv_percent([*before, *after]) <= CV_PERCENT_MOST
    )
    return Noise(figures.spread(speeds).cv_percent, _falling(trend), steady)


def _cv_percent(samples: Sequence[Sample]) -> float:
    return figures.spread([sample.ops_per_second for sample in samples]).cv_percent


def _median_speed(samples: Sequence[Sample]) -> float:
    return statistics.median(sample.ops_per_second for sample in samples)


def _steady(half: Sequence[Sample], floor: Noise | None) -> list[tuple[Stretch, list[Sample]]]:
    """The workload's intervals in each stretch that has enough; none when the machine is not steady
    for long enough."""
    found = []
    for stretch in floor.steady if floor is not None else ():
        inside = [
            sample
            for sample in half
            if sample.whole and stretch.start_ms < sample.ms < stretch.end_ms
        ]
        if len(inside) >= SAMPLES_LEAST:
            found.append((stretch, inside))
    return found if len(found) >= STEADY_LEAST else []


def _cv_verdict(half: Sequence[Sample], floor: Noise | None) -> Verdict:
    """Where the machine is steady for long enough, the median of these stretches; else of all, of
    which nothing is known for certain where the machine's own noise may explain it."""
    cv, limit = _cv_percent([sample for sample in half if sample.whole]), CV_PERCENT_MOST
    text = f"{cv:.1f} %" + ("" if floor is None else f" (floor {floor.cv_percent:.1f} %)")
    steady = [_cv_percent(inside) for _, inside in _steady(half, floor)]
    if steady:
        cv = statistics.median(steady)
        where = (
            f"the {len(steady)} stretches in which the floor's is at most {CV_PERCENT_MOST:.0f} %"
        )
        text = f"{cv:.1f} % in {where}; of all {text}"
    elif floor is not None:
        limit = max(limit, NOISE_FACTOR * floor.cv_percent)
    state = PASS if cv <= CV_PERCENT_MOST else FAIL if cv > limit else INCONCLUSIVE
    return Verdict(CV_NAME, state, text, cv, limit)


def _words(trend: figures.Drift) -> str:
    return f"{trend.percent:+.2f} % [{trend.low:+.2f}, {trend.high:+.2f}]"


def _drift_verdict(name: str, worse: figures.Drift, fail_above: float, how: str) -> Verdict:
    """Of a drift whose positive direction is the bad one. Only what the whole interval says is
    said for certain; and what the machine's own drift may explain is no failure."""
    if worse.high <= DRIFT_PERCENT_MOST:
        state = PASS
    else:
        state = FAIL if worse.low > fail_above else INCONCLUSIVE
    return Verdict(name, state, _words(worse) + how, worse.percent, DRIFT_PERCENT_MOST)


def _falling(trend: figures.Drift) -> figures.Drift:
    return figures.Drift(percent=-trend.percent, low=-trend.high, high=-trend.low)


def _drift(
    half: Sequence[Sample], floor: Noise | None, value: Callable[[Sample], float]
) -> tuple[figures.Drift, figures.Drift | None, str]:
    """Of the workload, of the floor's throughput beside it, and how it was found: between steady
    stretches in which the floor was as fast, where the machine is steady for long enough, since
    memory follows its states as well as throughput does; else along the half, and the floor's is
    not that of the same stretches."""
    steady = _steady(half, floor)
    if len(steady) >= EQUAL_LEAST:
        at = [statistics.fmean(sample.ms for sample in inside) for _, inside in steady]
        states = [stretch.floor_per_second for stretch, _ in steady]
        points = [statistics.median(map(value, inside)) for _, inside in steady]
        within, length = CV_PERCENT_MOST / 100, float(half[-1].ms - half[0].ms)
        trend = figures.drift_in_equal_states(at, points, states, within, length)
        if trend is not None:
            of_floor = figures.drift_in_equal_states(at, states, states, within, length)
            how = f" among {len(steady)} steady stretches"
            return trend, of_floor, how
    return figures.drift([float(sample.ms) for sample in half], list(map(value, half))), None, ""


def _loss_verdict(half: Sequence[Sample], floor: Noise | None) -> Verdict:
    """Of throughput. What the floor may have lost in the same time, all of its interval, explains
    as much: on a restless machine its few turns tell little. That it gained explains nothing."""
    whole = [sample for sample in half if sample.whole]
    trend, of_floor, how = _drift(whole, floor, lambda sample: sample.ops_per_second)
    floor_loss = None if floor is None else floor.loss
    if of_floor is not None:
        floor_loss = _falling(of_floor)
    limit = DRIFT_PERCENT_MOST
    if floor_loss is not None:
        limit = max(limit, floor_loss.high)
        how += f" (floor {_words(floor_loss)})"
    return _drift_verdict("throughput loss", _falling(trend), limit, how)


def judge(samples: Sequence[Sample], floor: Noise | None) -> list[Verdict]:
    """All thresholds."""
    half = second_half(samples)
    rss, _, how = _drift(half, floor, lambda sample: float(sample.rss_bytes))
    return [
        _drift_verdict("RSS drift", rss, DRIFT_PERCENT_MOST, how),
        _loss_verdict(half, floor),
        _cv_verdict(half, floor),
        _mappings_verdict(half),
    ]


def _mappings_verdict(half: Sequence[Sample]) -> Verdict:
    """The number of mappings must not climb: the kernel allows some 65,000."""
    counts = [sample.mappings for sample in half if sample.mappings > 0]
    if not counts:
        return Verdict("mappings", INCONCLUSIVE, "not counted", 0.0, float(MAPPINGS_MOST))
    part = max(1, len(counts) // 4)
    first, last = min(counts[:part]), min(counts[-part:])
    limit = max(MAPPINGS_MOST, first * MAPPINGS_PERCENT_MOST / 100)
    state = PASS if last - first <= limit else FAIL
    return Verdict("mappings", state, f"{first} to {last}", float(last - first), limit)


def overall(verdicts: Sequence[Verdict]) -> str:
    """One word for all."""
    states = {verdict.state for verdict in verdicts}
    if FAIL in states:
        return FAIL
    return INCONCLUSIVE if INCONCLUSIVE in states else PASS


def summary(
    allocator: Allocator, run_: Run, verdicts: Sequence[Verdict], floor: Noise
) -> dict[str, Any]:
    """What the manifest and --json say."""
    half = second_half(run_.samples)
    return {
        "schema": "hakmem-soak/2",
        "allocator": allocator.name,
        "minutes": round(run_.samples[-1].ms / 60_000, 2),
        "threads": run_.row["threads"],
        "result": overall(verdicts),
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "floor": asdict(floor),
        "ops": run_.row["ops"],
        "ops_per_second": figures.spread(_speeds(half)[1]).median,
        "rss_bytes": figures.spread([float(each.rss_bytes) for each in half]).median,
        "peak_rss_bytes": run_.row["peak_rss_bytes"],
        "mappings": next((each.mappings for each in reversed(half) if each.mappings), 0),
    }
