"""Figures that workloads give beside the time, each with something planted that it must show."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from workload_runs import MAPPINGS, POOL, result, run

from tests.patience import HANG_SECONDS

Compile = Callable[..., Path]
MIB = 1 << 20

# The C library's malloc, but every 500th call sleeps for 3 ms.
SLOW_NOW_AND_THEN = """
#define _GNU_SOURCE
#include <stddef.h>
#include <time.h>
void *__libc_malloc(size_t);
void *malloc(size_t bytes) {
    static unsigned turn;
    if (++turn % 500 == 0) nanosleep(&(struct timespec){0, 3000000}, 0);
    return __libc_malloc(bytes);
}
"""


# Every block of 8 bytes is one of two cells, one for each thread, STEP bytes apart.
TWO_CELLS = """
#include <stddef.h>
#include <string.h>
static char pool[1 << 22] __attribute__((aligned(4096)));
static size_t used = 4096, threads;
static __thread size_t own;
void *malloc(size_t bytes) {
    if (bytes != 8) return pool + __atomic_fetch_add(&used, (bytes + 15) & ~15ul, 0);
    if (own == 0) own = __atomic_add_fetch(&threads, 1, 0);
    return pool + own * STEP;
}
void free(void *block) { (void)block; }
void *calloc(size_t count, size_t bytes) { return malloc(count * bytes + 16); }
void *realloc(void *block, size_t bytes) {
    void *made = malloc(bytes);
    return block ? memcpy(made, block, bytes) : made;
}
"""


@pytest.fixture
def library(tmp_path: Path, compile_c: Compile) -> Callable[[str], Path]:
    """Makes a preloadable library of a C text."""

    def make(source: str) -> Path:
        flags = ("-shared", "-fPIC", "-fno-builtin", "-w", "-pthread")
        return compile_c(tmp_path / "planted.so", source, *flags)

    return make


def extra(row: dict[str, Any], name: str) -> int:
    value = row["extra"][name]
    assert isinstance(value, int)
    return value


def test_idling_shows_what_is_kept(built: Path, library: Callable[[str], Path]) -> None:
    """30 MB of blocks that are freed at the end: an allocator that unmaps them holds nothing
    afterwards, one that never reuses anything holds all of it."""
    line = ("large", "--ops", "40", "--warm", "0", "--slots", "40", "--min", "1000000",
            "--max", "1000000", "--idle-ms", "500")  # fmt: skip
    mappings = library(MAPPINGS)
    began_ns = time.monotonic_ns()
    unmaps = result(run(built, line, preload=mappings))
    whole_ns = time.monotonic_ns() - began_ns
    keeps = result(run(built, line, preload=library(POOL)))
    assert unmaps["end_rss_bytes"] > 20 * MIB
    assert extra(unmaps, "freed_rss_bytes") < 4 * MIB > extra(unmaps, "idle_rss_bytes")
    assert extra(keeps, "idle_rss_bytes") > 30 * MIB
    assert unmaps["wall_ns"] <= whole_ns - 500e6  # idling is not timed
    without = result(run(built, line[:-2]))
    assert "idle_rss_bytes" not in without["extra"]


# Tells at the end how often each of the two functions was asked for each alignment.
ASKED = """
#include <stddef.h>
#include <stdio.h>
void *__libc_memalign(size_t, size_t);
static int asked[2][64];
void *aligned_alloc(size_t alignment, size_t bytes) {
    asked[0][__builtin_ctzl(alignment)]++;
    return __libc_memalign(alignment, bytes);
}
int posix_memalign(void **block, size_t alignment, size_t bytes) {
    asked[1][__builtin_ctzl(alignment)]++;
    *block = __libc_memalign(alignment, bytes);
    return 0;
}
__attribute__((destructor)) static void tell(void) {
    for (int i = 0; i < 64; i++)
        if (asked[0][i] + asked[1][i] != 0)
            fprintf(stderr, "%d %d %d\\n", 1 << i, asked[0][i], asked[1][i]);
}
"""


def test_both_functions_are_asked_for_every_alignment(
    built: Path, library: Callable[[str], Path]
) -> None:
    line = ("aligned", "--ops", "20000", "--warm", "0", "--slots", "100")
    done = run(built, line, preload=library(ASKED))
    result(done)
    asked = [[int(word) for word in each.split()] for each in done.stderr.splitlines()]
    assert [alignment for alignment, _, _ in asked] == [16, 32, 64, 128, 256]
    assert sum(one + other for _, one, other in asked) == 20000
    for _, one, other in asked:
        assert 1800 < one < 2200 and 1800 < other < 2200


# The kernel's high-water mark is late: here it says 4 KiB of every process.
LATE_MARK = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
int open(const char *path, int flags, ...) {
    if (strcmp(path, "/proc/self/status") != 0) return syscall(SYS_openat, AT_FDCWD, path, flags);
    static const char text[] = "Name:\\tlate\\nVmHWM:\\t       4 kB\\n";
    int file = memfd_create("status", 0);
    pwrite(file, text, sizeof text - 1, 0);
    return file;
}
"""


