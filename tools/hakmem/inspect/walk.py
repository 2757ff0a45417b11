"""The walk over a heap: superslabs, runs, bitmaps, thread caches.

The target goes on meanwhile. What a lock covers is settled when the lock was free and its
generation the same before and after the copy. A heap for which that was not so is copied again,
alone, which takes less time; in the end the reader says how many blocks may have moved while it
looked: each time a lock was taken, at most a node's worth of blocks moved under it, and beside
these the blocks of slabs that came or went between two looks.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

from hakmem.inspect.blocks import BlockReader, separate
from hakmem.inspect.errors import DamagedError, UnreadableError
from hakmem.inspect.held import read_held
from hakmem.inspect.layout import Layout, offset_of
from hakmem.inspect.memory import Addresses, MemorySource
from hakmem.inspect.model import (
    PAGE_BYTES,
    RUN,
    SUPERSLAB,
    SUPERSLAB_BYTES,
    SUPERSLAB_PAGES,
    BlockState,
    RunKind,
    Table,
    Words,
)
from hakmem.inspect.picture import Picture, Rows, page_masks
from hakmem.inspect.rings import follow_chain, follow_ring, to_addresses

PASSES_MAX = 3
RETRIES_MAX = 8
RETRY_SECONDS = 0.25


class Walker:
    """Reads one target again and again; what never changes is kept."""

    def __init__(self, source: MemorySource, layout: Layout) -> None:
        self.source = source
        self.layout = layout
        root = layout.root
        self.registry = root.global_object("registry").address
        self.late_heap = root.global_object("late_heap").address
        self.arena = root.global_object("arena").address
        self.arena_lock = self.arena + offset_of(root.structure("arena"), "lock")
        self.blocks = BlockReader(source, layout)
        self.known_caches: list[int] = []
        self.is_still = False

    # ---- What there is

    def read(self, *, is_still: bool = False) -> Picture:
        """The best of a few passes: one of them is enough unless slabs come and go. `is_still`:
        the target does not move, so that what does not agree is damaged."""
        self.is_still = is_still or not self.source.changes
        for left in reversed(range(1 if self.is_still else PASSES_MAX)):
            try:
                picture, is_whole = self._pass()
            except (DamagedError, UnreadableError):
                # A list that changed while it was followed looks the same as a damaged one.
                if left == 0:
                    raise
                continue
            if is_whole or left == 0:
                break
        separate(picture)
        return picture

    def locks(self, places: Addresses, *, is_after: bool = False) -> npt.NDArray[Any]:
        data, _ = self.source.gather_locks(places, self.layout.lock.itemsize, is_after=is_after)
        return data.reshape(-1).view(self.layout.lock)

    def _registry_lock(self, *, is_after: bool = False) -> npt.NDArray[Any]:
        lock = self.registry + offset_of(self.layout.root.structure("registry"), "lock")
        return self.locks(to_addresses([lock]), is_after=is_after)

    def holds_lock(self) -> bool:
        root = self.layout.root
        singles = ("arena", "huge_table", "guarded_pool", "metadata", "registry")
        places = [
            root.global_object(name).address + offset_of(root.structure(name), "lock")
            for name in singles
        ]
        heap_lock = offset_of(self.layout.heap, "lock")
        heaps = self._caches() + np.uint64(offset_of(self.layout.cache, "heap") + heap_lock)
        late = to_addresses([*places, self.late_heap + heap_lock])
        return bool((self.locks(np.concatenate([heaps, late]))["state"] != 0).any())

    def _caches(self) -> Addresses:
        """All thread caches there ever were, the newest first; a published one never leaves."""
        registry = self.layout.root.read_global(self.source, "registry")[0]
        if not int(registry["started"]):
            return to_addresses([])
        newer = follow_chain(
            self.source,
            int(registry["all"]),
            offset_of(self.layout.cache, "next_all"),
            set(self.known_caches),
            "thread caches",
        )
        self.known_caches = newer + self.known_caches
        return to_addresses(self.known_caches)

    def _superslabs(self) -> tuple[list[int], npt.NDArray[Any]]:
        layout = self.layout
        arena_type = layout.root.structure("arena")
        arena = layout.root.read_global(self.source, "arena")[0]
        header = layout.superslab
        rows: list[bytes] = []
        places: list[int] = []
        starts: set[int] = set()
        link_offset = offset_of(layout.superslab, "all_link")

        def next_of(link: int) -> int | None:
            place = link - link_offset
            data = self.source.read(place, header.itemsize)
            row = np.frombuffer(data, header)[0]
            start = int(row["start"])
            if start % SUPERSLAB_BYTES or start == 0 or start in starts:
                return None
            starts.add(start)
            places.append(place)
            rows.append(data)
            return int(row["all_link"]["next"])

        if int(arena["ready"]):
            head = self.arena + offset_of(arena_type, "all")
            follow_ring(head, int(arena["all"]["next"]), next_of, "superslabs")
        return places, np.frombuffer(b"".join(rows), header)

    def _runs(self, picture_superslabs: npt.NDArray[Any]) -> tuple[Table, Addresses, Table, Words]:
        """The superslabs by start, their runs by start, where the runs' descriptors are, and of
        each superslab the pages of runs that are neither slab nor large block yet, or no more."""
        order = np.argsort(picture_superslabs["start"])
        headers = picture_superslabs[order]
        superslabs = np.zeros(len(headers), SUPERSLAB)
        for name in SUPERSLAB.names or ():
            if name != "resident_bytes":
                superslabs[name] = headers[name]
        bits = np.unpackbits(
            np.ascontiguousarray(superslabs["run_start"]).view(np.uint8), bitorder="little"
        ).reshape(-1, SUPERSLAB_PAGES)
        row, page = np.nonzero(bits)
        run_places = headers["runs"][row, page].astype(np.uint64)
        raw, readable = self.source.gather_rows(run_places, self.layout.run)
        expected = superslabs["start"][row] + page.astype(np.uint64) * np.uint64(PAGE_BYTES)
        good = readable & (raw["start"] == expected)
        good &= (raw["page_count"] > 0) & (raw["page_count"] + page <= SUPERSLAB_PAGES)
        between = np.zeros(len(superslabs), np.uint64)
        moving = good & (raw["kind"] == self.layout.run_free)
        span = raw["page_count"].astype(np.uint64) + raw["guarded"].astype(np.uint64)
        masks = page_masks(page[moving].astype(np.uint64), span[moving])
        np.bitwise_or.at(between, row[moving], masks)
        is_slab = raw["kind"] == self.layout.run_slab
        classes = np.minimum(raw["class_index"], len(self.layout.size_classes) - 1)
        counts = np.array([row.block_count for row in self.layout.size_classes], np.uint16)[classes]
        is_known = is_slab & (raw["class_index"] == classes) & (raw["block_count"] == counts)
        good &= is_known | (raw["kind"] == self.layout.run_large)
        runs = np.zeros(int(good.sum()), RUN)
        raw, row, is_slab = raw[good], row[good], is_slab[good]
        runs["superslab"] = row
        runs["kind"] = np.where(is_slab, RunKind.SLAB, RunKind.LARGE)
        for name in ("start", "guarded"):
            runs[name] = raw[name]
        runs["pages"] = raw["page_count"]
        for name in ("class_index", "block_count", "fresh_index"):
            runs[name] = np.where(is_slab, raw[name], 0)
        runs["large_bytes"] = np.where(is_slab, 0, raw["large_bytes"])
        words = (runs["block_count"].astype(np.uint64) + np.uint64(63)) // np.uint64(64)
        runs["word"] = np.cumsum(words, dtype=np.uint64) - words
        return runs, run_places[good], superslabs, between

    def _pass(self) -> tuple[Picture, bool]:
        layout = self.layout
        arena_before = self.locks(to_addresses([self.arena_lock]))[0]
        cache_places = self._caches()
        _, headers = self._superslabs()
        runs, run_places, superslabs, between = self._runs(headers)
        offset = np.uint64(offset_of(layout.cache, "heap"))
        heap_places = np.append(cache_places + offset, np.uint64(self.late_heap))
        word_count = int(((runs["block_count"].astype(np.int64) + 63) // 64).sum())
        picture = Picture(
            superslabs=superslabs,
            runs=runs,
            run_places=run_places,
            cache_places=cache_places,
            caches=np.empty(0, layout.cache),
            heaps=np.empty(0, layout.heap),
            heap_places=heap_places,
            planes={
                state: np.zeros(word_count, np.uint64)
                for state in BlockState
                if state != BlockState.LIVE
            },
            unsettled_blocks=np.zeros(len(heap_places), np.int64),
            missing_blocks=np.zeros(len(heap_places), np.int64),
            missing_bytes=np.zeros(len(heap_places), np.int64),
            said_free=np.zeros(len(runs), np.int64),
            between=between,
        )
        self._fill(
            picture, np.arange(len(heap_places)), np.flatnonzero(runs["kind"] == RunKind.SLAB)
        )
        arena_after = self.locks(to_addresses([self.arena_lock]), is_after=True)[0]
        arena_moves = _moves(arena_before, arena_after)
        is_whole = int(arena_moves) == 0 or not picture.missing_slabs().any()
        picture.moved_runs = min(int(arena_moves), len(runs))
        self._retry(picture)
        return picture, is_whole

    def _retry(self, picture: Picture) -> None:
        """Heaps that changed under the copy, copied again one by one, the busiest last. Not those
        that lack slabs: where these lie only another pass tells."""
        if self.is_still:
            return
        deadline = time.monotonic() + RETRY_SECONDS
        for _ in range(RETRIES_MAX):
            lacks = picture.missing_blocks > 0
            unsettled = np.flatnonzero((picture.unsettled_blocks > 0) & ~lacks)
            unsettled = unsettled[np.argsort(picture.unsettled_blocks[unsettled])]
            for heap in unsettled:
                if time.monotonic() > deadline:
                    return
                rows = np.flatnonzero(picture.owners() == heap)
                self.blocks.clear(picture, rows)
                self._fill(picture, np.array([heap]), rows)

    def _fill(self, picture: Picture, heaps: Rows, rows: Rows) -> None:
        """Copies what the slabs in `rows` of runs hold, all of which belong to these heaps. A block
        on its way back is looked for in the order of its way, so that it is met at least once."""
        layout, source, runs = self.layout, self.source, picture.runs
        lock_places = picture.heap_places[heaps] + np.uint64(offset_of(layout.heap, "lock"))
        before, registry = self.locks(lock_places), self._registry_lock()
        picture.caches, _ = source.gather_rows(picture.cache_places, layout.cache)
        late = source.read_array(self.late_heap, layout.heap)
        picture.heaps = np.concatenate([picture.caches["heap"], late])
        picture.held = read_held(layout, source, picture.cache_places, picture.caches)
        raw, readable = source.gather_rows(picture.run_places[rows], layout.run)
        self._take_owners(picture, rows, raw)
        picture.strays = 0
        self.blocks.mark_held(picture, rows)
        self.blocks.mark_quarantined(picture, rows)
        same = readable & (raw["kind"] == layout.run_slab)
        same &= raw["class_index"] == runs["class_index"][rows]
        self.blocks.copy_bits(picture, rows[same], raw[same], BlockState.REMOTE)
        self.blocks.copy_bits(picture, rows[same], raw[same], BlockState.FREE)
        picture.said_free[rows] = raw["free_count"]
        moves = _moves(before, self.locks(lock_places, is_after=True)) * (layout.node_slots - 1)
        owners = picture.owners()[rows]
        is_owned = owners >= 0
        in_doubt = self._in_doubt(picture, heaps, rows, same, moves)
        picture.unsettled_blocks[heaps] = in_doubt
        # A heap that came while a snapshot was written is not in it, its slabs may be.
        came = self.is_still and bool(_moves(registry, self._registry_lock(is_after=True))[0])
        settled = np.isin(owners, heaps[in_doubt == 0]) | (~is_owned & self.is_still & (not came))
        runs["settled"][rows] = settled
        # What another heap took over meanwhile was copied without a look at that heap's lock.
        is_lost = is_owned & ~np.isin(owners, heaps)
        np.add.at(picture.unsettled_blocks, owners[is_lost], runs["block_count"][rows[is_lost]])

    def _in_doubt(
        self,
        picture: Picture,
        heaps: Rows,
        rows: Rows,
        same: npt.NDArray[np.bool_],
        moves: Rows,
    ) -> Rows:
        """How many blocks of each heap may be counted wrong: those that moved, those of slabs that
        came after the runs were read and are not there, and those of slabs that went meanwhile
        and look full. `same`: which rows are slabs still."""
        layout, runs = self.layout, picture.runs
        owners, counts = picture.owners()[rows], runs["block_count"][rows]

        def blocks_of(chosen: npt.NDArray[np.bool_]) -> Rows:
            chosen = chosen & (owners >= 0)
            found = np.bincount(owners[chosen], counts[chosen], len(picture.heaps))
            return found.astype(np.int64)[heaps]

        lacking = picture.missing_slabs()[heaps]
        if self.is_still:
            lacking = np.zeros_like(lacking)
            same = np.ones_like(same)
        missing, left = np.maximum(lacking, 0), np.maximum(-lacking, 0)
        picture.missing_blocks[heaps] = missing @ layout.slab_blocks
        picture.missing_bytes[heaps] = missing @ layout.slab_bytes
        gone = np.maximum(blocks_of(~same), left @ layout.slab_blocks)
        every = blocks_of(np.ones_like(same))
        # A lock that is taken in a heap without a block is a move all the same.
        found = np.minimum(moves + gone, np.maximum(every, 1))
        in_doubt: Rows = found + picture.missing_blocks[heaps]
        return in_doubt

    def _take_owners(self, picture: Picture, rows: Rows, raw: npt.NDArray[Any]) -> None:
        order = np.argsort(picture.heap_places)
        place = np.searchsorted(picture.heap_places[order], raw["heap"])
        heap = order[np.minimum(place, len(order) - 1)]
        is_known = picture.heap_places[heap] == raw["heap"]
        picture.runs["heap_id"][rows] = np.where(is_known, picture.heaps["id"][heap], 0)
        picture.runs["fresh_index"][rows] = raw["fresh_index"]


def _moves(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> Rows:
    """How often each lock was taken between two looks, at most."""
    grown = after["generation"].astype(np.int64) - before["generation"].astype(np.int64)
    # The generation may wrap.
    bits = before.dtype["generation"].itemsize * 8
    grown = np.where(grown < 0, grown + (1 << bits if bits < 64 else 0), grown)
    held = (before["state"] != 0) | (after["state"] != 0)
    moves: Rows = np.abs(grown) + held
    return moves
