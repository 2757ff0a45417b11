"""Counts what threads share: atomic operations and locks, at 2 to 256 threads on any machine.

    cmake --preset release -B build/sharing -DHAKMEM_COUNT_SHARING=ON
    cmake --build build/sharing --target hakmem
    PYTHONPATH=bench python3 -m harness.scaling build/sharing/libhakmem.so

Counts need no free machine: which thread meets which depends on the moment, how often an operation
takes a slow path hardly does. How long locks are held does: beside other work they are held for
half as long again. docs/SCALING.md says what they are for.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from . import identity, machine, measure, store
from .environment import CLEAN_ENVIRONMENT, TIMEOUT_SECONDS
from .errors import BenchError, MeasureError
from .layout import BENCH
from .peers import Allocator
from .workshop import build

SCHEMA = "hakmem-sharing-1"
KIND = "scaling"
COUNTING = "hakmem, counting"
# Which threads run together differs from run to run.
RUNS = 3
RATE_SECONDS = 0.5
# Fewer threads do as much together as so many.
THREADS_MIN = 64
# enum lock_rank of src/os/lock.h.
RANKS = (
    "",
    "fork handlers",
    "huge",
    "registry",
    "heap",
    "guarded",
    "arena",
    "page map",
    "metadata",
)
LOCK_FIELDS = ("taken", "found_held", "slept", "woke", "tried", "refused")


@dataclass(frozen=True)
class Workload:
    """A row of bench/scaling.toml."""

    name: str
    about: str
    program: str
    arguments: dict[str, object]
    operations: int
    calls: int

    def total(self, threads: int) -> int:
        """Operations of all threads: few threads do more each, so that rare events count too."""
        return max(threads, THREADS_MIN) * self.operations // threads * threads

    def options(self, threads: int) -> dict[str, object]:
        """The program's options for so many threads."""
        chosen = {**self.arguments, "threads": threads, "ops": self.total(threads)}
        if chosen.get("consumers") == "half":
            chosen["consumers"] = threads // 2
        return chosen


@dataclass(frozen=True)
class Row:
    """What `calls` calls of malloc and free of one workload at one number of threads did."""

    workload: str
    variant: str
    threads: int
    calls: int
    # "file operation", as "heap.c or_acq_rel &slab->remote_bits[word]" -> times.
    operations: dict[str, int]
    # Rank -> LOCK_FIELDS -> times.
    locks: dict[str, dict[str, int]]
    # Rank -> times held, by the number of bits of the time in processor ticks.
    held_by_bits: dict[str, list[int]]


@dataclass(frozen=True)
class Variant:
    """The library with options, where there are so many threads at least."""

    name: str
    threads_min: int = 1
    environment: dict[str, str] = field(default_factory=dict)

    def variables(self, threads: int) -> dict[str, str]:
        """The environment, with the number of threads put in."""
        return {name: text.format(threads=threads) for name, text in self.environment.items()}


@dataclass(frozen=True)
class Table:
    """bench/scaling.toml."""

    threads: list[int]
    variants: list[Variant]
    workloads: list[Workload]


def table(file: Path = BENCH / "scaling.toml") -> Table:
    """What there is to count."""
    with file.open("rb") as opened:
        read = tomllib.load(opened)
    return Table(
        threads=read["threads"],
        variants=[Variant(**row) for row in read["variant"]],
        workloads=[Workload(**row) for row in read["row"]],
    )


def parse(text: str) -> dict[str, Any]:
    """What the counting library writes to standard error at exit, the last line."""
    for line in reversed(text.splitlines()):
        if line.startswith(f'{{"schema": "{SCHEMA}"'):
            counts: dict[str, Any] = json.loads(line)
            return counts
    raise MeasureError("no counts: is the library built with -DHAKMEM_COUNT_SHARING=ON?")


def as_row(workload: Workload, variant: str, threads: int, runs: Sequence[dict[str, Any]]) -> Row:
    """The sum of some runs: places of one name in one file together, what never happened left
    out."""
    operations: Counter[str] = Counter()
    locks: dict[str, Counter[str]] = {rank: Counter() for rank in RANKS[1:]}
    held: dict[str, list[int]] = {}
    for counts in runs:
        for file, operation, times in counts["operations"]:
            operations[f"{file} {operation}"] += times
        for rank, lock in list(zip(RANKS, counts["locks"], strict=False))[1:]:
            for name in LOCK_FIELDS:
                locks[rank][name] += lock[name]
            before = held.get(rank, [0] * len(lock["held_by_bits"]))
            held[rank] = [a + b for a, b in zip(before, lock["held_by_bits"], strict=True)]
    return Row(
        workload=workload.name,
        variant=variant,
        threads=threads,
        calls=workload.total(threads) * workload.calls * len(runs),
        operations={name: times for name, times in sorted(operations.items()) if times},
        locks={rank: dict(lock) for rank, lock in locks.items()},
        held_by_bits=held,
    )


