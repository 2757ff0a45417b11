"""OS calls of a program and of its children, counted by strace."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence

from .environment import CLEAN_ENVIRONMENT, TIMEOUT_SECONDS, run_alone
from .errors import BenchError


def parse_summary(summary: str) -> dict[str, int]:
    """The calls column of `strace -c`."""
    rows = re.findall(
        r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", summary, re.MULTILINE
    )
    return {name: int(calls) for calls, name in rows if name != "total"}


def trace(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, dict[str, int]]:
    """A program's output, and its OS calls by name."""
    if shutil.which("strace") is None:
        raise BenchError("strace is missing (Debian package strace)")
    with tempfile.NamedTemporaryFile(mode="r", prefix="hakmem-bench-") as summary:
        # The variables go to the program alone: strace itself is not to be preloaded.
        settings = [f"-E{key}={value}" for key, value in environment.items()]
        line = ["strace", "-f", "-c", "-o", summary.name, *settings, "--", *command]
        output = run_alone(line, CLEAN_ENVIRONMENT, TIMEOUT_SECONDS)
        return output, parse_summary(summary.read())
