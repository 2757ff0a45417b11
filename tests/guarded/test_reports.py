"""Mistakes with guarded blocks: what the report says, whose functions its stacks name, and how the
program ends."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.guarded.support import MODES, Outcome, Run, function_names

ALWAYS = {"guard_sample": 1}
HEADING = re.compile(r"hakmem:   (\w+) by thread (\d+)")
FRAME = re.compile(r"hakmem:     #(\d+) 0x[0-9a-f]+ (\S+)\+(0x[0-9a-f]+)")


@dataclass
class Report:
    """One report: its first line, and the stacks as names of the program's functions."""

    line: str
    threads: dict[str, int] = field(default_factory=dict)
    stacks: dict[str, list[str]] = field(default_factory=dict)


def read_report(text: str, program: Path) -> Report:
    lines = text.splitlines()
    report = Report(lines[0])
    heading = ""
    for line in lines[1:]:
        if found := HEADING.fullmatch(line):
            heading = found[1]
            report.threads[heading] = int(found[2])
            report.stacks[heading] = []
        elif (found := FRAME.fullmatch(line)) and found[2] == str(program):
            report.stacks[heading] += function_names(found[2], [found[3]])
        else:
            assert found, f"no line of a report: {line}"
    return report


@pytest.fixture
def mistake(programs: Path) -> Path:
    return programs / "guarded_mistakes"


def told(ended: Outcome) -> tuple[str, str]:
    """Block and address, as the program said beforehand."""
    found = re.match(r"block (0x[0-9a-f]+) at (0x[0-9a-f]+)", ended.out)
    assert found, ended
    return found[1], found[2]


SIGSEGV, SIGABRT = -signal.SIGSEGV, -signal.SIGABRT
ALLOCATED = ["make_block", "make_mistake", "main"]
FREED = ["drop_block", "make_mistake", "main"]

# Kind and size; the signal; the line, of block {b} and address {p}; and each stack's functions.
FAULTS = [
    (
        "overflow 32",
        "buffer overflow: write to {p}, 0 bytes behind the end of the live 32-byte {b}",
        {"accessed": ["write_byte", "make_mistake", "main"], "allocated": ALLOCATED},
    ),
    (
        "overflow_read 4080",
        "buffer overflow: read of {p}, 0 bytes behind the end of the live 4080-byte {b}",
        {"accessed": ["read_byte", "make_mistake", "main"], "allocated": ALLOCATED},
    ),
    (
        "underflow 100",
        "buffer underflow: write to {p}, 1 bytes before the live 100-byte {b}",
        {"accessed": ["write_byte", "make_mistake", "main"], "allocated": ALLOCATED},
    ),
    (
        "write_freed 64",
        "use after free: write to {p}, 5 bytes inside the freed 64-byte {b}",
        {
            "accessed": ["write_byte", "make_mistake", "main"],
            "allocated": ALLOCATED,
            "freed": FREED,
        },
    ),
    (
        "read_freed 64",
        "use after free: read of {p}, 5 bytes inside the freed 64-byte {b}",
        {
            "accessed": ["read_byte", "make_mistake", "main"],
            "allocated": ALLOCATED,
            "freed": ["drop_block", "drop_in_thread"],
        },
    ),
]

# Noticed by hakmem, not by the processor.
NO_WRITE = "; expected no write outside the block"
LIVE_START = "; expected the start of a live block"
MISUSES = [
    (
        "overflow 24",
        "buffer overflow: {p} was changed, 0 bytes behind the end of the freed 24-byte {b}"
        + NO_WRITE,
        {"noticed": FREED, "allocated": ALLOCATED, "freed": FREED},
    ),
    # Of one that grows bit by bit no more is the program's than it asked for.
    (
        "overflow_grown 1100",
        "buffer overflow: {p} was changed, 0 bytes behind the end of the freed 1100-byte {b}"
        + NO_WRITE,
        {
            "noticed": FREED,
            "allocated": ["grow_block", "make_mistake", "main"],
            "freed": FREED,
        },
    ),
    (
        "overflow_left 17",
        "buffer overflow: {p} was changed, 7 bytes behind the end of the freed 17-byte {b}"
        + NO_WRITE,
        {"noticed": FREED, "allocated": ALLOCATED, "freed": FREED},
    ),
    (
        "underflow_right 32",
        "buffer underflow: {p} was changed, 3 bytes before the freed 32-byte {b}" + NO_WRITE,
        {"noticed": FREED, "allocated": ALLOCATED, "freed": FREED},
    ),
    (
        "double_free 48",
        "double free: {p} lies at the start of the freed 48-byte {b}" + LIVE_START,
        {"noticed": FREED, "allocated": ALLOCATED, "freed": FREED},
    ),
    (
        "interior_free 48",
        "invalid free: {p} lies 16 bytes inside the live 48-byte {b}" + LIVE_START,
        {"noticed": FREED, "allocated": ALLOCATED},
    ),
    (
        "interior_realloc 48",
        "invalid realloc: {p} lies 16 bytes inside the live 48-byte {b}" + LIVE_START,
        {"noticed": ["make_mistake", "main"], "allocated": ALLOCATED},
    ),
]


def require_report(
    ended: Outcome, program: Path, line: str, stacks: dict[str, list[str]]
) -> Report:
    block, address = told(ended)
    report = read_report(ended.err, program)
    assert report.line == f"hakmem: {line.format(p=address, b=f'guarded block at {block}')}"
    found = {
        heading: [name for name in names if name != "_start"]
        for heading, names in report.stacks.items()
    }
    assert found == stacks
    return report


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "line", "stacks"), FAULTS)
def test_fault(
    run: Run, mistake: Path, mode: str, kind: str, line: str, stacks: dict[str, list[str]]
) -> None:
    ended = run("mistakes", *kind.split(), mode=mode, **ALWAYS)
    assert ended.status == SIGSEGV
    require_report(ended, mistake, line, stacks)


