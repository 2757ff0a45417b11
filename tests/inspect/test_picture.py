"""How much of a picture may be wrong, when its process went on while it was read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hakmem.inspect.held import Held
from hakmem.inspect.model import PAGE_BYTES, RUN, SUPERSLAB, RunKind
from hakmem.inspect.picture import Picture

BLOCK_BYTES = np.array([16, 4096], np.uint64)
LARGE_BYTES = 300_000


def made_up(*unsettled_blocks: int) -> Picture:
    """Heap 1 has two slabs of blocks of 16 bytes, heap 2 one of 4,096; and two large blocks."""
    runs = np.zeros(5, RUN)
    runs["kind"] = [RunKind.SLAB] * 3 + [RunKind.LARGE] * 2
    runs["pages"] = [1, 1, 1, 5, 1]
    runs["class_index"] = [0, 0, 1, 0, 0]
    runs["block_count"] = [4096, 4096, 16, 0, 0]
    runs["heap_id"] = [1, 1, 2, 0, 0]
    runs["large_bytes"] = [0, 0, 0, LARGE_BYTES, PAGE_BYTES]
    heaps = np.zeros(3, [("id", "<u4")])
    heaps["id"] = [1, 2, 0]
    nothing = np.empty(0, np.uint64)
    return Picture(
        superslabs=np.zeros(1, SUPERSLAB),
        runs=runs,
        run_places=nothing,
        cache_places=nothing,
        caches=np.empty(0, heaps.dtype),
        heaps=heaps,
        heap_places=nothing,
        planes={},
        unsettled_blocks=np.array(unsettled_blocks, np.int64),
    )


def test_blocks_that_moved_are_of_the_largest_size_of_their_heap() -> None:
    assert made_up(0, 0, 0).unsettled_bytes(BLOCK_BYTES) == 0
    assert made_up(10, 0, 0).unsettled_bytes(BLOCK_BYTES) == 10 * 16
    assert made_up(0, 10, 0).unsettled_bytes(BLOCK_BYTES) == 10 * 4096
    assert made_up(10, 10, 0).unsettled_bytes(BLOCK_BYTES) == 10 * 16 + 10 * 4096


def test_no_more_than_there_is_can_be_wrong() -> None:
    assert made_up(1_000_000, 0, 0).unsettled_bytes(BLOCK_BYTES) == 2 * PAGE_BYTES
    assert made_up(0, 0, 99).unsettled_bytes(BLOCK_BYTES) == 0
    everything = replace(made_up(10_000, 10_000, 1), moved_runs=9)
    total = 3 * PAGE_BYTES + LARGE_BYTES + PAGE_BYTES
    assert everything.unsettled_bytes(BLOCK_BYTES) == total


def test_caches_and_large_runs_count_too() -> None:
    held = Held(np.empty(0, np.uint64), np.empty(0, np.int64), np.zeros(2, np.int64), 2)
    assert replace(made_up(0, 0, 0), held=held).unsettled_bytes(BLOCK_BYTES) == 2 * 4096
    assert replace(made_up(0, 0, 0), moved_runs=1).unsettled_bytes(BLOCK_BYTES) == LARGE_BYTES
