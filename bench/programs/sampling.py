"""A process's resident memory over time, seen from outside."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

# Each look costs some 20 microseconds of a CPU that the program may share.
INTERVAL_S = 0.05
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

# Milliseconds since the first look, bytes.
Series = list[tuple[int, int]]


@contextlib.contextmanager
def resident(pid: int) -> Iterator[Series]:
    """Samples the process while the block runs."""
    samples: Series = []
    ended = threading.Event()

    def sample() -> None:
        start_s = time.monotonic()
        # A process that has ended has no statm, or an empty one.
        with contextlib.suppress(OSError, IndexError):
            while not ended.is_set():
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
                if pages:
                    samples.append((round((time.monotonic() - start_s) * 1000), pages * PAGE_BYTES))
                ended.wait(INTERVAL_S)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()
