"""Counting of shared operations, the model fed with it, and the document that shows both."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from harness import scaling, scaling_model, store
from harness.errors import MeasureError
from harness.peers import Allocator
from harness.scaling_model import Load, Machine, Model, Station, chiplets, mesh, solve
from tests.patience import HANG_SECONDS

TOP = Path(__file__).resolve().parents[2]
# Of locks: taken 5 times, once while another thread holds it; tried twice, the second time in vain.
COUNTED = """
#include <pthread.h>
#include "os/lock.h"
#include "os/file.h"
static struct lock lock = LOCK_INITIAL(LOCK_RANK_ARENA);
static _Atomic(int) tries;  // relaxed: as the test's threads take turns
static void *take(void *unused) {
    lock_acquire(&lock);
    lock_release(&lock);
    return unused;
}
int main(void) {
    pthread_t thread;
    for (int i = 0; i < 3; i++) {
        take(NULL);
    }
    lock_try_acquire(&lock);
    atomic_add_relaxed(&tries, lock_try_acquire(&lock) ? 0 : 1);
    lock_release(&lock);
    lock_acquire(&lock);
    pthread_create(&thread, NULL, take, NULL);
    while (atomic_load_relaxed(&lock.state) != 2) {
        os_yield();
    }
    lock_release(&lock);
    pthread_join(thread, NULL);
    return 0;
}
"""


@pytest.fixture(scope="module")
def model() -> Model:
    """What is committed."""
    return Model(store.newest(scaling.KIND))


def test_a_build_that_counts_counts(tmp_path: Path) -> None:
    program = tmp_path / "program"
    source = program.with_suffix(".c")
    source.write_text(COUNTED)
    flags = ["-D_GNU_SOURCE=", "-DHAKMEM_COUNT_SHARING", "-DHAKMEM_CHECKS=0", "-O1", "-pthread"]
    flags += ['-DHAKMEM_VERSION="0"', f"-I{TOP / 'src'}", f"-I{TOP / 'include'}"]
    parts = "os/lock os/streams os/sharing os/linux os/file os/events base/text base/write"
    parts += " config/counters config/control"
    names = [TOP / "src" / f"{part}.c" for part in parts.split()]
    subprocess.run(["cc", *flags, "-o", program, source, *names], check=True)
    done = subprocess.run(
        [program], capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    )
    workload = scaling.Workload("w", "", "p", {}, operations=1, calls=1)
    counts = scaling.parse(done.stderr)
    row = scaling.as_row(workload, "default", 1, [counts])
    assert counts["ns"] > 0 and 0.01 < counts["ticks"] / counts["ns"] < 10
    arena = row.locks["arena"]
    assert (arena["taken"], arena["found_held"]) == (5, 1)
    assert (arena["tried"], arena["refused"]) == (1, 1)
    # Who has slept holds it as one behind whom others may sleep.
    assert (arena["slept"] >= 1, arena["woke"]) == (True, 2)
    assert sum(row.held_by_bits["arena"]) == 6
    assert row.locks["heap"]["taken"] == 0
    assert row.operations["program.c add_relaxed &tries"] == 1
    assert row.operations["program.c exchange_release &lock->state"] == 6


def test_the_ranks_are_those_of_the_source() -> None:
    text = (TOP / "src/os/lock.h").read_text()
    found = re.findall(r"^    LOCK_RANK_(\w+?)(?: = 1)?,$", text, re.MULTILINE)
    assert [name.lower().replace("_", " ") for name in found] == [*scaling.RANKS[1:], "count"]


def test_runs_add_up() -> None:
    lock = {**dict.fromkeys(scaling.LOCK_FIELDS, 2), "held_by_bits": [1, 0, 3]}
    counts = {"locks": [lock] * 16, "operations": [["a.c", "or x", 4], ["b.c", "or y", 0]]}
    workload = scaling.Workload("w", "", "p", {}, operations=10, calls=2)
    row = scaling.as_row(workload, "default", 64, [counts, counts])
    assert row.calls == 2 * 64 * 10 * 2
    assert row.operations == {"a.c or x": 8}
    assert row.locks["arena"] == dict.fromkeys(scaling.LOCK_FIELDS, 4)
    assert row.held_by_bits["registry"] == [2, 0, 6]


def test_output_without_counts_is_refused() -> None:
    with pytest.raises(MeasureError, match="HAKMEM_COUNT_SHARING"):
        scaling.parse("anything\n")
    counts = {"schema": scaling.SCHEMA, "locks": [], "operations": []}
    assert scaling.parse(f"warning\n{json.dumps(counts)}\n") == counts


def test_the_rate_is_what_the_library_counted_in_a_process(tmp_path: Path) -> None:
    """By both clocks, told when the process ends."""
    library = tmp_path / "counting.so"
    told = json.dumps(json.dumps({"schema": scaling.SCHEMA, "ticks": 5, "ns": 2}) + "\n")
    code = f"__attribute__((destructor)) static void tell(void) {{ dprintf(2, {told}); }}\n"
    library.with_suffix(".c").write_text(f"#include <stdio.h>\n{code}")
    source = library.with_suffix(".c")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    assert scaling.ticks_per_ns(Allocator("counting", library)) == 2.5


def test_counts_are_of_a_library_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And what is added to them later is of the same one."""
    libraries = [tmp_path / name for name in ("one.so", "other.so")]
    for library in libraries:
        library.write_text(library.name)
    monkeypatch.setattr(scaling, "build", lambda: tmp_path)
    row = scaling.as_row(
        scaling.Workload("w", "", "p", {}, operations=1, calls=1), "default", 2, []
    )
    monkeypatch.setattr(scaling, "count", lambda *_: row)
    monkeypatch.setattr(scaling, "ticks_per_ns", lambda _: 2.5)
    name = scaling.table().workloads[0].name
    folder = tmp_path / "counts"

    def run(library: Path) -> int:
        return scaling.main([str(library), "--workload", name, "--output", str(folder)])

    assert run(libraries[0]) == 0 and run(libraries[0]) == 0
    named = scaling.read(folder).manifest["allocators"]
    assert [each["library"] for each in named.values()] == [str(libraries[0])]
    counted = len(scaling.read(folder).rows)
    assert counted > 0
    assert run(libraries[1]) == 2
    assert "another library or machine" in capsys.readouterr().err
    assert len(scaling.read(folder).rows) == counted


