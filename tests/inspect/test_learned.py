"""The learner's decisions, as a reader outside of the process sees them."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from hakmem.inspect.learned import CLASS_FIELDS, recording
from hakmem.inspect.model import Snapshot
from hakmem.inspect.targets import take
from hakmem.report.page import render
from tests.inspect.support.corewriter import write_core
from tests.inspect.support.targets import (
    await_line,
    await_message,
    compile_program,
    hakmem,
    preloaded,
    running,
)

OPERATIONS = "300000"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("wander.c", tmp_path_factory.mktemp("wander") / "wander")


@contextmanager
def wandering(program: Path, **options: str) -> Iterator[int]:
    with running([program, OPERATIONS], preloaded(**options)) as process:
        await_line(process, "ready")
        yield process.pid


def learned(program: Path, **options: str) -> Snapshot:
    with wandering(program, **options) as pid:
        return take(str(pid), decisions=True, residency=False)


def test_decisions_are_whole_and_in_order(program: Path) -> None:
    snapshot = learned(program)
    assert snapshot.decisions
    numbers = [decision.number for decision in snapshot.decisions]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert snapshot.decisions_lost == numbers[0] - 1
    heaps = {heap.id for heap in snapshot.heaps}
    classes = {row.block_bytes for row in snapshot.size_classes}
    most = next(o.value for o in snapshot.options if o.name == "cache_heap_bytes")
    assert isinstance(most, int)
    for decision in snapshot.decisions:
        assert decision.heap in heaps
        assert decision.before != decision.after
        assert decision.knob in ("cap", "budget")
        if decision.knob == "budget":
            assert decision.block_bytes == 0 and decision.signal == "demand"
            assert most < decision.after <= 2 * most
        else:
            assert decision.block_bytes in classes
            assert decision.signal in ("churn", "gain", "idle", "density")


def test_the_dead_and_snapshots_tell_the_same(program: Path, tmp_path: Path) -> None:
    options = {
        "HAKMEM_SNAPSHOT_SIGNAL": str(int(signal.SIGUSR2)),
        "HAKMEM_SNAPSHOT_DIRECTORY": str(tmp_path),
    }
    with running([program, OPERATIONS], preloaded(**options)) as process:
        await_line(process, "ready")
        alive = take(str(process.pid), decisions=True, residency=False)
        write_core(process.pid, tmp_path / "core")
        process.send_signal(signal.SIGUSR2)
        written = tmp_path / f"hakmem.{process.pid}.1.snapshot"
        assert await_message(process) == f"hakmem: snapshot: {written}\n"
    for source in (tmp_path / "core", written):
        dead = take(str(source), decisions=True, residency=False)
        assert dead.decisions == alive.decisions
        assert recording(dead) == recording(alive) != ""


def test_off_decides_nothing(program: Path) -> None:
    snapshot = learned(program, HAKMEM_LEARN="0")
    assert (snapshot.decisions, snapshot.decisions_lost, snapshot.windows) == ((), 0, ())


def test_nothing_is_said_to_be_nothing(program: Path) -> None:
    with wandering(program, HAKMEM_LEARN="0") as pid:
        text = hakmem("inspect", "--decisions", pid)
        signals = hakmem("inspect", "--signals", pid)
    assert "the learner has decided nothing" in text.stderr
    assert signals.stdout == ""
    assert "the learner has looked at nothing" in signals.stderr


def test_a_cap_is_what_the_next_window_finds(program: Path) -> None:
    """The windows that were recorded fit together: what a class may hold changes by decisions."""
    snapshot = learned(program)
    limits: dict[int, int] = {}
    changes = set()
    for row in snapshot.windows:
        before = limits.get(row.block_bytes)
        if before is not None and before != row.limit:
            changes.add((row.block_bytes, row.limit))
        limits[row.block_bytes] = row.limit
        assert row.capacity <= row.limit
        assert row.refilled_blocks <= row.refills * 63
    decided = {(row.block_bytes, row.after) for row in snapshot.decisions if row.knob == "cap"}
    assert changes <= decided


@pytest.fixture(scope="module")
def waves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("waves.c", tmp_path_factory.mktemp("waves") / "waves")


@contextmanager
def in_waves(program: Path, **options: str) -> Iterator[int]:
    small = {"HAKMEM_EXCESS_BYTES": "4M", "HAKMEM_HUGE_CACHE_BYTES": "4M"}
    with running([program], preloaded(**small, **options)) as process:
        await_line(process, "ready")
        yield process.pid


KNOBS_OF_MEMORY = {
    "huge_pages": "resident",
    "excess_bytes": "refault",
    "huge_cache_bytes": "refault",
    "huge_block_pages": "resident",
}


def test_decisions_of_memory(waves: Path) -> None:
    with in_waves(waves) as pid:
        snapshot = take(str(pid), decisions=True, residency=False)
        text = hakmem("inspect", "--decisions", pid).stdout
        facts = json.loads(hakmem("inspect", "--decisions", "--json", pid).stdout)
    rows = [row for row in snapshot.decisions if row.knob in KNOBS_OF_MEMORY]
    assert {row.knob for row in rows} == KNOBS_OF_MEMORY.keys()
    assert all(row.signal == KNOBS_OF_MEMORY[row.knob] for row in rows)
    assert all((row.heap, row.block_bytes) == (0, 0) for row in rows)
    first = {row.knob: row for row in reversed(rows)}
    for knob in ("huge_pages", "huge_block_pages"):
        asked = first[knob]
        assert (asked.before, asked.after) == (0, 1) and 938 <= asked.value <= 1000
    for knob in ("excess_bytes", "huge_cache_bytes"):
        # An eighth of what is in use may be more than the option.
        assert 4 << 20 <= first[knob].before < first[knob].after
        # Each row goes on where the one before it ended.
        of_knob = [row for row in rows if row.knob == knob]
        for row, following in pairwise(of_knob):
            assert row.after == following.before
    assert "huge_pages            refused -> asked for" in text
    assert "huge_block_pages      refused -> asked for" in text
    assert " by resident " in text and " by refault " in text
    assert {row["knob"] for row in facts["decisions"]} >= KNOBS_OF_MEMORY.keys()
    page = render(snapshot)
    for words in ("huge_pages refused to asked for by resident", "excess_bytes", "by refault"):
        assert words in page


@pytest.fixture(scope="module")
def sparse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("sparse.c", tmp_path_factory.mktemp("sparse") / "sparse")


@contextmanager
def thinned(program: Path, **options: str) -> Iterator[int]:
    short = {"HAKMEM_SLAB_PURGE_DELAY_MS": "640"}
    with running([program], preloaded(**short, **options)) as process:
        await_line(process, "ready")
        yield process.pid


def test_decisions_of_the_purge_delay(sparse: Path) -> None:
    with thinned(sparse) as pid:
        snapshot = take(str(pid), decisions=True, residency=False)
        text = hakmem("inspect", "--decisions", pid).stdout
    rows = [row for row in snapshot.decisions if row.knob == "slab_purge_delay_ms"]
    assert rows
    assert rows[0].before == 10
    assert (rows[0].after, rows[0].signal) == (20, "refault")
    assert rows[0].heap in {heap.id for heap in snapshot.heaps}
    assert all(10 <= row.after <= 640 for row in rows)
    assert "slab_purge_delay_ms" in text
    assert re.search(r" 10 ms -> 20 ms +by refault ", text)
    assert "slab_purge_delay_ms 10 ms to 20 ms by refault" in render(snapshot)


def test_off_leaves_the_purge_delay_to_the_option(sparse: Path) -> None:
    with thinned(sparse, HAKMEM_LEARN="0") as pid:
        snapshot = take(str(pid), decisions=True, residency=False)
    assert (snapshot.decisions, snapshot.decisions_lost) == ((), 0)


def test_off_leaves_memory_to_the_static_rule(waves: Path) -> None:
    with in_waves(waves, HAKMEM_LEARN="0") as pid:
        snapshot = take(str(pid), decisions=True, residency=False)
    assert (snapshot.decisions, snapshot.decisions_lost) == ((), 0)


@pytest.fixture(scope="module")
def successors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("successors.c", tmp_path_factory.mktemp("threads") / "successors")


def test_blocks_that_wait_without_a_thread_are_cached(successors: Path, tmp_path: Path) -> None:
    """And the decision that lets them is shown; of a process that runs, and of one that is dead."""
    with running([successors]) as process:
        await_line(process, "ready")
        alive = take(str(process.pid), decisions=True, residency=False)
        text = hakmem("inspect", "--decisions", process.pid).stdout
        write_core(process.pid, tmp_path / "core")
    dead = take(str(tmp_path / "core"), decisions=True, residency=False)
    for snapshot in (alive, dead):
        (kept,) = (heap for heap in snapshot.heaps if heap.state == "kept")
        assert kept.held_bytes >= 150 * 48
        (row,) = (row for row in snapshot.classes if row.block_bytes == 48)
        assert row.cached_blocks >= kept.held_blocks - 50
        assert row.live_blocks < 50
        assert snapshot.gauges["cached_bytes"] >= kept.held_bytes
        assert snapshot.notes == ()
        (decision,) = (row for row in snapshot.decisions if row.knob == "thread_blocks")
        assert (decision.before, decision.after, decision.heap) == (0, 1, 0)
        assert decision.signal == "successors" and 750 <= decision.value <= 1000
        assert "thread_blocks go home to stay by successors" in render(snapshot)
    assert "thread_blocks         go home -> stay " in text


def test_without_the_learner_no_blocks_wait(successors: Path) -> None:
    with running([successors, "500"], preloaded(HAKMEM_LEARN="0")) as process:
        await_line(process, "ready")
        snapshot = take(str(process.pid), decisions=True, residency=False)
    assert {heap.state for heap in snapshot.heaps} <= {"in use", "unused", "late"}
    assert snapshot.decisions == ()


def test_commands_show_them(program: Path, tmp_path: Path) -> None:
    with wandering(program) as pid:
        text = hakmem("inspect", "--decisions", pid)
        plain = hakmem("inspect", pid)
        as_json = hakmem("inspect", "--decisions", "--json", pid)
        signals = hakmem("inspect", "--signals", pid)
    assert "decisions of the learner" in text.stdout, text.stderr
    assert " by churn " in text.stdout
    assert "decisions of the learner" not in plain.stdout
    facts = json.loads(as_json.stdout)
    assert facts["decisions"][0]["knob"] in ("cap", "budget")
    saved = tmp_path / "saved.json"
    saved.write_text(as_json.stdout, encoding="ascii")
    again = take(str(saved))
    assert len(again.decisions) == len(facts["decisions"])
    assert recording(again) == signals.stdout
    kinds = {line.split(" ")[0] for line in signals.stdout.splitlines()}
    assert kinds == {"window", "class", "end"}
    line = next(line for line in signals.stdout.splitlines() if line.startswith("class "))
    assert len(line.split(" ")) == 1 + len(CLASS_FIELDS)
    page = render(again)
    assert "What the learner decided" in page
    assert page.count("<circle") == len(again.decisions)
