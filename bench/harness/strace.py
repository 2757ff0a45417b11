"""OS calls of a program and of its children, counted by strace."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence

from .environment import CLEAN_ENVIRONMENT, TIMEOUT_SECONDS, run_alone
from .errors import BenchError, MeasureError


def parse_summary(summary: str) -> dict[str, int]:
    """The calls column of `strace -c`."""
    rows = re.findall(
        r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", summary, re.MULTILINE
    )
    return {name: int(calls) for calls, name in rows if name != "total"}


def parse_timed_part(listing: str) -> dict[str, int]:
    """The calls, by name, of a workload's timed part in what `strace -f` wrote.

    frame_start() ends with a look at the children's resources, frame_stop() begins with one at its
    own; where a workload starts anew the last start counts.
    """
    lines = listing.splitlines()
    starts = [at for at, line in enumerate(lines) if "getrusage(RUSAGE_CHILDREN" in line][:-1]
    if not starts:
        raise MeasureError("no timed part among the OS calls")
    calls: Counter[str] = Counter()
    for line in lines[starts[-1] + 1 :]:
        call = re.match(r"\d+ +(\w+)\(", line)
        if call is None:
            continue  # a signal, an exit, the rest of a call
        if "getrusage(RUSAGE_SELF" in line:
            return dict(calls)
        calls[call[1]] += 1
    raise MeasureError("the timed part has no end among the OS calls")


def trace(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, dict[str, int]]:
    """A program's output, and its OS calls by name."""
    output, summary = _run(command, environment, "-c")
    return output, parse_summary(summary)


def trace_timed_part(
    command: Sequence[str], environment: Mapping[str, str]
) -> tuple[str, dict[str, int]]:
    """A workload's output, and the OS calls of its timed part by name."""
    output, listing = _run(command, environment)
    return output, parse_timed_part(listing)


def require() -> None:
    """BenchError where strace is missing."""
    if shutil.which("strace") is None:
        raise BenchError("strace is missing (Debian package strace)")


def _run(command: Sequence[str], environment: Mapping[str, str], *options: str) -> tuple[str, str]:
    """The program's output, and what strace wrote."""
    require()
    with tempfile.NamedTemporaryFile(mode="r", prefix="hakmem-bench-") as written:
        # The variables go to the program alone: strace itself is not to be preloaded.
        settings = [f"-E{key}={value}" for key, value in environment.items()]
        line = ["strace", "-f", *options, "-o", written.name, *settings, "--", *command]
        return run_alone(line, CLEAN_ENVIRONMENT, TIMEOUT_SECONDS), written.read()
