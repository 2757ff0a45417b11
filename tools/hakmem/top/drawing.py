"""A heap in characters, readable without colour: sparklines and the occupancy map of superslabs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hakmem.inspect.model import PAGE_BYTES, SUPERSLAB_PAGES, RunKind, Snapshot

# What a page of 64 KiB is; the first five are slabs by the share of their blocks that are live.
SLAB_EMPTY, SLAB_LOW, SLAB_HALF, SLAB_HIGH, SLAB_FULL = range(5)
LARGE, LARGE_MORE, DIRTY, PURGED, OTHER = range(5, 10)
PAGE_MEANINGS = (
    "slab, no block live",
    "to 1/3 live",
    "to 2/3",
    "above",
    "all live",
    "large block",
    "its other pages",
    "free, dirty",
    "free, purged",
    "in between",
)


@dataclass(frozen=True)
class Charset:
    """`pages`: a character for each meaning of a page. `bars`: rising heights."""

    pages: str
    bars: str


UNICODE = Charset(pages="o░▒▓█Ll~.?", bars="▁▂▃▄▅▆▇█")
ASCII = Charset(pages="o-+*#Ll~.?", bars="_.-=+*%#")


def charset_for(encoding: str | None) -> Charset:
    """The blocks of Unicode where the stream can carry them."""
    try:
        (UNICODE.pages + UNICODE.bars).encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def sparkline(values: Sequence[int], width: int, charset: Charset = UNICODE) -> str:
    """The last `width` values between their lowest and highest; the lowest bar when they agree."""
    shown = list(values)[-width:] if width > 0 else []
    if not shown:
        return ""
    low, high = min(shown), max(shown)
    steps = len(charset.bars) - 1
    return "".join(
        charset.bars[round((value - low) / (high - low) * steps) if high > low else 0]
        for value in shown
    )


def page_kinds(snapshot: Snapshot, rows_max: int | None = None) -> npt.NDArray[np.uint8]:
    """What each page is: a row for each superslab, a column for each page."""
    superslabs = snapshot.superslabs[:rows_max]
    runs = snapshot.runs[snapshot.runs["superslab"] < len(superslabs)]
    kinds = np.full((len(superslabs), SUPERSLAB_PAGES), OTHER, np.uint8)
    bits = np.arange(SUPERSLAB_PAGES, dtype=np.uint64)

    def pages_of(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
        chosen: npt.NDArray[np.bool_] = (words[:, None] >> bits & np.uint64(1)) != 0
        return chosen

    kinds[pages_of(superslabs["free"])] = PURGED
    kinds[pages_of(superslabs["dirty_young"] | superslabs["dirty_old"])] = DIRTY
    if len(runs) == 0:
        return kinds
    row = runs["superslab"].astype(np.int64)
    first = ((runs["start"] - superslabs["start"][row]) // PAGE_BYTES).astype(np.int64)
    blocks, live = (
        np.maximum(runs["block_count"], 1).astype(np.int64),
        runs["live"].astype(np.int64),
    )
    third = np.where(live == 0, SLAB_EMPTY, np.minimum(1 + 3 * live // blocks, SLAB_FULL))
    is_large = runs["kind"] == RunKind.LARGE
    kind = np.where(is_large, LARGE_MORE, third)
    pages = runs["pages"].astype(np.int64)
    # One entry for each page of each run: its run, and how many pages of it come before.
    owner = np.repeat(np.arange(len(runs)), pages)
    offset = np.arange(len(owner)) - np.repeat(np.cumsum(pages) - pages, pages)
    column = first[owner] + offset
    inside = column < SUPERSLAB_PAGES
    kinds[row[owner][inside], column[inside]] = kind[owner][inside]
    kinds[row[is_large], first[is_large]] = LARGE
    return kinds


def occupancy_map(
    snapshot: Snapshot, charset: Charset = UNICODE, rows_max: int | None = None
) -> list[str]:
    """A line for each superslab, a character for each page; the lowest address first."""
    kinds = page_kinds(snapshot, rows_max)
    lines = [
        f"{int(superslab['start']):#014x} " + "".join(charset.pages[kind] for kind in row)
        for superslab, row in zip(snapshot.superslabs, kinds.tolist(), strict=False)
    ]
    if len(snapshot.superslabs) > len(kinds):
        lines.append(f"and {len(snapshot.superslabs) - len(kinds):,} superslabs more")
    return lines


def legend(charset: Charset = UNICODE) -> str:
    return "a page each: " + ", ".join(
        f"{mark} {meaning}" for mark, meaning in zip(charset.pages, PAGE_MEANINGS, strict=True)
    )
