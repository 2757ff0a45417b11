"""hakmem set: what is asked of a living process."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hakmem.commands import set as set_command
from hakmem.inspect.control import Control
from hakmem.inspect.errors import InspectError
from hakmem.inspect.process import ProcessSource
from hakmem.inspect.reading import Session
from hakmem.inspect.targets import take
from tests.inspect.support.targets import (
    await_line,
    compile_program,
    hakmem,
    preloaded,
    require_refusal,
    running,
)
from tests.patience import HANG_SECONDS


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    program = compile_program("busy.c", tmp_path / "busy")
    with running([program, "2"]) as process:
        await_line(process, "ready")
        yield process


def hakmem_set(*words: str | int) -> subprocess.CompletedProcess[str]:
    return hakmem("set", *words)


def await_counter(pid: int, name: str, is_so: Callable[[int, int], bool]) -> None:
    """Until two looks at a counter are as they should be."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        first = take(str(pid), residency=False).counters[name]
        time.sleep(0.05)
        second = take(str(pid), residency=False).counters[name]
        if is_so(first, second):
            return
        assert time.monotonic() < deadline, (name, first, second)


def test_research_is_switched_on_and_off(busy: subprocess.Popen[bytes]) -> None:
    assert take(str(busy.pid), residency=False).counters["mallocs_seen"] == 0
    done = hakmem_set(busy.pid, "research=on")
    assert (done.returncode, done.stderr) == (0, "")
    assert "research 1" in done.stdout
    option = next(o for o in take(str(busy.pid)).options if o.name == "research")
    assert (option.value, option.origin) == (1, "runtime")
    await_counter(busy.pid, "mallocs_seen", lambda first, second: 0 < first < second)
    assert hakmem_set(busy.pid, "research=off").returncode == 0
    await_counter(busy.pid, "mallocs_seen", lambda first, second: first == second)


def test_events_that_are_not_always_recorded(busy: subprocess.Popen[bytes]) -> None:
    kinds = {event.kind for event in take(str(busy.pid), events=True).events}
    assert "refill" not in kinds
    done = hakmem_set(busy.pid, "events=on", "--json")
    assert json.loads(done.stdout)["set"] == {"events": 1}, done.stderr
    deadline = time.monotonic() + HANG_SECONDS
    while "refill" not in kinds:
        snapshot = take(str(busy.pid), events=True)
        kinds = {event.kind for event in snapshot.events}
        assert time.monotonic() < deadline
    refills = [event for event in snapshot.events if event.kind == "refill"]
    heaps = {heap.id: heap for heap in snapshot.heaps}
    sizes = {row.block_bytes for row in snapshot.size_classes}
    for event in refills:
        assert heaps[event.arguments["heap"]].thread_id == event.thread_id
        assert event.arguments["block_bytes"] in sizes
        assert 1 <= event.arguments["blocks"] <= 63
    times = [event.time_ns for event in snapshot.events if event.time_ns is not None]
    assert all(-60e9 < time_ns - time.monotonic_ns() < 60e9 for time_ns in times)
    assert hakmem_set(busy.pid, "events=off").returncode == 0


def test_purge(busy: subprocess.Popen[bytes]) -> None:
    done = hakmem_set(busy.pid, "purge=now", "--wait", str(HANG_SECONDS))
    assert (done.returncode, done.stderr) == (0, "")
    assert "purged" in done.stdout


def test_a_purge_that_nobody_does_is_said(tmp_path: Path) -> None:
    program = compile_program("many.c", tmp_path / "many")
    with running([program, "1000", "64", "1"]) as process:
        await_line(process, "ready")
        done = hakmem_set(process.pid, "purge=now", "--wait", "0.05")
        assert done.returncode == 0
        assert "will purge" in done.stdout


def test_no_wait_at_all(tmp_path: Path) -> None:
    program = compile_program("many.c", tmp_path / "many")
    with running([program, "1000", "64", "1"]) as process:
        await_line(process, "ready")
        assert hakmem_set(process.pid, "purge=now", "--wait", "0").returncode == 0


