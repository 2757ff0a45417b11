#!/usr/bin/env python3
"""Runs one fault program in every mode and compares what it says with the table below.

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
from dataclasses import dataclass
from pathlib import Path

MODES = ("fast", "lean", "hardened", "research")

# A small block of the calling thread goes to its cache unseen; the bitmap tells when the cache is
# flushed, at the latest when the thread or the process ends. Hardened mode looks at once.
CACHED = ("fast", "lean", "research")


@dataclass(frozen=True)
class Row:
    """What a program must say: a regular expression in which {p} is the pointer, {b} and {n} the
    block it is about and that block's usable size, {k} the distance from {b} to {p}, {exe} the
    program's own path."""

    line: str
    late_in: tuple[str, ...] = ()  # modes that may notice later than at once
    quiet_in: tuple[str, ...] = ()  # modes that rightly say nothing
    line_if_late: str = ""  # also right where the line may come later


def not_ours(what: str, where: str) -> Row:
    return Row(rf"{what}: {{p}} is not from this heap \(it lies in {where}\)")


def nothing_there(what: str) -> Row:
    return Row(rf"{what}: {{p}} is not from this heap \(nothing is mapped there\)")


def above(what: str) -> Row:
    return Row(rf"{what}: {{p}} is above the 47-bit address space")


def inside_small(what: str, late_in: tuple[str, ...] = ()) -> Row:
    return Row(rf"{what}: {{p}} lies {{k}} bytes inside the {{n}}-byte block at {{b}}", late_in)


def inside_large(what: str) -> Row:
    return Row(rf"{what}: {{p}} lies {{k}} bytes inside the large block at {{b}} of {{n}} bytes")


def free_small(what: str, late_in: tuple[str, ...] = ()) -> Row:
    """The first free of a late row may have emptied the slab, which then is one no more."""
    gone = rf"{FREE}: {{p}} lies in free heap space"
    return Row(rf"{what}: {{p}} is a free block of {{n}} bytes", late_in, line_if_late=gone)


def free_large(what: str) -> Row:
    return Row(rf"{what}: {{p}} is the start of a freed large block")


def free_huge(what_freed: str, what_invalid: str) -> Row:
    """A freed huge block may have left the address space, and then nothing is known of it."""
    known = rf"{what_freed}: {{p}} is the start of a freed large block"
    gone = rf"{what_invalid}: {{p}} is not from this heap \(nothing is mapped there\)"
    return Row(f"(?:{known}|{gone})")


FREE = "invalid free"
DOUBLE = "double free"
REALLOC = "invalid realloc"
REALLOC_FREED = "realloc of a freed block"
USABLE = "invalid malloc_usable_size"
USABLE_FREED = "malloc_usable_size of a freed block"

