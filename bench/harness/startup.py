"""`hakmem bench startup`: what an allocator costs a program that hardly allocates.

Each allocator is preloaded into /bin/true and `python3 -c pass`. Memory is read while the kernel
holds the program at the start of its exit, exact to the page; start-up time is the wall time of
many short processes, in interleaved batches; OS calls are counted by strace. The loader's own list
of bindings proves, once per program and allocator, who serves malloc.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

from . import identity, machine, strace, workshop
from .counts import MEMORY_CALLS
from .environment import CLEAN_ENVIRONMENT
from .errors import BenchError, MeasureError, RefusedError
from .figures import Ratio, interval_words, paired_ratio, spread
from .layout import PROGRAMS, display
from .measure import Row
from .peers import Allocator
from .proof import verify_bindings
from .report import markdown
from .session import (
    BASELINE,
    Plan,
    libraries_unchanged,
    require_baseline,
    say,
    usable_allocators,
)
from .store import REFUSED, Store

KIND = "startup"
BATCH = 25


def watched_programs() -> dict[str, list[str]]:
    """The programs, by name. Python is the system's: a version manager's `python3` is a script."""
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    return {"true": ["/bin/true"], "python": [python, "-c", "pass"]}


def watch(command: list[str], allocator: Allocator, count: int, *, memory: bool) -> list[Row]:
    """Runs the program `count` times under the watcher."""
    environment = {**CLEAN_ENVIRONMENT, **allocator.settings()}
    settings = [text for key, value in environment.items() for text in ("--set", f"{key}={value}")]
    line = [str(PROGRAMS / "watch"), "--count", str(count), "--memory", str(int(memory)), *settings]
    done = subprocess.run(
        [*line, "--", *command], env={}, capture_output=True, text=True, check=False
    )
    rows: list[Row] = [json.loads(text) for text in done.stdout.splitlines()]
    if done.returncode != 0 or len(rows) != count or any(row["status"] != 0 for row in rows):
        raise MeasureError(f"{command[0]} failed: {done.stderr.strip() or done.stdout.strip()}")
    return rows


def read_anew(library: Path) -> None:
    """Makes the kernel read the file when a process next touches it: of what a build or a copy has
    just written it maps more around each page, 120 KiB of hakmem's code instead of 64."""
    descriptor = os.open(library, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


class Session:
    """All allocators on all programs."""

    def __init__(self, options: argparse.Namespace, command: str) -> None:
        self.options = options
        self.command = command
        workshop.build()
        plan = Plan(KIND, command, allocators=options.allocators, own=options.allocator)
        # The floor allocator is a bump allocator outside a workload: its memory says nothing.
        self.allocators = [each for each in usable_allocators(plan) if each.kind != "floor"]
        if not self.allocators:
            raise BenchError("no allocator to measure")
        require_baseline(options.baseline, [each.name for each in self.allocators])
        self.baseline = options.baseline or BASELINE
        self.store = Store(options.output, KIND)
        self.rows: list[Row] = []
        self.os_calls: dict[tuple[str, str], dict[str, int]] = {}
        self.refused = 0

    def prove(self, program: str, command: list[str]) -> list[Allocator]:
        """Those allocators that the loader binds this program to."""
        proven = []
        for allocator in self.allocators:
            head: Row = {"program": program, "allocator": allocator.name}
            try:
                bound = verify_bindings(command, allocator)
                _, calls = strace.trace(command, {**CLEAN_ENVIRONMENT, **allocator.settings()})
            except (RefusedError, MeasureError) as error:
                say(f"REFUSED {allocator.name} on {program}: {error}")
                self.store.row({**head, "kind": "REFUSED", "why": str(error)}, file=REFUSED)
                self.refused += 1
                continue
            self.os_calls[program, allocator.name] = calls
            found = {"bound": bound, "build_id": identity.identity(allocator)["build_id"]}
            self.store.row({**head, "kind": "proof", **found, "os_calls": calls})
            proven.append(allocator)
        return proven

    def measure(self, program: str, command: list[str]) -> None:
        """Blocks of memory readings, then blocks of timed starts; both in random order."""
        order = random.Random(self.options.seed)
        allocators = self.prove(program, command)
        blocks = [("memory", 1)] * self.options.runs
        blocks += [("start", BATCH)] * -(-self.options.starts // BATCH)
        for block, (kind, count) in enumerate(blocks):
            for allocator in order.sample(allocators, k=len(allocators)):
                for row in watch(command, allocator, count, memory=kind == "memory"):
                    head = {"program": program, "allocator": allocator.name, "block": block}
                    self.rows.append({**head, "kind": kind, **row})
                    self.store.row(self.rows[-1])

    def values(self, program: str, name: str, kind: str, key: str) -> list[float]:
        """One column of the raw rows."""
        return [
            float(row[key])
            for row in self.rows
            if (row["program"], row["allocator"], row["kind"]) == (program, name, kind)
        ]

    def start_times(self, program: str, name: str) -> list[float]:
        """Median wall time of each batch, in milliseconds."""
        batches: dict[int, list[float]] = {}
        for row in self.rows:
            if (row["program"], row["allocator"], row["kind"]) == (program, name, "start"):
                batches.setdefault(int(row["block"]), []).append(float(row["wall_ns"]) / 1e6)
        return [statistics.median(batches[block]) for block in sorted(batches)]

    def start_ratio(self, program: str, name: str, baseline: str) -> Ratio:
        """Of the batches that were started side by side."""
        return paired_ratio(self.start_times(program, name), self.start_times(program, baseline))

    def line(self, program: str, name: str, baseline: str) -> list[str]:
        """One allocator's row of a program's table."""
        cells = [name]
        for key in ("rss_bytes", "pss_bytes", "private_dirty_bytes"):
            own = spread([value / 1024 for value in self.values(program, name, "memory", key)])
            base = spread([value / 1024 for value in self.values(program, baseline, "memory", key)])
            cells.append(f"{own.median:,.0f} ({own.median - base.median:+,.0f})")
        readings = self.values(program, name, "memory", "private_dirty_bytes")
        cells.append(f"{min(readings) / 1024:,.0f}..{max(readings) / 1024:,.0f}")
        cells.append(f"{spread(self.values(program, name, 'memory', 'minor_faults')).median:,.0f}")
        times = self.start_times(program, name)
        if times:
            figures = spread(times)
            ratio = self.start_ratio(program, name, baseline)
            cells.append(f"{figures.median:.2f} (CV {figures.cv_percent:.0f} %)")
            cells.append(f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]")
        else:
            cells += ["-", "-"]
        calls = self.os_calls[program, name]
        cells.append(str(sum(calls.values())))
        cells += [str(calls.get(call, 0)) for call in MEMORY_CALLS]
        return cells

    def report(self) -> str:
        """The Markdown tables."""
        header = ["allocator", "RSS KiB", "PSS KiB", "private dirty KiB", "min..max",
                  "page faults", "start ms", "x time", "OS calls", *MEMORY_CALLS]  # fmt: skip
        parts = []
        for program, command in watched_programs().items():
            names = [each.name for each in self.allocators if (program, each.name) in self.os_calls]
            if not names:
                continue
            baseline = self.baseline if self.baseline in names else names[0]
            times = [
                self.start_ratio(program, name, baseline)
                for name in names
                if self.start_times(program, name)
            ]
            parts.append(
                f"### {shlex.join(command)}\n\nAt exit; in parentheses the difference to "
                f"{baseline}; x time: median and {interval_words(times)} over the batches of "
                f"{BATCH} starts. Less is better everywhere.\n\n"
            )
            parts.append(
                markdown.table(header, [self.line(program, name, baseline) for name in names])
            )
            parts.append("\n")
        return "".join(parts)

    def run(self) -> int:
        """Everything; returns the exit status."""
        identities = {each.name: identity.identity(each) for each in self.allocators}
        manifest = {
            "kind": KIND,
            "command": self.command,
            **machine.describe(),
            "baseline": self.baseline,
            "order_seed": self.options.seed,
            "environment": CLEAN_ENVIRONMENT,
            "programs": watched_programs(),
            "allocators": identities,
        }
        self.store.manifest({"state": "running", **manifest})
        for each in self.allocators:
            read_anew(each.library)
        for program, command in watched_programs().items():
            self.measure(program, command)
        text = self.report()
        print(text)
        self.store.text("table.md", f"    {self.command}\n\n{text}")
        sound = libraries_unchanged(self.allocators, identities)
        self.store.manifest({"state": "complete" if sound else "unsound", **manifest})
        say(f"rows, manifest and table: {display(self.store.folder)}")
        return 1 if self.refused or not sound else 0


def main(options: argparse.Namespace, command: str) -> int:
    """Measures both programs; returns the exit status."""
    return Session(options, command).run()
