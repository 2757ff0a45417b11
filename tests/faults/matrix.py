#!/usr/bin/env python3
"""The fault matrix: runs every row of it and writes docs/FAULTS.md.

Each row is one kind of system call, one error and one way to fail, in one mode, for every n that
the load reaches; then the limits of the system, as tests/limits and tests/stress have them."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
DOCUMENT = TOP / "docs/FAULTS.md"
MODES = ("fast", "lean", "hardened")
ERRORS = ("ENOMEM", "EAGAIN", "EPERM")
# The tests of limits: what their names mean.
LIMITS = {
    "limits.rlimit.as_49152_40": "RLIMIT_AS 48 MiB",
    "limits.rlimit.as_131072_60": "RLIMIT_AS 128 MiB",
    "limits.rlimit.as_200000_60": "RLIMIT_AS 200 MB (`ulimit -v 200000`)",
    "limits.rlimit.data_32768_50": "RLIMIT_DATA 32 MiB",
    "limits.rlimit.data_131072_70": "RLIMIT_DATA 128 MiB",
    "limits.overcommit": "overcommit_memory = 2, or RLIMIT_DATA where it cannot be set",
    "limits.mappings": "vm.max_map_count exhausted",
    "limits.cgroup": "memory cgroup of three times what is live, or peak RSS below that",
    "limits.locked": "mlockall(MCL_FUTURE), with and without room to lock",
    "api.process": "no file can be opened (no /proc), no descriptor is open",
    "stress.small_stacks": "threads with 16 KiB stacks",
}
ROW = re.compile(
    r"row (?P<way>\S+) (?P<call>\S+) (?P<error>\S+) reached (?P<reached>\d+) runs (?P<runs>\d+) "
    r"served (?P<served>\d+) refused (?P<refused>\d+) nulls (?P<nulls>\d+) failed (?P<failed>\d+)"
)


@dataclass(frozen=True)
class Row:
    mode: str
    way: str
    call: str
    error: str
    reached: int
    runs: int
    served: int
    refused: int
    nulls: int
    failed: int


def run_way(build: Path, mode: str, way: str, error: str, stride: int) -> list[Row]:
    command = [
        str(build / "tests/faults/faults_fail_calls"),
        *([] if way == "once" else [f"--{way}"]),
        *("--errno", error, "--stride", str(stride)),
        str(build / "libhakmem.so"),
        str(build / "tests/faults/faults_load"),
    ]
    environment = {**os.environ, "HAKMEM_MODE": mode, "BEHAVIOUR_ALLOCATOR": "hakmem"}
    done = subprocess.run(command, env=environment, text=True, capture_output=True)
    rows = []
    for line in done.stdout.splitlines():
        if found := ROW.fullmatch(line):
            numbers = {
                name: int(text)
                for name, text in found.groupdict().items()
                if name not in ("way", "call", "error")
            }
            rows.append(Row(mode, found["way"], found["call"], found["error"], **numbers))
        else:
            print(line, flush=True)
    if not rows or (done.returncode != 0 and not any(row.failed for row in rows)):
        raise SystemExit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stderr}")
    for row in rows:
        print(row, flush=True)
    return rows


def run_limits(build: Path) -> dict[tuple[str, str], str]:
    """Outcome by (name, mode)."""
    names = "|".join(re.escape(name) for name in LIMITS)
    with tempfile.TemporaryDirectory(prefix="hakmem-faults-") as scratch:
        report = Path(scratch) / "report.xml"
        command = ["ctest", "--test-dir", str(build), "--output-junit", str(report)]
        command += ["-R", rf"^({names})\.({'|'.join(MODES)})$"]
        subprocess.run(command, stdout=subprocess.DEVNULL)
        outcomes = {}
        for case in ElementTree.parse(report).iter("testcase"):
            name, mode = case.attrib["name"].rsplit(".", 1)
            outcomes[name, mode] = "pass" if case.attrib["status"] == "run" else "FAIL"
    return outcomes


def table(header: tuple[str, ...], rows: list[tuple[object, ...]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def calls_table(rows: list[Row]) -> str:
    """One line per mode, call and way: the errors side by side."""
    lines: list[tuple[object, ...]] = []
    keys = dict.fromkeys((row.mode, row.way, row.call) for row in rows)
    for mode, way, call in keys:
        own = [row for row in rows if (row.mode, row.way, row.call) == (mode, way, call)]
        runs = sum(row.runs for row in own)
        if runs == 0:
            lines.append((mode, call, way, 0, "-", "-", "-", "-"))
            continue
        survived = runs - sum(row.failed for row in own)
        lines.append(
            (
                mode,
                call,
                way,
                max(row.reached for row in own),
                f"{survived} of {runs}",
                sum(row.served for row in own),
                sum(row.refused for row in own),
                max(row.nulls for row in own),
            )
        )
    header = (
        *("mode", "call", "fails", "n reached", "survived", "all served", "some refused"),
        "most NULLs of a run",
    )
    return table(header, lines)


def document(rows: list[Row], limits: dict[tuple[str, str], str], stride: int) -> str:
    runs = sum(row.runs for row in rows)
    failed = sum(row.failed for row in rows)
    limit_rows: list[tuple[object, ...]] = [
        (what, *(limits.get((name, mode), "-") for mode in MODES)) for name, what in LIMITS.items()
    ]
    which = "each n" if stride == 1 else f"one n in {stride}"
    return f"""\
