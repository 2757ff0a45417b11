"""HAKMEM_LEAKS=1: the blocks that are live at exit, no more and no less, and the exit status."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from tests.guarded.support import MODES, Run
from tests.patience import HANG_SECONDS

HEADING = re.compile(r"hakmem: leaks: process (\d+) ends with (\d+) live blocks, (\d+) bytes")

SMALL = "1 of 112 bytes each"
LARGE = "1 large, of 200704 bytes together"
HUGE = "1 huge, of 9003008 bytes together"


def rows(text: str) -> list[str]:
    return [line.removeprefix("hakmem: leaks:   ") for line in text.splitlines()[1:]]


def total(text: str) -> tuple[int, int]:
    found = HEADING.fullmatch(text.splitlines()[0])
    assert found, text
    return int(found[2]), int(found[3])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        ("", []),
        ("freed late", []),
        ("small", [SMALL]),
        ("large freed", [LARGE]),
        ("huge", [HUGE]),
        ("small late large freed huge", [SMALL, LARGE, HUGE]),
        ("small small", ["2 of 112 bytes each"]),
    ],
)
def test_exactly_what_is_live(run: Run, mode: str, kinds: str, expected: list[str]) -> None:
    ended = run("leaks", *kinds.split(), mode=mode, leaks=1, guard_sample=0)
    assert ended.status == 3
    assert rows(ended.err) == expected
    assert total(ended.err)[0] == sum(int(row.split()[0]) for row in expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kinds", ["cached", "remote", "cached remote"])
def test_cached_blocks_are_not_live(run: Run, mode: str, kinds: str) -> None:
    """A thread leaves a block of the C library behind: its vector of thread-local storage."""
    left = rows(run("leaks", "thread", mode=mode, leaks=1, guard_sample=0).err)
    assert len(left) <= 1
    assert rows(run("leaks", *kinds.split(), mode=mode, leaks=1, guard_sample=0).err) == left
    also_small = rows(run("leaks", *kinds.split(), "small", mode=mode, leaks=1, guard_sample=0).err)
    assert sorted(also_small) == sorted([SMALL, *left])


@pytest.mark.parametrize("mode", MODES)
def test_what_a_lost_thread_had_cached_is_not_live_in_a_child(run: Run, mode: str) -> None:
    """Each thread leaves a block of the C library behind: the child had one more."""
    text = run("leaks", "lost", mode=mode, leaks=1, guard_sample=0).err
    reports = re.split(r"(?<=\n)(?=hakmem: leaks: process)", text)
    child, parent = (total(report)[0] for report in reports)
    assert parent <= 1
    assert child <= parent + 1


def test_without_the_option_nothing_is_said(run: Run) -> None:
    ended = run("leaks", "small", leaks_exit_status=23)
    assert (ended.status, ended.err) == (3, "")


def test_what_a_running_thread_holds_is_live(run: Run) -> None:
    ended = run("leaks", "running", leaks=1)
    # The C library keeps the thread's vector of thread-local storage beside it.
    assert "1 of 1024 bytes each" in rows(ended.err)
    assert len(rows(ended.err)) <= 2


def test_a_closed_standard_error_is_no_obstacle(run: Run) -> None:
    assert rows(run("leaks", "closed", "small", leaks=1).err) == [SMALL]


@pytest.mark.parametrize(
    ("option", "first"), [("leaks", "hakmem: leaks: process "), ("stats_at_exit", "hakmem statist")]
)
def test_files_opened_under_its_numbers_are_left_alone(
    run: Run, tmp_path: Path, option: str, first: str
) -> None:
    """What a daemon does: it closes every descriptor, not its own alone, and opens files."""
    file = tmp_path / "data"
    ended = run("leaks", "small", f"file:{file}", **{option: 1})
    assert (ended.status, file.read_bytes()) == (3, b"")
    assert ended.err.startswith(first)
    # Standard error is such a file as well: nobody is told anything.
    ended = run("leaks", "small", "closed", f"file:{file}", **{option: 1})
    assert (ended.status, ended.err, file.read_bytes()) == (3, "", b"")


@pytest.mark.parametrize(
    ("option", "first"), [("leaks", "hakmem: leaks: process "), ("stats_at_exit", "hakmem statist")]
)
def test_so_are_they_where_the_program_turns_an_option_on(
    run: Run, tmp_path: Path, option: str, first: str
) -> None:
    """Its files come over the number that was kept as well: nobody is told anything."""
    file = tmp_path / "data"
    ended = run("leaks", f"later:{option}", "small", "closed", f"file:{file}")
    assert (ended.status, ended.err, file.read_bytes()) == (3, "", b"")
    ended = run("leaks", f"later:{option}", "small", "closed")
    assert ended.err.startswith(first)


DAEMON = """
import os, pathlib, sys, time
stop, ended = map(pathlib.Path, sys.argv[1:])
if os.fork() != 0:
    os._exit(0)