@pytest.mark.parametrize("program", ["random_mixed", "startup"])
def test_the_peak_is_no_less_than_what_was_seen(
    built: Path, library: Callable[[str], Path], program: str
) -> None:
    line = (program, "--ops", "4", "--warm", "1")
    row = result(run(built, line, preload=library(LATE_MARK)))
    assert row["peak_rss_bytes"] >= row["end_rss_bytes"] > MIB


def test_frame_bytes_are_those_of_the_bookkeeping(built: Path) -> None:
    line = ("random_mixed", "--ops", "100", "--warm", "0", "--slots")
    few, many = (result(run(built, (*line, slots))) for slots in ("1000", "1001000"))
    more = extra(many, "frame_bytes") - extra(few, "frame_bytes")
    assert more == pytest.approx(16_000_000, abs=8192)
    assert many["end_rss_bytes"] - few["end_rss_bytes"] == pytest.approx(more, rel=0.02)


def test_leak_is_seen_in_rss(built: Path) -> None:
    line = ("leak", "--ops", "400000", "--warm", "100000", "--slots", "1000", "--leak")
    sound, leaking = (result(run(built, (*line, share))) for share in ("0", "200"))
    leaked = extra(leaking, "leaked_bytes")
    assert extra(sound, "leaked_bytes") == 0 and leaked > 30 * MIB
    assert leaking["end_rss_bytes"] - sound["end_rss_bytes"] >= 0.9 * leaked
    series = [rss for _, rss in leaking["rss_series"]]
    assert series[-1] - series[0] > 0.5 * leaked


def test_spike_shows_whether_memory_goes_back(built: Path, library: Callable[[str], Path]) -> None:
    line = ("spike", "--ops", "4000", "--min", "4096", "--idle-ms", "100", "--beat-ms", "50")
    unmaps = result(run(built, line, preload=library(MAPPINGS)))
    keeps = result(run(built, line, preload=library(POOL)))
    spike, live = extra(keeps, "spike_bytes"), extra(keeps, "live_bytes")
    assert spike > 40 * MIB > live
    assert extra(keeps, "idle_rss_bytes") > spike
    assert extra(unmaps, "idle_rss_bytes") < 8 * MIB > extra(unmaps, "beat_rss_bytes")
    moments = [ms for ms, _ in unmaps["rss_series"]]
    assert moments == sorted(moments) and moments[-1] >= 140
    assert max(rss for _, rss in unmaps["rss_series"]) > spike
    assert unmaps["rss_series"][-1][1] < 8 * MIB


