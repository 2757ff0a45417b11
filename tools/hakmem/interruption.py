"""Ctrl-C, SIGTERM and SIGHUP. Where a verb does nothing of its own about them the command ends by
the signal, as most programs do, and the shell that waits for it sees that. Ctrl-Z stops it, and may
have to wait."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from hakmem.errors import EXIT_SIGNAL

# What the terminal stops a process by.
STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)


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


@contextmanager
def like_ctrl_c() -> Iterator[list[int]]:
    """Inside, the first SIGTERM or SIGHUP raises KeyboardInterrupt in the main thread: what is
    under way is ended, what is finished is kept. Not one that the caller wanted ignored, as nohup
    does. Yields the list of those that came."""
    came: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield came
        return
    taken = [number for number in (signal.SIGTERM, signal.SIGHUP)
             if signal.getsignal(number) is signal.SIG_DFL]  # fmt: skip

    def interrupt(number: int, _: FrameType | None) -> None:
        # Those that follow would interrupt what ends the work: timeout(1) sends its signal twice.
        came.append(number)
        if len(came) == 1:
            raise KeyboardInterrupt

    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield came
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def tidily() -> Iterator[None]:
    """Inside, SIGTERM and SIGHUP end the command as they do anyway, after what cleans up."""
    came: list[int] = []
    try:
        with like_ctrl_c() as came:
            yield
    finally:
        if came:
            os.kill(os.getpid(), came[0])


@contextmanager
def stopped_later() -> Iterator[None]:
    """Inside, Ctrl-Z and its like are only noted; the first that came does afterwards what it would
    have done. For what must not stand still half done. In the main thread: no other may do this."""
    came: list[int] = []
    taken = {}
    if threading.current_thread() is threading.main_thread():
        taken = {number: before for number in STOPS
                 if (before := signal.getsignal(number)) not in (signal.SIG_IGN, None)}  # fmt: skip

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)

    for number in taken:
        signal.signal(number, note)
    try:
        yield
    finally:
        for number, before in taken.items():
            signal.signal(number, before)
        if came:
            os.kill(os.getpid(), came[0])
