"""The files that a user names to be looked at."""

from __future__ import annotations

import argparse
import stat
from pathlib import Path

from hakmem.inspect.errors import InspectError


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
