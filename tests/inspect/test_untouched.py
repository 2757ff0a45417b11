"""A look makes no page of a target resident: what is untouched of a file is read from there."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import shutil
from pathlib import Path

import pytest

from hakmem.inspect.memory import Area
from hakmem.inspect.process import MACHINE_PAGE_BYTES, ProcessSource
from hakmem.inspect.residency import PRESENT
from hakmem.inspect.targets import take
from tests.cli.support import clean_environment, library
from tests.inspect.support.targets import (
    await_ready,
    inspect,
    preloaded,
    running,
)

PAGES = 4


def resident_of_files(pid: int) -> dict[tuple[int, str], int | None]:
    source = ProcessSource(pid)
    try:
        return {
            (each.start, each.name): each.rss_bytes
            for each in source.resident_areas()
            if each.is_file
        }
    finally:
        source.close()


def test_a_look_leaves_the_files_of_a_process_as_they_are(truth: Path, tmp_path: Path) -> None:
    """Of which it also reads the headers, to say who allocated guarded blocks."""
    environment = preloaded(HAKMEM_GUARD_SAMPLE="100")
    with running([truth, "4", "3000", tmp_path / "blocks"], environment) as process:
        await_ready(process)
        before = resident_of_files(process.pid)
        done = inspect("--json", "--blocks", "--events", process.pid)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["guarded_sites"] != []
        assert sum(size or 0 for (_, name), size in before.items() if "hakmem" in name) > 0
        assert resident_of_files(process.pid) == before


@pytest.mark.parametrize("becomes", ["another file", "a pipe"])
def test_of_a_file_that_became_another_the_memory_is_read(
    truth: Path, tmp_path: Path, becomes: str
) -> None:
    copy = tmp_path / "libhakmem.so"
    shutil.copy(library(), copy)
    environment = clean_environment(LD_PRELOAD=str(copy))
    with running([truth, "4", "3000", tmp_path / "blocks"], environment) as process:
        await_ready(process)
        whole = take(str(process.pid)).classes
        copy.unlink()
        if becomes == "a pipe":
            os.mkfifo(copy)
        else:
            copy.write_bytes(bytes(library().stat().st_size))
        assert take(str(process.pid)).classes == whole


def test_what_was_written_is_read_from_the_process(tmp_path: Path) -> None:
    """Of a mapping that only its own process has: one page written, the others not touched."""
    path = tmp_path / "data"
    kept = bytes(range(256)) * (PAGES * MACHINE_PAGE_BYTES // 256)
    path.write_bytes(kept)
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | 2)
    source = ProcessSource(os.getpid())
    try:
        # Written and taken back: the fault may have brought the pages around it.
        mapped[MACHINE_PAGE_BYTES] = 255
        start = address_of(mapped)
        (area,) = [each for each in source.areas() if each.start <= start < each.end]
        for advice in (0, 2 * MACHINE_PAGE_BYTES):
            length = MACHINE_PAGE_BYTES if advice == 0 else 2 * MACHINE_PAGE_BYTES
            mapped.madvise(mmap.MADV_DONTNEED, advice, length)
        assert present(source, area) == [False, True, False, False]
        at = area.start + 100
        count = PAGES * MACHINE_PAGE_BYTES - 200
        expected = bytearray(kept)
        expected[MACHINE_PAGE_BYTES] = 255
        assert source.read_in(area, at, count) == bytes(expected[100:-100])
        assert present(source, area) == [False, True, False, False]
        assert source.read(at, count) == bytes(expected[100:-100])
        assert present(source, area) == [True] * PAGES
    finally:
        source.close()


def present(source: ProcessSource, area: Area) -> list[bool]:
    return [bool(int(each) >> PRESENT) for each in source.resident_pages(area.start, area.end)]


def address_of(mapped: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(mapped))
