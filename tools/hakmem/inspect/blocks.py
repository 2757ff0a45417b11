"""What each block of the slabs is: bits copied from their bitmaps, and set for what lies in thread
caches and quarantines."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hakmem.inspect.layout import Layout, offset_of, read_option
from hakmem.inspect.memory import Addresses, MemorySource
from hakmem.inspect.model import BlockState, RunKind, Words
from hakmem.inspect.picture import Picture, Rows, chunks, is_member

QUARANTINE_MAX = 1 << 16
ONE = np.uint64(1)


class BlockReader:
    """Fills the planes of a picture. `rows` are rows of its runs: only their blocks are marked."""

    def __init__(self, source: MemorySource, layout: Layout) -> None:
        self.source = source
        self.layout = layout

    def clear(self, picture: Picture, rows: Rows) -> None:
        for chunk in chunks(picture.runs, rows):
            for words in picture.planes.values():
                words[chunk.index] = 0

    def copy_bits(
        self, picture: Picture, rows: Rows, raw: npt.NDArray[Any], state: BlockState
    ) -> None:
        names = {
            BlockState.FREE: ("free_bits", "one_word_free"),
            BlockState.REMOTE: ("remote_bits", "one_word_remote"),
        }
        pointer, inline = names[state]
        plane = picture.planes[state]
        in_place = picture.run_places[rows] + np.uint64(offset_of(self.layout.run, inline))
        for chunk in chunks(picture.runs, rows):
            places = raw[pointer][chunk.rows]
            if chunk.word_count == 1 and bool((places == in_place[chunk.rows]).all()):
                data = raw[inline][chunk.rows][:, None]
            else:
                copied, _ = self.source.gather(places, chunk.word_count * 8)
                data = copied.view("<u8")
            if state == BlockState.FREE:
                plane[chunk.index] = data
            else:
                # Few have any: the pages of the plane that stay zero need no memory.
                some = np.flatnonzero(data.any(axis=1))
                plane[chunk.index[some]] |= data[some]

    def mark_held(self, picture: Picture, rows: Rows) -> None:
        held = picture.held
        if held is None:
            return
        at, found = self._blocks_at(picture, held.pointers)
        picture.strays += int((~found).sum())
        count = len(picture.caches)
        owners = held.owners[found]
        classes = picture.runs["class_index"][at[0]]
        picture.held_blocks = np.bincount(owners, minlength=count).astype(np.int64)
        sizes = self.layout.block_bytes[classes].astype(np.float64)
        picture.held_bytes = np.bincount(owners, sizes, count).astype(np.int64)
        strangers = picture.runs["heap_id"][at[0]] != picture.heaps["id"][owners]
        picture.pending_blocks = np.bincount(owners[strangers], minlength=count).astype(np.int64)
        self._set(picture, BlockState.CACHED, rows, *at)

    def mark_quarantined(self, picture: Picture, rows: Rows) -> None:
        with_ring = picture.heaps["quarantine"] != 0
        if not with_ring.any():
            return
        count = read_option(self.source, self.layout, "quarantine_blocks")
        if not 0 < count <= QUARANTINE_MAX:
            return
        data, _ = self.source.gather(picture.heaps["quarantine"][with_ring], count * 8)
        pointers = data.reshape(-1).view("<u8")
        at, found = self._blocks_at(picture, pointers[pointers != 0].astype(np.uint64))
        picture.strays += int((~found).sum())
        self._set(picture, BlockState.QUARANTINED, rows, *at)

    def _blocks_at(
        self, picture: Picture, pointers: Addresses
    ) -> tuple[tuple[Rows, Rows], npt.NDArray[np.bool_]]:
        """For each pointer that is a block's start: its run's row and its index in the run."""
        runs = picture.runs
        if len(runs) == 0:
            nothing = np.empty(0, np.int64)
            return (nothing, nothing), np.zeros(len(pointers), np.bool_)
        row = np.searchsorted(runs["start"], pointers, "right").astype(np.int64) - 1
        found = row >= 0
        row = np.maximum(row, 0)
        offset = pointers - runs["start"][row]
        size = self.layout.block_bytes[runs["class_index"][row]]
        block = offset // size
        found &= (runs["kind"][row] == RunKind.SLAB) & (offset % size == 0)
        found &= block < runs["block_count"][row]
        return (row[found], block[found].astype(np.int64)), found

    def _set(self, picture: Picture, state: BlockState, rows: Rows, row: Rows, block: Rows) -> None:
        """Sets the bit of each block whose slab is one of `rows`."""
        chosen = is_member(rows, row, len(picture.runs))
        row, block = row[chosen], block[chosen]
        word = picture.runs["word"][row].astype(np.int64) + block // 64
        bits = np.left_shift(ONE, (block % 64).astype(np.uint64))
        np.bitwise_or.at(picture.planes[state], word, bits)


def separate(picture: Picture) -> None:
    """Each block in one place: the one furthest on its way back. Bits behind a slab's last
    block name none."""
    runs = picture.runs[picture.runs["kind"] == RunKind.SLAB]
    counts = runs["block_count"].astype(np.uint64)
    ragged = counts % np.uint64(64) != 0
    last = (runs["word"] + (counts - ONE) // np.uint64(64))[ragged].astype(np.int64)
    valid = np.left_shift(ONE, counts[ragged] % np.uint64(64)) - ONE
    taken = picture.planes[BlockState.FREE]
    order = (
        BlockState.FREE,
        BlockState.QUARANTINED,
        BlockState.CACHED,
        BlockState.REMOTE,
    )
    earlier: list[Words] = []
    for state in order:
        words = picture.planes[state]
        outside = words[last] & ~valid
        picture.strays += int(np.bitwise_count(outside).sum())
        if outside.any():
            words[last] &= valid
        if state != BlockState.FREE:
            used = np.flatnonzero(words)
            taken = np.zeros(len(used), np.uint64)
            for other in earlier:
                taken |= other[used]
            picture.doubles += int(np.bitwise_count(words[used] & taken).sum())
            words[used] &= ~taken
        earlier.append(words)
    if not picture.planes[BlockState.QUARANTINED].any():
        del picture.planes[BlockState.QUARANTINED]
