"""What research mode counted: the tables of all thread caches, added up."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hakmem.inspect.events import Clock
from hakmem.inspect.layout import Layout
from hakmem.inspect.memory import MemorySource
from hakmem.inspect.model import Flow, Histogram, Research

NS_PER_SECOND = 1_000_000_000
# field of the tables: (name, whether it is of ticks)
HISTOGRAMS = {
    "alloc_ticks": ("malloc", True),
    "free_ticks": ("free", True),
    "request_bytes": ("size", False),
    "lifetime_ticks": ("life", True),
}
Caches = npt.NDArray[Any]


def read_research(source: MemorySource, layout: Layout, caches: Caches) -> Research | None:
    """None when no thread ever followed, or the library has no such tables."""
    root = layout.root
    fields = caches.dtype.names or ()
    if "research" not in fields or "researched" not in fields:
        return None
    with_tables = caches[caches["research"] != 0]
    if len(with_tables) == 0:
        return None
    tables, readable = source.gather_rows(with_tables["research"], root.structure("research"))
    tables, with_tables = tables[readable], with_tables[readable]
    levels = root.constants("research_level_")
    levels.pop(root.constant("research_level_count"), None)
    clock = Clock(root.read_global(source, "events")[0])
    count = len(layout.size_classes)
    in_use = caches["state"] == root.constant("cache_state_in_use")
    return Research(
        enabled=bool(caches["researched"][in_use].any()),
        operations={
            title: tuple(int(value) for value in _sum(tables[name])[:count])
            for name, title in (("allocs", "mallocs"), ("frees", "frees"))
        },
        histograms=tuple(
            _histogram(layout, tables[name], title, clock if of_ticks else None)
            for name, (title, of_ticks) in HISTOGRAMS.items()
        ),
        flows=_flows(tables, with_tables),
        hits=_levels(levels, tables["alloc_levels"]),
        free_hits=_levels(levels, tables["free_levels"]),
        requested_bytes=(
            tuple(int(value) for value in _sum(tables["requested_bytes"])[:count])
            if "requested_bytes" in (tables.dtype.names or ())
            else ()
        ),
    )


def _sum(values: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    total: npt.NDArray[np.uint64] = values.astype(np.uint64).sum(axis=0)
    return total


def _levels(names: dict[int, str], values: npt.NDArray[Any]) -> dict[str, int]:
    total = _sum(values)
    return {name: int(total[place]) for place, name in sorted(names.items()) if place < len(total)}


def _histogram(
    layout: Layout, tables: npt.NDArray[Any], name: str, clock: Clock | None
) -> Histogram:
    counts = _sum(tables["buckets"])
    steps = layout.root.constant("histogram_steps")
    per_second = clock.ticks_per_second() if clock is not None else 0
    used = np.flatnonzero(counts)
    found: dict[int, int] = {}
    for bucket in range(int(used[-1]) + 1 if len(used) else 0):
        bound = _upper(bucket, steps)
        if per_second:
            # Several buckets of few ticks may be one nanosecond.
            bound = bound * NS_PER_SECOND // per_second
        found[bound] = found.get(bound, 0) + int(counts[bucket])
    unit = "bytes" if clock is None else "ns" if per_second else "ticks"
    return Histogram(name, unit, tuple(found), tuple(found.values()))


def _upper(bucket: int, steps: int) -> int:
    """The highest value of a bucket of a log-linear histogram."""
    if bucket < steps:
        return bucket
    width = 1 << (bucket // steps - 1)
    return (steps + bucket % steps) * width + width - 1


def _flows(tables: npt.NDArray[Any], caches: Caches) -> tuple[Flow, ...]:
    row, place = np.nonzero(tables["flows"]["heap_id"])
    flows = tables["flows"][row, place]
    to_heap = caches["heap"]["id"][row]
    return tuple(
        Flow(int(flow["heap_id"]), int(heap), int(flow["blocks"]))
        for flow, heap in zip(flows, to_heap, strict=True)
    )


def slack_bytes(
    layout: Layout, research: Research | None, live_blocks: dict[int, int]
) -> dict[int, int] | None:
    """By size class, what its live blocks are larger than what was asked for, if they are like
    those that research mode saw; None where it saw none."""
    if research is None or not research.requested_bytes:
        return None
    found: dict[int, int] = {}
    mallocs = research.operations["mallocs"]
    for row in layout.size_classes:
        count = mallocs[row.index]
        if count:
            unused = max(0, count * row.block_bytes - research.requested_bytes[row.index])
            found[row.index] = unused * live_blocks.get(row.index, 0) // count
    return found
