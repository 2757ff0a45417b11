"""What the tests of this directory share: a program's run and what is read from it."""

from __future__ import annotations

import subprocess
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


def function_names(module: str, offsets: list[str]) -> list[str]:
    """Of the functions that addr2line finds there."""
    done = subprocess.run(
        ["addr2line", "--functions", f"--exe={module}", *offsets],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()[::2]
