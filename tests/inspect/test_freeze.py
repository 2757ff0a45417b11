"""A frozen process stands still, and goes on whatever becomes of who froze it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hakmem.inspect.errors import GoneError, InspectError
from hakmem.inspect.freeze import STOP_SECONDS, Freeze
from hakmem.inspect.targets import SHARED, take
from hakmem.watch import state_of
from tests.cli.support import clean_environment
from tests.inspect.support.targets import (
    ROOT,
    archive,
    await_end_of_main,
    await_line,
    compile_program,
    go_on,
    pid_of_child,
    running,
)
from tests.patience import HANG_SECONDS

STOPPED, RUNNING = "t", "RSD"
HOLD = """
import sys, time
sys.path.insert(0, sys.argv[2])
from hakmem.inspect.freeze import Freeze
with Freeze(int(sys.argv[1]), [], lambda: False):
    print("frozen", flush=True)
    time.sleep(600)
"""
# Reads once it is told to go on.
READ = """
import sys
sys.path.insert(0, sys.argv[2])
from hakmem.inspect.reading import Session
from hakmem.inspect.targets import take
look = Session.take
def look_when_told(session, **words):
    print("frozen", flush=True)
    sys.stdin.readline()
    return look(session, **words)
Session.take = look_when_told
assert take(sys.argv[1], freeze=True, residency=False).frozen
print("read", flush=True)
"""


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("busy.c", tmp_path_factory.mktemp("programs") / "busy")


@pytest.fixture
def process(busy: Path) -> Iterator[subprocess.Popen[bytes]]:
    with running([busy, "3"]) as started:
        await_line(started, "ready")
        yield started


def states(pid: int) -> str:
    """One letter for each thread."""
    found = ""
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += (task / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    return found


def progress(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Operations done so far, and signals that arrived."""
    go_on(process)
    assert process.stdout is not None
    operations, signals = process.stdout.readline().split()
    return int(operations), int(signals)


