"""SIGTERM and SIGHUP as Ctrl-C: what is under way is ended, what is finished is kept."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def like_ctrl_c() -> Iterator[None]:
    """Inside, both raise KeyboardInterrupt in the main thread; unless the caller wanted them
    ignored, as nohup does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    taken = [number for number in (signal.SIGTERM, signal.SIGHUP)
             if signal.getsignal(number) is signal.SIG_DFL]  # fmt: skip
    for number in taken:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)
