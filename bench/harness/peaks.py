"""`hakmem bench memory`: what the memory of a row is made of at its peak.

Each row runs twice or more. The first run tells how much resident memory the largest of its
processes comes to, looked at twice a millisecond. In the next that process is stopped (SIGSTOP)
where it has come to nearly as much, and `hakmem inspect` tells what for; then it goes on, and its
row is verified as any other. Nothing is timed. The baseline's peak stands beside it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hakmem.errors import HakmemError
from hakmem.inspect import targets
from hakmem.inspect.model import Snapshot

from . import cases, identity, machine, measure
from .cases import Case
from .errors import BenchError, MeasureError, RefusedError
from .layout import TOP, display
from .measure import Row
from .peers import Allocator
from .processes import has_mapped, process_tree, resident_bytes
from .report import markdown
from .session import (
    BASELINE,
    Plan,
    libraries_unchanged,
    say,
    usable_allocators,
    usable_cases,
)
from .store import REFUSED, Store
from .workshop import build

KIND = "memory"
SCHEMA = "hakmem-bench-memory/1"
INTERVAL_S = 0.0005
# Looks between two at which processes there are: that costs more than a look at their memory.
LOOKS_A_TREE = 8
# Of the first run's peak, where the next ones are stopped: a run may come to less than the one
# before, or end where it comes to its peak, too soon to be looked at.
SHARES = (0.975, 0.95, 0.9, 0.8)
DOCUMENT = TOP / "docs" / "PEAKS.md"
BEGIN, END = "<!-- bench memory: begin -->\n", "<!-- bench memory: end -->\n"

# Rows of the waterfall that have a column of their own, with its head.
COLUMNS = {
    "live": "live",
    "large": "large",
    "huge": "huge",
    "cached": "cached",
    "slab_free": "slab free",
    "dirty": "dirty",
    "huge_kept": "huge kept",
    "metadata": "metadata",
    "library": "library",
}


class Watch:
    """Looks at the memory of the processes that this one started while the block runs, of those
    that have `library` mapped. The first that comes to `stop_at_bytes` is stopped once, and what
    its memory is made of is `snapshot`."""

    def __init__(self, library: Path, stop_at_bytes: int | None = None) -> None:
        self.peak_bytes = 0
        self.snapshot: Snapshot | None = None
        self.failure = ""
        self._library = library.resolve()
        self._stop_at_bytes = stop_at_bytes
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        looks = 0
        while not self._ended.is_set():
            if looks % LOOKS_A_TREE == 0:
                found = process_tree(os.getpid())[1:]
            looks += 1
            for pid in found:
                self._look(pid)
            self._ended.wait(INTERVAL_S)

    def _look(self, pid: int) -> None:
        resident = resident_bytes(pid)
        if resident <= self.peak_bytes or not has_mapped(pid, self._library):
            return
        wanted = self._stop_at_bytes
        if wanted is not None and resident >= wanted and self.snapshot is None:
            self._take(pid)
        self.peak_bytes = max(self.peak_bytes, resident)

    def _take(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            try:
                self.snapshot = targets.take(str(pid))
            except HakmemError as error:
                self.failure = str(error)
            finally:
                os.kill(pid, signal.SIGCONT)


def made_of(snapshot: Snapshot) -> dict[str, Any]:
    """The resident bytes of a snapshot by kind, and those of size classes without a live block."""
    waterfall = snapshot.waterfall
    if waterfall is None:
        raise MeasureError("the system does not tell which of its pages are resident")
    unused = [each for each in snapshot.classes if each.live_blocks == 0 and each.resident_bytes]
    return {
        "looked_at_bytes": waterfall.rss_bytes,
        "kinds": {row.name: row.bytes for row in waterfall.rows},
        "unused_classes": len(unused),
        "unused_class_bytes": sum(each.resident_bytes for each in unused),
    }


def look(case: Case, allocator: Allocator, folder: Path, scale: float) -> Row:
    """A row of the results: the peak of one run, and what the memory was made of near that of
    another."""

    def run(stop_at_bytes: int | None) -> tuple[Row, Watch]:
        with Watch(allocator.library, stop_at_bytes) as watch:
            row = measure.run(case, allocator, folder, cpu=None, scale=scale)
        return row, watch

    row, first = run(None)
    failure = "no other run came near the peak of the first"
    # A proof at the end of a process reads the library: what that adds is none of the row's.
    peak_bytes = min(first.peak_bytes, row["peak_rss_bytes"])
    for share in SHARES:
        _, watch = run(int(share * peak_bytes))
        if watch.snapshot is not None:
            return {
                "case": case.name,
                "group": case.group,
                "allocator": allocator.name,
                "peak_rss_bytes": row["peak_rss_bytes"],
                **made_of(watch.snapshot),
                "proof": row["proof"],
            }
        failure = watch.failure or failure
    raise MeasureError(f"could not be looked at: {failure}")


def baseline_row(case: Case, allocator: Allocator, folder: Path, scale: float) -> Row:
    """The baseline's row: its peak alone."""
    row = measure.run(case, allocator, folder, cpu=None, scale=scale)
    return {"case": case.name, "group": case.group, "allocator": allocator.name,
            "peak_rss_bytes": row["peak_rss_bytes"], "proof": row["proof"]}  # fmt: skip


