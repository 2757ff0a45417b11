"""A process with more than one hakmem, and one that becomes another program."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hakmem.inspect.control import Control
from hakmem.inspect.errors import GoneError
from hakmem.inspect.process import ProcessSource
from hakmem.inspect.reading import Session
from hakmem.inspect.targets import take
from hakmem.tune.recorder import record_process
from tests.cli.support import library
from tests.inspect.support.corewriter import write_core
from tests.inspect.support.targets import (
    HAKMEM,
    archive,
    await_line,
    compile_program,
    go_on,
    preloaded,
    running,
)
from tests.patience import HANG_SECONDS

BLOCKS = 5000
# The same addresses for both programs; the second one waits too.
BECOMES = ("setarch", "-R", "sh", "-c", "echo ready; read x; exec sh -c 'echo again; read x'")


@pytest.mark.parametrize("how", ["linked and preloaded", "another namespace"])
def test_the_library_that_serves_is_shown(how: str, tmp_path: Path) -> None:
    """The other one is idle."""
    is_linked = how == "linked and preloaded"
    extra: list[str | Path] = [archive(), "-ldl"] if is_linked else ["-ldl"]
    program = compile_program("several.c", tmp_path / "several", *extra)
    words: list[str | Path] = [program] if is_linked else [program, library()]
    with running(words, preloaded()) as process:
        await_line(process, "ready")
        alive = take(str(process.pid))
        core = tmp_path / "core"
        write_core(process.pid, core)
    for snapshot in (alive, take(str(core))):
        assert sum(row.live_blocks for row in snapshot.classes) >= BLOCKS


@pytest.mark.parametrize("blocks", [BLOCKS, 0])
@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGTRAP])
def test_a_crash_leaves_one_snapshot(
    number: signal.Signals, is_linked: bool, blocks: int, tmp_path: Path
) -> None:
    """Of the library that serves, where another one is idle; also before anything is allocated."""
    program = compile_program("crash.c", tmp_path / "crash", *([archive()] if is_linked else []))
    environment = preloaded(
        HAKMEM_SNAPSHOT_SIGNAL=str(int(number)), HAKMEM_SNAPSHOT_DIRECTORY=str(tmp_path)
    )
    words = [str(program), str(blocks), *(["breakpoint"] if number == signal.SIGTRAP else [])]
    done = subprocess.run(words, capture_output=True, timeout=HANG_SECONDS, env=environment)
    assert done.returncode == -number
    files = list(tmp_path.glob("*.snapshot"))
    assert len(files) == 1
    assert done.stderr.decode() == f"hakmem: snapshot: {files[0]}\n"
    assert sum(row.live_blocks for row in take(str(files[0])).classes) >= blocks


@contextmanager
def one_that_execs() -> Iterator[subprocess.Popen[bytes]]:
    with running(BECOMES, preloaded()) as process:
        await_line(process, "ready")
        yield process


def become(process: subprocess.Popen[bytes]) -> None:
    go_on(process)
    await_line(process, "again")


def test_nothing_is_set_in_a_program_that_was_not_looked_at() -> None:
    with one_that_execs() as process, Session(ProcessSource(process.pid)) as session:
        control = Control(session.source, session.layout)  # type: ignore[arg-type]
        become(process)
        for _ in range(2):
            with pytest.raises(GoneError, match="another program"):
                control.set_option("purge_delay_ms", 77)
        options = {option.name: option.value for option in take(str(process.pid)).options}
    assert options["purge_delay_ms"] != 77


def test_what_was_recorded_before_an_exec_stands() -> None:
    with one_that_execs() as process:
        looks = 0

        def wait(seconds: float) -> bool:
            nonlocal looks
            looks += 1
            assert looks < 3
            if looks == 2:
                become(process)
            return False

        recording = record_process(process.pid, HANG_SECONDS, wait)
        assert len(recording.moments) == 2
        research = take(str(process.pid)).research
    assert research is None or not research.enabled


def test_a_series_ends_with_the_program(tmp_path: Path) -> None:
    file = tmp_path / "series.jsonl"
    with one_that_execs() as process:
        words = [*HAKMEM, "record", str(process.pid), "--every", "100ms", "-o", str(file)]
        recording = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + HANG_SECONDS
        while not file.exists() or file.read_bytes().count(b"\n") < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        become(process)
        said = recording.communicate(timeout=HANG_SECONDS)[1]
    assert recording.returncode == 0
    assert "runs another program since (exec)" in said
    assert "could not be read" not in said
