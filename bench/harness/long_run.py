"""`hakmem bench syscalls`: OS calls of 200 million operations of random_mixed after warm-up.

Each run is traced from its first call to its last, and those of its timed part are counted. Some
runs, because what an allocator does by the clock falls into one and not into another; the row has
the sum of them all. The warm-up takes seconds: what it left must have gone back by then.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

from . import counts, identity, machine
from .cases import Case
from .errors import MeasureError, RefusedError
from .measure import Row
from .peers import Allocator
from .report import markdown
from .session import Plan, libraries_unchanged, say, usable_allocators
from .store import COUNTS, REFUSED, Store

SCHEMA = "hakmem-bench-syscalls/1"
OPS = 200_000_000
WARM_OPS = 200_000_000
RUNS = 5
CASE = Case(
    name="random_mixed_long",
    about="random_mixed, 400 slots, 16..1024 B",
    program="random_mixed",
    arguments={"ops": OPS, "warm": WARM_OPS, "slots": 400, "min": 16, "max": 1024},
)


def count_one(case: Case, allocator: Allocator) -> Row:
    """The row of one allocator."""
    runs = [counts.count_timed_part(case, allocator) for _ in range(RUNS)]
    calls, others = Counter[str](), Counter[str]()
    for run in runs:
        calls.update(run["syscalls"])
        others.update(run["other_syscalls"])
    return {
        "case": case.name,
        "allocator": allocator.name,
        "ops": OPS * RUNS,
        "warm_ops": case.arguments["warm"],
        "syscalls": dict(calls),
        "other_syscalls": dict(others),
        "calls_total": sum(run["calls_total"] for run in runs),
        "calls_of_runs": [run["calls_total"] for run in runs],
        "proof": runs[0]["row"]["proof"],
    }


def table(rows: list[Row]) -> str:
    """The Markdown table."""
    header = [
        "allocator",
        f"OS calls in {RUNS} runs of {OPS // 10**6} million operations",
        "of each run",
        *counts.MEMORY_CALLS,
        "others",
    ]
    lines = [
        [
            row["allocator"],
            f"{row['calls_total']:,}",
            ", ".join(f"{calls:,}" for calls in row["calls_of_runs"]),
            *(f"{row['syscalls'][name]:,}" for name in counts.MEMORY_CALLS),
            ", ".join(f"{name} {calls:,}" for name, calls in row["other_syscalls"].items()),
        ]
        for row in rows
    ]
    return markdown.table(header, lines)


def main(options: argparse.Namespace, command: str) -> int:
    """Counts, keeps and prints; returns the exit status."""
    plan = Plan("syscalls", command, allocators=options.allocators, own=options.allocator)
    chosen = usable_allocators(plan)
    kept = Store(options.output, plan.kind)
    identities = {each.name: identity.identity(each) for each in chosen}
    about: dict[str, Any] = {"name": CASE.name, "about": CASE.about, "arguments": CASE.arguments}
    manifest = {"kind": plan.kind, "command": command, **machine.describe(), "ops": OPS,
                "cases": [about], "allocators": identities}  # fmt: skip
    kept.manifest({"state": "running", **manifest})
    rows: list[Row] = []
    failed = False
    for _, allocator, row in counts.count_all([(CASE, each) for each in chosen], count_one):
        if isinstance(row, RefusedError | MeasureError):
            say(f"REFUSED {allocator.name}: {row}")
            kept.row({"allocator": allocator.name, "why": str(row)}, file=REFUSED)
            failed = True
        elif isinstance(row, dict):
            kept.row(row, file=COUNTS)
            rows.append(row)
    sound = libraries_unchanged(chosen, identities) and bool(rows)
    kept.manifest({"state": "complete" if sound else "unsound", **manifest})
    text = table(rows)
    kept.text("table.md", f"    {command}\n\n{CASE.about}, after warm-up.\n\n{text}")
    if options.json:
        print(json.dumps({"schema": SCHEMA, "rows": rows}, indent=2))
    else:
        print(text)
    return 0 if sound and not failed else 1
