"""What a program started ends with it, however the program, its master or the harness ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from programs.process import Program, ProgramFailedError, Running, Server, serving
from programs.stage import Stage

from hakmem.interruption import like_ctrl_c
from harness.layout import PROGRAMS, TOP
from tests.patience import HANG_SECONDS

PATHS = {"PATH": "/usr/bin:/bin"}

# A master with a worker, as many a server has; both hold the port.
MASTER = """
import os, socket, sys, time
listening = socket.create_server(("127.0.0.1", int(sys.argv[1])))
if os.fork() == 0:
    time.sleep(3600)
while True:
    listening.accept()[0].close()
"""

# `hakmem bench`, but that it runs one program with a child of its own.
HARNESS = """
import argparse, sys
from pathlib import Path
from harness import cli
from programs.process import Program
from programs.stage import Stage
def measure(options):
    base = Path(sys.argv[1])
    stage = Stage(base, Path(sys.argv[2]))
    words = ["/bin/sh", "-c", "sleep 3600 & wait"]
    running = stage.start(Program(words, stage.directory, {"PATH": "/usr/bin:/bin"}))
    print(running._launcher.pid, flush=True)
    running.finish(600)
cli.measure = measure
sys.exit(cli.run_bench(argparse.Namespace(verb=None)))
"""


@pytest.fixture
def stage(built: Path, tmp_path: Path) -> Stage:
    """Where a test's programs run."""
    base = tmp_path / "stage"
    base.mkdir()
    return Stage(base, built / "launch")


def members(group: int) -> list[int]:
    """The living processes of a group; those that nobody has reaped yet do not live."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = file.read_text().rsplit(")", 1)[1].split()[:3]
        except (OSError, IndexError):
            continue
        if int(of) == group and state not in "ZX":
            found.append(int(file.parent.name))
    return found


def await_members(group: int, count: int) -> None:
    """Waits until the group has so many living members: the end of a process takes a moment."""
    deadline = time.monotonic() + HANG_SECONDS
    while len(members(group)) != count:
        assert time.monotonic() < deadline, f"{members(group)} live in group {group}"
        time.sleep(0.01)


def test_what_a_command_leaves_behind_is_ended(stage: Stage) -> None:
    running = stage.start(Program(["/bin/sh", "-c", "sleep 3600 &"], stage.directory, PATHS))
    group = running._launcher.pid
    assert running.finish(HANG_SECONDS).status == 0
    await_members(group, 0)


@pytest.mark.parametrize("error", [ProgramFailedError, KeyboardInterrupt])
def test_children_of_a_crashed_master_are_ended(stage: Stage, error: type[BaseException]) -> None:
    def start(port: int) -> Running:
        words = [sys.executable, "-c", MASTER, str(port)]
        return stage.start(Program(words, stage.directory, PATHS))

    def crash(server: Server) -> None:
        os.kill(server.pid, signal.SIGKILL)
        while server.running.alive():
            time.sleep(0.01)
        raise error("a client's complaint")

    group = 0
    with pytest.raises(error), serving(start) as server:
        group = server.running._launcher.pid
        await_members(group, 3)
        crash(server)
    await_members(group, 0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_an_ended_harness_leaves_nothing(
    built: Path, tmp_path: Path, number: signal.Signals
) -> None:
    harness = subprocess.Popen(
        [sys.executable, "-c", HARNESS, str(tmp_path), str(PROGRAMS / "launch")],
        env={**PATHS, "PYTHONPATH": f"{TOP}/bench:{TOP}/tools"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert harness.stdout is not None
    group = int(harness.stdout.readline())
    await_members(group, 3)
    harness.send_signal(number)
    _, errors = harness.communicate(timeout=HANG_SECONDS)
    await_members(group, 0)
    if number is signal.SIGKILL:
        assert harness.returncode == -number
    else:
        assert harness.returncode == 1
        assert "interrupted" in errors


def test_signals_that_the_caller_ignores_stay_ignored() -> None:
    """As under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with like_ctrl_c():
            signal.raise_signal(signal.SIGHUP)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, before)
