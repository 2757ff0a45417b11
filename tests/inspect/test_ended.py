"""Threads that have ended: what they leave has no thread, and the process lives without its main
one."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hakmem import watch
from hakmem.inspect.errors import GoneError
from hakmem.inspect.process import ProcessSource
from hakmem.inspect.reading import Session
from hakmem.inspect.targets import find_processes, take
from hakmem.report.occupancy import heap_label
from hakmem.tune.recorder import Recorder
from hakmem.watch import is_alive, resident_bytes, running_thread
from tests.inspect.support.targets import (
    await_end_of_main,
    await_line,
    compile_program,
    go_on,
    hakmem,
    running,
)
from tests.patience import HANG_SECONDS


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("ended.c", tmp_path_factory.mktemp("programs") / "ended")


@contextmanager
def without(ended: Path, what: str) -> Iterator[subprocess.Popen[bytes]]:
    with running([ended, what]) as process:
        await_line(process, "ready")
        if what == "main":
            await_end_of_main(process.pid)
        yield process


class Reused(dict[int, str]):
    """Names of threads, as if the kernel had given every number to another one since."""

    def get(self, key: int, default: object = None) -> str:
        return "another"


def test_a_heap_without_a_thread_has_no_number_and_no_name(
    ended: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ProcessSource, "thread_names", lambda self: Reused())
    with without(ended, "threads") as process, Session(ProcessSource(process.pid)) as session:
        snapshot = session.take(events=True)
    main, *others = snapshot.heaps
    assert (main.state, main.thread_id, main.thread_name) == ("in use", process.pid, "another")
    assert len(others) == 3 and sum(heap.live_blocks for heap in others) >= 3 * 500
    for heap in others:
        assert heap.state in ("unused", "kept")
        assert (heap.thread_id, heap.thread_name) == (0, "")
        assert heap_label(heap) == f"heap {heap.id}, {heap.state}"
    attached = {event.thread_id for event in snapshot.events}
    assert attached == {0, process.pid}


def test_a_process_lives_without_its_main_thread(ended: Path) -> None:
    """Whatever looks at it: exact and in motion, its memory, its name, its end."""
    with without(ended, "main") as process:
        pid = process.pid
        assert is_alive(pid)
        assert running_thread(pid) not in (None, pid)
        assert pid in find_processes()
        assert resident_bytes(pid) > 0
        for freeze in (False, True):
            snapshot = take(str(pid), freeze=freeze)
            assert (snapshot.pid, snapshot.name, snapshot.exe) == (pid, "ended", str(ended))
            assert snapshot.frozen == freeze and snapshot.notes == ()
            assert snapshot.waterfall is not None and snapshot.waterfall.rss_bytes > 0
            assert "ended" in {heap.thread_name for heap in snapshot.heaps if heap.thread_id != pid}
        # It goes on after the freeze, and ends as it wants to.
        process.communicate(timeout=HANG_SECONDS)
        assert process.returncode == 0
        assert not is_alive(pid)


def test_a_session_goes_on_when_the_main_thread_ends(ended: Path) -> None:
    with running([ended, "later"]) as process:
        await_line(process, "started")
        with Session(ProcessSource(process.pid)) as session:
            before = session.take()
            go_on(process)
            await_line(process, "ready")
            await_end_of_main(process.pid)
            after = session.take()
            assert after.waterfall is not None and before.waterfall is not None
            assert after.waterfall.rss_bytes > before.waterfall.rss_bytes / 2
            process.kill()
            process.wait(timeout=HANG_SECONDS)
            with pytest.raises(GoneError, match="ended"):
                session.take()


def test_a_recording_goes_on_when_the_main_thread_ends(ended: Path) -> None:
    recorder = Recorder()
    with running([ended, "later"]) as process:
        pids = frozenset({process.pid})
        await_line(process, "started")
        recorder.look(pids)
        go_on(process)
        await_line(process, "ready")
        await_end_of_main(process.pid)
        recorder.look(pids)
        recording = recorder.largest()
    recorder.close()
    assert len(recording.moments) == 2
    assert all(moment.rss_bytes > 0 for moment in recording.moments)


def test_doctor_without_a_main_thread(ended: Path) -> None:
    with without(ended, "main") as process:
        said = hakmem("doctor", process.pid).stdout
    assert f"{process.pid} {ended}, user" in said
    assert "ok   active         hakmem" in said


def test_what_may_not_be_looked_into_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """As /proc with hidepid=1 shows the process of another user."""

    def refused(place: Path) -> list[bytes]:
        raise PermissionError(errno.EPERM, "Operation not permitted", str(place / "stat"))

    monkeypatch.setattr(watch, "_stat", refused)
    assert running_thread(os.getpid()) == os.getpid()
    assert is_alive(os.getpid())
