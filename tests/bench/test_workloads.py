"""The workloads: fixed work, checked contents, and failures that cannot pass for results."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from workload_runs import MAPPINGS, POOL, SMALL, result, run

from harness import cases, measure, peers
from harness.layout import BENCH

Compile = Callable[..., Path]
ALL = tuple(SMALL)
# `pairs` is for counting instructions and looks at no contents.
CHECKED = tuple(name for name in SMALL if name != "pairs")


CHILDREN_GET_NOTHING = (
    "-DBEFORE_MALLOC=static int first; first = first ? first : getpid();"
    "if (first != getpid()) return 0;"
)


@pytest.fixture
def planted(tmp_path: Path, compile_c: Compile) -> Callable[..., Path]:
    """Makes an allocator that breaks what the macros say."""

    def make(*macros: str, source: str = POOL) -> Path:
        flags = ("-shared", "-fPIC", "-fno-builtin", "-w", "-pthread")
        return compile_c(tmp_path / "planted.so", source, *flags, *macros)

    return make


@pytest.mark.parametrize("name", ALL)
def test_the_same_work_everywhere(built: Path, name: str) -> None:
    """Two runs and another allocator agree on operations and checksum; the floor's blocks overlap,
    so it runs without the check."""
    first = result(run(built, SMALL[name]))
    again = result(run(built, SMALL[name]))
    floor = peers.known()["floor"].library
    other = result(run(built, SMALL[name], "--check", "0", preload=floor))
    for row in (again, other):
        assert (row["ops"], row["checksum"]) == (first["ops"], first["checksum"])
    asked = int(SMALL[name][SMALL[name].index("--ops") + 1])
    assert asked * 0.85 <= first["ops"] <= asked * 1.02
    assert first["wall_ns"] > 0
    assert first["cpu_ns"] == first["user_ns"] + first["system_ns"]
    assert first["peak_rss_bytes"] >= first["end_rss_bytes"] > 0
    assert first["end_rss_bytes"] > first["extra"]["frame_bytes"]
    assert all(field in first for field in (*measure.FIELDS, "proof"))


@pytest.mark.parametrize("name", CHECKED)
def test_the_seed_makes_the_work(built: Path, name: str) -> None:
    one = result(run(built, SMALL[name], "--seed", "1"))
    two = result(run(built, SMALL[name], "--seed", "2"))
    assert one["checksum"] != two["checksum"]


@pytest.mark.parametrize("name", CHECKED)
def test_overlapping_blocks_are_noticed(
    built: Path, name: str, planted: Callable[..., Path]
) -> None:
    """Every second block is the one before once more."""
    macros = ["-DCALLOC_OVERLAPS"] if name == "calloc" else []
    library = planted("-DOVERLAP(bytes)=(bytes)", *macros)
    # Each thread has one block at a time: they have to meet, and when they do, the run is over.
    meet = ("--ops", "100000000", "--rounds", "100", "--max", "8")
    done = run(built, SMALL[name], *(meet if name.startswith("false") else ()), preload=library)
    assert done.returncode == 3, (done.returncode, done.stdout, done.stderr)
    assert "lost its contents" in done.stderr


@pytest.mark.parametrize("name", CHECKED)
def test_a_sound_allocator_is_not_accused(
    built: Path, name: str, planted: Callable[..., Path]
) -> None:
    """The pool without a fault, and a mapping for each block: the C library's checksum."""
    expected = result(run(built, SMALL[name]))
    for source in (POOL, MAPPINGS):
        found = result(run(built, SMALL[name], preload=planted(source=source)))
        assert found["checksum"] == expected["checksum"]


@pytest.mark.parametrize(
    ("name", "macro", "complaint"),
    [
        ("calloc", "-DDIRTY", "is not zero"),
        ("aligned", "-DMISALIGN=16", "is not aligned"),
        ("growth_vector", "-DLOST_BY_REALLOC=64", "lost its contents"),
        ("growth_string", "-DLOST_BY_REALLOC=1", "lost its contents"),
        ("large", "-DOVERLAP(bytes)=8192", "lost its contents"),
        ("fork_heavy", CHILDREN_GET_NOTHING, "a child process ended"),
    ],
)  # fmt: skip
def test_each_promise_is_checked(
    built: Path, name: str, macro: str, complaint: str, planted: Callable[..., Path]
) -> None:
    done = run(built, SMALL[name], preload=planted(macro))
    assert done.returncode == 3, (done.returncode, done.stdout, done.stderr)
    assert complaint in done.stderr


