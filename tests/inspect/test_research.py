"""Research views: what the program did, counted by the library, read from outside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hakmem.inspect.events import Clock
from hakmem.inspect.model import REQUEST_STEP_BYTES
from hakmem.inspect.research import _upper
from hakmem.inspect.targets import take
from tests.inspect.support.targets import (
    await_line,
    compile_program,
    go_on,
    preloaded,
    read_truth,
    running,
)

THREADS, BLOCKS = 4, 2000


def test_counts_are_the_programs_own(tmp_path: Path) -> None:
    program = compile_program("truth.c", tmp_path / "truth")
    command: list[str | Path] = [program, str(THREADS), str(BLOCKS), tmp_path / "blocks"]
    with running(command, preloaded(HAKMEM_RESEARCH="1")) as process:
        await_line(process, "started")
        before = take(str(process.pid), freeze=True).research
        go_on(process)
        await_line(process, "ready")
        snapshot = take(str(process.pid), freeze=True)
    after = snapshot.research
    assert before is None or before.enabled
    assert after is not None
    assert after.enabled

    def grown(name: str) -> int:
        seen = 0 if before is None else sum(before.operations[name])
        return sum(after.operations[name]) - seen

    small_limit = max(row.block_bytes for row in snapshot.size_classes)
    survivors = read_truth(tmp_path / "blocks")
    small = int((survivors["bytes"] <= small_limit).sum())
    assert grown("mallocs") - grown("frees") == small
    assert grown("mallocs") <= THREADS * BLOCKS
    freed_by_neighbour = sum(flow.blocks for flow in after.flows)
    assert 0 < freed_by_neighbour <= THREADS * (BLOCKS // 7 + 1)
    ids = {heap.id for heap in snapshot.heaps}
    assert all(flow.from_heap in ids and flow.to_heap in ids for flow in after.flows)
    names = {histogram.name: histogram for histogram in after.histograms}
    assert sum(names["malloc"].counts) == sum(after.hits.values())
    assert sum(names["free"].counts) == sum(after.free_hits.values())
    assert names["malloc"].unit == "ns"
    assert names["size"].unit == "bytes"
    assert sum(names["size"].counts) >= THREADS * BLOCKS
    for histogram in after.histograms:
        assert list(histogram.upper) == sorted(set(histogram.upper))
        assert len(histogram.upper) == len(histogram.counts)


def test_sizes_asked_for_are_the_programs_own(tmp_path: Path) -> None:
    program = compile_program("truth.c", tmp_path / "truth")
    command: list[str | Path] = [program, str(THREADS), str(BLOCKS), tmp_path / "blocks"]
    options = {"HAKMEM_RESEARCH": "1", "HAKMEM_REQUEST_SIZES": "1"}
    with running(command, preloaded(**options)) as process:
        await_line(process, "started")
        before = take(str(process.pid), freeze=True).requests
        go_on(process)
        await_line(process, "ready")
        snapshot = take(str(process.pid), freeze=True)
    after = snapshot.requests
    assert before is not None
    assert after is not None
    largest = max(row.block_bytes for row in snapshot.size_classes)
    asked = read_truth(tmp_path / "blocks")["bytes"].astype(np.int64)
    asked = asked[asked <= largest]
    expected = np.bincount(-(-asked // REQUEST_STEP_BYTES), minlength=len(after))
    assert (np.array(after) - before).tolist() == expected.tolist()


def test_sizes_asked_for_need_the_option(tmp_path: Path) -> None:
    program = compile_program("many.c", tmp_path / "many")
    with running([program, "1000", "64", "1"], preloaded(HAKMEM_RESEARCH="1")) as process:
        await_line(process, "ready")
        assert take(str(process.pid)).requests is None


def test_without_research_there_is_none(tmp_path: Path) -> None:
    program = compile_program("many.c", tmp_path / "many")
    with running([program, "1000", "64", "1"]) as process:
        await_line(process, "ready")
        assert take(str(process.pid)).research is None


@pytest.mark.parametrize(
    ("bucket", "upper"), [(0, 0), (7, 7), (8, 8), (15, 15), (16, 17), (23, 31), (24, 35), (31, 63)]
)
def test_bounds_of_buckets(bucket: int, upper: int) -> None:
    assert _upper(bucket, 8) == upper


def test_ticks_are_told_as_time() -> None:
    """A processor of 3 GHz, looked at twice within two seconds; and one that was looked at once."""
    first = {"ticks": 5_000_000_000, "ms": 7_000}
    clock = Clock({"first": first, "latest": {"ticks": 11_000_000_000, "ms": 9_000}})
    assert clock.ticks_per_second() == 3_000_000_000
    assert clock.to_ns(8_000_000_000) == 8_000_000_000
    once = Clock({"first": first, "latest": first})
    assert (once.ticks_per_second(), once.to_ns(8_000_000_000)) == (0, None)
