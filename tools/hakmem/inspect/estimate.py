"""Which pages of a heap were resident, when only the sums of /proc/PID/smaps are known: of a
snapshot.

Pages are taken in the order of how likely it is that they were touched, evenly where all of one
kind are not needed, until a mapping's sum is reached. So the sums are exact, and the share of each
row is an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from hakmem.inspect.errors import UnreadableError
from hakmem.inspect.layout import Layout
from hakmem.inspect.memory import Area, MemorySource
from hakmem.inspect.model import SUPERSLAB_PAGES, RunKind
from hakmem.inspect.picture import Picture
from hakmem.inspect.process import MACHINE_PAGE_BYTES
from hakmem.inspect.residency import PER_PAGE, Mask, Range

# The likeliest first: blocks that were handed out, metadata; pages of runs that no block was handed
# out from, metadata that is zero, and what is not hakmem's; pages that are free and given back.
LIKELY, POSSIBLE, UNLIKELY = 1, 2, 3
COLUMNS = SUPERSLAB_PAGES * PER_PAGE


class Estimate:
    """Answers which pages of an area count as resident."""

    def __init__(self, source: MemorySource, picture: Picture, layout: Layout) -> None:
        self.source = source
        superslabs, runs = picture.superslabs, picture.runs
        levels = np.full((len(superslabs), COLUMNS), UNLIKELY, np.uint8)
        dirty = superslabs["dirty_young"] | superslabs["dirty_old"]
        levels[np.repeat(_bits(dirty), PER_PAGE, axis=1)] = LIKELY
        row = runs["superslab"].astype(np.int64)
        first = (runs["start"] - superslabs["start"][row]) // np.uint64(MACHINE_PAGE_BYTES)
        first = first.astype(np.int64)
        pages = runs["pages"].astype(np.int64) * PER_PAGE
        is_slab = runs["kind"] == RunKind.SLAB
        sizes = layout.block_bytes[runs["class_index"]].astype(np.int64)
        used = runs["fresh_index"].astype(np.int64) * sizes
        used = np.where(is_slab, used, runs["large_bytes"].astype(np.int64))
        touched = np.minimum((used + MACHINE_PAGE_BYTES - 1) // MACHINE_PAGE_BYTES, pages)
        _mark(levels, row, first, pages, POSSIBLE)
        _mark(levels, row, first, touched, LIKELY)
        self.levels = levels

    def __call__(self, area: Area, inside: Sequence[Range], rss_bytes: int) -> Mask:
        count = (area.end - area.start) // MACHINE_PAGE_BYTES
        levels = np.full(count, POSSIBLE, np.uint8)
        for part in inside:
            begin, end = max(part.start, area.start), min(part.end, area.end)
            at = (begin - area.start) // MACHINE_PAGE_BYTES
            length = (end - begin) // MACHINE_PAGE_BYTES
            if part.kind == "superslab":
                column = (begin - part.start) // MACHINE_PAGE_BYTES
                levels[at : at + length] = self.levels[part.index, column : column + length]
            elif part.kind == "metadata":
                levels[at : at + length] = self._metadata(begin, length)
            else:
                levels[at : at + length] = LIKELY
        mask = np.zeros(count, np.bool_)
        left = rss_bytes // MACHINE_PAGE_BYTES
        for level in (LIKELY, POSSIBLE, UNLIKELY):
            places = np.flatnonzero(levels == level)
            taken = min(left, len(places))
            if taken:
                mask[places[np.arange(taken) * len(places) // taken]] = True
            left -= taken
        return mask

    def _metadata(self, start: int, count: int) -> npt.NDArray[np.uint8]:
        """A page of hakmem's own that is all zeros was hardly touched."""
        try:
            data = self.source.read(start, count * MACHINE_PAGE_BYTES)
        except UnreadableError:
            return np.full(count, LIKELY, np.uint8)
        used = np.frombuffer(data, np.uint8).reshape(count, -1).any(axis=1)
        return np.where(used, LIKELY, POSSIBLE).astype(np.uint8)


def _bits(words: npt.NDArray[Any]) -> Mask:
    """One row of a superslab's pages for each word."""
    data = np.ascontiguousarray(words.astype("<u8")).view(np.uint8)
    bits = np.unpackbits(data, bitorder="little").reshape(-1, SUPERSLAB_PAGES)
    return bits.astype(np.bool_)


def _mark(
    levels: npt.NDArray[np.uint8],
    row: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    count: npt.NDArray[np.int64],
    level: int,
) -> None:
    """Sets `count` columns from `first` on of each row."""
    edges = np.zeros((levels.shape[0], levels.shape[1] + 1), np.int32)
    np.add.at(edges, (row, first), 1)
    np.add.at(edges, (row, np.minimum(first + count, levels.shape[1])), -1)
    levels[np.cumsum(edges[:, :-1], axis=1) > 0] = level
