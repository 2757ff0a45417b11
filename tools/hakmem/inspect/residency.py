"""Which pages of the heap are resident, and what the resident bytes of slabs hold.

/proc/PID/smaps says how much of a mapping is resident, /proc/PID/pagemap which pages are. The
kernel's pages of zeros, small and huge, are present and yet count as nothing: what has been read
and never written.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hakmem.inspect.memory import Area
from hakmem.inspect.model import (
    PAGE_BYTES,
    SUPERSLAB_BYTES,
    SUPERSLAB_PAGES,
    BlockState,
    SizeClass,
    Table,
    Words,
)
from hakmem.inspect.process import MACHINE_PAGE_BYTES, ProcessSource

PRESENT, EXCLUSIVE, FILE = 63, 56, 61
# Entries of one read of pagemap: 256 MiB of memory.
ENTRIES_PER_READ = (256 << 20) // MACHINE_PAGE_BYTES
PER_PAGE = PAGE_BYTES // MACHINE_PAGE_BYTES
CHUNK_SLABS = 1 << 13
AREA_BYTES_MAX = 1 << 40
ONE = np.uint64(1)

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Range:
    """Memory of hakmem; `kind` is a row of the waterfall, or "superslab"."""

    start: int
    end: int
    kind: str
    index: int = 0  # which superslab, or huge block


Pages = Callable[[Area, Sequence[Range], int], Mask]


@dataclass
class Residency:
    """Bytes by range kind, resident pages of superslabs (one row each), of huge blocks in bytes;
    `rest`: what of each examined area belongs to no range; `lost`: what smaps counts in them beyond
    the pages that were found."""

    superslabs: Mask
    kinds: dict[str, int] = field(default_factory=dict)
    huge: dict[int, int] = field(default_factory=dict)
    rest: dict[int, int] = field(default_factory=dict)
    lost_bytes: int = 0


def measure(
    pages_of: Pages, areas: Sequence[Area], ranges: Sequence[Range], superslab_count: int
) -> Residency:
    """Areas that hold none of the ranges are left out of `rest`. `pages_of` says which pages of an
    area count as resident, given what lies in it and its resident bytes."""
    found = Residency(np.zeros((superslab_count, SUPERSLAB_PAGES * PER_PAGE), np.bool_))
    ordered = _disjoint(ranges)
    starts, ends = [part.start for part in ordered], [part.end for part in ordered]
    for area in areas:
        # They do not overlap: both lists ascend.
        inside = ordered[bisect_right(ends, area.start) : bisect_left(starts, area.end)]
        rss_bytes = area.rss_bytes or 0
        if not inside:
            continue
        if rss_bytes == 0 or area.end - area.start > AREA_BYTES_MAX:
            # Too long to be real: what is said to be in it stays unexplained.
            found.rest[area.start] = 0
            continue
        only = inside[0]
        whole = only.start <= area.start and area.end <= only.end
        if whole and only.kind not in ("superslab",):
            _count(found, only, rss_bytes)
            found.rest[area.start] = 0
        else:
            _examine(pages_of, area, inside, rss_bytes, found)
    return found


def _disjoint(ranges: Sequence[Range]) -> list[Range]:
    """By address; without those that cannot be, whose pages are then anybody's."""
    ordered: list[Range] = []
    end = 0
    for part in sorted(ranges, key=lambda part: part.start):
        is_whole = part.start % MACHINE_PAGE_BYTES == 0 and part.end % MACHINE_PAGE_BYTES == 0
        if is_whole and end <= part.start < part.end:
            ordered.append(part)
            end = part.end
    return ordered


def _count(found: Residency, part: Range, size: int) -> None:
    found.kinds[part.kind] = found.kinds.get(part.kind, 0) + size
    if part.kind.startswith("huge"):
        found.huge[part.index] = found.huge.get(part.index, 0) + size


def _examine(
    pages_of: Pages, area: Area, inside: Sequence[Range], rss_bytes: int, found: Residency
) -> None:
    pages = pages_of(area, inside, rss_bytes)
    of_ranges = 0
    for part in inside:
        begin, end = max(part.start, area.start), min(part.end, area.end)
        mask = pages[
            (begin - area.start) // MACHINE_PAGE_BYTES : (end - area.start) // MACHINE_PAGE_BYTES
        ]
        size = int(mask.sum()) * MACHINE_PAGE_BYTES
        of_ranges += size
        _count(found, part, size)
        if part.kind == "superslab":
            at = (begin - part.start) // MACHINE_PAGE_BYTES
            found.superslabs[part.index, at : at + len(mask)] = mask
    all_bytes = int(pages.sum()) * MACHINE_PAGE_BYTES
    found.rest[area.start] = all_bytes - of_ranges
    found.lost_bytes += rss_bytes - all_bytes