def test_threads_share_the_work_evenly() -> None:
    for workload in scaling.table().workloads:
        for threads in scaling.table().threads:
            options = workload.options(threads)
            assert options["ops"] == workload.total(threads)
            assert workload.total(threads) % threads == 0
            assert workload.total(threads) >= workload.operations * max(threads, 64) - threads


def test_one_thread_never_waits() -> None:
    load = Load(10.0, (Station("a", 0.5, 8.0), Station("b", 1.0, 3.0)))
    assert solve(load, 1).call_ns == pytest.approx(10 + 4 + 3)


def test_two_threads_at_one_station() -> None:
    """Z = 10, D = 5: the second finds the first there with 5/15, so 10 + 5 (1 + 1/3)."""
    assert solve(Load(10.0, (Station("a", 1.0, 5.0),)), 2).call_ns == pytest.approx(50 / 3)


def test_a_saturated_station_sets_the_pace() -> None:
    load = Load(90.0, (Station("a", 1.0, 10.0), Station("b", 1.0, 1.0)))
    found = solve(load, 1000)
    assert found.call_ns == pytest.approx(1000 * 10, rel=0.001)
    assert found.busiest.name == "a"
    assert found.utilisation == pytest.approx(1, rel=0.001)
    assert found.saturates_at == pytest.approx(101 / 10)


def test_shards_are_as_many_stations() -> None:
    one = Load(50.0, (Station("a", 1.0, 10.0, count=4),))
    four = Load(50.0, tuple(Station(name, 0.25, 10.0) for name in "abcd"))
    assert solve(one, 20).call_ns == pytest.approx(solve(four, 20).call_ns)


def test_a_line_takes_the_mean_of_all_ways() -> None:
    assert chiplets(2).line_ns == 23
    assert chiplets(16).line_ns == pytest.approx((7 * 23 + 8 * 107) / 15)
    assert chiplets(256).line_ns == pytest.approx((7 * 23 + 120 * 107 + 128 * 197) / 255)
    assert mesh(64).line_ns == 51
    assert Machine("", 4, 2, 2, 1.0, 2.0, 4.0).line_ns == pytest.approx((1 + 2 * 4) / 3)


def test_fewer_shared_lines_are_never_slower(model: Model) -> None:
    """Of two changes that differ by what is private or sharded alone."""
    base = scaling_model.AS_IT_IS
    for workload in model.workloads:
        for cores in scaling_model.CORES:
            times = [
                round(model.predict(workload, chiplets(cores), change).call_ns, 6)
                for change in (
                    base,
                    replace(base, private_lines=True),
                    replace(base, private_lines=True, sharded=("arena", "metadata", "registry")),
                )
            ]
            # A shard of one core is the lock itself, nearer.
            assert times == sorted(times, reverse=True)


def test_an_operation_of_another_name_is_told_of(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted as none, it would make a slow path look free."""
    assert model.counts("remote_50", "default", 16).operations(scaling_model.PUBLISH) > 0
    monkeypatch.setattr(scaling_model, "PUBLISH", "or_acq_rel &slab->bits")
    with pytest.raises(ValueError, match="slab->bits"):
        Model(store.newest(scaling.KIND))


def test_the_document_shows_what_the_model_says(model: Model) -> None:
    text = scaling_model.DOCUMENT.read_text()
    assert all(f"<!-- {name} -->\n" in text for name in scaling_model.TABLES)
    assert scaling_model.with_tables(text, model) == text, "harness.scaling_model --update"


def test_the_document_would_show_another_count(
    model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = scaling_model.DOCUMENT.read_text()
    monkeypatch.setattr(scaling_model, "LOCK_LINES", scaling_model.LOCK_LINES + 1)
    assert scaling_model.with_tables(text, model) != text
