"""What the learner decided, and the windows of slow paths that it decided on (docs/LEARNING.md)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

import numpy as np

from hakmem.inspect.layout import Layout
from hakmem.inspect.memory import MemorySource
from hakmem.inspect.model import Decision, Snapshot, Window

NS_PER_MS = 1_000_000
# Of a window, named as in the library.
FIELDS = tuple(field.name for field in fields(Window) if field.name != "block_bytes")
# Of a line "class", in this order.
CLASS_FIELDS = (
    "block_bytes",
    "refills",
    "flushes",
    "refilled_blocks",
    "flushed_blocks",
    "capacity",
    "limit",
    "used",
)


@dataclass(frozen=True)
class Learned:
    """The latest of both, the earliest first, and how many decisions the ring no longer holds."""

    decisions: tuple[Decision, ...] = ()
    decisions_lost: int = 0
    windows: tuple[Window, ...] = ()


NOTHING_LEARNED = Learned()


def read_learned(source: MemorySource, layout: Layout) -> Learned:
    """A version of the library without a learner has decided nothing."""
    root = layout.root
    if root.find_global("decision_log") is None:
        return NOTHING_LEARNED
    before = root.read_global(source, "decision_log")[0]
    after = root.read_global(source, "decision_log")[0]
    rows = _whole(before["decisions"], after["decisions"])
    knobs, signals = root.constants("knob_"), root.constants("signal_")
    decisions = tuple(
        Decision(
            number=int(row["number"]),
            time_ns=int(row["ms"]) * NS_PER_MS,
            heap=int(row["heap"]),
            knob=knobs.get(int(row["knob"]), "unknown"),
            block_bytes=_block_bytes(layout, row),
            before=int(row["from"]),
            after=int(row["to"]),
            signal=signals.get(int(row["signal"]), "unknown"),
            value=int(row["value"]),
        )
        for row in rows
    )
    windows = tuple(
        Window(block_bytes=_block_bytes(layout, row), **{name: int(row[name]) for name in FIELDS})
        for row in _whole(before["windows"], after["windows"])
    )
    return Learned(decisions, max(0, int(after["decided"]) - len(before["decisions"])), windows)


def _whole(before: Any, after: Any) -> Any:
    """The rows that were not being written, by number."""
    rows = before[(before["number"] == after["number"]) & (before["number"] != 0)]
    return rows[np.argsort(rows["number"], kind="stable")]


def _block_bytes(layout: Layout, row: np.void) -> int:
    index = int(row["class_index"])
    return layout.size_classes[index].block_bytes if index < len(layout.size_classes) else 0


def recording(snapshot: Snapshot, heap: int | None = None) -> str:
    """The windows of the heap (without one, of that with most) as the text that the test of the
    policy replays."""
    rows = sorted(snapshot.windows, key=lambda row: (row.heap, row.window))
    if heap is None and rows:
        heaps = [row.heap for row in rows]
        heap = max(sorted(set(heaps)), key=heaps.count)
    lines = []
    chosen = (row for row in rows if row.heap == heap)
    for _, group in groupby(chosen, key=lambda row: row.window):
        classes = list(group)
        lines.append(f"window {classes[0].cpu_ns} {classes[0].budget_bytes}")
        for row in classes:
            lines.append("class " + " ".join(str(getattr(row, name)) for name in CLASS_FIELDS))
        lines.append("end")
    return "".join(f"{line}\n" for line in lines)
