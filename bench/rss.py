#!/usr/bin/env python3
"""What an allocator costs a program that hardly allocates: memory, page faults, time, OS calls.

Each allocator is preloaded into /bin/true and `python3 -c pass`. Memory is read while the kernel
holds the program at the start of its exit, exact to the page; start-up time is the wall time of
many short processes, in interleaved batches; OS calls are counted by strace. The loader's own list
of bindings proves, once per program and allocator, who serves malloc.

Exit status: 0 all measured, 1 an allocator was refused or failed, 2 usage.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness import machine, peers, programs, tables
from harness.errors import BenchError, MeasureError, RefusedError
from harness.figures import paired_ratio, spread
from harness.layout import PROGRAMS, display
from harness.measure import CLEAN_ENVIRONMENT, Row, verify_bindings
from harness.peers import Allocator
from harness.store import Store

BATCH = 25
MEMORY_CALLS = ("mmap", "munmap", "mprotect", "madvise", "mremap", "brk", "futex")


def watched_programs() -> dict[str, list[str]]:
    """The programs, by name. Python is the system's: a version manager's `python3` is a script."""
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    return {"true": ["/bin/true"], "python": [python, "-c", "pass"]}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="bench/rss.py", description="Measure what preloading an allocator adds to a program."
    )
    parser.add_argument("--allocators", metavar="A,B", help="only these rows of allocators.toml")
    parser.add_argument(
        "--allocator", metavar="NAME=PATH", action="append", default=[], help="one more library"
    )
    parser.add_argument("--runs", type=int, default=15, help="memory readings per allocator")
    parser.add_argument("--starts", type=int, default=500, help="short processes per allocator")
    parser.add_argument("--baseline", default="glibc", help="differences are against this one")
    parser.add_argument("--seed", type=int, default=1, help="of the order of the runs")
    parser.add_argument("--output", type=Path, help="result folder (default: bench/results/...)")
    options = parser.parse_args(arguments)
    if options.runs < 1 or options.starts < 0:
        parser.error("--runs must be positive, --starts not negative")
    return options


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


def count_os_calls(command: list[str], allocator: Allocator) -> dict[str, int]:
    """Calls by name, of the program and its children, from one run under strace."""
    if shutil.which("strace") is None:
        raise BenchError("strace is missing (Debian package strace)")
    with tempfile.NamedTemporaryFile(mode="r", prefix="hakmem-bench-") as summary:
        settings = [f"-E{key}={value}" for key, value in allocator.settings().items()]
        done = subprocess.run(
            ["strace", "-f", "-c", "-o", summary.name, *settings, "--", *command],
            env=CLEAN_ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise MeasureError(f"strace {command[0]}: {done.stderr.strip()}")
        return parse_strace(summary.read())


def parse_strace(summary: str) -> dict[str, int]:
    """The calls column of `strace -c`."""
    rows = re.findall(
        r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", summary, re.MULTILINE
    )
    return {name: int(calls) for calls, name in rows if name != "total"}


class Session:
    """All allocators on all programs."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        programs.build()
        names = None if options.allocators is None else options.allocators.split(",")
        chosen, missing = peers.choose(names, options.allocator)
        for allocator in missing:
            print(f"left out: {peers.missing_text(allocator)}", file=sys.stderr)
        # The floor allocator is a bump allocator outside a workload: its memory says nothing.
        self.allocators = [each for each in chosen if each.name != "floor"]
        if not self.allocators:
            raise BenchError("no allocator to measure")
        self.store = Store(options.output, "startup")
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
                calls = count_os_calls(command, allocator)
            except (RefusedError, MeasureError) as error:
                print(f"REFUSED {allocator.name} on {program}: {error}", file=sys.stderr)
                self.store.row({**head, "kind": "REFUSED", "why": str(error)}, refused=True)
                self.refused += 1
                continue
            self.os_calls[program, allocator.name] = calls
            self.store.row({**head, "kind": "proof", "bound": bound, "os_calls": calls})
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
            ratio = paired_ratio(times, self.start_times(program, baseline))
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
            baseline = self.options.baseline if self.options.baseline in names else names[0]
            parts.append(
                f"### {shlex.join(command)}\n\nAt exit; in parentheses the difference to "
                f"{baseline}. Less is better everywhere.\n\n"
            )
            parts.append(
                tables.markdown(header, [self.line(program, name, baseline) for name in names])
            )
            parts.append("\n")
        return "".join(parts)

    def run(self) -> int:
        """Everything; returns the exit status."""
        identities = {each.name: peers.identity(each) for each in self.allocators}
        manifest = {
            **machine.describe(),
            "command": shlex.join(["bench/rss.py", *sys.argv[1:]]),
            "order_seed": self.options.seed,
            "environment": CLEAN_ENVIRONMENT,
            "allocators": identities,
            "programs": watched_programs(),
        }
        self.store.manifest(manifest)
        for program, command in watched_programs().items():
            self.measure(program, command)
        text = self.report()
        print(text)
        self.store.table(f"    {manifest['command']}\n\n{text}")
        print(f"rows, manifest and table: {display(self.store.folder)}", file=sys.stderr)
        changed = peers.changed(self.allocators, identities)
        for name in changed:
            print(f"FAILED {name}: its library changed during the run", file=sys.stderr)
        return 1 if self.refused or changed else 0


def main(arguments: Sequence[str]) -> int:
    """See the module's text for the exit status."""
    try:
        return Session(parse(arguments)).run()
    except (BenchError, MeasureError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
