#!/usr/bin/env python3
"""Runs one misuse program in every mode and compares what it says with the table (table.py).

Each run must print exactly one line on stderr, the one in the table, with the pointer, block and
size that the program told on stdout. By default misuse ends the program with SIGABRT. With
HAKMEM_ABORT=0 the line is printed, the call has no effect, a workload finds no overlapping or
damaged blocks, and the exit status is 0.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from table import MODES, TABLE, Row, row_of


@dataclass(frozen=True)
class Run:
    status: int
    said: list[str]  # lines of stdout
    complaints: list[str]  # lines of stderr


def without_core_files() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def start(program: Path, library: Path | None, mode: str, settings: dict[str, str]) -> Run:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM_")}
    # A sampled block has a message of its own: tests/guarded.
    environment["HAKMEM_GUARD_SAMPLE"] = "0"
    environment.update(settings)
    if library is not None:
        environment.update(LD_PRELOAD=str(library), HAKMEM_MODE=mode, BEHAVIOUR_ALLOCATOR="hakmem")
    done = subprocess.run(
        [program],
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=300,  # tests/patience.py, which no script can import
        preexec_fn=without_core_files,
        check=False,
    )
    return Run(done.returncode, done.stdout.splitlines(), done.stderr.splitlines())


def expected_line(row: Row, run: Run, program: Path, mode: str) -> str:
    """The row's expression with what the program told about its pointer."""
    pointer = block = size = 0
    for line in run.said:
        words = line.split()
        if words[0] == "pointer":
            pointer = int(words[1], 16)
        elif words[0] == "block":
            block, size = int(words[1], 16), int(words[2])
    values = {
        "{p}": f"{pointer:#x}",
        "{b}": f"{block:#x}",
        "{n}": str(size),
        "{k}": str(pointer - block),
        "{exe}": re.escape(str(program.resolve())),
    }
    expression = row.line
    if mode in row.late_in and row.line_if_late:
        expression = f"(?:{row.line}|{row.line_if_late})"
    for name, value in values.items():
        expression = expression.replace(name, value)
    return "hakmem: " + expression


def wrong_with(
    row: Row, run: Run, program: Path, mode: str, *, aborts: bool, by: str
) -> str | None:
    """What is wrong with a run, or None. `by` is what must have ended before the line: the call
    itself, the thread that made it, or the process."""
    if mode in row.quiet_in:
        if run.complaints:
            return f"expected silence, got {run.complaints}"
        expected = -signal.SIGSEGV if mode in row.faults_in else 0
        if run.status != expected:
            return f"exit status {run.status}, expected {expected}"
        missing = row.says.get(mode)
        return f"did not say {missing}" if missing and missing not in run.said else None
    expression = expected_line(row, run, program, mode)
    right = [line for line in run.complaints if re.fullmatch(expression, line)]
    if not right or len(right) < len(run.complaints) or (len(right) > 1 and not row.many):
        found = "\n    ".join(run.complaints) or "(nothing)"
        return f"expected one line\n    {expression}\n  found\n    {found}\n  status {run.status}"
    if aborts:
        if run.status != -signal.SIGABRT:
            return f"expected the end by SIGABRT, status is {run.status}"
        if by != "process" and "after" in run.said:
            return f"noticed only after the end of the {by} that made the mistake"
        return None
    if run.status != 0:
        return f"with HAKMEM_ABORT=0 the exit status is {run.status}"
    if "sound" not in run.said:
        return "with HAKMEM_ABORT=0 the workload did not finish"
    return None


def check(program: Path, library: Path | None, mode: str) -> list[str]:
    """All runs of one program in one mode; what went wrong."""
    row = row_of(program.name.removeprefix("misuse_"))
    late = mode in row.late_in
    quiet = mode in row.quiet_in
    runs: list[tuple[str, dict[str, str], bool, str]] = []
    if quiet:
        return problems(program, library, mode, [("", {"MISUSE_WORKLOAD": "1"}, False, "process")])
    at_exit = late or mode in row.at_exit_in
    runs.append(("", {}, True, "process" if at_exit else "call"))
    if late:
        runs.append(("on a thread", {"MISUSE_THREAD": "1"}, True, "thread"))
    ignoring = {"HAKMEM_ABORT": "0", "MISUSE_WORKLOAD": "1"}
    if late:
        ignoring["MISUSE_THREAD"] = "1"
    runs.append(("with HAKMEM_ABORT=0", ignoring, False, "process"))
    return problems(program, library, mode, runs)


def check_unverified(program: Path, library: Path | None, mode: str) -> list[str]:
    """What only the verification at exit would notice passes without it: a mistake at the end of a
    process that frees nothing after it. That it is noticed with it, check() looks at."""
    try:
        run = start(program, library, mode, {"HAKMEM_EXIT_CHECK": "0"})
        is_right = run.status == 0 and not run.complaints and "after" in run.said
        wrong = None if is_right else f"expected silence and status 0, got {run}"
    except subprocess.TimeoutExpired:
        wrong = "no end within five minutes"
    return [f"{program.name} in mode {mode} with HAKMEM_EXIT_CHECK=0: {wrong}"] if wrong else []


def problems(
    program: Path,
    library: Path | None,
    mode: str,
    runs: Sequence[tuple[str, dict[str, str], bool, str]],
) -> list[str]:
    """What is wrong with runs of one program, each with a name, settings, and how it is to end."""
    row = row_of(program.name.removeprefix("misuse_"))
    failures = []
    for name, settings, aborts, by in runs:
        try:
            run = start(program, library, mode, settings)
            wrong = wrong_with(row, run, program, mode, aborts=aborts, by=by)
        except subprocess.TimeoutExpired:
            wrong = "no end within five minutes"
        if wrong is not None:
            failures.append(f"{program.name} in mode {mode} {name}: {wrong}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", type=Path, nargs="*", help="programs to run")
    parser.add_argument("--library", type=Path, help="libhakmem.so to preload")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--sources", type=Path, help="check that table and programs agree")
    parser.add_argument(
        "--unverified",
        action="store_true",
        help="with HAKMEM_EXIT_CHECK=0: expect that nothing is said",
    )
    parser.add_argument(
        "--must-fail",
        action="store_true",
        help="control: without the library, each program that must be noticed has to fail",
    )
    options = parser.parse_args()
    if options.sources is not None:
        programs = {path.stem for path in options.sources.iterdir()}
        programs = {name for name in programs if not name.startswith("contract_")}
        for name in sorted(programs ^ TABLE.keys()):
            print(f"{name}: {'no row in the table' if name in programs else 'no program'}")
        return 1 if programs ^ TABLE.keys() else 0
    status = 0
    for program in options.program:
        for mode in options.modes.split(","):
            look = check_unverified if options.unverified else check
            failures = look(program, options.library, mode)
            if options.must_fail:
                row = row_of(program.name.removeprefix("misuse_"))
                failures = (
                    []
                    if failures or mode in row.quiet_in
                    else [f"{program.name}: passes without hakmem, so it tests nothing"]
                )
            for failure in failures:
                print(failure)
                status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
