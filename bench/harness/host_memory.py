"""Free memory that the host of a virtual machine has taken back, brought there before a run.

A host may take back what its guest has free (free page reporting: blocks of 2 MiB, about two
seconds after they became free), and gives it again where it is touched. On such a machine the first
touch of a huge page takes 4 to 8 ms instead of 0.15 to 0.19, so a run would cost what the pause
before it makes it cost. Elsewhere this takes well under a second for each GiB, and changes nothing.
"""

from __future__ import annotations

import contextlib
import mmap
import re
from pathlib import Path

HUGE_PAGE_BYTES = 2 << 20
# linux/mman.h, since 5.14; the module does not name it.
MADV_POPULATE_WRITE = 23
# Beyond what a run is known to need, and for one of which nothing is known yet.
BYTES_MORE = 64 << 20


def available_bytes() -> int:
    """What programs can have without anybody's pages being written out."""
    found = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text())
    return int(found.group(1)) * 1024 if found else 0


def bytes_for(peak_bytes: int) -> int:
    """How much a run that is known to reach this peak (0: not known) should find, in bytes; at most
    a quarter of what is available."""
    wanted = min(peak_bytes + BYTES_MORE, available_bytes() // 4)
    return wanted // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES


def bring(size_bytes: int) -> bool:
    """Touches so many bytes of free memory, in huge pages where there are some, and frees them: the
    kernel hands out first what was freed last. False where the system gives no such mapping (a
    limit of addresses, strict overcommit): the run may need less, and goes without."""
    if size_bytes == 0:
        return True
    try:
        mapping = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        return False
    with mapping as memory:
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
        try:
            memory.madvise(MADV_POPULATE_WRITE)
        except OSError:
            for at in range(0, size_bytes, mmap.PAGESIZE):
                memory[at] = 1
    return True
