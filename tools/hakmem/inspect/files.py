"""The files that a user names to be looked at."""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from hakmem.inspect.errors import DamagedError, InspectError


def named(text: str) -> str:
    """A type of argparse: the target of a verb, as it was named."""
    if not text:
        raise argparse.ArgumentTypeError("an empty name is no process and no file")
    return text


def require_regular(path: Path) -> None:
    """InspectError for what can be read only once, as a pipe, or has no contents of its own."""
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise InspectError(f"{path}: {error.strerror}") from None
    # The system has a word of its own for a directory.
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InspectError(f"{path}: is not a regular file: save it first")


def head(path: Path, count: int) -> bytes:
    """The first bytes of a regular file."""
    require_regular(path)
    try:
        with path.open("rb") as file:
            return file.read(count)
    except OSError as error:
        raise InspectError(f"{path}: {error.strerror}") from None


def read_at(file: BinaryIO, path: Path, offset: int, count: int) -> bytes:
    """Bytes of a file that has, or had, so many. It is not mapped: who maps a file ends when
    somebody else cuts it short."""
    parts: list[bytes] = []
    while count > 0:
        try:
            part = os.pread(file.fileno(), count, offset)
        except OSError as error:
            raise InspectError(f"{path}: {error.strerror}") from None
        if not part:
            raise InspectError(f"{path}: was cut short while it was read")
        parts.append(part)
        offset, count = offset + len(part), count - len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


@contextmanager
def damage_told(*names: str) -> Iterator[None]:
    """The last net where snapshots are shown or compared: saved JSON may say of each figure what it
    likes, and of all together what cannot be. Of processes nothing is caught."""
    try:
        yield
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        files = [name for name in names if not name.isdecimal()]
        if not files:
            raise
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        raise DamagedError(f"{' or '.join(files)}: is damaged ({words})") from error
