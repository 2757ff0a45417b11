"""SIGTERM and SIGHUP as Ctrl-C: what is under way is ended, what is finished is kept."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def like_ctrl_c() -> Iterator[None]:
    """Inside, the first of them raises KeyboardInterrupt in the main thread; unless the caller
    wanted them ignored, as nohup does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in (signal.SIGTERM, signal.SIGHUP)
             if signal.getsignal(number) is signal.SIG_DFL]  # fmt: skip
    came: list[int] = []

    def interrupt(number: int, _: FrameType | None) -> None:
        # Those that follow would interrupt what ends the work: timeout(1) sends its signal twice.
        came.append(number)
        if len(came) == 1:
            raise KeyboardInterrupt

    for number in taken:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
