"""The structures and constants that the walk needs, looked up once for each target."""

from __future__ import annotations

from typing import Any

import numpy as np

from hakmem.inspect.errors import DamagedError
from hakmem.inspect.memory import MemorySource
from hakmem.inspect.model import PAGE_BYTES, SLAB_BLOCKS_MAX, SUPERSLAB_PAGES, SizeClass
from hakmem.inspect.root import Root

SIZE_CLASSES_MAX = 256
NODE_BYTES_MAX = 1 << 16
STRUCTURES = {
    "list": ("next",),
    "lock": ("state", "generation"),
    "run": (
        "start",
        "page_count",
        "guarded",
        "kind",
        "class_index",
        "large_bytes",
        "block_count",
        "free_count",
        "fresh_index",
        "free_bits",
        "remote_bits",
        "heap",
        "one_word_free",
        "one_word_remote",
    ),
    "superslab": (
        "start",
        "free",
        "dirty_young",
        "dirty_old",
        "zero",
        "stuck",
        "purging",
        "run_start",
        "all_link",
        "runs",
    ),
    "bin": ("slab_count",),
    "heap": ("lock", "id", "quarantine", "counters", "bins"),
    "magazine": ("node", "depot", "depot_count", "floor"),
    "thread_cache": (
        "top",
        "shadow_top",
        "magazines",
        "diverted",
        "state",
        "thread_id",
        "next_all",
        "heap",
    ),
    "registry": ("all", "started"),
    "arena": ("lock", "ready", "all", "superslab_count_max"),
    "huge": ("start", "usable_bytes", "mapped_bytes", "state"),
    "huge_table": ("lock", "chunk_count", "peak_bytes"),
    "guarded_slot": ("start", "bytes", "state"),
    "guarded_pool": ("lock", "base", "pool_bytes", "slot_count", "slots"),
    "metadata_chunk": ("next", "bytes"),
    "metadata": ("chunks", "bytes"),
    "counters": ("value",),
    "os_call_counters": ("calls", "failures"),
}
# What a later minor version brought: when it is there, it is whole.
LATER_STRUCTURES = {
    "event": ("ticks", "thread", "a", "b", "stamp"),
    "event_clock": ("ticks", "ms"),
    "events": ("next", "first", "latest", "ring"),
    "control": ("events", "purge_wanted", "purge_done"),
    "histogram": ("buckets",),
    "research_flow": ("heap_id", "blocks"),
    "research": (
        "allocs",
        "frees",
        "alloc_levels",
        "free_levels",
        "flows",
        "alloc_ticks",
        "free_ticks",
        "request_bytes",
        "lifetime_ticks",
    ),
}


class Layout:
    """DamagedError where the tables lack a field, or name a number that cannot be."""

    def __init__(self, root: Root) -> None:
        self.root = root
        later = {name: row for name, row in LATER_STRUCTURES.items() if root.has_structure(name)}
        for name, wanted in (STRUCTURES | later).items():
            there = root.structure(name).names or ()
            missing = [field for field in wanted if field not in there]
            if missing:
                raise DamagedError(
                    f"the inspect tables of the target do not name {missing[0]} of {name}"
                )
        if 1 << root.constant("page_shift") != PAGE_BYTES:
            raise DamagedError("the target's pages are not of 64 KiB")
        if root.constant("superslab_pages") != SUPERSLAB_PAGES:
            raise DamagedError("the target's superslabs are not of 64 pages")
        self.run_free = root.constant("run_kind_free")
        self.run_slab = root.constant("run_kind_slab")
        self.run_large = root.constant("run_kind_large")
        self.cache_states = root.constants("cache_state_")
        # Of a cache that may hold blocks. An older library has no "kept".
        self.filled_states = [root.constant("cache_state_in_use")] + [
            value for value, name in self.cache_states.items() if name == "kept"
        ]
        self.node_slots = root.constant("node_slots")
        self.node_bytes = root.constant("node_bytes")
        if not 1 < self.node_slots * 8 == self.node_bytes <= NODE_BYTES_MAX:
            raise DamagedError("the target's nodes have an impossible size")
        self.lock = root.structure("lock")
        self.run = root.structure("run")
        self.superslab = root.structure("superslab")
        self.heap = root.structure("heap")
        self.cache = root.structure("thread_cache")
        self.size_classes = self._size_classes()
        self.block_bytes = np.array([row.block_bytes for row in self.size_classes], np.uint64)
        self.slab_blocks = np.array([row.block_count for row in self.size_classes], np.int64)
        self.slab_bytes = self.slab_blocks * self.block_bytes.astype(np.int64)
        # Of the tops, which are by kind of page, those of the size classes.
        first = root.constant("page_kind_slab")
        self.class_tops = slice(first, first + len(self.size_classes))
        self._require_counts()

    def _size_classes(self) -> tuple[SizeClass, ...]:
        rows = self.root.rows["size_classes"]
        classes = tuple(
            SizeClass(
                index,
                int(row["block_bytes"]),
                int(row["slab_pages"]),
                int(row["block_count"]),
            )
            for index, row in enumerate(rows)
        )
        if not 0 < len(classes) <= SIZE_CLASSES_MAX:
            raise DamagedError("the target has an impossible number of size classes")
        for row in classes:
            fits = row.block_bytes * row.block_count <= row.slab_pages * PAGE_BYTES
            if not fits or not 0 < row.block_count <= SLAB_BLOCKS_MAX or row.block_bytes < 1:
                raise DamagedError(f"the target's size class {row.index} cannot be right")
        return classes

    def _require_counts(self) -> None:
        """The arrays over classes and over a superslab's pages are as long as these."""
        count = len(self.size_classes)
        shapes = {
            "bins": self.heap["bins"].shape,
            "magazines": self.cache["magazines"].shape,
        }
        for name, shape in shapes.items():
            if shape != (count,):
                raise DamagedError(f"the target's {name} are not one for each size class")
        for name in ("top", "shadow_top"):
            if len(self.cache[name].shape) != 1 or self.cache[name].shape[0] < self.class_tops.stop:
                raise DamagedError(f"the target's {name} has not one for each size class")
        if self.superslab["runs"].shape != (SUPERSLAB_PAGES,):
            raise DamagedError("the target's superslabs have not one run for each page")


def offset_of(structure: np.dtype[Any], *path: str) -> int:
    """Where a field of a field lies, in bytes from the structure's start."""
    offset = 0
    for name in path:
        fields = structure.fields
        if fields is None:
            raise DamagedError(f"the inspect tables of the target have nothing at {name}")
        structure, begin = fields[name][0], fields[name][1]
        structure = structure.base
        offset += begin
    return offset


def read_option(source: MemorySource, layout: Layout, name: str) -> int:
    """The number of an option as it is now; 0 when the target has no such option."""
    rows = layout.root.rows["options"]
    chosen = rows[rows["name"] == name.encode()]
    if len(chosen) == 0:
        return 0
    address = layout.root.global_object("options").address + int(chosen[0]["offset"])
    return int(source.read_array(address, np.dtype("<u8"))[0])
