"""The table of OS calls and page faults: what fixed seeds of a few workloads cost, exactly.

Time has no say in it: purging is either never due or due at once, idle caches are never shrunk,
huge pages are off, and one CPU runs it all. What is left to chance is where the kernel places a
mapping (hakmem cuts its superslabs to alignment, which takes a call or three more), a few pages of
the program itself, and when a thread is preempted: the table's tolerance covers the first two, and
of a workload that starts threads the least of several runs counts, since preemption only adds.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import counts
from .cases import Case
from .environment import pinned
from .gate import library_allocator

Table = dict[str, Any]

# The calls that a heap is made of. Others belong to the loader, to threads or to the C library.
CALLS = ("mmap", "munmap", "madvise", "mremap")
NEVER_MS, AT_ONCE_MS = "3600000", "0"
# Nothing that goes by time.
STEADY = {
    "HAKMEM_LEARN": "0",
    "HAKMEM_HUGE_PAGES": "never",
    "HAKMEM_DECAY_INTERVAL_MS": NEVER_MS,
    "HAKMEM_PURGE_DELAY_MS": NEVER_MS,
    "HAKMEM_SLAB_PURGE_DELAY_MS": NEVER_MS,
}
PURGING = {**STEADY, "HAKMEM_PURGE_DELAY_MS": AT_ONCE_MS}


@dataclass(frozen=True)
class Gate:
    """One row of the table: a workload with its options, and hakmem's."""

    about: str
    program: str
    arguments: Mapping[str, object]
    environment: Mapping[str, str] = field(default_factory=lambda: STEADY)
    runs: int = 1
    faults_percent: float | None = None
    """Tolerance of its page faults: other threads look by the clock which heaps are asleep."""


GATES = {
    "mixed_small": Gate(
        "random_mixed, 400 slots, 16..1024 B",
        "random_mixed",
        {"ops": 3_000_000, "warm": 1, "slots": 400, "min": 16, "max": 1024},
    ),
    "mixed_medium": Gate(
        "random_mixed, 400 slots, 2..32 KiB",
        "random_mixed",
        {"ops": 1_000_000, "warm": 1, "slots": 400, "min": 2048, "max": 32768},
    ),
    "mixed_pareto": Gate(
        "random_mixed, 10,000 slots, Pareto sizes, 16 B..64 KiB",
        "random_mixed",
        {"ops": 1_000_000, "warm": 1, "slots": 10_000, "min": 16, "max": 65536, "sizes": "pareto"},
    ),
    "larson": Gate(
        "larson, one chain of threads, 5000 blocks of 8..1000 B",
        "larson",
        {"ops": 2_000_000, "threads": 1, "slots": 5000, "min": 8, "max": 1000},
        runs=4,
        faults_percent=30,
    ),
    "phase_change": Gate(
        "95 % freed at random, then other sizes", "phase_change", {"ops": 500_000}
    ),
    "spike": Gate(
        "a spike of 64 B..256 KiB, then nearly all freed",
        "spike",
        {"ops": 200_000, "min": 64, "max": 262_144, "idle-ms": 1, "beat-ms": 1},
    ),
    "large": Gate(
        "100 blocks of 64 KiB..1 MiB, kept",
        "large",
        {"ops": 4000, "slots": 100, "min": 65536, "max": 1_048_576},
    ),
    "large_purged": Gate(
        "100 blocks of 64 KiB..1 MiB, given back at once",
        "large",
        {"ops": 4000, "slots": 100, "min": 65536, "max": 1_048_576},
        PURGING,
    ),
    "huge": Gate(
        "8 blocks of 4..32 MiB",
        "large",
        {"ops": 60, "warm": 20, "slots": 8, "min": 4_194_304, "max": 33_554_432},
    ),
    "growth": Gate(
        "100 vectors grown from 16 B to 64 KiB by realloc",
        "growth",
        {"ops": 100_000, "slots": 100, "min": 16, "max": 65536, "variant": "vector"},
    ),
}
# What every process costs, allocator's start-up included: subtracted from each row, since loaders
# and C libraries differ.
START = Gate(
    "start of a process", "tiny", {"ops": 2, "warm": 1, "slots": 1, "min": 16, "max": 16}, runs=4
)


def page_bytes() -> int:
    """Page faults are comparable between machines of one page size."""
    return os.sysconf("SC_PAGE_SIZE")


def _count(library: Path, name: str, gate: Gate, environment: Mapping[str, str]) -> Table:
    case = Case(name=name, about=gate.about, program=gate.program, arguments=gate.arguments)
    allocator = library_allocator(library)
    variables = {**gate.environment, **environment}
    with pinned(max(os.sched_getaffinity(0))):
        found = [counts.count(case, allocator, environment=variables) for _ in range(gate.runs)]
    return {
        "ops": found[0]["row"]["ops"],
        "os_calls": {call: min(each["syscalls"][call] for each in found) for call in CALLS},
        "page_faults": min(each["row"]["minor_faults"] for each in found),
    }


def measure_start(library: Path) -> dict[str, int]:
    """The calls of a process that does nothing."""
    found: dict[str, int] = _count(library, "start", START, {})["os_calls"]
    return found


def measure(
    library: Path, name: str, start: Mapping[str, int], environment: Mapping[str, str] | None = None
) -> Table:
    """One row: operations, OS calls beyond a process's start, page faults of the timed part."""
    row = _count(library, name, GATES[name], environment or {})
    row["os_calls"] = {call: row["os_calls"][call] - start[call] for call in CALLS}
    if GATES[name].faults_percent is not None:
        row["page_faults_percent"] = GATES[name].faults_percent
    return row


def per_million(row: Table) -> dict[str, float]:
    """The row's counts per million operations."""
    figures = {**row["os_calls"], "page_faults": row["page_faults"]}
    return {name: round(value * 1e6 / row["ops"], 2) for name, value in figures.items()}


def _outside(found: int, expected: int, tolerance: Table) -> bool:
    slack: float = tolerance["counts"] + abs(expected) * tolerance["percent"] / 100
    return abs(found - expected) > slack


def problems(table: Table, name: str, found: Table) -> list[str]:
    """Where a measured row leaves the table. Fewer calls are a difference too: the table is to say
    what is true."""
    expected, tolerance = table["rows"][name], table["tolerance"]
    if found["ops"] != expected["ops"]:
        return [f"{name}: {found['ops']} operations, the table is of {expected['ops']}"]
    faults = {**tolerance, "percent": expected.get("page_faults_percent", tolerance["percent"])}
    pairs = {
        call: (found["os_calls"][call], expected["os_calls"][call], tolerance) for call in CALLS
    }
    if page_bytes() == table["page_bytes"]:
        pairs["page_faults"] = (found["page_faults"], expected["page_faults"], faults)
    return [
        f"{name}: {figure} {own}, the table says {other}"
        for figure, (own, other, slack) in pairs.items()
        if _outside(own, other, slack)
    ]