def count(
    allocator: Allocator, programs: Path, workload: Workload, variant: str, threads: int
) -> Row:
    """RUNS proven runs of the workload on the counting library."""

    def run() -> dict[str, Any]:
        done = subprocess.run(
            measure.command_line(programs / workload.program, workload.options(threads)),
            env={**CLEAN_ENVIRONMENT, **allocator.settings()},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise MeasureError(f"exit status {done.returncode}: {done.stderr[:500]}")
        measure.verify(measure.read_row(done.stdout), allocator)
        return parse(done.stderr)

    return as_row(workload, variant, threads, [run() for _ in range(RUNS)])


def ticks_per_ns(allocator: Allocator) -> float:
    """The rate of the processor's tick counter, by which holds are timed: not that of the processor
    at this moment, which /proc/cpuinfo tells."""
    # Not sleep: it closes its standard error before it ends, and the counts are told after that.
    done = subprocess.run(
        [sys.executable, "-c", f"import time; time.sleep({RATE_SECONDS})"],
        env={**CLEAN_ENVIRONMENT, **allocator.settings()},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    counts = parse(done.stderr)
    if not counts.get("ns"):
        raise BenchError("the library tells no rate of its tick counter: build it anew")
    return float(counts["ticks"] / counts["ns"])


@dataclass(frozen=True)
class Counted:
    """A result folder."""

    manifest: dict[str, Any]
    rows: list[Row]


def read(folder: Path) -> Counted:
    """What was counted."""
    return Counted(
        manifest=store.read_manifest(folder),
        rows=[Row(**row) for row in store.read_rows(folder, store.COUNTS)],
    )


def _run(options: argparse.Namespace) -> None:
    wanted = table()
    known = [workload.name for workload in wanted.workloads]
    for name in options.workload or ():
        if name not in known:
            raise BenchError(f"no workload '{name}'; known: {', '.join(known)}")
    counting = Allocator(COUNTING, options.library.resolve())
    allocators = {COUNTING: identity.identity(counting)}
    folder = options.output or store.fresh_folder(KIND)
    if (folder / store.MANIFEST).exists():
        before = store.read_manifest(folder)
        if before.get("allocators") != allocators or before.get("cpu") != machine.describe()["cpu"]:
            raise BenchError(f"{folder} holds counts of another library or machine")
    folder.mkdir(parents=True, exist_ok=True)
    manifest = {"schema": SCHEMA, "kind": KIND, "at": _now(), **machine.describe(),
                "ticks_per_ns": ticks_per_ns(counting), "allocators": allocators}  # fmt: skip
    store.write_manifest(folder, manifest)
    programs = build()
    for workload, variant, threads in itertools.product(
        wanted.workloads, wanted.variants, wanted.threads
    ):
        chosen = not options.workload or workload.name in options.workload
        if chosen and threads >= variant.threads_min:
            allocator = replace(counting, environment=variant.variables(threads))
            row = asdict(count(allocator, programs, workload, variant.name, threads))
            with (folder / store.COUNTS).open("a") as rows:
                rows.write(json.dumps(row) + "\n")
            print(f"{workload.name}, {variant.name}, {threads} threads", flush=True)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def main(arguments: Sequence[str] | None = None) -> int:
    """Counts everything, or the named workloads, into a result folder; 2 when that cannot be."""
    parser = argparse.ArgumentParser(prog="harness.scaling", description=__doc__)
    parser.add_argument("library", type=Path, help="built with HAKMEM_COUNT_SHARING")
    parser.add_argument("--workload", action="append", help="only this one (repeatable)")
    parser.add_argument("--output", type=Path, help="folder to add to; a fresh one by default")
    try:
        _run(parser.parse_args(arguments))
    except (BenchError, MeasureError, subprocess.TimeoutExpired) as error:
        print(f"harness.scaling: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
