"""`hakmem bench syscalls`: OS calls of 200 million operations of random_mixed after warm-up.

Traced runs of the same seed, with and without them, differ in their operations alone, so the
difference of their calls is what those operations cost; start-up, warm-up and the end cancel out.
Where the system puts a mapping decides how many calls bring it to its alignment, so each is run
some times, and the fewest of each call count. The warm-up takes seconds: what it left must have
gone back by then.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from . import counts, identity, machine
from .cases import Case
from .errors import MeasureError, RefusedError
from .measure import Row
from .peers import Allocator
from .report import markdown
from .session import Plan, say, usable_allocators
from .store import COUNTS, REFUSED, Store

OPS = 200_000_000
WARM_OPS = 200_000_000
RUNS = 3
CASE = Case(
    name="random_mixed_long",
    about="random_mixed, 400 slots, 16..1024 B",
    program="random_mixed",
    arguments={"warm": WARM_OPS, "slots": 400, "min": 16, "max": 1024},
)


def difference(many: Mapping[str, int], few: Mapping[str, int]) -> dict[str, int]:
    """Calls by name that the longer run made beyond the shorter one."""
    return {name: many.get(name, 0) - few.get(name, 0) for name in {**few, **many}}


def fewest(runs: Sequence[Mapping[str, int]]) -> dict[str, int]:
    """Of each call, by name, the smallest number that a run made."""
    names = {name for calls in runs for name in calls}
    return {name: min(calls.get(name, 0) for calls in runs) for name in sorted(names)}


def count_one(case: Case, allocator: Allocator) -> Row:
    """The row of one allocator."""

    def runs(ops: int) -> list[dict[str, Any]]:
        return [counts.count(case, allocator, arguments={"ops": ops}) for _ in range(RUNS)]

    few, many = runs(1), runs(OPS + 1)
    calls, others = (
        difference(fewest([each[which] for each in many]), fewest([each[which] for each in few]))
        for which in ("syscalls", "other_syscalls")
    )
    return {
        "case": case.name,
        "allocator": allocator.name,
        "ops": OPS,
        "warm_ops": case.arguments["warm"],
        "syscalls": calls,
        "other_syscalls": {name: calls for name, calls in others.items() if calls},
        "calls_total": sum(calls.values()) + sum(others.values()),
        "start_calls_total": min(each["calls_total"] for each in few),
        "proof": many[0]["row"]["proof"],
    }


def table(rows: list[Row]) -> str:
    """The Markdown table."""
    header = [
        "allocator",
        f"OS calls in {OPS // 10**6} million operations",
        *counts.MEMORY_CALLS,
        "others",
    ]
    lines = [
        [
            row["allocator"],
            f"{row['calls_total']:,}",
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
    kept.manifest({"state": "complete", **manifest})
    text = table(rows)
    kept.text("table.md", f"    {command}\n\n{CASE.about}, after warm-up.\n\n{text}")
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        print(text)
    return 1 if failed or not rows else 0