def seen_pages(source: ProcessSource, area: Area, inside: Sequence[Range], rss_bytes: int) -> Mask:
    """Pages of an area that the kernel says are there."""
    step = ENTRIES_PER_READ * MACHINE_PAGE_BYTES
    present_parts: list[Mask] = []
    own_parts: list[Mask] = []
    are_zeros_known = True
    for start in range(area.start, area.end, step):
        end = min(area.end, start + step)
        entries = source.resident_pages(start, end)
        present = _bit(entries, PRESENT)
        if area.is_file:
            own = present & (_bit(entries, EXCLUSIVE) | _bit(entries, FILE))
        else:
            # What is called a file's where there is none is the huge page of zeros, which Linux
            # before 6.17 does not tell as such.
            present &= ~_bit(entries, FILE)
            own = present & _bit(entries, EXCLUSIVE)
        zeros = source.zero_pages(start, end) if are_zeros_known else None
        are_zeros_known = zeros is not None
        present_parts.append(present if zeros is None else present & ~zeros)
        own_parts.append(own)
    present, own = np.concatenate(present_parts), np.concatenate(own_parts)
    if are_zeros_known:
        return present
    # Without PAGEMAP_SCAN a small page of zeros looks as one that is shared since a fork: neither
    # is exclusive. What fits better.
    wanted = rss_bytes // MACHINE_PAGE_BYTES
    is_nearer = abs(int(present.sum()) - wanted) <= abs(int(own.sum()) - wanted)
    return present if is_nearer else own


def _bit(entries: npt.NDArray[np.uint64], number: int) -> Mask:
    is_set: Mask = (entries >> np.uint64(number)) & ONE != 0
    return is_set


def run_bytes(runs: Table, superslabs: Table, resident: Mask) -> npt.NDArray[np.uint64]:
    """Resident bytes of each run, the guard behind it excluded."""
    per_page = resident.reshape(len(superslabs), SUPERSLAB_PAGES, PER_PAGE).sum(axis=2)
    before = np.zeros((len(superslabs), SUPERSLAB_PAGES + 1), np.int64)
    np.cumsum(per_page, axis=1, out=before[:, 1:])
    row = runs["superslab"].astype(np.int64)
    page = ((runs["start"] - superslabs["start"][row]) // np.uint64(PAGE_BYTES)).astype(np.int64)
    end = np.minimum(page + runs["pages"], SUPERSLAB_PAGES)
    sizes: npt.NDArray[np.int64] = (before[row, end] - before[row, page]) * MACHINE_PAGE_BYTES
    return sizes.astype(np.uint64)


def state_bytes(
    slabs: Table,
    superslabs: Table,
    resident: Mask,
    planes: Mapping[BlockState, Words],
    size_classes: Sequence[SizeClass],
) -> dict[BlockState, int]:
    """Resident bytes of the blocks in each state; `slabs` have their resident_bytes."""
    sums = dict.fromkeys(BlockState, 0)
    names = {state: state.name.lower() for state in BlockState}
    for row in size_classes:
        own = slabs[slabs["class_index"] == row.index]
        whole = own["resident_bytes"] == own["pages"].astype(np.uint64) * np.uint64(PAGE_BYTES)
        for state, name in names.items():
            sums[state] += int(own[name][whole].sum(dtype=np.int64)) * row.block_bytes
        partial = own[~whole & (own["resident_bytes"] > 0)]
        for begin in range(0, len(partial), CHUNK_SLABS):
            part = partial[begin : begin + CHUNK_SLABS]
            for state, size in _partial(part, superslabs, resident, planes, row).items():
                sums[state] += size
    return sums


def _partial(
    slabs: Table,
    superslabs: Table,
    resident: Mask,
    planes: Mapping[BlockState, Words],
    row: SizeClass,
) -> dict[BlockState, int]:
    """Of slabs of one class that are resident in part: each page's share of each state."""
    page_count = row.slab_pages * PER_PAGE
    superslab = slabs["superslab"].astype(np.int64)
    first = (slabs["start"] - superslabs["start"][superslab]) // np.uint64(MACHINE_PAGE_BYTES)
    columns = first.astype(np.int64)[:, None] + np.arange(page_count)
    mask = resident[superslab[:, None], columns]
    # A slab's bytes before page j: `whole` blocks and `rest` bytes of the next one.
    edges = np.minimum(np.arange(page_count + 1) * MACHINE_PAGE_BYTES, PAGE_BYTES * row.slab_pages)
    whole = np.minimum(edges // row.block_bytes, row.block_count)
    rest = np.where(whole < row.block_count, edges - whole * row.block_bytes, 0)
    word_count = (row.block_count + 63) // 64
    index = slabs["word"].astype(np.int64)[:, None] + np.arange(word_count)
    free_of_live = np.zeros(index.shape, np.uint64)
    sums: dict[BlockState, int] = {}
    for state in (*(state for state in planes), BlockState.LIVE):
        if state == BlockState.LIVE:
            words = ~free_of_live & _valid(row.block_count)
        else:
            words = planes[state][index]
            free_of_live |= words
        padded = np.concatenate([words, np.zeros((len(slabs), 1), np.uint64)], axis=1)
        counts = np.bitwise_count(padded).astype(np.int64)
        before = np.cumsum(counts, axis=1) - counts
        at, bit = whole // 64, (whole % 64).astype(np.uint64)
        within = np.bitwise_count(padded[:, at] & (np.left_shift(ONE, bit) - ONE)).astype(np.int64)
        next_one = (np.right_shift(padded[:, at], bit) & ONE).astype(np.int64)
        upto = (before[:, at] + within) * row.block_bytes + next_one * rest
        sums[state] = int((np.diff(upto, axis=1) * mask).sum())
    return sums


def _valid(count: int) -> Words:
    """A word for each 64 blocks, with the bits of those that exist."""
    words = np.full((count + 63) // 64, ~np.uint64(0))
    if count % 64:
        words[-1] = (ONE << np.uint64(count % 64)) - ONE
    return words


def superslab_ranges(superslabs: Table) -> list[Range]:
    return [
        Range(int(start), int(start) + SUPERSLAB_BYTES, "superslab", index)
        for index, start in enumerate(superslabs["start"])
    ]
