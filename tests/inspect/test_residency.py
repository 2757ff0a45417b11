"""What is resident: where it is counted, and what the count costs."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hakmem.inspect import residency
from hakmem.inspect.memory import Area
from hakmem.inspect.model import PAGE_BYTES
from hakmem.inspect.process import MACHINE_PAGE_BYTES, ProcessSource, parse_areas
from hakmem.inspect.reading import Session
from hakmem.inspect.resident import own_ranges
from hakmem.inspect.targets import take_frozen
from tests.cli.support import clean_environment, library
from tests.inspect.support.targets import (
    await_line,
    compile_program,
    pid_of_child,
    preloaded,
    running,
)

AREAS = 40_000
# A search that copies the list of ranges for each area takes minutes, the right one a fraction of a
# second.
CPU_SECONDS_MAX = 20.0
# What zeros.c writes of its large blocks, and what it only reads of others.
ZEROS_BYTES = 100 * 500_000


@pytest.fixture
def process(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    program = compile_program("many.c", tmp_path / "many")
    with running([program, "100000", "64", "1"]) as started:
        await_line(started, "ready")
        yield started


def test_the_page_map_is_metadata(process: subprocess.Popen[bytes]) -> None:
    """All of it: what of it is used lies near its end, where the addresses of mappings lead."""
    with Session(ProcessSource(process.pid)) as session:
        source, layout = session.source, session.layout
        start = int(session.root.read_global(source, "page_map_flat")[0])
        ranges = own_ranges(source, layout)
        (part,) = [each for each in ranges if each.start <= start < each.end]
        entry_bytes = session.root.constant("page_entry_bytes")
        first = int(session.take().superslabs["start"][0])
        assert first > 0 and start > 0
        used = start + first // PAGE_BYTES * entry_bytes
        assert part.start == start < used < part.end and part.kind == "metadata"


def open_pagemaps(pid: int) -> int:
    links = list(Path("/proc/self/fd").iterdir())
    return sum(os.path.realpath(link) == f"/proc/{pid}/pagemap" for link in links)


def test_one_descriptor_for_all_areas(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    real_open = os.open

    def counting_open(path: str | Path, flags: int, *more: int) -> int:
        opened.append(Path(path).name)
        return real_open(path, flags, *more)

    monkeypatch.setattr(os, "open", counting_open)
    with Session(ProcessSource(process.pid)) as session:
        for _ in range(3):
            assert session.take().residency
        assert open_pagemaps(process.pid) == 1
    assert opened.count("pagemap") == 1
    assert open_pagemaps(process.pid) == 0


def test_many_areas_and_ranges() -> None:
    """Every second page is a mapping with a huge block of its own."""
    step = 2 * MACHINE_PAGE_BYTES
    starts = [step * number for number in range(1, AREAS + 1)]
    areas = [
        Area(start, start + MACHINE_PAGE_BYTES, True, True, False, True, "", MACHINE_PAGE_BYTES)
        for start in starts
    ]
    ranges = [
        residency.Range(start, start + MACHINE_PAGE_BYTES, "huge", index)
        for index, start in enumerate(starts)
    ]

    def none_is_examined(*_: object) -> residency.Mask:
        raise AssertionError("each area is one range")

    began = time.process_time()
    found = residency.measure(none_is_examined, areas, ranges, 0)
    assert time.process_time() - began < CPU_SECONDS_MAX
    assert found.kinds == {"huge": AREAS * MACHINE_PAGE_BYTES}
    assert found.huge == dict.fromkeys(range(AREAS), MACHINE_PAGE_BYTES)
    assert set(found.rest.values()) == {0}


def test_ranges_that_touch_an_area_are_inside_it() -> None:
    """One begins before it, one lies in it, one ends behind it; their neighbours are outside."""
    page = MACHINE_PAGE_BYTES
    area = Area(10 * page, 20 * page, True, True, False, True, "", 10 * page)
    ranges = [
        residency.Range(first * page, last * page, "huge", index)
        for index, (first, last) in enumerate([(5, 8), (8, 10), (9, 12), (14, 15), (19, 22)])
        if index != 1
    ]
    ranges += [residency.Range(22 * page, 23 * page, "huge", 9)]
    seen: list[int] = []

    def pages_of(area: Area, inside: object, rss_bytes: int) -> residency.Mask:
        assert isinstance(inside, list)
        seen.extend(part.index for part in inside)
        return np.ones(10, np.bool_)

    found = residency.measure(pages_of, [area], ranges, 0)
    assert seen == [2, 3, 4]
    assert found.huge == {2: 2 * page, 3: page, 4: page}
    assert found.rest == {area.start: 6 * page}


def test_files_that_are_replaced_meanwhile_keep_their_rows(tmp_path: Path) -> None:
    """As by an update: the kernel adds a word to the names of what is mapped."""
    program = compile_program("many.c", tmp_path / "many")
    copy = Path(shutil.copy(library(), tmp_path / "libhakmem.so"))
    with running([program, "1000", "64", "1"], clean_environment(LD_PRELOAD=str(copy))) as started:
        await_line(started, "ready")
        with Session(ProcessSource(started.pid)) as session:
            before, code = file_rows(session), session.code_ranges()
            copy.unlink()
            program.unlink()
            assert file_rows(session) == before
            assert session.code_ranges() == code != []
    assert before["library"] > 0 and before["program"] > 0


def file_rows(session: Session) -> dict[str, int]:
    waterfall = session.take().waterfall
    assert waterfall is not None
    names = ("library", "program", "libraries")
    return {row.name: row.bytes for row in waterfall.rows if row.name in names}


@pytest.mark.parametrize("huge_pages", ["adaptive", "always"])
def test_pages_of_zeros_are_not_resident(tmp_path: Path, huge_pages: str) -> None:
    """Memory that was read and never written, small pages and huge ones, after a fork too."""
    program = compile_program("zeros.c", tmp_path / "zeros")
    with running([program, "fork"], preloaded(HAKMEM_HUGE_PAGES=huge_pages)) as started:
        await_line(started, "ready")
        require_no_zeros(started.pid)
        require_no_zeros(pid_of_child(started.pid))


@pytest.mark.parametrize("huge_pages", ["adaptive", "always"])
def test_pages_of_zeros_of_a_kernel_that_tells_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, huge_pages: str
) -> None:
    monkeypatch.setattr(ProcessSource, "zero_pages", lambda *_: None)
    program = compile_program("zeros.c", tmp_path / "zeros")
    with running([program], preloaded(HAKMEM_HUGE_PAGES=huge_pages)) as started:
        await_line(started, "ready")
        require_no_zeros(started.pid)


def require_no_zeros(pid: int) -> None:
    with Session(ProcessSource(pid)) as session:
        waterfall = take_frozen(session).waterfall
    assert waterfall is not None
    rows = {row.name: row.bytes for row in waterfall.rows}
    assert waterfall.unexplained_bytes == 0, rows
    assert abs(rows["large"] - ZEROS_BYTES) < ZEROS_BYTES // 10, rows
    assert rows["huge"] <= 2 << 20


def test_only_a_line_feed_ends_a_line_of_maps() -> None:
    name = "/srv/a\u2028b\rc/libhakmem.so"
    (area,) = parse_areas(f"1000-2000 rw-p 00000000 08:01 7    {name}\nRss:    4 kB\n")
    assert (area.name, area.rss_bytes) == (name, 4096)
