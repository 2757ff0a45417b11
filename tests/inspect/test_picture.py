"""How much of a picture may be wrong, when its process went on while it was read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hakmem.inspect import facts, held
from hakmem.inspect.held import Held
from hakmem.inspect.model import PAGE_BYTES, RUN, SUPERSLAB, RunKind
from hakmem.inspect.picture import Picture
from hakmem.inspect.process import ProcessSource
from hakmem.inspect.reading import Session
from hakmem.inspect.walk import Walker
from tests.inspect.support.targets import await_line, compile_program, running

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
        missing_blocks=np.zeros(3, np.int64),
        missing_bytes=np.zeros(3, np.int64),
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


def test_all_heaps_take_as_many_passes_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    heap_count, run_count = 2_000, 200_000
    random = np.random.default_rng(11)
    runs = np.zeros(run_count, RUN)
    runs["kind"] = random.choice([RunKind.SLAB, RunKind.LARGE], run_count, p=[0.9, 0.1])
    runs["pages"] = random.integers(1, 4, run_count)
    runs["class_index"] = random.integers(0, len(BLOCK_BYTES), run_count)
    runs["heap_id"] = random.integers(1, heap_count + 1, run_count)
    heaps = np.zeros(heap_count, [("id", "<u4")])
    heaps["id"] = random.permutation(heap_count) + 1
    missing = random.integers(0, 20, heap_count)
    found = random.integers(0, 5_000, heap_count)
    found[:: heap_count // 4] = missing[:: heap_count // 4] = 0
    picture = replace(
        made_up(),
        runs=runs,
        heaps=heaps,
        unsettled_blocks=found + missing,
        missing_blocks=missing,
        missing_bytes=np.zeros(heap_count, np.int64),
    )
    pages, largest = np.zeros(heap_count + 1, np.int64), np.zeros(heap_count + 1, np.int64)
    for run in runs[runs["kind"] == RunKind.SLAB]:
        number = run["heap_id"]
        pages[number] += run["pages"]
        largest[number] = max(largest[number], BLOCK_BYTES[run["class_index"]])
    expected = sum(
        min(int(pages[number]) * PAGE_BYTES, int(count) * int(largest[number]))
        for number, count in zip(heaps["id"], found, strict=True)
    )
    passes: list[object] = []

    class Counted(np.ndarray[Any, Any]):
        """Notes each operation on all of it."""

        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **more: Any) -> Any:
            passes.append(ufunc)
            return getattr(ufunc, method)(*(np.asarray(each) for each in inputs), **more)

    owners = Picture.owners
    monkeypatch.setattr(Picture, "owners", lambda picture: owners(picture).view(Counted))
    assert picture.unsettled_bytes(BLOCK_BYTES) == expected
    assert 0 < len(passes) < 10


def test_caches_and_large_runs_count_too() -> None:
    held = Held(np.empty(0, np.uint64), np.empty(0, np.int64), np.zeros(2, np.int64), 2)
    assert replace(made_up(0, 0, 0), held=held).unsettled_bytes(BLOCK_BYTES) == 2 * 4096
    assert replace(made_up(0, 0, 0), moved_runs=1).unsettled_bytes(BLOCK_BYTES) == LARGE_BYTES


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Session]:
    """Of a process of four threads, three of which have ended, with 500 blocks each."""
    program = compile_program("ended.c", tmp_path / "ended")
    with running([program, "threads"]) as process:
        await_line(process, "ready")
        with Session(ProcessSource(process.pid)) as opened:
            yield opened


def test_slabs_that_came_while_it_was_read_are_in_doubt(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if all slabs but one had come after the runs were read: their heaps tell of them."""
    whole = session.take()
    assert (whole.unsettled_share, whole.unsettled_bytes) == (0, 0)
    runs_of = Walker._runs

    def early(walker: Walker, superslabs: Any) -> Any:
        runs, places, *others = runs_of(walker, superslabs)
        return runs[:1], places[:1], *others

    monkeypatch.setattr(Walker, "_runs", early)
    part = session.take()
    missing = whole.live_bytes - part.live_bytes
    assert missing > 1_000_000
    assert part.unsettled_bytes is not None and part.unsettled_bytes >= missing
    assert part.unsettled_share == 1.0


def test_of_a_heap_that_took_one_slab_more_that_slab_is_in_doubt(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the last slab had come after the runs were read. What the others hold is known, and
    no look at the heap alone finds it."""
    whole = session.take()
    runs_of, fill, fills = Walker._runs, Walker._fill, []

    def early(walker: Walker, superslabs: Any) -> Any:
        runs, places, *others = runs_of(walker, superslabs)
        assert runs["kind"][-1] == RunKind.SLAB
        return runs[:-1], places[:-1], *others

    def counted(walker: Walker, *words: Any) -> None:
        fills.append(words)
        fill(walker, *words)

    monkeypatch.setattr(Walker, "_runs", early)
    monkeypatch.setattr(Walker, "_fill", counted)
    part = session.take()
    slabs = whole.slabs
    last = int(slabs["block_count"][-1])
    assert round(part.unsettled_share * int(part.slabs["block_count"].sum())) == last
    assert part.unsettled_bytes is not None
    assert 0 < whole.live_bytes - part.live_bytes <= part.unsettled_bytes <= PAGE_BYTES
    assert len(fills) == 1


def test_a_slab_that_went_while_it_was_read_is_in_doubt(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the last slab had been one of another class when the runs were read, and of that class
    another had come since: its heap has as many slabs as were found, and looks as it was."""
    runs_of, same = Walker._runs, Picture.missing_slabs

    def early(walker: Walker, superslabs: Any) -> Any:
        runs, *others = runs_of(walker, superslabs)
        runs["class_index"][-1] -= 1
        return runs, *others

    monkeypatch.setattr(Walker, "_runs", early)
    monkeypatch.setattr(Picture, "missing_slabs", lambda picture: np.zeros_like(same(picture)))
    picture = session.walker.read()
    assert picture.unsettled_blocks.sum() == picture.runs["block_count"][-1]


def test_slabs_that_another_heap_took_over_are_in_doubt(session: Session) -> None:
    walker = session.walker
    picture = walker.read()
    assert not picture.unsettled_blocks.any()
    owners = picture.owners()
    taken = int(owners[np.flatnonzero(owners >= 0)[-1]])
    rows = np.flatnonzero(owners == taken)
    assert picture.runs["settled"][rows].all()
    # As if they had been another heap's before this look, which is at that one's lock.
    walker._fill(picture, np.array([(taken + 1) % len(picture.heaps)]), rows)
    assert not picture.runs["settled"][rows].any()
    assert picture.unsettled_blocks[taken] == picture.runs["block_count"][rows].sum()
    walker._retry(picture)
    assert picture.runs["settled"][rows].all() and not picture.unsettled_blocks.any()


def test_depots_may_be_as_long_as_metadata_has_room_for(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds: list[int] = []
    real = held._read_depots

    def noted(*words: Any) -> Any:
        bounds.append(words[4])
        return real(*words)

    monkeypatch.setattr(held, "DEPOT_NODES_MAX", 0)
    monkeypatch.setattr(held, "_read_depots", noted)
    session.take(residency=False)
    room = facts.metadata_bytes(session.source, session.layout) // session.layout.node_bytes
    assert bounds and set(bounds) == {room} and room > 0
