"""What holds for every Python test, whatever machine it runs on."""

from __future__ import annotations

import ctypes
import signal

import pytest

PR_SET_THP_DISABLE = 41  # linux/prctl.h


def pytest_configure() -> None:
    """Ctrl-C works, also where the caller runs in the background and ignores it. No transparent
    huge pages, which some systems give to every process: tests tell resident memory and faults to
    the page. Programs that tests start inherit both."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0:
        raise pytest.UsageError("the kernel does not let a process go without huge pages")
