#!/usr/bin/env python3
"""Measures malloc workloads on hakmem and its peers, and proves each row.

Allocators are run in random order within blocks, each in a process of its own with a clean
environment; rows of one thread are pinned to one CPU. A row counts only when the measured process
itself names the expected library for malloc, free, realloc and calloc.

Exit status: 0 all rows measured, 1 a row was refused or failed, 2 usage.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from harness import machine, peers, programs, tables
from harness.errors import BenchError, MeasureError, RefusedError
from harness.layout import PROGRAMS, display
from harness.measure import CLEAN_ENVIRONMENT, Row, run_workload
from harness.peers import Allocator
from harness.programs import Case
from harness.store import Store

QUICK_REPS = 5
FULL_REPS = 11
WARM_UP_SHARE = 0.02


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bench/run.py",
        description="Measure malloc workloads on hakmem and its peers.",
        epilog="example: bench/run.py --quick --allocators hakmem,mimalloc,glibc --metric cpu",
    )
    parser.add_argument("--quick", action="store_true", help="the quick rows, about a minute")
    parser.add_argument("--workloads", metavar="A,B", help="only these rows of workloads.toml")
    parser.add_argument("--allocators", metavar="A,B", help="only these rows of allocators.toml")
    parser.add_argument(
        "--allocator", metavar="NAME=PATH", action="append", default=[], help="one more library"
    )
    parser.add_argument("--reps", type=int, help=f"blocks ({FULL_REPS}; --quick {QUICK_REPS})")
    parser.add_argument("--scale", type=float, default=1.0, help="multiplies the work of every row")
    parser.add_argument("--baseline", default="mimalloc", help="ratios are against this allocator")
    parser.add_argument("--metric", choices=sorted(tables.METRICS), default="wall")
    parser.add_argument("--cpu", type=int, help="CPU for rows of one thread (the last)")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the runs")
    parser.add_argument("--output", type=Path, help="result folder (default: bench/results/...)")
    parser.add_argument("--programs", type=Path, help="folder of built workload programs")
    parser.add_argument("--list", action="store_true", help="show workloads and allocators")
    options = parser.parse_args(arguments)
    if options.reps is None:
        options.reps = QUICK_REPS if options.quick else FULL_REPS
    if options.reps < 1 or options.scale <= 0:
        parser.error("--reps and --scale must be positive")
    return options


def split(text: str | None) -> list[str] | None:
    """A comma-separated list."""
    return None if text is None else [part for part in text.split(",") if part]


def show_list() -> None:
    """What there is to choose from."""
    for case in programs.known():
        print(f"{case.name:18}{'quick' if case.quick else '':7}{case.about}")
    print()
    for allocator in peers.known().values():
        state = display(allocator.library) if allocator.installed else peers.missing_text(allocator)
        print(f"{allocator.name:18}{state}")


class Session:
    """One run of the matrix."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder = options.programs or programs.build(PROGRAMS)
        self.cases = programs.choose(split(options.workloads), quick=options.quick)
        self.allocators, missing = peers.choose(split(options.allocators), options.allocator)
        for allocator in missing:
            print(f"left out: {peers.missing_text(allocator)}", file=sys.stderr)
        if not self.allocators:
            raise BenchError("no allocator to measure")
        self.cpu = options.cpu if options.cpu is not None else max(os.sched_getaffinity(0))
        self.identities = {each.name: peers.identity(each) for each in self.allocators}
        self.store = Store(options.output, "quick" if options.quick else "micro")
        self.rows: list[Row] = []
        self.lost: set[tuple[str, str]] = set()
        self.started = time.monotonic()

    def manifest(self, state: str) -> dict[str, object]:
        """What is needed to repeat the run and to judge it."""
        return {
            **machine.describe(),
            "state": state,
            "command": shlex.join(["bench/run.py", *sys.argv[1:]]),
            "order_seed": self.options.seed,
            "blocks": self.options.reps,
            "scale": self.options.scale,
            "pinned_cpu": self.cpu,
            "environment": CLEAN_ENVIRONMENT,
            "allocators": self.identities,
            "workloads": {case.name: dict(case.arguments) for case in self.cases},
            "workload_compiler": peers.compiler(self.folder / self.cases[0].program),
        }

    def measure(self, case: Case, allocator: Allocator, scale: float) -> Row | None:
        """One proven row; or none, and then the pair is not run again."""
        cpu = self.cpu if case.threads == 1 else None
        head: Row = {
            "case": case.name,
            "allocator": allocator.name,
            "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "load_average": machine.load(),
        }
        try:
            return {**head, **run_workload(case, allocator, self.folder, cpu=cpu, scale=scale)}
        except (RefusedError, MeasureError) as error:
            kind = "REFUSED" if isinstance(error, RefusedError) else "FAILED"
            print(f"{kind} {allocator.name} on {case.name}: {error}", file=sys.stderr)
            self.lost.add((case.name, allocator.name))
            self.store.row({**head, "kind": kind, "why": str(error)}, refused=True)
            return None

    def run(self) -> None:
        """All blocks. A block holds every case once on every allocator, in random order.

        Before the first block each pair runs briefly once: files enter the page cache, and a proof
        that does not hold is seen early.
        """
        order = random.Random(self.options.seed)
        for case in self.cases:
            for allocator in self.allocators:
                self.measure(case, allocator, self.options.scale * WARM_UP_SHARE)
        total = len(self.cases) * len(self.allocators) * self.options.reps
        done = 0
        for block in range(self.options.reps):
            for case in order.sample(self.cases, k=len(self.cases)):
                for allocator in order.sample(self.allocators, k=len(self.allocators)):
                    done += 1
                    if (case.name, allocator.name) in self.lost:
                        continue
                    row = self.measure(case, allocator, self.options.scale)
                    if row is not None:
                        self.rows.append({"block": block, **row})
                        self.store.row(self.rows[-1])
                    self.progress(done, total)

    def progress(self, done: int, total: int) -> None:
        """A line that rewrites itself, for people only."""
        if sys.stderr.isatty():
            left = (time.monotonic() - self.started) / done * (total - done)
            end = "\n" if done == total else ""
            line = f"\r{done}/{total} runs, {left:.0f} s left "
            print(line, end=end, file=sys.stderr, flush=True)

    def checksums_agree(self) -> bool:
        """A workload does the same on every allocator, or its figures mean nothing."""
        agree = True
        for case in self.cases:
            found = {row["checksum"] for row in self.rows if row["case"] == case.name}
            if len(found) > 1:
                print(f"FAILED {case.name}: checksums differ: {sorted(found)}", file=sys.stderr)
                agree = False
        return agree

    def libraries_unchanged(self) -> bool:
        """A library that was built anew during the run is two libraries in one row."""
        changed = peers.changed(self.allocators, self.identities)
        for name in changed:
            print(f"FAILED {name}: its library changed during the run", file=sys.stderr)
        return not changed

    def finish(self, state: str) -> int:
        """Derives the tables from what was measured."""
        names = [each.name for each in self.allocators]
        baseline = self.options.baseline
        if baseline not in names:
            baseline = names[0]
        text = tables.report(self.rows, self.cases, names, baseline, self.options.metric)
        print(text)
        self.store.manifest({**self.manifest(state), "seconds": time.monotonic() - self.started})
        print(f"rows, manifest and table: {display(self.store.folder)}", file=sys.stderr)
        self.store.table(f"    {self.manifest(state)['command']}\n\n{text}")
        if self.lost:
            print(f"{len(self.lost)} rows were refused or failed; see above", file=sys.stderr)
        sound = self.checksums_agree() and self.libraries_unchanged()
        return 0 if sound and not self.lost and state == "complete" else 1


def main(arguments: Sequence[str]) -> int:
    """Runs the matrix; see the module's text for the exit status."""
    options = parse(arguments)
    if options.list:
        show_list()
        return 0
    try:
        session = Session(options)
        session.store.manifest(session.manifest("running"))
        try:
            session.run()
        except KeyboardInterrupt:
            print("\ninterrupted: the finished rows are kept", file=sys.stderr)
            return session.finish("interrupted")
        return session.finish("complete")
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
