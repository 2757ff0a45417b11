#!/usr/bin/env python3
"""Makes a failing run of the model short: which of its operations does the failure need?

Give the program and the arguments of the run that failed, with one thread (more are not
repeatable). Operations are left out, in halves, quarters and so on to single ones, as long as the
run fails in the same way (delta debugging). Prints what is left, and the file that repeats it.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

SECONDS_MAX = 60.0
FAILURE = re.compile(r"^model: FAILED: (?P<what>.*)$", re.MULTILINE)
PLACE = re.compile(r"^model: seed .* operation (?P<operation>\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Outcome:
    """How a run ended. `what` is the same for failures of one kind; None: it passed."""

    what: str | None
    operation: int | None
    text: str


def stretches(operations: Sequence[int]) -> str:
    """Numbers in rising order as "first-last" words, a line each."""
    words = []
    first = last = None
    for number in operations:
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None:
            words.append(f"{first}-{last}")
        first = last = number
    if first is not None:
        words.append(f"{first}-{last}")
    return "\n".join(words) + "\n"


def run(command: Sequence[str], file: Path, operations: Sequence[int]) -> Outcome:
    """Does these operations alone."""
    file.write_text(stretches(operations), encoding="ascii")
    try:
        done = subprocess.run(
            [*command, "--only", str(file)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS_MAX,
        )
    except subprocess.TimeoutExpired:
        return Outcome("no end", None, f"no end within {SECONDS_MAX:.0f} s\n")
    if done.returncode == 0:
        return Outcome(None, None, done.stdout)
    if done.returncode == 2:
        raise SystemExit(done.stderr)
    said = FAILURE.search(done.stderr)
    place = PLACE.search(done.stderr)
    what = re.sub(r"0x[0-9a-f]+|\d+", "N", said["what"]) if said else f"status {done.returncode}"
    return Outcome(what, int(place["operation"]) if place else None, done.stderr)


def shrink(operations: list[int], still_fails: Callable[[list[int]], bool]) -> list[int]:
    """A part of a failing sequence of which no single operation can be left out."""
    chunk = max(1, len(operations) // 2)
    while True:
        before = len(operations)
        at = 0
        while at < len(operations):
            fewer = operations[:at] + operations[at + chunk :]
            if fewer and still_fails(fewer):
                operations = fewer
            else:
                at += chunk
        if chunk == 1 and len(operations) == before:
            return operations
        chunk = max(1, chunk // 2)


def count_after(command: Sequence[str], name: str, otherwise: int) -> int:
    """The number behind an option of the program."""
    return int(command[command.index(name) + 1]) if name in command else otherwise


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--at-most", type=int, help="fail unless so few operations are left")
    parser.add_argument("--output", type=Path, help="where to keep the operations that are left")
    parser.add_argument("command", nargs="+", help="the program and its arguments, behind --")
    options = parser.parse_args()
    command: list[str] = options.command
    if count_after(command, "--threads", 4) != 1 or "--seed" not in command:
        raise SystemExit("shrink: only a run with --threads 1 and a --seed can be repeated")
    with tempfile.TemporaryDirectory(prefix="hakmem-model-") as scratch:
        file = Path(scratch) / "operations"
        everything = list(range(count_after(command, "--operations", 500000)))
        first = run(command, file, everything)
        if first.what is None:
            raise SystemExit("shrink: the run does not fail")
        # What comes after the failure is not needed.
        if first.operation is not None and first.operation < len(everything):
            everything = everything[: first.operation + 1]
        runs = 0

        def still_fails(operations: list[int]) -> bool:
            nonlocal runs
            runs += 1
            return run(command, file, operations).what == first.what

        left = shrink(everything, still_fails)
        last = run(command, file, left)
        if last.what != first.what:
            raise SystemExit("shrink: the failure does not come back")
    print(last.text.rstrip())
    print(f"shrink: {len(left)} of {len(everything)} operations after {runs} runs")
    print(" ".join(str(number) for number in left[:200]))
    if options.output is not None:
        options.output.write_text(stretches(left), encoding="ascii")
        print(f"shrink: {' '.join(command)} --only {options.output}")
    if options.at_most is not None and len(left) > options.at_most:
        print(f"shrink: more than {options.at_most} operations are left")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
