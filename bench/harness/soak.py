"""`hakmem soak`: a server's heap for minutes or hours, and whether anything drifts.

The workload prints a line per interval; beside it this process counts the memory mappings. What is
judged is the second half: the first may still grow towards its level. Before it the floor runs for
a while, so that the noise of the machine is known.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
CV_PERCENT_MOST = 2.0
# Where the floor itself is less steady, nobody can be held to more than its noise and half of it.
NOISE_FACTOR = 1.5
MAPPINGS_PERCENT_MOST, MAPPINGS_MOST = 5.0, 16
SAMPLES_LEAST = 8


@dataclass(frozen=True)
class Sample:
    """One interval: milliseconds and operations since the start, and the throughput of the
    interval itself. No mappings: the process had ended when its line was read."""

    ms: int
    ops: int
    rss_bytes: int
    mappings: int
    ops_per_second: float


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


def run(
    allocator: Allocator,
    *,
    seconds: float,
    interval_ms: int = 1000,
    arguments: Mapping[str, object] | None = None,
    on_sample: Callable[[Sample], None] | None = None,
) -> Run:
    """Runs the workload for so long; its result line must prove the allocator."""
    command = measure.command_line(
        workshop.build() / PROGRAM,
        {"ms": round(seconds * 1000), "interval_ms": interval_ms},
        arguments or {},
        allocator.arguments,
    )
    with subprocess.Popen(
        command,
        env={**CLEAN_ENVIRONMENT, **allocator.settings()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        try:
            samples, row = _collect(process, interval_ms, on_sample)
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
    process: subprocess.Popen[bytes], interval_ms: int, on_sample: Callable[[Sample], None] | None
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
        passed_ms = max(1, found["ms"] - before_ms)
        samples.append(
            Sample(
                ms=found["ms"],
                ops=found["ops"],
                rss_bytes=found["rss_bytes"],
                mappings=_mappings(process.pid),
                ops_per_second=(found["ops"] - before_ops) * 1000 / passed_ms,
            )
        )
        if on_sample is not None:
            on_sample(samples[-1])
    return samples, row


def second_half(samples: Sequence[Sample]) -> list[Sample]:
    """What is judged."""
    end = samples[-1].ms if samples else 0
    half = [sample for sample in samples if 2 * sample.ms >= end]
    if len(half) < SAMPLES_LEAST:
        raise MeasureError(
            f"only {len(half)} intervals to judge, {SAMPLES_LEAST} are needed: run it for longer"
        )
    return half


@dataclass(frozen=True)
class Noise:
    """How unsteady the machine itself is, in percent: the floor's throughput."""

    cv_percent: float
    drift_percent: float


def noise_of(samples: Sequence[Sample]) -> Noise:
    """The second half of a run of the floor."""
    half = second_half(samples)
    speeds = [sample.ops_per_second for sample in half]
    trend = figures.drift([float(sample.ms) for sample in half], speeds)
    return Noise(figures.spread(speeds).cv_percent, abs(trend.percent))


def _drift_verdict(name: str, worse: figures.Drift, fail_above: float) -> Verdict:
    """Of a drift whose positive direction is the bad one. Only what the whole interval says is
    said for certain; and what the machine's own drift may explain is no failure."""
    if worse.high <= DRIFT_PERCENT_MOST:
        state = PASS
    else:
        state = FAIL if worse.low > fail_above else INCONCLUSIVE
    text = f"{worse.percent:+.2f} % [{worse.low:+.2f}, {worse.high:+.2f}]"
    return Verdict(name, state, text, worse.percent, DRIFT_PERCENT_MOST)


def judge(samples: Sequence[Sample], floor: Noise | None) -> list[Verdict]:
    """All thresholds."""
    half = second_half(samples)
    at = [float(sample.ms) for sample in half]
    speeds = [sample.ops_per_second for sample in half]
    rss = figures.drift(at, [float(sample.rss_bytes) for sample in half])
    speed = figures.drift(at, speeds)
    slowing = figures.Drift(percent=-speed.percent, low=-speed.high, high=-speed.low)
    explained = NOISE_FACTOR * floor.drift_percent if floor is not None else 0.0
    limit = max(CV_PERCENT_MOST, NOISE_FACTOR * floor.cv_percent if floor is not None else 0.0)
    cv = figures.spread(speeds).cv_percent
    noise = "" if floor is None else f" (floor {floor.cv_percent:.1f} %)"
    return [
        _drift_verdict("RSS drift", rss, DRIFT_PERCENT_MOST),
        _drift_verdict("throughput loss", slowing, max(DRIFT_PERCENT_MOST, explained)),
        Verdict("throughput CV", PASS if cv <= limit else FAIL, f"{cv:.1f} %{noise}", cv, limit),
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
        "schema": "hakmem-soak/1",
        "allocator": allocator.name,
        "minutes": round(run_.samples[-1].ms / 60_000, 2),
        "result": overall(verdicts),
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "floor": asdict(floor),
        "ops": run_.row["ops"],
        "ops_per_second": figures.spread([each.ops_per_second for each in half]).median,
        "rss_bytes": figures.spread([float(each.rss_bytes) for each in half]).median,
        "peak_rss_bytes": run_.row["peak_rss_bytes"],
        "mappings": half[-1].mappings,
    }