null = os.open("/dev/null", os.O_RDWR)
for number in range(3):
    os.dup2(null, number)
begin = time.monotonic()
while not stop.exists() and time.monotonic() - begin < 30:
    blocks = [bytes(1000) for _ in range(10000)]
    time.sleep(0.01)
ended.touch()
"""


@pytest.mark.parametrize("option", ["leaks", "stats_at_exit"])
def test_the_launcher_of_a_daemon_does_not_wait_for_its_end(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, option: str
) -> None:
    """It reads the daemon's standard error until nobody can write there any more."""
    monkeypatch.setenv("PYTHONMALLOC", "malloc")
    stop, end = tmp_path / "stop", tmp_path / "end"
    run(str(Path(sys.executable).resolve()), "-c", DAEMON, str(stop), str(end), **{option: 1})
    assert not end.exists()
    stop.touch()
    deadline = time.monotonic() + HANG_SECONDS
    while not end.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert end.exists()


CHILD = """
import os, sys, time
if os.fork() != 0:
    os.wait()
    os._exit(0)
kept = os.dup(2)
if "over" in sys.argv:
    os.dup2(os.open("/dev/null", os.O_RDWR), 2)
else:
    os.close(2)
begin = time.monotonic()
while time.monotonic() - begin < 0.3:
    blocks = [bytes(1000) for _ in range(10000)]
if "over" in sys.argv:
    os.dup2(kept, 2)
os.close(kept)
"""


@pytest.mark.parametrize("how", ["over", "closed"])
def test_a_child_is_told_where_standard_error_is_again_or_was(
    run: Run, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """It had another file in its place for a moment, or closed it."""
    monkeypatch.setenv("PYTHONMALLOC", "malloc")
    ended = run(str(Path(sys.executable).resolve()), "-c", CHILD, how, leaks=1)
    assert HEADING.search(ended.err), ended.err


def test_the_exit_status_needs_no_output(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "data"
    ended = run("leaks", "small", "closed", f"file:{file}", leaks=1, leaks_exit_status=23)
    assert (ended.status, ended.err, file.read_bytes()) == (23, "", b"")


def test_each_process_reports_its_own(run: Run) -> None:
    ended = run("leaks", "small", "fork", leaks=1)
    found = HEADING.findall(ended.err)
    assert [int(blocks) for _, blocks, _ in found] == [2, 1]
    assert found[0][0] != found[1][0]
    assert ended.out == "child 7\n"


@pytest.mark.parametrize(
    ("kinds", "allowed", "status"),
    [
        ("freed", "0", 3),
        ("small", "0", 23),
        ("small", "111", 23),
        ("small", "112", 3),
        ("large", "112", 23),
        ("huge", "1G", 3),
    ],
)
def test_exit_status(run: Run, kinds: str, allowed: str, status: int) -> None:
    ended = run("leaks", kinds, leaks=1, leaks_exit_status=23, leaks_allowed_bytes=allowed)
    assert ended.status == status


def test_the_exit_status_comes_after_stdio_is_flushed(run: Run) -> None:
    ended = run("leaks", "text", leaks=1, leaks_exit_status=23)
    assert (ended.status, ended.out) == (23, "text")
    # Standard output's buffer is the C library's own block, and counts.
    assert total(ended.err)[0] == 1


def test_a_child_that_leaks_ends_with_the_status(run: Run) -> None:
    ended = run("leaks", "fork", leaks=1, leaks_exit_status=23)
    assert (ended.status, ended.out) == (3, "child 23\n")


def test_a_real_program_runs_as_before(run: Run) -> None:
    ended = run("/usr/bin/sort", "/etc/passwd", leaks=1)
    assert ended.status == 0
    assert ended.out == run("/usr/bin/sort", "/etc/passwd", preload=False).out
    assert total(ended.err)[0] >= 1
