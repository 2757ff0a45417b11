"""What one walk over a heap found, before it is summed up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from hakmem.inspect.held import Held
from hakmem.inspect.memory import Addresses
from hakmem.inspect.model import PAGE_BYTES, BlockState, RunKind, Table, Words

Rows = npt.NDArray[np.int64]
# Bitmaps are copied so many slabs at a time: a bound on the reader's own memory.
CHUNK_SLABS = 1 << 14
ALL_PAGES = ~np.uint64(0)
ONE = np.uint64(1)


@dataclass
class Picture:
    """What one walk found. `runs` are rows of RUN by start, `run_places` where their descriptors
    are. Row i of `caches` belongs to heap i; the last heap is the late one."""

    superslabs: Table
    runs: Table
    run_places: Addresses
    cache_places: Addresses
    caches: npt.NDArray[Any]
    heaps: npt.NDArray[Any]
    heap_places: Addresses
    planes: dict[BlockState, Words]
    unsettled_blocks: npt.NDArray[np.int64]  # of each heap
    missing_blocks: Rows  # of these, those in slabs that the heap has and that were not found
    missing_bytes: Rows  # and the bytes of all those
    held: Held | None = None
    held_blocks: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    held_bytes: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    pending_blocks: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    moved_runs: int = 0
    said_free: Rows = field(default_factory=lambda: np.empty(0, np.int64))
    # Of each superslab: pages of runs that a thread is making, or giving back, without a lock.
    between: Words = field(default_factory=lambda: np.empty(0, np.uint64))
    strays: int = 0  # pointers and bits that name no block
    doubles: int = 0  # blocks that are in two places

    def unsettled_share(self) -> float:
        """The share of all blocks that may have moved while they were looked at."""
        slabs = self.runs["kind"] == RunKind.SLAB
        total = int(self.runs["block_count"][slabs].sum()) + int((~slabs).sum())
        moved = int(self.unsettled_blocks.sum()) + self.moved_runs
        moved += int(self.runs["block_count"][self._of_no_heap()].sum())
        moved += self.held.moved_blocks if self.held is not None else 0
        return min(1.0, moved / total) if total else 0.0

    def unsettled_bytes(self, block_bytes: Addresses) -> int:
        """How many bytes may be counted wrong for that, at most: blocks that moved are taken to be
        of the largest size there is where they may be from. `block_bytes`: by size class."""
        runs = self.runs
        pages = runs["pages"].astype(np.int64) * PAGE_BYTES
        is_slab = runs["kind"] == RunKind.SLAB
        sizes = np.where(is_slab, block_bytes[runs["class_index"]], 0).astype(np.int64)
        owners = self.owners()
        owned = owners >= 0
        largest = np.zeros(len(self.unsettled_blocks), np.int64)
        np.maximum.at(largest, owners[owned], sizes[owned])
        own = np.bincount(owners[owned], pages[owned], len(largest)).astype(np.int64)
        found = self.unsettled_blocks - self.missing_blocks
        moved = int(np.minimum(own, found * largest).sum())
        if self.held is not None:
            moved += self.held.moved_blocks * int(sizes.max(initial=0))
        large = np.where(is_slab, 0, runs["large_bytes"]).astype(np.int64)
        moved_large = self.moved_runs * int(large.max(initial=0))
        moved += int(pages[self._of_no_heap()].sum())
        seen = min(moved, int(pages[is_slab].sum())) + min(moved_large, int(large.sum()))
        return seen + int(self.missing_bytes.sum())

    def _of_no_heap(self) -> npt.NDArray[np.bool_]:
        """Slabs of heaps that came meanwhile: what these had cached is not known."""
        runs = self.runs
        found = (runs["kind"] == RunKind.SLAB) & (runs["settled"] == 0) & (runs["heap_id"] == 0)
        return np.asarray(found, np.bool_)

    def owners(self) -> Rows:
        """The heap of each run, as a row of heaps; -1 for large runs and what leads nowhere."""
        ids = self.heaps["id"].astype(np.int64)
        order = np.argsort(ids)
        place = np.minimum(np.searchsorted(ids[order], self.runs["heap_id"]), len(ids) - 1)
        rows = order[place]
        is_owned = (self.runs["kind"] == RunKind.SLAB) & (ids[rows] == self.runs["heap_id"])
        return np.where(is_owned, rows, -1)

    def missing_slabs(self) -> Rows:
        """Of each heap, a row, and size class: how many slabs it says it has beyond those that were
        found; below 0 where more were found."""
        said: Rows = self.heaps["bins"]["slab_count"].astype(np.int64)
        owners = self.owners()
        owned = owners >= 0
        place = owners[owned] * said.shape[1] + self.runs["class_index"][owned]
        return said - np.bincount(place, minlength=said.size).reshape(said.shape)


@dataclass
class Chunk:
    """Some slabs whose bitmaps have the same number of words: `rows` are places in the caller's
    array, `index` their words in the planes."""

    rows: Rows
    word_count: int
    index: Rows


def page_masks(first: Words, span: Words) -> Words:
    """Bit i for each page i of runs that begin at page `first`."""
    whole = np.where(span >= 64, ALL_PAGES, np.left_shift(ONE, span % np.uint64(64)) - ONE)
    return np.left_shift(whole, first)


def chunks(runs: Table, rows: Rows) -> Iterator[Chunk]:
    counts = (runs["block_count"][rows].astype(np.int64) + 63) // 64
    for word_count in np.unique(counts):
        chosen = np.flatnonzero(counts == word_count)
        for begin in range(0, len(chosen), CHUNK_SLABS):
            part = chosen[begin : begin + CHUNK_SLABS]
            first = runs["word"][rows[part]].astype(np.int64)
            yield Chunk(part, int(word_count), first[:, None] + np.arange(int(word_count)))


def is_member(rows: Rows, row: Rows, count: int) -> npt.NDArray[np.bool_]:
    chosen = np.zeros(count, np.bool_)
    chosen[rows] = True
    member: npt.NDArray[np.bool_] = chosen[row]
    return member