def test_started_processes_must_run_on_the_same_file(
    built: Path, planted: Callable[..., Path]
) -> None:
    """A library that takes itself out of the environment serves the parent only."""
    leaves = '\n__attribute__((constructor)) static void leave(void) { unsetenv("LD_PRELOAD"); }\n'
    library = planted(source="#include <stdlib.h>\n" + POOL + leaves)
    done = run(built, SMALL["startup"], preload=library)
    assert done.returncode == 2
    assert "served by another file" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("--ops",), ("--ops", "x"), ("--ops", "0"), ("--ops", "-1"), ("--min", "4"),
     ("--min", "64", "--max", "32"), ("--variant", "random"), ("--sizes", "normal"),
     ("--colour", "1"), ("--share", "50"), ("--threads", "0")],
)  # fmt: skip
def test_options_are_checked(built: Path, arguments: tuple[str, ...]) -> None:
    done = run(built, ("tiny", *arguments))
    assert done.returncode == 2
    assert done.stdout == "" and done.stderr.startswith("workload: ")


@pytest.mark.parametrize(
    "line",
    [("queue", "--threads", "2", "--consumers", "2"),
     ("queue", "--threads", "5", "--consumers", "2"),
     ("remote", "--share", "101"), ("remote", "--threads", "1"), ("pingpong", "--threads", "3"),
     ("aligned", "--align-max", "48"), ("aligned", "--align-min", "512"),
     ("growth", "--touch", "0"),
     ("startup", "--slots", "1025"), ("soak", "--slowdown", "50"), ("soak", "--slots", "2559"),
     ("soak", "--interval-ms", "0"),
     ("locality", "--slots", "9"), ("idle_owner", "--rounds", "65"), ("calloc", "--min", "8")],
)  # fmt: skip
def test_each_workload_checks_its_own_options(built: Path, line: Sequence[str]) -> None:
    done = run(built, tuple(line))
    assert done.returncode == 2
    assert done.stdout == "" and done.stderr.startswith(f"workload: {line[0]}: ")


def test_usage_names_every_option(built: Path) -> None:
    done = run(built, ("tiny", "--help"))
    assert done.returncode == 2
    assert "--variant lifo|fifo" in done.stderr and "--idle-ms" in done.stderr
    assert "[--share N]" in run(built, ("remote", "--help")).stderr


def test_every_row_of_the_matrix_runs(built: Path) -> None:
    known = cases.synthetic()
    assert len({case.name for case in known}) == len(known)
    programs = {case.program for case in known}
    assert programs == {line[0] for line in SMALL.values()} - {"soak", "pairs"}
    quick = [case for case in known if case.quick]
    assert 8 <= len(quick) <= 16
    for case in known:
        small = {"warm": min(int(str(case.arguments.get("warm", 400))), 400)}
        idle = {"idle-ms": 10, "beat-ms": 10} if "idle-ms" in case.arguments else {}
        arguments = {**measure.scaled(case.arguments, 0.002), **small, **idle}
        row = result(run(built, tuple(measure.command_line(Path(case.program), arguments))))
        assert row["program"] == case.program
        assert row["threads"] == case.threads
        assert row["proof"]["moved"]["before"] != row["proof"]["moved"]["after"], case.name


@pytest.mark.parametrize("compiler", ["gcc", "clang-14"])
def test_both_compilers_build_them_without_a_warning(tmp_path: Path, compiler: str) -> None:
    configure = ["cmake", "-S", str(BENCH), "-B", str(tmp_path), f"-DCMAKE_C_COMPILER={compiler}",
                 "-DHAKMEM_WERROR=ON"]  # fmt: skip
    subprocess.run(configure, check=True, capture_output=True)
    done = subprocess.run(["cmake", "--build", tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_about_lines_are_one_line(built: Path) -> None:
    for case in cases.synthetic():
        assert 10 < len(case.about) < 100 and json.dumps(case.about).isascii(), case.name
