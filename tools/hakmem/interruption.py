"""Ctrl-C where a verb does nothing of its own about it: the command ends by the signal, as most
programs do, and the shell that waits for it sees that."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from hakmem.errors import EXIT_SIGNAL


def end() -> NoReturn:
    """By SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    # It is blocked, as `hakmem serve-metrics` does it.
    sys.exit(EXIT_SIGNAL + signal.SIGINT)


@contextmanager
def at_once() -> Iterator[None]:
    """Inside, Ctrl-C ends the process there and then, unless it is ignored or has a handler. For C
    code that makes another error of a KeyboardInterrupt."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