@pytest.mark.parametrize("wait", ["nan", "inf", "-1", "-0.001", "1e9", "3600.1", "soon", ""])
def test_a_wait_that_is_none(wait: str) -> None:
    done = hakmem_set(os.getpid(), "purge=now", f"--wait={wait}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"--wait: {wait!r} is not from 0 to 3600 seconds\n")


def test_any_live_option(busy: subprocess.Popen[bytes]) -> None:
    done = hakmem_set(busy.pid, "purge_delay_ms=125", "huge_cache_bytes=2M")
    assert (done.returncode, done.stderr) == (0, "")
    options = {option.name: option for option in take(str(busy.pid)).options}
    assert options["purge_delay_ms"].value == 125
    assert options["huge_cache_bytes"].value == 2 << 20
    assert options["huge_cache_bytes"].origin == "runtime"
    assert options["retain_slabs"].origin == "default"


def test_other_name_of_an_option(busy: subprocess.Popen[bytes]) -> None:
    done = hakmem_set(busy.pid, "debug_timing=on", "HAKMEM_POOL_REFILL_BATCH=9", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["set"] == {"research": 1, "refill_blocks": 9}
    options = {option.name: option.value for option in take(str(busy.pid)).options}
    assert (options["research"], options["refill_blocks"]) == (1, 9)


def test_what_cannot_be_set(busy: subprocess.Popen[bytes], tmp_path: Path) -> None:
    require_refusal(hakmem_set(busy.pid, "research=perhaps"), "research", "0 or 1")
    require_refusal(hakmem_set(busy.pid, "mode=lean"), "when a program starts")
    require_refusal(hakmem_set(busy.pid, "purge=later"), "purge=now")
    require_refusal(hakmem_set(busy.pid, "retain_slabs=99999999"), "0..1024")
    require_refusal(hakmem_set(busy.pid, "dream=1"), "no option dream")
    require_refusal(hakmem_set(os.getpid(), "research=on"), "does not use hakmem")


def test_all_is_set_or_nothing(
    busy: subprocess.Popen[bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A hakmem of another version knows the first option and not the second."""
    place_of = Control.place_of

    def of_another_version(control: Control, name: str) -> tuple[int, int]:
        if name == "retain_slabs":
            raise InspectError("uses a hakmem that has no option retain_slabs")
        return place_of(control, name)

    monkeypatch.setattr(Control, "place_of", of_another_version)
    parser = argparse.ArgumentParser()
    set_command.add(parser.add_subparsers())
    options = parser.parse_args(["set", str(busy.pid), "refill_blocks=9", "retain_slabs=3"])
    with pytest.raises(InspectError, match="no option retain_slabs"):
        options.run(options)
    values = {option.name: option.value for option in take(str(busy.pid)).options}
    assert values["refill_blocks"] != 9


def test_only_the_same_user(busy: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not for root, who could: whose process it is, decides."""
    with Session(ProcessSource(busy.pid)) as session:
        assert isinstance(session.source, ProcessSource)
        Control(session.source, session.layout)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(InspectError, match="only that user may set"):
            Control(session.source, session.layout)


# Says when it is ready, and ends at the end of its input, with a file of its own at the number of
# standard error where one is named. Its child has standard output there.
ENDING = """
import os, sys
print("ready", flush=True)
sys.stdin.readline()
if len(sys.argv) > 1:
    os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), 2)
if os.fork() == 0:
    os.dup2(1, 2)
else:
    os.wait()
"""
TOLD = {"leaks=1": "hakmem: leaks: process ", "stats_at_exit=1": "hakmem statistics\n"}


@pytest.mark.parametrize("wish", TOLD)
def test_what_it_tells_at_its_end_goes_to_standard_error(wish: str) -> None:
    with running(["/usr/bin/python3", "-c", ENDING]) as process:
        await_line(process, "ready")
        done = hakmem_set(process.pid, wish)
        assert (done.returncode, done.stderr) == (0, "")
        pipe = Path(f"/proc/{process.pid}/fd/2").readlink()
        assert f"what it tells at its end goes to its descriptor 2, {pipe}\n" in done.stdout
        told, errors = process.communicate(timeout=HANG_SECONDS)
        assert process.returncode == 0
        assert errors.decode().count(TOLD[wish]) == 1
        assert told == b""


@pytest.mark.parametrize("wish", TOLD)
def test_what_it_tells_at_its_end_goes_into_no_file_of_its_own(wish: str, tmp_path: Path) -> None:
    """Its standard error is closed by then, and a file of the program's has the number."""
    data = tmp_path / "data"
    with running(["/usr/bin/python3", "-c", ENDING, data]) as process:
        await_line(process, "ready")
        done = hakmem_set(process.pid, wish, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["output"].startswith("pipe:")
        told, errors = process.communicate(timeout=HANG_SECONDS)
        assert process.returncode == 0
        assert (told, errors, data.read_bytes()) == (b"", b"", b"")


def test_another_option_that_the_program_sets_is_no_word_of_where_to_tell(tmp_path: Path) -> None:
    data = tmp_path / "data"
    sets = "import ctypes; ctypes.CDLL(None).hakmem_option_set(b'retain_slabs', b'7')\n"
    with running(
        ["/usr/bin/python3", "-c", ENDING.replace("if os.fork", f"{sets}if os.fork"), data]
    ) as process:
        await_line(process, "ready")
        assert hakmem_set(process.pid, "leaks=1").returncode == 0
        assert process.communicate(timeout=HANG_SECONDS) == (b"", b"")
        assert (process.returncode, data.read_bytes()) == (0, b"")


def test_where_it_tells_is_settled_at_its_start() -> None:
    with running(["/usr/bin/python3", "-c", ENDING], preloaded(HAKMEM_LEAKS="1")) as process:
        await_line(process, "ready")
        done = hakmem_set(process.pid, "stats_at_exit=1")
        assert "goes to what its descriptor 2 was when it started\n" in done.stdout
        process.communicate(timeout=HANG_SECONDS)


def test_json_of_a_name_that_is_no_utf_8(tmp_path: Path) -> None:
    with (tmp_path / os.fsdecode(b"caf\xe9")).open("wb") as file:
        process = subprocess.Popen(
            ["/usr/bin/python3", "-c", "print('ready', flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=file,
            env=preloaded(),
        )
    try:
        await_line(process, "ready")
        done = hakmem_set(process.pid, "leaks=1", "--json")
        assert json.loads(done.stdout)["output"].endswith("caf\ufffd")
    finally:
        process.kill()
        process.communicate()


def test_standard_error_that_is_closed_takes_nothing() -> None:
    closed = ENDING.replace("import os, sys", "import os, sys\nos.close(2)")
    with running(["/usr/bin/python3", "-c", closed]) as process:
        await_line(process, "ready")
        done = hakmem_set(process.pid, "leaks=1")
        assert "goes nowhere: its descriptor 2 is closed\n" in done.stdout
        assert process.communicate(timeout=HANG_SECONDS) == (b"", b"")