def test_a_program_that_is_not_position_independent(run: Run, programs: Path) -> None:
    kind, line, stacks = FAULTS[3]
    ended = run("mistakes_fixed", *kind.split(), **ALWAYS)
    require_report(ended, programs / "guarded_mistakes_fixed", line, stacks)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("kind", "line", "stacks"), MISUSES)
def test_misuse(
    run: Run, mistake: Path, mode: str, kind: str, line: str, stacks: dict[str, list[str]]
) -> None:
    ended = run("mistakes", *kind.split(), mode=mode, **ALWAYS)
    assert ended.status == SIGABRT
    require_report(ended, mistake, line, stacks)


@pytest.mark.parametrize(("kind", "line", "stacks"), [*FAULTS, *MISUSES])
def test_a_program_that_is_to_go_on_does(
    run: Run, mistake: Path, kind: str, line: str, stacks: dict[str, list[str]]
) -> None:
    ended = run("mistakes", *kind.split(), abort=0, **ALWAYS)
    assert ended.out.endswith("went on\n")
    assert ended.status == 0
    require_report(ended, mistake, line, stacks)


# Nothing makes data code: such a program cannot go on.
@pytest.mark.parametrize("abort", [0, 1])
@pytest.mark.parametrize(
    ("kind", "what", "state"),
    [("call", "unknown fault", "live"), ("call_freed", "use after free", "freed")],
)
def test_a_call_of_a_block_ends_the_program(
    run: Run, mistake: Path, abort: int, kind: str, what: str, state: str
) -> None:
    ended = run("mistakes", kind, "64", abort=abort, **ALWAYS)
    block, address = told(ended)
    assert ended.status == SIGSEGV
    assert ended.err.splitlines()[0] == (
        f"hakmem: {what}: call of {address}, at the start of the {state} 64-byte guarded block"
        f" at {block}"
    )
    assert ended.err.count(": call of ") == 1
    headings = [name for name, _ in HEADING.findall(ended.err)]
    assert headings == ["accessed", "allocated", "freed"][: 3 if state == "freed" else 2]
    # Who called comes next: the place itself is in no module.
    caller = FRAME.search(ended.err)
    assert caller is not None and caller[2] == str(mistake)
    assert function_names(caller[2], [caller[3]]) == ["call_block"]


def test_threads_are_told_apart(run: Run, mistake: Path) -> None:
    threads = read_report(run("mistakes", "read_freed", **ALWAYS).err, mistake).threads
    assert threads["allocated"] == threads["accessed"]
    assert threads["freed"] != threads["allocated"]


def test_a_place_where_no_block_was(run: Run, mistake: Path) -> None:
    ended = run("mistakes", "unused", **ALWAYS)
    report = read_report(ended.err, mistake)
    assert report.line == (
        f"hakmem: wild access: read of {told(ended)[1]}, between guarded blocks, where none was yet"
    )
    assert list(report.stacks) == ["accessed"]
    assert ended.status == SIGSEGV


@pytest.mark.parametrize("kind", ["null", "sent", "stack"])
def test_other_faults_end_the_program_as_ever(run: Run, kind: str) -> None:
    sampled = run("mistakes", kind, **ALWAYS)
    assert (sampled.status, sampled.err) == (SIGSEGV, "")
    assert run("mistakes", kind, preload=False).status == SIGSEGV


@pytest.mark.parametrize("kind", ["read_freed", "null"])
def test_a_snapshot_at_the_fault_comes_before_the_report(
    run: Run, mistake: Path, tmp_path: Path, kind: str
) -> None:
    plain = run("mistakes", kind, **ALWAYS)
    ended = run(
        "mistakes", kind, **ALWAYS, snapshot_signal=int(signal.SIGSEGV), snapshot_directory=tmp_path
    )
    (snapshot,) = tmp_path.iterdir()
    first, _, report = ended.err.partition("\n")
    assert first == f"hakmem: snapshot: {snapshot}"
    assert ended.status == SIGSEGV
    if plain.err == "":
        assert report == ""
    else:
        assert read_report(report, mistake).stacks == read_report(plain.err, mistake).stacks


def test_the_programs_own_handler_replaces_the_librarys(run: Run) -> None:
    ended = run("mistakes", "handled", **ALWAYS)
    assert (ended.status, ended.out, ended.err) == (9, f"handler of {signal.SIGSEGV}\n", "")


@pytest.mark.parametrize("kind", ["overflow 32", "double_free"])
def test_off_by_default(run: Run, kind: str) -> None:
    ended = run("mistakes", *kind.split())
    assert told(ended)
    assert "guarded" not in ended.err
    assert ended.status != SIGSEGV


def test_a_leaked_block_is_told_with_its_stack(run: Run, mistake: Path) -> None:
    ended = run("mistakes", "leak", "40", leaks=1, leaks_exit_status=23, guard_sample=1)
    assert ended.status == 23
    lines = ended.err.splitlines()
    assert re.fullmatch(r"hakmem: leaks:   \d+ guarded, of \d+ bytes together", lines[1])
    reports = re.split(r"hakmem: leaks:   40 bytes at 0x[0-9a-f]+\n", ended.err)[1:]
    assert reports
    for report in reports:
        stacks = read_report("\n" + report, mistake).stacks
        assert stacks["allocated"][:3] == ALLOCATED
