"""What /proc says of processes that a run started."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def process_tree(pid: int) -> list[int]:
    """The process and all its living descendants, parents first."""
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                children = (task / "children").read_text()
                found.extend(int(child) for child in children.split())
    return found


def resident_bytes(pid: int) -> int:
    """Its resident memory; 0 for a process that has ended, whose statm is gone or empty."""
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    return 0


def has_mapped(pid: int, file: Path) -> bool:
    """Whether the process has this file mapped; False for one that has ended."""
    try:
        lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    except OSError:
        return False
    return any(line.endswith(f" {file}") for line in lines)
