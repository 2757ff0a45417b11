"""What the tests of this directory share: a program's run and what is read from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

MODES = ("fast", "lean", "hardened", "research")


@dataclass(frozen=True)
class Outcome:
    """How a program ended: exit status (negative: the signal), and its two texts."""

    status: int
    out: str
    err: str


Run = Callable[..., Outcome]