TABLE: dict[str, Row] = {
    # Not from this heap.
    "free_stack": not_ours(FREE, r"\[stack\] rw-p"),
    "free_thread_stack": not_ours(FREE, r"\[anon\] rw-p"),
    "free_global": not_ours(FREE, "{exe} rw-p"),
    "free_rodata": not_ours(FREE, "{exe} r--p"),
    "free_text": not_ours(FREE, "{exe} r-xp"),
    "free_anonymous_mapping": not_ours(FREE, r"\[anon\] rw-p"),
    "free_heap_lookalike": not_ours(FREE, r"\[anon\] rw-p"),
    "free_prot_none": not_ours(FREE, r"\[anon\] ---p"),
    "free_brk": not_ours(FREE, r"\[heap\] rw-p"),
    "free_other_library": not_ours(FREE, r"\S*/libfault_foreign\.so rw-p"),
    "free_other_libc": not_ours(FREE, r"(?:\[heap\]|\[anon\]) rw-p"),
    "free_unmapped": nothing_there(FREE),
    "free_one": nothing_there(FREE),
    "free_small_integer": nothing_there(FREE),
    "free_page_zero": nothing_there(FREE),
    "free_low_64_kib": nothing_there(FREE),
    "free_minus_one": above(FREE),
    "free_minus_16": above(FREE),
    "free_kernel_address": above(FREE),
    "free_noncanonical": above(FREE),
    "free_bit_47": above(FREE),
    "free_bit_56": above(FREE),
    "free_tagged_block": above(FREE),
    # Inside a small block, or beside one.
    "free_interior_1": inside_small(FREE, CACHED),
    "free_interior_4": inside_small(FREE, CACHED),
    "free_interior_8": inside_small(FREE, CACHED),
    "free_interior_16": inside_small(FREE, CACHED),
    "free_interior_100": inside_small(FREE, CACHED),
    "free_interior_medium": inside_small(FREE, CACHED),
    "free_interior_aligned": inside_small(FREE, CACHED),
    "free_interior_other_thread": inside_small(FREE),
    "free_before_block": inside_small(FREE, CACHED),
    # The cache may have taken it from the slab already.
    "free_never_handed_out": Row(
        rf"(?:{FREE}: {{p}} is a block never handed out, of {{n}} bytes"
        rf"|{DOUBLE}: {{p}} is a free block of {{n}} bytes)",
        late_in=CACHED,
    ),
    "free_slab_tail": Row(
        f"{FREE}: {{p}} lies in a slab's tail, where no block is", late_in=CACHED
    ),
    # Inside a large or huge block.
    "free_large_1": inside_large(FREE),
    "free_large_16": inside_large(FREE),
    "free_large_page": inside_large(FREE),
    "free_large_64_kib": inside_large(FREE),
    "free_large_other_thread": inside_large(FREE),
    "free_huge_16": inside_large(FREE),
    "free_huge_page": inside_large(FREE),
    "free_huge_64_kib": inside_large(FREE),
    "free_huge_1_mib": inside_large(FREE),
    "free_huge_63_mib": inside_large(FREE),
    # Double free.
    "double_free_tiny": free_small(DOUBLE, CACHED),
    "double_free_small": free_small(DOUBLE, CACHED),
    "double_free_medium": free_small(DOUBLE, CACHED),
    "double_free_aligned": free_small(DOUBLE, CACHED),
    "double_free_calloc": free_small(DOUBLE, CACHED),
    "double_free_large": free_large(DOUBLE),
    "double_free_large_aligned": free_large(DOUBLE),
    "double_free_huge": free_huge(DOUBLE, FREE),
    "double_free_after_one": free_small(DOUBLE, CACHED),
    "double_free_after_many": free_small(DOUBLE, CACHED),
    "double_free_after_other_sizes": free_small(DOUBLE, CACHED),
    "double_free_after_realloc": free_small(DOUBLE, CACHED),
    "double_free_after_reuse": free_small(DOUBLE, CACHED),
    "double_free_owner_gone": free_small(DOUBLE, CACHED),
    "double_free_other_thread": free_small(DOUBLE, CACHED),
    "double_free_two_other_threads": free_small(DOUBLE, CACHED),
    "double_free_owner_then_other": free_small(DOUBLE, CACHED),
    "double_free_other_then_owner": free_small(DOUBLE, CACHED),
    "double_free_at_the_same_moment": free_small(DOUBLE, CACHED),
    "double_free_large_other_thread": free_large(DOUBLE),
    "double_free_large_at_the_same_moment": free_large(DOUBLE),
    "double_free_large_after_realloc": free_large(DOUBLE),
    # Its start may be forgotten once it has become part of a longer free run.
    "double_free_large_after_others": Row(
        rf"(?:{DOUBLE}: {{p}} is the start of a freed large block"
        rf"|{FREE}: {{p}} lies in free heap space)"
    ),
    # realloc looks at the bitmap in every mode.
    "realloc_stack": not_ours(REALLOC, r"\[stack\] rw-p"),
    "realloc_small_integer": nothing_there(REALLOC),
    "realloc_minus_one": above(REALLOC),
    "realloc_anonymous_mapping": not_ours(REALLOC, r"\[anon\] rw-p"),
    "realloc_interior": inside_small(REALLOC),
    "realloc_interior_large": inside_large(REALLOC),
    "realloc_freed": free_small(REALLOC_FREED),
    "realloc_freed_same_size": free_small(REALLOC_FREED),
    "realloc_freed_to_zero": free_small(f"(?:{REALLOC_FREED}|{DOUBLE})", CACHED),
    "realloc_freed_other_thread": free_small(REALLOC_FREED),
    "realloc_freed_large": free_large(REALLOC_FREED),
    "realloc_freed_huge": free_huge(REALLOC_FREED, REALLOC),
    # So does malloc_usable_size.
    "usable_size_stack": not_ours(USABLE, r"\[stack\] rw-p"),
    "usable_size_small_integer": nothing_there(USABLE),
    "usable_size_kernel_address": above(USABLE),
    "usable_size_interior": inside_small(USABLE),
    "usable_size_interior_huge": inside_large(USABLE),
    "usable_size_freed": free_small(USABLE_FREED),
    "usable_size_freed_large": free_large(USABLE_FREED),
    # Sizes told to free: compared in hardened mode only.
    "free_sized_mismatch": Row(
        "size mismatch: {p} is a block of {n} bytes, not of 5000", quiet_in=CACHED
    ),
    "free_sized_mismatch_large": Row(
        "size mismatch: {p} is a block of {n} bytes, not of 208", quiet_in=CACHED
    ),
    "free_sized_right": Row("", quiet_in=MODES),
}


