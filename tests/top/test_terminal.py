"""The screen in a real terminal: keys typed and characters read by tmux."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hakmem.top.sampler import HISTORY_LOOKS_MAX
from tests.cli.support import HAKMEM, clean_environment
from tests.patience import HANG_SECONDS
from tests.top.terminal import Terminal

SCREEN = Path(__file__).resolve().parent / "made_up_screen.py"
INTERVAL_S = "0.1"
FOREVER = "1000000000"


FIRST_SCREEN = (
    "11 server-11, hakmem 2\\.0\\.0 fast",
    "2 of 2 processes live",
    "^ *11 +server-11 +live +fast",
    "CLASS +LIVE +BYTESv",
)


def command(folder: Path, looks_max: str = FOREVER) -> list[str | Path]:
    return [sys.executable, SCREEN, folder, INTERVAL_S, looks_max]


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(child) for child in text.split()]


def test_standard_error_is_the_terminal_too() -> None:
    """The screen is drawn there: into a file it would leave this one blank."""
    ours, theirs = os.openpty()
    try:
        done = subprocess.run(
            [*HAKMEM, "top"],
            stdin=theirs,
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
            timeout=HANG_SECONDS,
            env=clean_environment(TERM="xterm"),
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert (done.returncode, "top needs a terminal" in done.stderr) == (2, True)


def test_keys(tmp_path: Path) -> None:
    with Terminal(command(tmp_path)) as terminal:
        terminal.until_shown("q quit")
        terminal.until(
            lambda screen: all(re.search(part, screen, re.MULTILINE) for part in FIRST_SCREEN),
            "the first screen",
        )
        assert terminal.is_alternate()
        terminal.press("s")
        terminal.until_shown("CACHEDv")
        terminal.press("r")
        terminal.until_shown("CACHED^")
        terminal.press("2")
        terminal.until_shown("worker-1")
        terminal.press("3")
        terminal.until_shown("refills")
        terminal.press("4")
        screen = terminal.until_shown("0x7f3a40000000")
        (row,) = re.findall(r"0x7f3a40000000 (\S+)", screen)
        assert len(row) == 64 and {"L", "l", "~"} < set(row)
        terminal.press("n")
        terminal.until_shown("10 server-10, hakmem")
        terminal.press("p")
        terminal.until_shown("PAUSED")
        terminal.press("f")
        terminal.until_shown("frozen: exact")
        terminal.press("w")
        terminal.until_shown("saved")
        assert len(list(tmp_path.glob("hakmem-10-*.json"))) == 1
        terminal.press("q")
        terminal.until_shown("status=0")
        assert "closed: True" in terminal.screen()
        assert not terminal.is_alternate()


def test_control_c_ends_it(tmp_path: Path) -> None:
    with Terminal(command(tmp_path)) as terminal:
        terminal.until_shown("11 server-11")
        terminal.press("C-c")
        terminal.until_shown("status=0")
        assert "closed: True" in terminal.screen()
        assert not terminal.is_alternate()


def test_sparkline_grows_with_each_look(tmp_path: Path) -> None:
    def bars(screen: str) -> int:
        return len(re.findall("[▁▂▃▄▅▆▇█]", screen.partition("CLASS")[0]))

    with Terminal(command(tmp_path)) as terminal:
        terminal.until(lambda screen: bars(screen) >= 20, "20 bars")
        assert HISTORY_LOOKS_MAX > 20


def test_target_that_ends(tmp_path: Path) -> None:
    with Terminal(command(tmp_path, "3")) as terminal:
        screen = terminal.until_shown("ENDED: its last picture")
        assert "1 of 2 processes live" in screen
        assert re.search(r"CLASS +LIVE +BYTESv", screen)
        terminal.press("q")
        terminal.until_shown("status=0")


def test_without_colour(tmp_path: Path) -> None:
    """Every sequence is one of shape (bold, faint, reverse ...) or of a shade of grey."""
    with Terminal(command(tmp_path), environment={"NO_COLOR": "1"}) as terminal:
        terminal.until_shown("BYTESv")
        codes = re.findall(r"\x1b\[[34]8;2;(\d+);(\d+);(\d+)m", terminal.screen(colours=True))
        assert all(red == green == blue for red, green, blue in codes)
        assert not re.search(r"\x1b\[(3[1-6]|4[1-6])m", terminal.screen(colours=True))


@pytest.mark.parametrize(("columns", "lines"), [(20, 5), (40, 10), (300, 90)])
def test_sizes(tmp_path: Path, columns: int, lines: int) -> None:
    with Terminal(command(tmp_path), columns=columns, lines=lines) as terminal:
        terminal.until_shown("11 server-11")
        terminal.press("s", "v", "v", "v", "r")
        terminal.resize(80, 24)
        terminal.until_shown("0x7f3a40000000")
        terminal.press("q")
        terminal.until_shown("status=0")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_signal_gives_the_terminal_back(tmp_path: Path, number: signal.Signals) -> None:
    with Terminal(command(tmp_path)) as terminal:
        terminal.until_shown("11 server-11")
        (child,) = children(terminal.pane_pid())
        os.kill(child, number)
        terminal.until_shown("status=")
        assert not terminal.is_alternate()


def test_screen_ends_with_its_terminal(tmp_path: Path) -> None:
    with Terminal(command(tmp_path)) as terminal:
        terminal.until_shown("11 server-11")
        (child,) = children(terminal.pane_pid())
        file = os.pidfd_open(child)
    try:
        # Readable once the process has ended.
        assert select.select([file], [], [], HANG_SECONDS)[0] == [file]
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(file, signal.SIGKILL)
        os.close(file)
