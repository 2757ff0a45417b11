"""`bench syscalls`: start-up cancels out, what the operations cost remains."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import long_run, peers, store
from harness.cases import Case
from harness.peers import Allocator

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
    """20 thousand operations instead of 200 million, each run twice."""
    monkeypatch.setattr(long_run, "OPS", 20_000)
    monkeypatch.setattr(long_run, "RUNS", 2)
    monkeypatch.setattr(long_run, "CASE", Case(
        name="short", about="x", program="random_mixed",
        arguments={"warm": 1000, "slots": 400, "min": 16, "max": 1024},
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
    assert row["ops"] == shorter and row["start_calls_total"] > 20
    floor = long_run.count_one(long_run.CASE, peers.known()["floor"])
    assert floor["calls_total"] == 0


def test_luck_with_addresses_does_not_count() -> None:
    """One run trims a mapping more than another; what each makes is the operations' own."""
    runs = [{"munmap": 5, "madvise": 2}, {"munmap": 3, "madvise": 2, "brk": 1}]
    assert long_run.fewest(runs) == {"munmap": 3, "madvise": 2, "brk": 0}


def test_results_are_kept(
    built: Path, shorter: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert long_run.main(options(tmp_path / "r"), "a command") == 0
    assert "| floor | 0 |" in capsys.readouterr().out
    manifest = store.read_manifest(tmp_path / "r")
    assert (manifest["kind"], manifest["state"]) == ("syscalls", "complete")
    kept = store.read_rows(tmp_path / "r", store.COUNTS)
    assert [row["allocator"] for row in kept] == ["glibc", "floor"]
    assert (tmp_path / "r" / "table.md").read_text().count("| floor |") == 1


def test_unproven_library_is_refused(
    built: Path, shorter: int, tmp_path: Path, compile_c: Callable[..., Path],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    library = compile_c(tmp_path / "nothing.so", "int nothing;\n", "-shared")
    asked = options(tmp_path / "r", f"impostor={library}", json=True)
    assert long_run.main(asked, "a command") == 1
    told = capsys.readouterr()
    assert "REFUSED impostor" in told.err
    assert [row["allocator"] for row in json.loads(told.out)] == ["glibc", "floor"]