def test_long_series_are_thinned(built: Path) -> None:
    """More points than there is room for, one per millisecond and heartbeat: every second one goes.
    Beats come late on a busy machine, so there may be fewer of them."""
    row = result(run(built, ("spike", "--ops", "100", "--idle-ms", "0", "--beat-ms", "2000")))
    moments = [ms for ms, _ in row["rss_series"]]
    assert 2 < len(moments) <= 512
    assert moments[-1] > 1000 and all(one < two for one, two in pairwise(moments))


def test_phase_change_shows_fragmentation(built: Path, library: Callable[[str], Path]) -> None:
    line = ("phase_change", "--ops", "200000")
    usual = result(run(built, line))
    worst = result(run(built, line, preload=library(POOL)))
    live = extra(usual, "live_bytes")
    assert live == pytest.approx(3_000_000, rel=0.01) and live == extra(worst, "live_bytes")
    usual_peak, worst_peak = (
        row["peak_rss_bytes"] - extra(row, "frame_bytes") for row in (usual, worst)
    )
    assert live < usual_peak < worst_peak
    assert worst_peak > 4 * live


def test_idle_owners_do_not_come_back(built: Path, library: Callable[[str], Path]) -> None:
    line = ("idle_owner", "--ops", "100000")
    worst = result(run(built, line, preload=library(POOL)))
    live = extra(worst, "live_bytes")
    assert live > 5_000_000
    assert worst["end_rss_bytes"] - extra(worst, "frame_bytes") > 3.5 * live


def test_latency_of_a_heap_that_shrinks(built: Path) -> None:
    line = ("latency", "--ops", "20000", "--slots", "2000", "--min", "100", "--max", "1000",
            "--keep", "30")  # fmt: skip
    row = result(run(built, line))
    live, kept = extra(row, "live_bytes"), extra(row, "kept_bytes")
    assert 0.27 * live < kept < 0.33 * live
    assert 0.95 * 550 * 2000 < live < 1.05 * 550 * 2000
    # Of the slots that are filled again each visit takes a block, of the others none.
    mallocs, frees = (row["latency"][call]["count"] for call in ("malloc", "free"))
    assert 0.27 * 20000 < mallocs < 0.33 * 20000
    assert mallocs + 0.99 * 1400 < frees <= mallocs + 1400


@pytest.mark.parametrize("threads", ["1", "2"])
def test_latency_is_a_histogram_of_all_calls(built: Path, threads: str) -> None:
    line = ("latency", "--ops", "50000", "--warm", "2000", "--slots", "500", "--threads", threads)
    row = result(run(built, line))
    assert row["latency"]["malloc"]["count"] == row["ops"] == 50000
    assert row["latency"]["free"]["count"] <= 50000
    for call in ("malloc", "free"):
        found = row["latency"][call]
        assert sum(count for _, count in found["histogram"]) == found["count"]
        uppers = [upper for upper, _ in found["histogram"]]
        assert uppers == sorted(uppers)
        order = [found[name] for name in ("p50", "p90", "p99", "p99_9", "p99_99", "p99_999", "max")]
        assert order == sorted(order) and 0 < order[0] < 100_000
        assert uppers[-1] >= found["max"] > 0.9 * uppers[-1]
        # A percentile is the end of the bucket that reaches its share.
        seen = 0
        for upper, count in found["histogram"]:
            seen += count
            if seen >= 0.99 * found["count"]:
                assert found["p99"] == pytest.approx(upper, rel=0.04)
                break
    assert 0 <= extra(row, "timer_ns") < 2000


def test_slow_calls_are_found_in_the_tail(built: Path, library: Callable[[str], Path]) -> None:
    """One call in 500 takes 3 ms: p99 does not know, p99.9 does."""
    line = ("latency", "--ops", "20000", "--warm", "100", "--slots", "100")
    found = result(run(built, line, preload=library(SLOW_NOW_AND_THEN)))["latency"]["malloc"]
    assert found["p99"] < 1e6
    assert 3e6 <= found["p99_9"] <= found["max"]
    slow = sum(count for upper, count in found["histogram"] if upper >= 2.9e6)
    assert 38 <= slow < 200


