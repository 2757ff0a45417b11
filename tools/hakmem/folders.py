"""Temporary folders of the tools."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hakmem.errors import HakmemError

IN_MEMORY = Path("/dev/shm")
# A process, and each fork, takes 80 KiB of it until the end: containers have 64 MiB in all.
IN_MEMORY_BYTES_MIN = 1 << 30


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """A new one, which is gone afterwards. HakmemError where none can be made."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    except OSError as error:
        raise HakmemError(f"no temporary folder can be made: {error.strerror}") from None
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _has_room(folder: Path) -> bool:
    try:
        free = shutil.disk_usage(folder).free
    except OSError:
        return False
    return free >= IN_MEMORY_BYTES_MIN and os.access(folder, os.W_OK | os.X_OK)


def whole_of(folder: Path) -> Path:
    """The temporary folder that one for reports is, or is in."""
    return folder.parent if os.geteuid() == 0 else folder


@contextmanager
def report_folder(prefix: str) -> Iterator[Path]:
    """For the report files of processes, in memory where there is room.

    A program started by root may change its user and must still be able to write, so the folder
    is then open to all for writing. It has a name that nobody else can find out, in one that nobody
    else can list: what is written there is believed. Names are never reused."""
    with temporary_folder(prefix, IN_MEMORY if _has_room(IN_MEMORY) else None) as folder:
        if os.geteuid() != 0:
            yield folder
            return
        folder.chmod(0o711)
        inner = folder / secrets.token_hex(16)
        inner.mkdir()
        inner.chmod(0o1733)
        yield inner
