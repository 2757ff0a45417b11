"""The waterfall of a process: the ranges of its heap, what of them is resident, and the rest of its
mappings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from hakmem.inspect import facts, residency, waterfall
from hakmem.inspect.estimate import Estimate
from hakmem.inspect.layout import Layout
from hakmem.inspect.memory import MemorySource
from hakmem.inspect.model import BlockState, HugeBlock, RunKind, Table, Waterfall
from hakmem.inspect.picture import Picture
from hakmem.inspect.process import MACHINE_PAGE_BYTES, ProcessSource
from hakmem.inspect.residency import Range
from hakmem.inspect.root import Root
from hakmem.inspect.snapshotfile import SnapshotSource
from hakmem.watch import DELETED


def measure(
    source: ProcessSource | SnapshotSource,
    layout: Layout,
    root: Root,
    picture: Picture,
    huge: tuple[HugeBlock, ...],
    slack: Mapping[int, int] | None,
    *,
    frozen: bool = False,
) -> tuple[Waterfall, tuple[HugeBlock, ...]]:
    """Sets resident_bytes of the picture's runs and superslabs; the huge blocks come back with
    theirs."""
    ranges = residency.superslab_ranges(picture.superslabs)
    ranges += [
        Range(block.start, block.start + block.mapped_bytes, kind, index)
        for index, block in enumerate(huge)
        for kind in ("huge" if block.live else "huge_kept",)
    ]
    ranges += own_ranges(source, layout)
    areas = source.resident_areas()
    pages: residency.Pages = (
        partial(residency.seen_pages, source)
        if isinstance(source, ProcessSource)
        else Estimate(source, picture, layout)
    )
    found = residency.measure(pages, areas, ranges, len(picture.superslabs))
    runs, superslabs = picture.runs, picture.superslabs
    superslabs["resident_bytes"] = found.superslabs.sum(axis=1) * MACHINE_PAGE_BYTES
    runs["resident_bytes"] = residency.run_bytes(runs, superslabs, found.superslabs)
    is_slab = runs["kind"] == RunKind.SLAB
    slabs = runs[is_slab]
    states = residency.state_bytes(
        slabs, superslabs, found.superslabs, picture.planes, layout.size_classes
    )
    result = waterfall.compose(
        areas,
        found,
        states,
        int(slabs["resident_bytes"].sum()),
        int(runs["resident_bytes"][~is_slab].sum()),
        _resident_slack(slack, slabs, layout, states[BlockState.LIVE]),
        source.stack_pointers(),
        waterfall.Target(source.exe.removesuffix(DELETED), root.area.path),
        frozen=frozen,
    )
    blocks = tuple(
        replace(block, resident_bytes=found.huge.get(index, 0)) for index, block in enumerate(huge)
    )
    return result, blocks


def _resident_slack(
    slack: Mapping[int, int] | None, slabs: Table, layout: Layout, resident_bytes: int
) -> int:
    """The part of the slack that lies in resident bytes of live blocks, if spread evenly."""
    sizes = layout.block_bytes[slabs["class_index"]].astype(np.int64)
    live_bytes = int((slabs["live"] * sizes).sum())
    return sum(slack.values()) * resident_bytes // live_bytes if slack and live_bytes else 0


def own_ranges(source: MemorySource, layout: Layout) -> list[Range]:
    """hakmem's own structures, and the pool of guarded blocks."""
    root = layout.root
    ranges = [
        Range(start, start + size, "metadata")
        for start, size in facts.metadata_chunks(source, layout)
    ]
    flat = int(root.read_global(source, "page_map_flat")[0])
    if flat:
        ranges.append(Range(flat, flat + root.constant("page_map_bytes"), "metadata"))
    start, size = facts.guarded_pool(source, layout)
    if size:
        ranges.append(Range(start, start + size, "guarded"))
    return ranges