@pytest.mark.parametrize(("step", "expected"), [(16, range(10, 101)), (128, range(1))])
def test_shared_lines_are_seen(
    built: Path, library: Callable[[str], Path], step: int, expected: range
) -> None:
    planted = library(TWO_CELLS.replace("STEP", str(step)))
    row = result(
        run(built, ("false_sharing", "--ops", "100000", "--rounds", "50"), preload=planted)
    )
    assert extra(row, "shared_line_percent") in expected


def test_children_count(built: Path) -> None:
    """Time, faults and switches of the processes that a workload starts are the workload's; peak
    and end of `startup` are those of a started process."""
    started = result(run(built, ("startup", "--ops", "20", "--warm", "1")))
    assert started["minor_faults"] > 20 * 20 and started["cpu_ns"] > 20 * 50_000
    assert started["voluntary_switches"] >= 15
    assert 0.5 * MIB < started["peak_rss_bytes"] < 4 * MIB
    bigger = result(run(built, ("startup", "--ops", "20", "--warm", "1", "--slots", "1000",
                                "--min", "4096", "--max", "4096")))  # fmt: skip
    assert bigger["peak_rss_bytes"] > started["peak_rss_bytes"] + 3.5 * MIB
    forked = result(run(built, ("fork_heavy", "--ops", "5", "--slots", "5000", "--rounds", "2000")))
    assert 0.2 * MIB < extra(forked, "child_private_bytes") < forked["peak_rss_bytes"]


def soak_lines(built: Path, ms: int, *more: str) -> tuple[list[dict[str, int]], dict[str, Any]]:
    """The interval lines of a soak of so long, and its row."""
    done = run(built, ("soak", "--ms", str(ms), "--interval-ms", "100", "--slots", "5000",
                       "--warm", "500000", *more))  # fmt: skip
    row = result(done)
    return [json.loads(line) for line in done.stdout.splitlines()[:-1]], row


def test_soak_tells_each_interval(built: Path) -> None:
    """A line that came late leaves out what it missed: on a busy machine there are fewer."""
    lines, row = soak_lines(built, 1200)
    assert 2 <= len(lines) <= 12
    assert all(set(line) == {"at_ms", "ms", "ops", "rss_bytes"} for line in lines)
    assert len({line["at_ms"] - line["ms"] for line in lines}) == 1
    assert 0 <= time.monotonic() * 1000 - lines[-1]["at_ms"] < HANG_SECONDS * 1000
    assert all(one["ops"] <= two["ops"] and one["ms"] < two["ms"] for one, two in pairwise(lines))
    assert lines[0]["ms"] >= 100 and lines[-1]["ms"] >= 1200
    assert row["ops"] >= lines[-1]["ops"] > lines[0]["ops"]


def test_soak_controls_show(built: Path) -> None:
    """--leak and --slowdown, for whoever judges the lines: here by first and last, and by the
    medians of the first and of the last third, which a burst of other load does not move. Load
    that ends in between does: then a longer run has to show it."""
    sound, _ = soak_lines(built, 1200)
    leaking, _ = soak_lines(built, 1200, "--leak", "50000000")
    growth = [lines[-1]["rss_bytes"] - lines[0]["rss_bytes"] for lines in (sound, leaking)]
    assert growth[1] - growth[0] > 25_000_000
    shares: list[float] = []
    for ms in (3000, 6000, 12000):
        slowing, _ = soak_lines(built, ms, "--slowdown", "95")
        points = [(0, 0), *((line["ms"], line["ops"]) for line in slowing)]
        speeds = [(two[1] - one[1]) / (two[0] - one[0]) for one, two in pairwise(points)]
        third = len(speeds) // 3
        shares.append(statistics.median(speeds[-third:]) / statistics.median(speeds[:third]))
        if shares[-1] < 0.6:
            break
    assert shares[-1] < 0.6, shares
