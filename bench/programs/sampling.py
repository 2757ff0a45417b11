"""A process's resident memory over time, seen from outside."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from harness.processes import resident_bytes

# Each look costs some 20 microseconds of a CPU that the program may share.
INTERVAL_S = 0.05

# Milliseconds since the first look, bytes.
Series = list[tuple[int, int]]


@contextlib.contextmanager
def resident(pid: int) -> Iterator[Series]:
    """Samples the process while the block runs."""
    samples: Series = []
    ended = threading.Event()

    def sample() -> None:
        start_s = time.monotonic()
        while not ended.is_set():
            if size := resident_bytes(pid):
                samples.append((round((time.monotonic() - start_s) * 1000), size))
            ended.wait(INTERVAL_S)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()
