"""The ring of a target's latest slow-path events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hakmem.inspect.layout import Layout
from hakmem.inspect.memory import MemorySource
from hakmem.inspect.model import Event

KIND_BITS = 8
NS_PER_MS = 1_000_000
OWNER = "owner"


def read_events(
    source: MemorySource, layout: Layout, threads: Mapping[int, int]
) -> tuple[tuple[Event, ...], int]:
    """The events, the earliest first, and how many earlier ones the ring no longer holds. `threads`
    gives the kernel's number of a thread by its thread pointer. A version of the library without
    events has none."""
    root = layout.root
    if root.find_global("events") is None or "event_kinds" not in root.rows:
        return (), 0
    before = root.read_global(source, "events")[0]
    # What was being written at the first look has another stamp at the second.
    after = root.read_global(source, "events")[0]
    ring = before["ring"][(before["ring"]["stamp"] == after["ring"]["stamp"])]
    ring = ring[ring["stamp"] != 0]
    ring = ring[np.argsort(ring["stamp"], kind="stable")]
    kinds = {int(row["number"]): row for row in root.rows["event_kinds"]}
    clock = Clock(after)
    events = []
    for row in ring:
        kind = kinds.get(int(row["stamp"]) & ((1 << KIND_BITS) - 1))
        if kind is None:
            continue
        events.append(
            Event(
                ticks=int(row["ticks"]),
                time_ns=clock.to_ns(int(row["ticks"])),
                thread_id=threads.get(int(row["thread"]), 0),
                kind=kind["name"].decode("ascii", errors="replace"),
                arguments=_arguments(kind, int(row["a"]), int(row["b"]), layout),
            )
        )
    return tuple(events), max(0, int(after["next"]) - len(before["ring"]))


def _arguments(kind: np.void, first: int, second: int, layout: Layout) -> dict[str, int]:
    found: dict[str, int] = {}
    for column, value in (("a_unit", first), ("b_unit", second)):
        unit = kind[column].decode("ascii", errors="replace")
        if unit == OWNER:
            shift = layout.root.constant("heap_id_shift")
            found["heap"] = value >> shift
            index = (value & ((1 << shift) - 1)) - layout.class_tops.start
            if 0 <= index < len(layout.size_classes):
                found["block_bytes"] = layout.size_classes[index].block_bytes
        elif unit:
            found[unit] = value
    return found


class Clock:
    """The processor's ticks as time of the monotonic clock, by two looks at both."""

    def __init__(self, events: Any) -> None:
        first, latest = events["first"], events["latest"]
        self.ticks = int(first["ticks"])
        self.ms = int(first["ms"])
        self.ticks_between = int(latest["ticks"]) - self.ticks
        self.ms_between = int(latest["ms"]) - self.ms

    def ticks_per_second(self) -> int:
        """0 when the two looks were too close."""
        return 1000 * self.ticks_between // self.ms_between if self.ms_between > 0 else 0

    def to_ns(self, ticks: int) -> int | None:
        if self.ticks_between <= 0 or self.ms_between <= 0:
            return None
        after_ns = (ticks - self.ticks) * self.ms_between * NS_PER_MS // self.ticks_between
        return self.ms * NS_PER_MS + after_ns