# What happens when the system says no

Written by `make fault-matrix` (tests/faults/matrix.py). A load that goes through every entry
point, every kind of block, a thread and a fork runs while one system call of the allocator fails:
the n-th, for {which} that the load reaches, with ENOMEM, EAGAIN and EPERM, alone (`once`) or with
all that follow (`from-then-on`); or a call is forbidden from the first instruction to the last,
as in a sandbox (`for-good`). seccomp sends the calls to the runner; those of the loader and of
libc pass, except clone, which is theirs. How many calls a run makes goes by the clock: reached is
what each of three runs reaches; an n that does not come is tried three times, and a row in which
more than a quarter of them did not come has failed. So has one that reaches no call where the load
must make one: everywhere but for getrandom outside of `hardened`, and prctl.

A run is survived when it came to main; every request ended in a block or in NULL with ENOMEM, in
one burst at most for one failing call; free left errno alone; and, once calls succeed again,
`hakmem_check()` found nothing, no request was refused, calloc gave zeros, and the process held no
more memory, addresses and blocks than without a failure. (Addresses without memory may stay where
every munmap was refused; with madvise forbidden for good, what was used stays for the next use.)

{runs} runs, {runs - failed} survived.

{calls_table(rows)}

The same calls fail one by one on a simulated machine, where time passes by hand and pages may be
64 KiB long: tests/unit/test_faults.c, each of them in the build as shipped, and one in 7 to 97 in
the other flavours and under every sanitizer (cmake/Testing.cmake); and in random
programs of calls: tests/fuzz. What the runner can find is shown by planted faults
(tests/faults/planted.c): a refused madvise, munmap or mprotect that counts as done, a refused
mmap after which no memory is ever asked for, or that ends the process, an mremap that is never
called.

## Limits of the system

Each program takes blocks until it is refused, uses every entry point at the wall, gets its memory
again once blocks are freed, and completes when the limit is lifted.

{table(("limit", *MODES), limit_rows)}

A dash: not run here, since it changes a setting of the whole machine; `make test` runs it alone.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, required=True, help="the build tree of the release")
    parser.add_argument("--stride", type=int, default=1, help="only every n-th call")
    parser.add_argument("--output", type=Path, default=DOCUMENT)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    rows = []
    for mode in MODES:
        for way in ("once", "from-then-on"):
            for error in ERRORS:
                rows += run_way(build, mode, way, error, arguments.stride)
        rows += run_way(build, mode, "for-good", "EPERM", 1)
    limits = run_limits(build)
    arguments.output.write_text(document(rows, limits, arguments.stride), encoding="utf-8")
    bad = [row for row in rows if row.failed] + [
        name for name in limits.items() if name[1] != "pass"
    ]
    for entry in bad:
        print(f"FAILED: {entry}", file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