@dataclass(frozen=True)
class Run:
    status: int
    said: list[str]  # lines of stdout
    complaints: list[str]  # lines of stderr


def without_core_files() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def start(program: Path, library: Path | None, mode: str, settings: dict[str, str]) -> Run:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM_")}
    environment.update(settings)
    if library is not None:
        environment.update(LD_PRELOAD=str(library), HAKMEM_MODE=mode, BEHAVIOUR_ALLOCATOR="hakmem")
    done = subprocess.run(
        [program],
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=30,
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
        return None if run.status == 0 else f"exit status {run.status}"
    expression = expected_line(row, run, program, mode)
    if len(run.complaints) != 1 or re.fullmatch(expression, run.complaints[0]) is None:
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
    row = TABLE[program.name.removeprefix("fault_")]
    late = mode in row.late_in
    quiet = mode in row.quiet_in
    runs: list[tuple[str, dict[str, str], bool, str]] = []
    runs.append(("", {}, not quiet, "process" if late else "call"))
    if late:
        runs.append(("on a thread", {"FAULT_THREAD": "1"}, True, "thread"))
    ignoring = {"HAKMEM_ABORT": "0"}
    if late:
        ignoring["FAULT_THREAD"] = "1"
    runs.append(("with HAKMEM_ABORT=0", ignoring, False, "process"))
    failures = []
    for name, settings, aborts, by in runs:
        try:
            run = start(program, library, mode, settings)
            wrong = wrong_with(row, run, program, mode, aborts=aborts, by=by)
        except subprocess.TimeoutExpired:
            wrong = "no end within 30 seconds"
        if wrong is not None:
            failures.append(f"{program.name} in mode {mode} {name}: {wrong}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", type=Path, nargs="*", help="fault programs to run")
    parser.add_argument("--library", type=Path, help="libhakmem.so to preload")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--sources", type=Path, help="check that table and programs agree")
    parser.add_argument(
        "--must-fail",
        action="store_true",
        help="control: without the library, each program that must be noticed has to fail",
    )
    options = parser.parse_args()
    if options.sources is not None:
        programs = {path.stem for path in options.sources.glob("*.c")}
        for name in sorted(programs ^ TABLE.keys()):
            print(f"{name}: {'no row in the table' if name in programs else 'no program'}")
        return 1 if programs ^ TABLE.keys() else 0
    status = 0
    for program in options.program:
        for mode in options.modes.split(","):
            failures = check(program, options.library, mode)
            if options.must_fail:
                row = TABLE[program.name.removeprefix("fault_")]
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
