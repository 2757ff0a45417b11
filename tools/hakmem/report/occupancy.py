"""What the map of a page draws: every superslab, run and block, in few bytes.

Columns of figures and the blocks' bit planes go deflated into base64; the page inflates the planes
of a superslab when somebody looks at it. Both have bounds, so a page of a very large heap stays
usable; what is left out is counted.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hakmem.inspect.errors import plain
from hakmem.inspect.model import (
    PAGE_BYTES,
    SUPERSLAB_PAGES,
    BlockState,
    Heap,
    RunKind,
    Snapshot,
    Table,
)

# 16 GiB of superslabs; the fullest are left out first.
SUPERSLABS_MOST = 4096
# Of the blocks, deflated; the fullest superslabs are left out first.
BLOCKS_BYTES_MOST = 8 << 20
DEFLATE_LEVEL = 6

# Columns of a run in the page, the widest first: the reader of the page needs them aligned.
COLUMNS = (
    ("page", "<u4"),
    ("heap", "<u4"),
    ("large", "<u4"),
    ("resident", "<u4"),
    ("blocks", "<u2"),
    ("live", "<u2"),
    ("free", "<u2"),
    ("cached", "<u2"),
    ("remote", "<u2"),
    ("quarantined", "<u2"),
    ("fresh", "<u2"),
    ("pages", "u1"),
    ("kind", "u1"),
    ("class", "u1"),
    ("settled", "u1"),
)
# Names of the model's columns where the page has shorter ones.
MODEL_NAMES = {
    "heap": "heap_id",
    "large": "large_bytes",
    "resident": "resident_bytes",
    "fresh": "fresh_index",
    "blocks": "block_count",
    "class": "class_index",
}
NAMES_IN_PAGE = {"<u4": "u32", "<u2": "u16", "u1": "u8"}

Json = dict[str, Any]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Bounds:
    """How much of a heap a page may hold."""

    superslabs: int = SUPERSLABS_MOST
    blocks_bytes: int = BLOCKS_BYTES_MOST


BOUNDS = Bounds()


@dataclass(frozen=True)
class LeftOut:
    """What the page does not show: superslabs, and superslabs shown without their blocks."""

    superslabs: int
    without_blocks: int

    def sentence(self) -> str:
        """Empty when all is there."""
        parts = []
        if self.superslabs:
            parts.append(f"the {self.superslabs:,} fullest superslabs are not drawn")
        if self.without_blocks:
            parts.append(
                f"{self.without_blocks:,} superslabs are drawn without their single blocks, only "
                "with the counts of each slab"
            )
        return f"To keep this page small, {', and '.join(parts)}." if parts else ""


def _deflate(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, DEFLATE_LEVEL)).decode("ascii")


def _unused_bytes(snapshot: Snapshot) -> Indices:
    """What of each superslab's slabs no live block uses."""
    slabs = snapshot.slabs
    sizes = np.array([row.block_bytes for row in snapshot.size_classes] or [0], np.int64)
    unused = slabs["pages"] * np.int64(PAGE_BYTES) - slabs["live"] * sizes[slabs["class_index"]]
    sums = np.bincount(slabs["superslab"], unused, len(snapshot.superslabs))
    return sums.astype(np.int64)


def _emptiest(unused: Indices, candidates: Indices, count: int) -> Indices:
    """At most `count` of the candidates, those with the most unused bytes, in their own order."""
    if len(candidates) <= count:
        return candidates
    order = candidates[np.argsort(-unused[candidates], kind="stable")]
    return np.sort(order[:count])


def _run_columns(snapshot: Snapshot, runs: Table, row_in_page: Indices) -> Json:
    starts = snapshot.superslabs["start"][runs["superslab"]]
    own = {"page": row_in_page[runs["superslab"]] * SUPERSLAB_PAGES
           + ((runs["start"] - starts) // PAGE_BYTES).astype(np.int64)}  # fmt: skip
    data = b"".join(
        (own[name] if name in own else runs[MODEL_NAMES.get(name, name)]).astype(kind).tobytes()
        for name, kind in COLUMNS
    )
    return {
        "count": len(runs),
        "columns": [[name, NAMES_IN_PAGE[kind]] for name, kind in COLUMNS],
        "data": _deflate(data),
    }


def _planes(
    snapshot: Snapshot, states: list[BlockState], shown: Indices, unused: Indices, most_bytes: int
) -> list[str | None]:
    """For each shown superslab its planes one behind the other; None where there is no room."""
    slabs = snapshot.slabs
    words = (slabs["block_count"].astype(np.int64) + 63) // 64
    first = np.searchsorted(slabs["superslab"], shown, side="left")
    behind = np.searchsorted(slabs["superslab"], shown, side="right")
    found: list[str | None] = [None] * len(shown)
    left = most_bytes
    for at in np.argsort(-unused[shown], kind="stable"):
        one, end = int(first[at]), int(behind[at])
        if one == end:
            found[at] = _deflate(b"")
            continue
        start = int(slabs["word"][one])
        stop = int(slabs["word"][end - 1] + words[end - 1])
        text = _deflate(
            b"".join(snapshot.planes[state][start:stop].astype("<u8").tobytes() for state in states)
        )
        if len(text) > left:
            break
        left -= len(text)
        found[at] = text
    return found


def heap_label(heap: Heap) -> str:
    """A heap as people know it."""
    if heap.thread_id:
        return f"heap {heap.id}, thread {heap.thread_id} {plain(heap.thread_name)}".rstrip()
    return f"heap {heap.id}, {plain(heap.state)}"


def describe(snapshot: Snapshot, bounds: Bounds = BOUNDS) -> tuple[Json | None, LeftOut]:
    """The map for the page, and what it leaves out; None when there is no superslab to draw."""
    everything = np.arange(len(snapshot.superslabs))
    if not len(everything):
        return None, LeftOut(0, 0)
    unused = _unused_bytes(snapshot)
    shown = _emptiest(unused, everything, bounds.superslabs)
    row_in_page = np.full(len(everything), -1, np.int64)
    row_in_page[shown] = np.arange(len(shown))
    runs = snapshot.runs[row_in_page[snapshot.runs["superslab"]] >= 0]
    superslabs = snapshot.superslabs[shown]
    states = [state for state in BlockState if state in snapshot.planes]
    blocks: list[str | None] = [None] * len(shown)
    if BlockState.FREE in snapshot.planes:
        blocks = _planes(snapshot, states, shown, unused, bounds.blocks_bytes)
    left_out = LeftOut(len(everything) - len(shown), sum(text is None for text in blocks))
    kinds: Mapping[int, str] = {kind.value: kind.name.lower() for kind in RunKind}
    return {
        "page_bytes": PAGE_BYTES,
        "superslab_pages": SUPERSLAB_PAGES,
        "classes": [row.block_bytes for row in snapshot.size_classes],
        "kinds": [kinds.get(number, "") for number in range(max(kinds) + 1)],
        "residency": snapshot.residency,
        "heaps": {heap.id: heap_label(heap) for heap in snapshot.heaps},
        "starts": superslabs["start"].tolist(),
        "dirty": [f"{mask:x}" for mask in
                  (superslabs["dirty_young"] | superslabs["dirty_old"]).tolist()],
        "planes": [state.name.lower() for state in states],
        "runs": _run_columns(snapshot, runs, row_in_page),
        "blocks": blocks,
    }, left_out  # fmt: skip
