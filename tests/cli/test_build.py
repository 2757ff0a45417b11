"""Building what is missing: in a copy of the source tree, so that the real one is left alone."""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.support import ROOT, Outcome, call, clean_environment, library

BUILT, OBJECTS = "built.log", "objects.log"


def copy_tree(destination: Path, *extra: str) -> Path:
    for name in ("src", "include", "cmake", "tools/hakmem", *extra):
        shutil.copytree(
            ROOT / name, destination / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    for name in ("CMakeLists.txt", "CMakePresets.json", "Makefile", "hakmem"):
        shutil.copy(ROOT / name, destination / name)
    return destination


# Installs the library under test, and makes one object where there is none. A source may be changed
# while it is compiled.
CMAKE = """#!/bin/sh
set -e
cd "$(dirname "$0")/.."
mkdir -p build/release
[ "$1" = --build ] || exit 0
echo "[ 50%] Building"
sleep 0.5
[ ! -e edit ] || {{ rm edit; touch src/base/base.h; sleep 0.02; }}
[ -e build/release/base.o ] || {{ touch build/release/base.o; echo . >>{objects}; }}
cp {library} build/release/libhakmem.so.new
mv build/release/libhakmem.so.new build/release/libhakmem.so
echo . >>{built}
"""


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tree with a cmake of its own that takes a moment, and notes that it ran: what is looked at
    is when the command builds, not the compiler."""
    root = copy_tree(tmp_path / "tree")
    cmake = root / "bin" / "cmake"
    cmake.parent.mkdir()
    text = CMAKE.format(library=library(), built=BUILT, objects=OBJECTS)
    cmake.write_text(text, encoding="utf-8")
    cmake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{cmake.parent}:{os.environ['PATH']}")
    return root


def run_in(root: Path, *words: str, **environment: str) -> Outcome:
    command = [sys.executable, str(root / "hakmem"), "run", *words]
    return call(command, environment=clean_environment(**environment))


def build_count(root: Path, name: str = BUILT) -> int:
    log = root / name
    return len(log.read_text(encoding="ascii").splitlines()) if log.exists() else 0


def test_builds_once_and_says_so_on_standard_error(tree: Path) -> None:
    first = run_in(tree, "--", "echo", "hello")
    assert (first.status, first.stdout) == (0, b"hello\n")
    lines = first.stderr.splitlines()
    assert lines[0] == "hakmem: building libhakmem.so (release) ..."
    assert re.fullmatch(r"hakmem: building libhakmem.so \(release\): done in \d+ s", lines[1])
    assert lines[2].startswith("hakmem: active: every malloc symbol of every loaded module")
    assert lines[2].endswith(f" {tree}/build/release/libhakmem.so")
    second = run_in(tree, "--quiet", "--", "true")
    assert (second.status, second.stderr) == (0, "")
    assert build_count(tree) == 1


@pytest.mark.parametrize(
    "name", ["src/base/base.h", "include/hakmem.h", "CMakeLists.txt", "src/api/exports.map"]
)
def test_builds_again_when_a_source_is_newer(tree: Path, name: str) -> None:
    run_in(tree, "--", "true")
    future = time.time() + 1
    os.utime(tree / name, (future, future))
    assert "building" in run_in(tree, "--", "true").stderr
    assert build_count(tree) == 2


def test_builds_again_when_a_source_appears_or_goes(tree: Path) -> None:
    run_in(tree, "--", "true")
    time.sleep(0.01)
    (tree / "src" / "base" / "new.h").touch()
    assert "building" in run_in(tree, "--", "true").stderr
    time.sleep(0.01)
    (tree / "src" / "base" / "new.h").unlink()
    assert "building" in run_in(tree, "--", "true").stderr
    assert build_count(tree) == 3


def make_lib(tree: Path) -> Outcome:
    return call(["make", "-C", tree, "lib"])


def run_true(tree: Path) -> Outcome:
    return run_in(tree, "--", "true")


@pytest.mark.parametrize("build", [run_true, make_lib])
def test_builds_again_what_was_changed_while_it_was_built(
    tree: Path, build: Callable[[Path], Outcome]
) -> None:
    """And compiles it again, though its object is newer; of what was changed afterwards make knows
    which objects are older."""
    (tree / "edit").touch()
    assert build(tree).status == 0
    assert build_count(tree, OBJECTS) == 1
    assert "building" in run_true(tree).stderr
    assert build_count(tree, OBJECTS) == 2
    assert run_in(tree, "--quiet", "--", "true").stderr == ""
    time.sleep(0.02)
    (tree / "src" / "base" / "base.h").touch()
    assert "building" in run_true(tree).stderr
    assert (build_count(tree), build_count(tree, OBJECTS)) == (3, 2)


def test_a_library_that_make_did_not_build_is_as_old_as_it_is(tree: Path) -> None:
    """By `cmake --build`, where nothing notes when it began."""
    run_true(tree)
    time.sleep(0.02)
    (tree / "src" / "base" / "base.h").touch()
    assert call([tree / "bin" / "cmake", "--build", "build/release"]).status == 0
    assert run_in(tree, "--quiet", "--", "true").stderr == ""
    assert build_count(tree) == 2


def test_what_make_has_built_since_is_not_built_again(tree: Path) -> None:
    run_in(tree, "--", "true")
    time.sleep(0.01)
    (tree / "src" / "base" / "base.h").touch()
    assert make_lib(tree).status == 0
    assert run_in(tree, "--quiet", "--", "true").stderr == ""
    assert build_count(tree) == 2


def test_a_link_to_nothing_among_the_sources_is_no_error(tree: Path) -> None:
    """As Emacs makes one beside a file that it has open."""
    (tree / "src" / "base" / ".#base.h").symlink_to("user@host.1234:1")
    outcome = run_in(tree, "--", "echo", "hello")
    assert (outcome.status, outcome.stdout) == (0, b"hello\n"), outcome.stderr
    assert run_in(tree, "--quiet", "--", "true").stderr == ""
    assert build_count(tree) == 1


def test_commands_at_once_build_once(tree: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(lambda _: run_in(tree, "--", "sh", "-c", "exit 3"), range(4)))
    assert [outcome.status for outcome in outcomes] == [3] * 4
    assert all("hakmem: active" in outcome.stderr for outcome in outcomes)
    assert build_count(tree) == 1


def test_failed_build_shows_its_end_and_is_125(tree: Path) -> None:
    (tree / "Makefile").write_text("lib:\n\t@echo wrong here; exit 3\n", encoding="utf-8")
    outcome = run_in(tree, "--", "echo", "never")
    assert (outcome.status, outcome.stdout) == (125, b"")
    assert "wrong here" in outcome.stderr
    log = tree / "build" / "hakmem-run.log"
    assert outcome.stderr.endswith(f"hakmem: the build failed; all of its output is in {log}\n")
    assert "wrong here" in log.read_text(encoding="utf-8")


def test_build_is_not_touched_by_the_callers_environment(tree: Path) -> None:
    """Not by an LD_PRELOAD meant for the program, nor by a make that calls hakmem."""
    (tree / "Makefile").write_text("lib:\n\t@env >seen; exit 1\n", encoding="utf-8")
    run_in(tree, "--", "true", LD_PRELOAD=str(library()), MAKEFLAGS="n", HAKMEM_VERBOSE="1")
    seen = (tree / "seen").read_text(encoding="utf-8")
    assert "LD_PRELOAD" not in seen and "HAKMEM_" not in seen


@pytest.mark.parametrize(
    ("present", "message"),
    [
        (
            (),
            "cmake, gcc, g++, make are missing; on Debian: sudo apt-get install cmake gcc g++ make",
        ),
        (("gcc", "g++", "make"), "cmake is missing; on Debian: sudo apt-get install cmake"),
        (("cmake", "g++", "make"), "gcc is missing; on Debian: sudo apt-get install gcc"),
        (("cmake", "gcc", "make"), "g++ is missing; on Debian: sudo apt-get install g++"),
        (("cmake", "gcc", "g++"), "make is missing; on Debian: sudo apt-get install make"),
    ],
)
def test_missing_tools_are_named_with_their_packages(
    tree: Path, tmp_path: Path, present: tuple[str, ...], message: str
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("echo", "python3", *present):
        (tools / name).symlink_to(sys.executable if name == "python3" else f"/usr/bin/{name}")
    outcome = run_in(tree, "--", "echo", "never", PATH=str(tools))
    assert (outcome.status, outcome.stdout) == (125, b"")
    message = message.format("cmake gcc g++ make")
    assert outcome.stderr == f"hakmem: libhakmem.so has to be built first, and {message}\n"


def test_built_library_needs_no_tools(tree: Path, tmp_path: Path) -> None:
    run_in(tree, "--", "true")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "echo").symlink_to("/usr/bin/echo")
    outcome = run_in(tree, "--quiet", "--", "echo", "hello", PATH=str(tools))
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, b"hello\n", "")


def test_refused_program_is_refused_before_anything_is_built(tree: Path) -> None:
    assert run_in(tree, "--", "no-such-program").status == 127
    assert build_count(tree) == 0


def test_a_tree_that_was_moved_is_configured_anew(tmp_path: Path) -> None:
    """And only then: what is built stays otherwise."""
    root, moved = copy_tree(tmp_path / "tree"), tmp_path / "moved"
    tools = tmp_path / "bin"
    tools.mkdir()
    cmake = f'#!/bin/sh\n[ "$1" = --build ] || exec {shutil.which("cmake")} "$@"\n'
    (tools / "cmake").write_text(cmake, encoding="utf-8")
    (tools / "cmake").chmod(0o755)
    path = f"{tools}:{os.environ['PATH']}"

    def configure(tree: Path) -> None:
        outcome = call(["make", "-C", tree, "lib"], environment=clean_environment(PATH=path))
        assert outcome.status == 0, outcome.stderr
        cache = (tree / "build/release/CMakeCache.txt").read_text(encoding="utf-8")
        assert f"CMAKE_HOME_DIRECTORY:INTERNAL={tree}\n" in cache

    configure(root)
    built = root / "build/release/CMakeFiles/built.o"
    built.touch()
    configure(root)
    assert built.exists()
    root.rename(moved)
    configure(moved)
    # A copy, while there is the tree of before.
    shutil.copytree(moved, root)
    configure(root)


def test_fresh_tree_builds_and_runs(tmp_path: Path) -> None:
    """The real build, from sources alone, through the one command."""
    root = copy_tree(tmp_path / "fresh")
    outcome = run_in(root, "--", "sh", "-c", "exit 11")
    assert outcome.status == 11, outcome.stderr
    assert f"resolves to {root}/build/release/libhakmem.so" in outcome.stderr
