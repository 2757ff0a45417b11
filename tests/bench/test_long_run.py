"""`bench syscalls`: the calls of the timed part, and no others."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import long_run, peers, store, strace
from harness.cases import Case
from harness.errors import MeasureError
from harness.peers import Allocator
from tests.cli.support import named_json

# Asks the kernel for its own pid in every hundredth call of malloc, and twenty times at its start.
CALLING = """
#define _GNU_SOURCE
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static char pool[1 << 28]; static size_t used, calls;
__attribute__((constructor)) static void begin(void) {
    for (int i = 0; i < 20; i++) syscall(SYS_getppid);
}
void *malloc(size_t n) {
    if (++calls % 100 == 0) syscall(SYS_getppid);
    size_t at = used;
    used += (n + 15) & ~15ul;
    return pool + at;
}
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return malloc(a * b); }
void *realloc(void *p, size_t n) { void *q = malloc(n); return p ? memmove(q, p, n) : q; }
"""


@pytest.fixture
def shorter(monkeypatch: pytest.MonkeyPatch) -> int:
    """Two runs of 10 thousand operations instead of five of 200 million."""
    monkeypatch.setattr(long_run, "OPS", 10_000)
    monkeypatch.setattr(long_run, "RUNS", 2)
    monkeypatch.setattr(long_run, "CASE", Case(
        name="short", about="x", program="random_mixed",
        arguments={"ops": 10_000, "warm": 1000, "slots": 400, "min": 16, "max": 1024},
    ))  # fmt: skip
    return 20_000


def options(output: Path, *own: str, **changes: Any) -> argparse.Namespace:
    settings = {"allocators": ["glibc", "floor"], "allocator": list(own), "output": output,
                "json": False, **changes}  # fmt: skip
    return argparse.Namespace(**settings)


def test_calls_of_the_operations_alone_are_counted(
    built: Path, shorter: int, tmp_path: Path, compile_c: Callable[..., Path]
) -> None:
    library = compile_c(tmp_path / "calling.so", CALLING, "-shared", "-fPIC", "-fno-builtin")
    row = long_run.count_one(long_run.CASE, Allocator("calling", library))
    # Half of the operations are calls of malloc.
    assert row["calls_total"] == row["other_syscalls"]["getppid"]
    assert row["calls_total"] == pytest.approx(shorter / 2 / 100, rel=0.1)
    assert row["ops"] == shorter and sum(row["calls_of_runs"]) == row["calls_total"]
    floor = long_run.count_one(long_run.CASE, peers.known()["floor"])
    assert floor["calls_total"] == 0 and floor["calls_of_runs"] == [0, 0]


LISTING = """\
7 getrusage(RUSAGE_SELF, {ru_utime={tv_sec=0, tv_usec=1}, ...}) = 0
7 getrusage(RUSAGE_CHILDREN, {ru_utime={tv_sec=0, tv_usec=0}, ...}) = 0
7 brk(NULL) = 0x1
7 getrusage(RUSAGE_SELF, {ru_utime={tv_sec=0, tv_usec=1}, ...}) = 0
7 getrusage(RUSAGE_CHILDREN, {ru_utime={tv_sec=0, tv_usec=0}, ...}) = 0
7 madvise(0x7f0000000000, 4096, MADV_DONTNEED) = 0
7 --- SIGCHLD {si_signo=SIGCHLD} ---
7 madvise(0x7f0000000000, 4096, MADV_DONTNEED) = 0
7 munmap(0x7f0000000000, 4096) = 0
7 getrusage(RUSAGE_SELF, {ru_utime={tv_sec=4, tv_usec=1}, ...}) = 0
7 getrusage(RUSAGE_CHILDREN, {ru_utime={tv_sec=0, tv_usec=0}, ...}) = 0
7 openat(AT_FDCWD, "/proc/self/maps", O_RDONLY|O_CLOEXEC) = 3
"""


def test_calls_of_the_last_timed_part_are_read() -> None:
    assert strace.parse_timed_part(LISTING) == {"madvise": 2, "munmap": 1}


@pytest.mark.parametrize("chosen", [[], [0, 1], [0, 1, 2], [1, 2, 4]])
def test_a_listing_without_a_whole_timed_part_is_refused(chosen: list[int]) -> None:
    """Of a program that is none of ours, or that was ended."""
    lines = LISTING.splitlines(keepends=True)
    with pytest.raises(MeasureError):
        strace.parse_timed_part("".join(lines[at] for at in chosen))


def test_results_are_kept(
    built: Path, shorter: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert long_run.main(options(tmp_path / "r"), "a command") == 0
    assert "| floor | 0 | 0, 0 |" in capsys.readouterr().out
    manifest = store.read_manifest(tmp_path / "r")
    assert (manifest["kind"], manifest["state"]) == ("syscalls", "complete")
    kept = store.read_rows(tmp_path / "r", store.COUNTS)
    assert [row["allocator"] for row in kept] == ["glibc", "floor"]
    assert (tmp_path / "r" / "table.md").read_text().count("| floor |") == 1


def test_a_library_that_changes_meanwhile_makes_the_run_unsound(
    built: Path, shorter: int, tmp_path: Path, compile_c: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A build beside the measurement puts another file where the library was."""
    library = compile_c(tmp_path / "own.so", CALLING, "-shared", "-fPIC", "-fno-builtin")
    count_one = long_run.count_one

    def build_anew(case: Case, allocator: Allocator) -> Any:
        row = count_one(case, allocator)
        if allocator.library == library:
            compile_c(tmp_path / "own.so", CALLING + "int more;\n", "-shared", "-fPIC")
        return row

    monkeypatch.setattr(long_run, "count_one", build_anew)
    assert long_run.main(options(tmp_path / "r", f"own={library}"), "a command") == 1
    assert "FAILED own: its library changed" in capsys.readouterr().err
    assert store.read_manifest(tmp_path / "r")["state"] == "unsound"


def test_a_run_that_counted_nothing_is_not_complete(
    built: Path, shorter: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(case: Case, allocator: Allocator) -> Any:
        raise MeasureError(f"{allocator.name} does not run {case.name}")

    monkeypatch.setattr(long_run, "count_one", refuse)
    assert long_run.main(options(tmp_path / "r"), "a command") == 1
    assert store.read_manifest(tmp_path / "r")["state"] == "unsound"


def test_unproven_library_is_refused(
    built: Path, shorter: int, tmp_path: Path, compile_c: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    library = compile_c(tmp_path / "nothing.so", "int nothing;\n", "-shared")
    asked = options(tmp_path / "r", f"impostor={library}", json=True)
    assert long_run.main(asked, "a command") == 1
    told = capsys.readouterr()
    assert "REFUSED impostor" in told.err
    assert [row["allocator"] for row in named_json(told.out)["rows"]] == ["glibc", "floor"]
