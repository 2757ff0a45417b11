"""Ctrl-C, SIGTERM and SIGHUP where a verb does nothing of its own about them: no traceback, nothing
left behind, and death by the signal."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest

from tests.cli.support import HAKMEM, ROOT, Outcome, call, clean_environment

# Modules that are interrupted while they are imported.
MODULE = "import signal\nsignal.raise_signal(signal.SIGINT)\n"
SWALLOWING = """\
import signal
try:
    signal.raise_signal(signal.SIGINT)
except BaseException:
    pass
raise ImportError("IMPORTANT: PLEASE READ THIS")
"""
COMMANDS = [HAKMEM, (sys.executable, "-m", "hakmem")]
KILLED = Outcome(-signal.SIGINT, b"", "")


def imported(folder: Path, name: str, text: str) -> dict[str, str]:
    """An environment in which a module of this name is this one."""
    (folder / f"{name}.py").write_text(text, encoding="ascii")
    return clean_environment(PYTHONPATH=f"{folder}:{ROOT / 'tools'}")


@pytest.mark.parametrize("command", COMMANDS)
def test_while_it_is_loaded(command: tuple[str, ...], tmp_path: Path) -> None:
    environment = imported(tmp_path, "argparse", MODULE)
    assert call([*command, "version"], environment=environment) == KILLED


def test_while_numpy_is_loaded(tmp_path: Path) -> None:
    """Its C code makes an error of a damaged installation of it."""
    environment = imported(tmp_path, "numpy", SWALLOWING)
    assert call([*HAKMEM, "inspect", "1"], environment=environment) == KILLED


@pytest.mark.parametrize("command", COMMANDS)
def test_at_work(command: tuple[str, ...], tmp_path: Path) -> None:
    """As cmake is asked for its version."""
    cmake = tmp_path / "cmake"
    cmake.write_text("#!/bin/sh\nkill -INT $PPID\nexec sleep 20\n", encoding="ascii")
    cmake.chmod(0o755)
    path = f"{tmp_path}:/usr/bin:/bin"
    environment = clean_environment(PATH=path, PYTHONPATH=str(ROOT / "tools"))
    assert call([*command, "doctor"], environment=environment) == KILLED


# Imported by every Python: the trial run of `hakmem doctor` interrupts the one that started it,
# twice as timeout(1) does, and would go on for a while.
INTERRUPTING = """\
import os, sys, time
if "--summary-file" in sys.orig_argv:
    os.kill(os.getppid(), {0})
    os.kill(os.getppid(), {0})
    time.sleep(5)
    os.mkdir(os.path.join(os.environ["TMPDIR"], "went on"))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_doctor_leaves_no_folder(tmp_path: Path, number: signal.Signals) -> None:
    text = INTERRUPTING.format(int(number))
    environment = imported(tmp_path, "sitecustomize", text)
    folder = tmp_path / "temporary"
    folder.mkdir()
    done = call([*HAKMEM, "doctor"], environment={**environment, "TMPDIR": str(folder)})
    assert done == Outcome(-number, b"", "")
    assert list(folder.iterdir()) == []


def test_that_is_ignored(tmp_path: Path) -> None:
    """As by a shell, of what it runs in the background."""
    environment = imported(tmp_path, "argparse", MODULE + "raise SystemExit(7)")
    words = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *HAKMEM, "version"]
    assert call(words, environment=environment).status == 7


def test_that_is_blocked() -> None:
    """The signal waits, and ends nothing: the status says it."""
    end = "from hakmem.interruption import end; end()"
    words = ["env", "--block-signal=INT", sys.executable, "-c", end]
    assert call(words, cwd=ROOT / "tools") == Outcome(128 + signal.SIGINT, b"", "")
