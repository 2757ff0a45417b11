"""Why a heap could not be read; each says it in one sentence for the user."""

from __future__ import annotations

from hakmem.errors import EXIT_USAGE, HakmemError


def plain(text: str) -> str:
    """Names come from the target: what would end a line or move a cursor is a question mark."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class InspectError(HakmemError):
    """The target cannot be read. Its status is that of wrong usage: 1 is some verbs' verdict."""

    status = EXIT_USAGE

    def __init__(self, message: str) -> None:
        super().__init__(plain(message))


class NoHakmemError(InspectError):
    """What was named does not use hakmem."""


class GoneError(InspectError):
    """The process ended while it was being read, or became another program by exec."""


class KernelError(InspectError):
    """A process without memory of its own."""


class DamagedError(InspectError):
    """Metadata that cannot be: overwritten, cut short, or not hakmem's."""


class UnreadableError(InspectError):
    """An address that the target has no memory at."""
