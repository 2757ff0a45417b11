"""Memory that is brought before a run: how much, that it is touched, and that it is free again."""

from __future__ import annotations

import mmap
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness import host_memory
from harness.layout import TOP

MIB = 1 << 20


def test_as_much_as_the_row_is_known_to_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 8 << 30)
    assert host_memory.bytes_for(0) == 64 * MIB
    assert host_memory.bytes_for(1000 * MIB) == 1064 * MIB
    assert host_memory.bytes_for(101 * MIB) == 164 * MIB
    assert host_memory.bytes_for(7000 * MIB) == 2048 * MIB
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 7 * MIB)
    assert host_memory.bytes_for(0) == 0


def test_what_is_available_is_read() -> None:
    assert 0 < host_memory.available_bytes() < 1 << 50


class Recorded:
    """A mapping that notes what is done with it; `refused` advice fails."""

    def __init__(self, refused: set[int]) -> None:
        self.refused = refused
        self.advice: list[int] = []
        self.touched: list[int] = []
        self.closed = False

    def __enter__(self) -> Recorded:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def madvise(self, advice: int) -> None:
        self.advice.append(advice)
        if advice in self.refused:
            raise OSError(22, "refused")

    def __setitem__(self, at: int, value: int) -> None:
        self.touched.append(at)


ALL = list(range(0, 2 * MIB, mmap.PAGESIZE))


@pytest.mark.parametrize(
    ("refused", "touched"),
    [
        (set(), []),
        ({mmap.MADV_HUGEPAGE}, []),
        ({host_memory.MADV_POPULATE_WRITE}, ALL),
        ({mmap.MADV_HUGEPAGE, host_memory.MADV_POPULATE_WRITE}, ALL),
    ],
)
def test_where_the_kernel_refuses_pages_are_touched_one_by_one(
    monkeypatch: pytest.MonkeyPatch, refused: set[int], touched: list[int]
) -> None:
    made = Recorded(refused)

    def make(*_: Any, **__: Any) -> Recorded:
        return made

    monkeypatch.setattr("mmap.mmap", make)
    host_memory.bring(2 * MIB)
    assert made.advice == [mmap.MADV_HUGEPAGE, host_memory.MADV_POPULATE_WRITE]
    assert made.touched == touched
    assert made.closed


def test_it_is_resident_and_then_free() -> None:
    def peak_bytes() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def now_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

    before = now_bytes()
    size_bytes = peak_bytes() - before + 64 * MIB
    host_memory.bring(size_bytes)
    assert peak_bytes() >= before + size_bytes - 8 * MIB
    assert now_bytes() < before + 32 * MIB


def test_it_does_without_where_the_system_refuses() -> None:
    """As a limit of addresses does, or strict overcommit: the run itself may need less."""
    code = (
        "import resource; from harness import host_memory; "
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)); "
        "print(host_memory.bring(0), host_memory.bring(4 << 30))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=TOP / "bench", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True False\n"), done.stderr
