"""The files behind a process's mappings: what it has mapped of them and not touched reads the same
there, and costs it no resident page."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from hakmem.inspect.memory import Area


class BackingFiles:
    """Files by device and inode, opened once; None for those that are not there any more, or that
    cannot be told to be the mapped ones."""

    def __init__(self) -> None:
        self._files: dict[tuple[str, int], int | None] = {}

    def read(self, process: Path, area: Area, offset: int, count: int) -> bytes | None:
        """Bytes of the file that a process, by its folder in /proc, has mapped there; None when
        they are not to be had."""
        if area.file is None:
            return None
        if area.file not in self._files:
            self._files[area.file] = _open(process, area)
        file = self._files[area.file]
        if file is None:
            return None
        try:
            data = os.pread(file, count, offset)
        except OSError:
            return None
        return data if len(data) == count else None

    def close(self) -> None:
        for file in self._files.values():
            if file is not None:
                os.close(file)
        self._files.clear()


def _open(process: Path, area: Area) -> int | None:
    """By its name in the process's own tree, and without effect on what is no file: only the one
    that is mapped is opened for reading."""
    try:
        place = os.open(process / "root" / area.name.lstrip("/"), os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError):
        return None
    try:
        if not _is(os.fstat(place), area):
            return None
        return os.open(f"/proc/self/fd/{place}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    finally:
        os.close(place)


def _is(found: os.stat_result, area: Area) -> bool:
    device = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}"
    return stat.S_ISREG(found.st_mode) and (device, found.st_ino) == area.file
