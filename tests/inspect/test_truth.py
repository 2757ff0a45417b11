"""The reader against a program that knows what it holds: block for block."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from hakmem.inspect.model import BlockState, Snapshot
from hakmem.inspect.targets import take
from tests.inspect.support.targets import (
    archive,
    await_line,
    compile_program,
    go_on,
    live_blocks,
    preloaded,
    read_truth,
    running,
)

CHURN_SLOTS = 1000


@contextmanager
def started(
    program: Sequence[str | Path], threads: int, blocks: int, file: Path, *more: str
) -> Iterator[subprocess.Popen[bytes]]:
    command = [*program, str(threads), str(blocks), file, *more]
    with running(command) as process:
        await_line(process, "started")
        yield process


def require_true(before: Snapshot, after: Snapshot, file: Path) -> None:
    """What came between the two snapshots is what the program says, and nothing else."""
    was, live = live_blocks(before), live_blocks(after)
    expected = {int(row["start"]): int(row["bytes"]) for row in read_truth(file)}
    assert len(expected) > 0
    assert was.keys() <= live.keys()
    assert live.keys() - was.keys() == expected.keys()
    for start, size in expected.items():
        assert size <= live[start]
        # No more than the next size class would have, nor than the pages of a large block.
        assert live[start] <= max(size * 1.25 + 16, size + (64 << 10) * (size > 64 << 10))
    assert after.gauges["live_blocks"] == len(live)
    assert after.gauges["live_bytes"] == sum(live.values())
    assert after.notes == ()


def look_twice(process: subprocess.Popen[bytes], file: Path, pid: int | None = None) -> Snapshot:
    target = str(pid or process.pid)
    before = take(target, freeze=True)
    go_on(process)
    await_line(process, "ready")
    after = take(target, freeze=True)
    assert before.frozen
    assert after.frozen
    require_true(before, after, file)
    return after


@pytest.mark.parametrize(("threads", "blocks"), [(8, 5000), (1, 20_000), (1000, 30)])
def test_every_block_is_known(truth: Path, tmp_path: Path, threads: int, blocks: int) -> None:
    file = tmp_path / "truth"
    with started([truth], threads, blocks, file) as process:
        snapshot = look_twice(process, file)
    used = [heap for heap in snapshot.heaps if heap.state == "in use"]
    assert len(used) >= threads
    assert {heap.thread_name for heap in used} == {"truth"}
    assert len({heap.thread_id for heap in used}) == len(used)
    states = {state: int(snapshot.slabs[state.name.lower()].sum()) for state in BlockState}
    assert states[BlockState.CACHED] > 0
    assert sum(states.values()) == int(snapshot.slabs["block_count"].sum())
    if threads > 1:
        sent = sum(heap.pending_blocks + heap.remote_blocks for heap in snapshot.heaps)
        assert sent > 0 or snapshot.counters["remote_blocks"] > 0


def test_a_wrong_truth_is_noticed(truth: Path, tmp_path: Path) -> None:
    """The control of the tests above: one block more or less is seen."""
    file = tmp_path / "truth"
    with started([truth], 2, 100, file) as process:
        before = take(str(process.pid), freeze=True)
        go_on(process)
        await_line(process, "ready")
        after = take(str(process.pid), freeze=True)
    data = file.read_bytes()
    require_true(before, after, file)
    file.write_bytes(data[16:])
    with pytest.raises(AssertionError):
        require_true(before, after, file)


def test_hardened_and_research_mode(truth: Path, tmp_path: Path) -> None:
    for mode in ("hardened", "research", "lean"):
        file = tmp_path / f"truth-{mode}"
        command: list[str | Path] = [truth, "4", "2000", file]
        with running(command, preloaded(HAKMEM_MODE=mode, HAKMEM_GUARD_SAMPLE="0")) as process:
            await_line(process, "started")
            snapshot = look_twice(process, file)
        assert snapshot.mode == mode
        quarantined = int(snapshot.slabs["quarantined"].sum())
        assert (quarantined > 0) == (mode == "hardened")


@pytest.mark.parametrize("stripped", [False, True])
def test_static_program(tmp_path: Path, stripped: bool) -> None:
    flags: list[str | Path] = ["-static", archive(), *(["-s"] if stripped else [])]
    program = compile_program("truth.c", tmp_path / "truth", *flags)
    file = tmp_path / "blocks"
    with started([program], 8, 1000, file) as process:
        snapshot = look_twice(process, file)
    assert snapshot.waterfall is not None
    assert sum(row.bytes for row in snapshot.waterfall.rows) == snapshot.waterfall.rss_bytes


def test_not_frozen_within_the_stated_share(truth: Path, tmp_path: Path) -> None:
    """Threads that allocate all the time: what they hold is known but for one block each."""
    file = tmp_path / "truth"
    threads = 8
    with started([truth], threads, 2000, file, "churn") as process:
        before = take(str(process.pid), freeze=True)
        go_on(process)
        await_line(process, "ready")
        exact = take(str(process.pid), freeze=True)
        still = len(live_blocks(before)) + len(read_truth(file))
        low, high = still + 0, still + threads * CHURN_SLOTS
        assert low <= exact.gauges["live_blocks"] <= high
        # The tables fill up while it runs: wait until they are full.
        while take(str(process.pid), freeze=True).gauges["live_blocks"] < high - threads:
            pass
        for _ in range(5):
            snapshot = take(str(process.pid))
            blocks = int(snapshot.slabs["block_count"].sum()) + len(snapshot.large)
            doubt = snapshot.unsettled_share * blocks + threads
            assert high - threads - doubt <= snapshot.gauges["live_blocks"] <= high + doubt
        exact = take(str(process.pid), freeze=True)
        assert high - threads <= exact.gauges["live_blocks"] <= high
        assert exact.notes == ()
        known = {int(row["start"]) for row in read_truth(file)}
        assert known <= live_blocks(exact).keys()