def _kib(value: int) -> str:
    return f"{round(value / 1024):,}"


def table(rows: Sequence[Row], subject: str) -> str:
    """The Markdown table of one allocator, in KiB, its rows in the order of the results."""
    base = {row["case"]: row["peak_rss_bytes"] for row in rows if "kinds" not in row}
    header = ["row", "peak", BASELINE, "x", "looked at", *COLUMNS.values(), "rest",
              "without a live block"]  # fmt: skip
    lines = []
    for row in rows:
        if row["allocator"] != subject or "kinds" not in row:
            continue
        kinds = row["kinds"]
        peak, beside = row["peak_rss_bytes"], base.get(row["case"])
        lines.append([
            row["case"],
            _kib(peak),
            _kib(beside) if beside else "-",
            f"{peak / beside:.2f}" if beside else "-",
            f"{100 * row['looked_at_bytes'] / peak:.0f} %",
            *(_kib(kinds[name]) for name in COLUMNS),
            _kib(sum(size for name, size in kinds.items() if name not in COLUMNS)),
            f"{_kib(row['unused_class_bytes'])} in {row['unused_classes']}",
        ])  # fmt: skip
    return markdown.table(header, lines)


def tables(rows: Sequence[Row]) -> str:
    """The table of each allocator that was looked into, under its name where there are several."""
    subjects = list(dict.fromkeys(row["allocator"] for row in rows if "kinds" in row))
    if len(subjects) == 1:
        return table(rows, subjects[0])
    return "\n".join(f"### {name}\n\n{table(rows, name)}" for name in subjects)


def with_table(document: str, text: str) -> str:
    """The document with the table between its two marks made anew."""
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError(f"{display(DOCUMENT)}: the marks of the table are missing")
    return f"{before}{begin}{text}{end}{after}"


def _choose(options: argparse.Namespace, command: str) -> tuple[list[Case], list[Allocator]]:
    """What is run, and on which allocators: of hakmem alone a reader can tell what is what."""
    if options.write and options.workloads:
        raise BenchError("--write is for all rows, --workloads for some")
    wanted = options.allocators or ([] if options.allocator else ["hakmem"])
    plan = Plan(KIND, command, allocators=[*wanted, BASELINE], own=options.allocator)
    chosen = usable_cases(cases.choose(options.workloads, quick=False))
    return chosen, usable_allocators(plan)


def _look_at_all(
    chosen: Sequence[Case], allocators: Sequence[Allocator], scale: float
) -> Iterator[tuple[Case, Allocator, Row | Exception]]:
    folder = build()
    for case in chosen:
        share = case.scale(scale)
        measure.prepare(case, share)
        for allocator in allocators:
            one = baseline_row if allocator.name == BASELINE else look
            try:
                yield case, allocator, one(case, allocator, folder, share)
            except (RefusedError, MeasureError) as error:
                yield case, allocator, error


def main(options: argparse.Namespace, command: str) -> int:
    """Looks at each row, keeps and prints; returns the exit status."""
    chosen, allocators = _choose(options, command)
    kept = Store(options.output, KIND)
    identities = {each.name: identity.identity(each) for each in allocators}
    manifest = {"kind": KIND, "command": command, **machine.describe(), "scale": options.scale,
                "cases": [{"name": each.name, "about": each.about} for each in chosen],
                "allocators": identities}  # fmt: skip
    kept.manifest({"state": "running", **manifest})
    rows: list[Row] = []
    failed = False
    for case, allocator, found in _look_at_all(chosen, allocators, options.scale):
        if isinstance(found, Exception):
            say(f"REFUSED {case.name}, {allocator.name}: {found}")
            kept.row({"case": case.name, "allocator": allocator.name, "why": str(found)},
                     file=REFUSED)  # fmt: skip
            failed = True
        else:
            kept.row(found)
            rows.append(found)
    sound = libraries_unchanged(allocators, identities) and bool(rows)
    kept.manifest({"state": "complete" if sound else "unsound", **manifest})
    text = tables(rows)
    kept.text("table.md", f"    {command}\n\nKiB.\n\n{text}")
    print(json.dumps({"schema": SCHEMA, "rows": rows}, indent=2) if options.json else text)
    if options.write and sound and not failed:
        DOCUMENT.write_text(with_table(DOCUMENT.read_text(), text))
    elif options.write:
        say(f"{display(DOCUMENT)} stays as it is")
    say(f"rows, manifest and table: {display(kept.folder)}")
    return 0 if sound and not failed else 1
