"""Programs with an allocator in them that has names of its own: nothing leads to hakmem there, and
nothing is wrong with what does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hakmem import elf, preload
from tests.cli.support import HAKMEM, Compile, Summarise, call, clean_environment, library
from tests.cli.test_doctor import doctor, examine, napping, texts

SAID = "has jemalloc under a name of its own: what that serves, hakmem does not see"


# By the linker's table of symbols, and by the loader's.
@pytest.mark.parametrize("flags", [[], ["-rdynamic", "-s"]])
def test_program_is_named(summarise: Summarise, build_program: Compile, flags: list[str]) -> None:
    program = build_program("bundled.c", *flags)
    summary = summarise(program)
    assert summary.status == 0
    assert summary.facts["verdict"] == "active"
    (process,) = summary.processes(program.name)
    assert process["own_allocators"] == []
    assert process["bundled_allocators"] == [{"module": str(program), "allocator": "jemalloc"}]
    told = call(
        [*HAKMEM, "run", "--library", library(), "--", program], environment=clean_environment()
    )
    assert f"{program} {SAID}" in told.stderr
    outcome, facts = doctor(program)
    assert outcome.status == 0, facts
    assert texts(facts, "own malloc") == [f"{program} {SAID}"]


def test_library_is_named_and_who_calls_it_is_not(build_program: Compile) -> None:
    """The caller has the name in its tables as well, without a place for it."""
    second = build_program("bundled.c", "-shared", "-fPIC", "-Dmain=run")
    program = build_program("nap.c", "-Wl,--no-as-needed", "-Wl,-u,je_malloc", str(second))
    assert elf.read_definitions(second, ["je_malloc", "mi_malloc"]) == {"je_malloc"}
    assert elf.read_definitions(program, ["je_malloc", "main"]) == {"main"}
    with napping(program, LD_PRELOAD=str(library())) as pid:
        status, facts = examine(pid)
    assert status == 0
    assert texts(facts, "own malloc") == [f"{second} {SAID}"]


def test_program_without_a_table_of_symbols(summarise: Summarise, build_program: Compile) -> None:
    """What nobody can tell is not said."""
    program = build_program("bundled.c", "-s", "-fvisibility=hidden")
    (process,) = summarise(program).processes(program.name)
    assert process["bundled_allocators"] == []


def test_damaged_tables_define_nothing(build_program: Compile, tmp_path: Path) -> None:
    whole = build_program("bundled.c").read_bytes()
    damaged = tmp_path / "damaged"
    for at in range(64):
        for value in (b"\0", b"\xff"):
            damaged.write_bytes(whole[:at] + value + whole[at + 1 :])
            assert elf.read_definitions(damaged, ["je_malloc"]) <= {"je_malloc"}
    for end in range(0, len(whole), 997):
        damaged.write_bytes(whole[:end])
        assert elf.read_definitions(damaged, ["je_malloc"]) == frozenset()
    assert elf.read_definitions(tmp_path / "nothing", ["je_malloc"]) == frozenset()
    assert elf.read_definitions(tmp_path, ["je_malloc"]) == frozenset()


def test_what_a_report_names_may_be_a_pipe(tmp_path: Path) -> None:
    """Whoever can write a report would have the command wait for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for file in (pipe, Path("/dev/zero"), tmp_path):
        assert elf.read_definitions(file, ["je_malloc"]) == frozenset()
        assert elf.read_build_id(file) is None
        assert not preload.carries_hakmem(file)
