"""Invariants of what was read, for what was settled: each said twice by the heap, and compared.

A violation is damaged metadata, or a mistake of the reader; the snapshot's notes tell it."""

from __future__ import annotations

import numpy as np

from hakmem.inspect.model import PAGE_BYTES, RunKind
from hakmem.inspect.picture import ALL_PAGES, Picture, page_masks


def find_violations(picture: Picture, moved_most: int) -> tuple[str, ...]:
    """Sentences, one for each invariant that does not hold; empty for a sound heap. `moved_most`:
    of so many pointers and blocks it may be that threads stood in the middle of moving them from
    one node of their cache to another, for which they hold no lock."""
    is_still = picture.unsettled_share() == 0
    found = [_free_counts(picture), _owners(picture)]
    if is_still:
        found += [_pages(picture), _slab_counts(picture)]
        found += [
            _few(picture.strays, "pointer or bit", "names no block", moved_most),
            _few(picture.doubles, "block", "is in two places at once", moved_most),
        ]
    return tuple(text for text in found if text)


def _few(count: int, what: str, is_wrong: str, moved_most: int = 0) -> str:
    if count == 0:
        return ""
    plural = "" if count == 1 else "s"
    wrong = is_wrong if count == 1 else is_wrong.replace("names", "name").replace("is ", "are ")
    why = "damaged" if count > moved_most else "moved just then, or damaged"
    return f"{why}: {count:,} {what}{plural} {wrong}"


def _free_counts(picture: Picture) -> str:
    runs = picture.runs
    settled = (runs["kind"] == RunKind.SLAB) & (runs["settled"] != 0)
    wrong = settled & (runs["free"].astype(np.int64) != picture.said_free)
    return _few(int(wrong.sum()), "slab", "is of another number of free blocks than it says")


def _owners(picture: Picture) -> str:
    runs = picture.runs
    wrong = (runs["kind"] == RunKind.SLAB) & (runs["settled"] != 0) & (runs["heap_id"] == 0)
    return _few(int(wrong.sum()), "slab", "is of no heap")


def _pages(picture: Picture) -> str:
    """Each page is in one run, be it one that is being made or given back, free, stuck or being
    purged."""
    superslabs, runs = picture.superslabs, picture.runs
    row = runs["superslab"].astype(np.int64)
    first = (runs["start"] - superslabs["start"][row]) // np.uint64(PAGE_BYTES)
    span = runs["pages"].astype(np.uint64) + runs["guarded"].astype(np.uint64)
    mask = page_masks(first, span)
    covered = np.zeros(len(superslabs), np.uint64)
    np.bitwise_or.at(covered, row, mask)
    sizes = np.zeros(len(superslabs), np.int64)
    np.add.at(sizes, row, span.astype(np.int64))
    others = superslabs["free"] | superslabs["stuck"] | superslabs["purging"] | picture.between
    wrong = (covered & others != 0) | (covered | others != ALL_PAGES)
    wrong |= np.bitwise_count(covered) != sizes
    dirty = superslabs["dirty_young"] | superslabs["dirty_old"] | superslabs["zero"]
    wrong |= dirty != superslabs["free"]
    return _few(int(wrong.sum()), "superslab", "is not wholly runs and free pages")


def _slab_counts(picture: Picture) -> str:
    """Each heap has as many slabs of each class as its bins say."""
    wrong = picture.missing_slabs() != 0
    return _few(int(wrong.sum()), "bin", "is of another number of slabs than it says")
