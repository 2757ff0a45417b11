"""Exact instruction counts: a workload under callgrind, counted instruction by instruction."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from . import proof
from .environment import CLEAN_ENVIRONMENT, TIMEOUT_SECONDS
from .errors import BenchError, MeasureError
from .measure import Row, command_line
from .peers import Allocator

Key = TypeVar("Key")

# Callgrind knows a file by its first executable segment. Named functions of no file count as the
# library's under test, the only one with a second segment: what ordinary programs do not run
# (cmake/layout.ld.in). Code with neither name nor file is stubs of calls to other files.
UNKNOWN_FILE = "???"
SECOND_SEGMENT = "second segment"


@dataclass
class Counts:
    """What was executed inside the counted function of the workload."""

    # (object file, address in that file) -> times executed.
    executed: Counter[tuple[str, int]] = field(default_factory=Counter)
    # function -> instructions of its own, by object file and name.
    own: Counter[tuple[str, str]] = field(default_factory=Counter)
    # function -> calls of it, and instructions in those calls with all they called.
    calls: Counter[str] = field(default_factory=Counter)
    inclusive: Counter[str] = field(default_factory=Counter)
    row: Row = field(default_factory=dict)

    @property
    def total(self) -> int:
        """All instructions."""
        return self.executed.total()

    def minus(self, other: Counts) -> Counts:
        """The difference of two runs, in which start-up and warm-up cancel out."""

        def difference(ours: Counter[Key], theirs: Counter[Key]) -> Counter[Key]:
            result = Counter(ours)
            result.subtract(theirs)
            return Counter({key: value for key, value in result.items() if value})

        return Counts(
            executed=difference(self.executed, other.executed),
            own=difference(self.own, other.own),
            calls=difference(self.calls, other.calls),
            inclusive=difference(self.inclusive, other.inclusive),
            row=self.row,
        )


def parse(text: str) -> Counts:
    """A callgrind file written with --dump-instr=yes and without any compression."""
    counts = Counts()
    obj = fn = called = ""
    skip = False
    for line in text.splitlines():
        key, equals, value = line.partition("=")
        if equals and key == "ob":
            obj = value
        elif equals and key == "fn":
            fn = value
            if obj in (UNKNOWN_FILE, SECOND_SEGMENT):
                obj = UNKNOWN_FILE if fn.startswith("0x") else SECOND_SEGMENT
        elif equals and key == "cfn":
            called = value
        elif equals and key == "calls":
            counts.calls[called] += int(value.split()[0])
            skip = True
        elif line.startswith("0x"):
            numbers = line.split()
            cost = int(numbers[2]) if len(numbers) > 2 else 0
            if skip:
                counts.inclusive[called] += cost
                skip = False
            else:
                counts.executed[obj, int(numbers[0], 16)] += cost
                counts.own[obj, fn] += cost
    return counts


def run(
    allocator: Allocator,
    program: Path,
    arguments: Mapping[str, object],
    environment: Mapping[str, str],
    inside: str,
) -> Counts:
    """Counts one run of the program, but only inside the function `inside` if one is named, with
    proof."""
    if shutil.which("valgrind") is None:
        raise BenchError("valgrind is missing (Debian package valgrind)")
    with tempfile.TemporaryDirectory(prefix="hakmem-bench-") as folder:
        output = Path(folder) / "counts"
        command = [
            "valgrind",
            "--quiet",
            "--tool=callgrind",
            f"--callgrind-out-file={output}",
            "--dump-instr=yes",
            "--compress-strings=no",
            "--compress-pos=no",
            *([f"--toggle-collect={inside}"] if inside else []),
            *command_line(program, arguments),
        ]
        try:
            done = subprocess.run(
                command,
                env={**CLEAN_ENVIRONMENT, **environment, **allocator.settings()},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise MeasureError(f"still running after {TIMEOUT_SECONDS} s") from error
        if done.returncode != 0:
            raise MeasureError(f"exit status {done.returncode}: {done.stderr.strip()[-500:]}")
        counts = parse(output.read_text())
    counts.row = json.loads(done.stdout)
    proof.verify(counts.row.get("proof"), allocator)
    if not counts.executed:
        raise MeasureError(f"nothing was counted inside {inside or program.name}")
    return counts


def per_operation(
    allocator: Allocator,
    program: Path,
    arguments: Mapping[str, object],
    environment: Mapping[str, str],
    *,
    few: int,
    many: int,
    inside: str = "pairs_run",
) -> Counts:
    """What `many - few` more operations cost: the difference of two runs, divided by nothing."""
    counts = {
        ops: run(allocator, program, {**arguments, "ops": ops}, environment, inside)
        for ops in (few, many)
    }
    return counts[many].minus(counts[few])


def in_file(counts: Counts, library: Path) -> dict[int, int]:
    """The counts of one object file, by address."""
    real = os.path.realpath(library)
    return {
        address: times
        for (file, address), times in counts.executed.items()
        if file == SECOND_SEGMENT or os.path.realpath(file) == real
    }


def function_calls(counts: Counts, name: str) -> tuple[int, int]:
    """Calls of a function and instructions inside them; callgrind appends 'n for recursion."""
    matching = [key for key in counts.calls if re.fullmatch(re.escape(name) + r"('\d+)?", key)]
    return sum(counts.calls[key] for key in matching), sum(
        counts.inclusive[key] for key in matching
    )
