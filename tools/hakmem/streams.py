"""Standard output and standard error, so that what becomes of them does not change a verdict.

Whoever reads our output may have had enough of it (`| head`): the rest is thrown away, and the exit
status is what it would have been. An output that takes nothing (a full disk, a closed descriptor)
is an error of its own, told once, at the latest when the command has done its work. A letter that
the terminal's encoding lacks is written as its number.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STANDARD_OUTPUT, STANDARD_ERROR = 1, 2


class _Output(io.FileIO):
    """A descriptor that is not written to again after it failed. `is_last_resort`: nobody is left
    who could be told."""

    def __init__(self, descriptor: int, *, is_last_resort: bool) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._is_last_resort = is_last_resort
        self._is_lost = False

    def write(self, data: ReadableBuffer, /) -> int:
        if not self._is_lost:
            try:
                return super().write(data)
            except OSError as error:
                self._is_lost = True
                if not isinstance(error, BrokenPipeError) and not self._is_last_resort:
                    raise OSError(error.errno, error.strerror, "standard output") from None
        return memoryview(data).nbytes


def _stream(descriptor: int, before: TextIO | None) -> TextIO:
    """As Python would make it: like `before`, the one it did make unless it found none open."""
    raw = _Output(descriptor, is_last_resort=descriptor == STANDARD_ERROR)
    is_by_line = isinstance(before, io.TextIOWrapper) and (
        before.line_buffering or before.write_through
    )
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        before.encoding if before is not None else "utf-8",
        "backslashreplace",
        line_buffering=is_by_line,
    )


def _hold_closed_descriptors() -> None:
    """No file that is opened later becomes the standard output of one that has none: what is
    written there fails. A program that is started finds them closed, as we did."""
    while (descriptor := os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)) <= STANDARD_ERROR:
        pass
    os.close(descriptor)


def take_over() -> None:
    """For the rest of this process; not where a caller of Python has put streams of its own."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _hold_closed_descriptors()
    if sys.stdout is sys.__stdout__:
        sys.stdout = _stream(STANDARD_OUTPUT, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _stream(STANDARD_ERROR, sys.stderr)