def require_going_on(process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    before, _ = progress(process)
    while progress(process)[0] == before:
        assert time.monotonic() < deadline
    assert STOPPED not in states(process.pid).lower()


def await_stopped(pid: int) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while states(pid) != "T" * 4:
        assert time.monotonic() < deadline, states(pid)


def test_every_thread_stands_still(process: subprocess.Popen[bytes]) -> None:
    with Freeze(process.pid, [], lambda: False) as freeze:
        assert freeze.exact
        assert states(process.pid) == "t" * 4
    require_going_on(process)


def test_it_goes_on_when_reading_fails(process: subprocess.Popen[bytes]) -> None:
    with (
        pytest.raises(RuntimeError, match="no more"),
        Freeze(process.pid, [], lambda: False),
    ):
        raise RuntimeError("no more")
    require_going_on(process)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_it_goes_on_when_the_reader_is_killed(
    process: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    words = [sys.executable, "-c", HOLD, str(process.pid), str(ROOT / "tools")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"frozen\n"
        assert states(process.pid) == "t" * 4
        reader.send_signal(number)
        reader.wait(timeout=HANG_SECONDS)
    require_going_on(process)


@pytest.mark.parametrize("number", [signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU])
def test_it_goes_on_while_the_reader_is_stopped(
    process: subprocess.Popen[bytes], number: signal.Signals
) -> None:
    words = [sys.executable, "-c", READ, str(process.pid), str(ROOT / "tools")]
    # As a shell starts it: the kernel stops nobody by these who has no parent in another group.
    with running(words, clean_environment(), process_group=0) as reader:
        await_line(reader, "frozen")
        assert states(process.pid) == "t" * 4
        reader.send_signal(number)
        go_on(reader)
        deadline = time.monotonic() + HANG_SECONDS
        while state_of(Path(f"/proc/{reader.pid}")) != b"T":
            assert reader.poll() is None and time.monotonic() < deadline
        assert STOPPED not in states(process.pid)
        require_going_on(process)
        reader.send_signal(signal.SIGCONT)
        await_line(reader, "read")
        assert reader.wait(timeout=HANG_SECONDS) == 0


def test_signals_are_not_lost(process: subprocess.Popen[bytes]) -> None:
    sent = 20
    for count in range(sent):
        with Freeze(process.pid, [], lambda: False):
            os.kill(process.pid, signal.SIGUSR1)
        while progress(process)[1] <= count:
            pass
    assert progress(process)[1] == sent


def test_a_busy_process_is_exact_each_time(process: subprocess.Popen[bytes]) -> None:
    """Each thread holds its slots, or one less while it replaces one."""
    slots, threads = 500, 3
    base = None
    for _ in range(20):
        snapshot = take(str(process.pid), freeze=True, residency=False)
        assert snapshot.frozen
        assert snapshot.unsettled_share == 0
        assert snapshot.notes == ()
        live = sum(heap.live_blocks for heap in snapshot.heaps if heap.counters)
        # What the C library holds itself does not change.
        base = live - slots * threads if base is None else base
        assert abs(live - slots * threads - base) <= threads
    require_going_on(process)


def test_what_its_code_calls_is_left_too(tmp_path: Path) -> None:
    """memmove is not hakmem's code, but a node that it moves for hakmem is half moved."""
    program = compile_program("leaving.c", tmp_path / "leaving")
    with running([program], clean_environment()) as process:
        assert process.stdout is not None
        start, end, half = (int(word, 16) for word in process.stdout.readline().split())
        with Path(f"/proc/{process.pid}/mem").open("rb", buffering=0) as memory:
            for _ in range(60):
                with Freeze(process.pid, [(start, end)], lambda: False) as freeze:
                    assert freeze.exact
                    memory.seek(half)
                    assert memory.read(1) == b"\0"


def test_one_stopped_by_job_control_stays_stopped(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)
    await_stopped(process.pid)
    with Freeze(process.pid, [], lambda: False):
        pass
    # Each thread is woken up to stop again.
    await_stopped(process.pid)
    snapshot = take(str(process.pid), freeze=True)
    assert snapshot.gauges["live_blocks"] > 0
    await_stopped(process.pid)
    process.send_signal(signal.SIGCONT)
    require_going_on(process)


def test_a_freeze_that_fails_lets_go_of_what_it_had(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of threads that were seized and not yet stopped, by a reader that goes on."""
    seize = Freeze._seize
    seized: list[int] = []

    def seize_two(self: Freeze, number: int) -> None:
        if len(seized) == 2:
            raise InspectError("the third one has a debugger")
        seize(self, number)
        seized.append(number)

    monkeypatch.setattr(Freeze, "_seize", seize_two)
    with pytest.raises(InspectError, match="the third one"):
        take(str(process.pid), freeze=True)
    assert len(seized) == 2
    deadline = time.monotonic() + HANG_SECONDS
    await_no_tracer(process.pid)
    before = progress(process)[1]
    os.kill(process.pid, signal.SIGUSR1)
    while progress(process)[1] == before:
        assert time.monotonic() < deadline
    require_going_on(process)


def before_first_stop(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Acts when all threads are seized, and none is stopped yet."""
    interrupt = Freeze._interrupt
    acted: list[object] = []

    def act_first(self: Freeze, numbers: Sequence[int], deadline: float) -> None:
        if not acted:
            acted.append(act())
        interrupt(self, numbers, deadline)

    monkeypatch.setattr(Freeze, "_interrupt", act_first)


def test_one_that_is_killed_meanwhile_has_ended(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of its main thread nobody is told before he has asked for all others."""

    def kill() -> None:
        process.kill()
        await_end_of_main(process.pid)

    before_first_stop(monkeypatch, kill)
    with pytest.raises(GoneError, match="has ended"):
        take(str(process.pid), freeze=True)
    assert process.wait(timeout=HANG_SECONDS) == -signal.SIGKILL


def test_main_thread_that_ends_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = compile_program("ended.c", tmp_path / "ended")
    with running([program, "later"]) as process:
        await_line(process, "started")

        def end_main() -> None:
            go_on(process)
            await_line(process, "ready")
            await_end_of_main(process.pid)

        before_first_stop(monkeypatch, end_main)
        snapshot = take(str(process.pid), freeze=True)
        assert snapshot.frozen and snapshot.notes == ()
        process.communicate(timeout=HANG_SECONDS)
        assert process.returncode == 0


@pytest.fixture(scope="module")
def vforked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("vforked.c", tmp_path_factory.mktemp("programs") / "vforked")


@contextmanager
def waiting_in_vfork(
    program: Path, way: str, folder: Path
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], None]]]:
    """A process whose main thread waits for its child; and what lets the child go on."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)

    def let_go() -> None:
        # Refused until the child is about to open it.
        deadline = time.monotonic() + HANG_SECONDS
        while True:
            with suppress(OSError):
                os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))
                return
            assert time.monotonic() < deadline

    with running([program, way, pipe]) as process:
        await_line(process, "ready")
        main = Path(f"/proc/{process.pid}/task/{process.pid}")
        deadline = time.monotonic() + HANG_SECONDS
        while state_of(main) != b"D" or not (main / "children").read_text(encoding="ascii"):
            assert time.monotonic() < deadline
        child = pid_of_child(process.pid)
        try:
            yield process, let_go
        finally:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("way", ["vfork", "clone", "spawn"])
def test_one_that_waits_in_vfork(vforked: Path, tmp_path: Path, way: str) -> None:
    """It cannot be stopped, nor does it move: its child alone may."""
    with waiting_in_vfork(vforked, way, tmp_path) as (process, let_go):
        before = time.monotonic()
        snapshot = take(str(process.pid), freeze=True, residency=False)
        assert time.monotonic() - before < STOP_SECONDS / 2
        assert not snapshot.frozen
        assert snapshot.notes[-1] == SHARED
        await_no_tracer(process.pid)
        let_go()
        await_line(process, "back")


def test_reader_is_stopped_when_nobody_traces(
    vforked: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above, of one that the end of the thread alone lets go of; by a handler of its own."""
    found: list[int] = []
    with waiting_in_vfork(vforked, "vfork", tmp_path) as (process, let_go):
        before_first_stop(monkeypatch, lambda: os.kill(os.getpid(), signal.SIGTSTP))

        def note(number: int, _: object) -> None:
            found.extend([number, *tracers(process.pid)])

        old = signal.signal(signal.SIGTSTP, note)
        try:
            assert take(str(process.pid), freeze=True, residency=False).notes[-1] == SHARED
            assert signal.getsignal(signal.SIGTSTP) is note
        finally:
            signal.signal(signal.SIGTSTP, old)
        assert found == [signal.SIGTSTP, 0, 0]
        let_go()
        await_line(process, "back")


def test_one_whose_child_lets_go_stops_then(vforked: Path, tmp_path: Path) -> None:
    with waiting_in_vfork(vforked, "vfork", tmp_path) as (process, let_go):
        with Freeze(process.pid, [], lambda: False) as freeze:
            assert freeze.is_shared and not freeze.exact
            assert sorted(states(process.pid)) == ["D", "t"]
            let_go()
            deadline = time.monotonic() + HANG_SECONDS
            while states(process.pid) != "tt":
                assert time.monotonic() < deadline, states(process.pid)
        await_line(process, "back")
        with Freeze(process.pid, [], lambda: False) as freeze:
            assert freeze.exact and not freeze.is_shared


def test_lock_that_the_child_of_a_vfork_lets_go(vforked: Path, tmp_path: Path) -> None:
    with waiting_in_vfork(vforked, "vfork", tmp_path) as (process, let_go):
        looks = [""]

        def holds_lock() -> bool:
            looks.append(states(process.pid))
            if len(looks) == 4:
                let_go()
            return looks[-2:] != ["tt", "tt"]

        with Freeze(process.pid, [], holds_lock) as freeze:
            assert freeze.exact and not freeze.is_shared
            assert states(process.pid) == "tt"
        await_line(process, "back")


def tracers(pid: int) -> list[int]:
    """Who traces each thread; 0: nobody."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    texts = [(task / "status").read_text(encoding="ascii") for task in tasks]
    return [int(text.partition("TracerPid:")[2].split()[0]) for text in texts]


def await_no_tracer(pid: int) -> None:
    """The thread that traced can be joined a moment before it is gone."""
    deadline = time.monotonic() + HANG_SECONDS
    while any(tracer != 0 for tracer in tracers(pid)):
        assert time.monotonic() < deadline, tracers(pid)
        time.sleep(0.01)


def test_one_that_a_debugger_has_is_refused(process: subprocess.Popen[bytes]) -> None:
    with Freeze(process.pid, [], lambda: False):
        words = [sys.executable, "-c", HOLD, str(process.pid), str(ROOT / "tools")]
        done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_SECONDS)
        assert "cannot be stopped: a debugger has it" in done.stderr
    require_going_on(process)
    with pytest.raises(InspectError, match="living process"):
        take("/nowhere", freeze=True)


def test_static_program(tmp_path: Path) -> None:
    program = compile_program("busy.c", tmp_path / "busy", "-static", archive())
    with running([program, "3"], clean_environment()) as process:
        await_line(process, "ready")
        for _ in range(5):
            snapshot = take(str(process.pid), freeze=True, residency=False)
            assert snapshot.frozen
            assert snapshot.notes == ()
        require_going_on(process)
