"""The files that a user names to be looked at."""

from __future__ import annotations

import argparse
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
