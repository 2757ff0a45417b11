"""Built with what distributions add: flags of their own, and other linkers."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.abi.support import CC, CXX, ROOT, run

# As Debian's, Ubuntu's, Fedora's and Arch's, but for the level, which saves the test half its time.
FLAGS = (
    "-O1 -fexceptions -fno-plt -Wp,-U_FORTIFY_SOURCE,-D_FORTIFY_SOURCE=2 -fstack-protector-strong"
    " -fstack-clash-protection -fcf-protection -fno-omit-frame-pointer"
)
# Clang has it from lld alone.
LTO = "" if "clang" in CC else "-flto=auto -ffat-lto-objects"


def configure(source: Path, build: Path, *options: str, **environment: str) -> str:
    return run(
        "cmake", "-S", source, "-B", build, f"-DCMAKE_C_COMPILER={CC}",
        f"-DCMAKE_CXX_COMPILER={CXX}", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
        "-G", "Unix Makefiles", *options, **environment,
    )  # fmt: skip


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as a package is."""
    build = tmp_path_factory.mktemp("packaged")
    configure(
        ROOT, build, "-DCMAKE_BUILD_TYPE=None", "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON",
        "-DCMAKE_UNITY_BUILD=ON", "-DCMAKE_INSTALL_LIBDIR=lib64",
        "-DCMAKE_INSTALL_INCLUDEDIR=/opt/headers",
        CFLAGS=f"{FLAGS} {LTO}", CXXFLAGS=f"{FLAGS} {LTO}", LDFLAGS=f"{LTO} -Wl,-z,now",
    )  # fmt: skip
    shown = run("cmake", "--build", build, "--parallel", "2",
                "--target", "hakmem", "--target", "hakmem_static")  # fmt: skip
    assert "warning" not in shown
    return build


def test_names_and_needs_are_the_same(packaged: Path) -> None:
    names = Path(__file__).with_name("test_names.py")
    command = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", names)
    run(*command, ABI_BUILD_DIRECTORY=str(packaged))


def test_pkg_config_knows_absolute_directories(packaged: Path) -> None:
    lines = (packaged / "hakmem.pc").read_text(encoding="utf-8").splitlines()
    assert lines[:3] == [
        "prefix=${pcfiledir}/../..",
        "libdir=${prefix}/lib64",
        "includedir=/opt/headers",
    ]


def test_code_is_laid_out(packaged: Path) -> None:
    """Sections by function are what cmake/layout.ld.in goes by: without them all is untouched."""
    sizes: dict[str, int] = {}
    for line in run("size", "-A", packaged / "libhakmem.so").splitlines():
        fields = line.split()
        if len(fields) == 3 and fields[1].isdigit():
            sizes[fields[0]] = int(fields[1])
    assert sizes[".text"] > 32 * 1024
    assert sizes[".text_untouched"] > 32 * 1024


@pytest.mark.parametrize("linker", ["gold", "lld", "mold"])
def test_loads_whatever_linked_it(linker: str, build: Path, tmp_path: Path) -> None:
    """With the options that configuring for it chose."""
    configure(ROOT, tmp_path, f"-DCMAKE_SHARED_LINKER_FLAGS=-fuse-ld={linker}")
    link = (tmp_path / "CMakeFiles/hakmem.dir/link.txt").read_text(encoding="utf-8")
    command = shlex.split(link.splitlines()[0])
    library = tmp_path / "libhakmem.so"
    command[command.index("-o") + 1] = str(library)
    # With the objects that were built already.
    linked = subprocess.run(command, cwd=build, capture_output=True, text=True)
    assert (linked.returncode, linked.stderr) == (0, "")
    shown = run("/bin/true", LD_PRELOAD=str(library), HAKMEM_VERBOSE="1")
    assert shown.startswith("hakmem: ")


def bring_objects(build: Path, destination: Path) -> None:
    """What was compiled in a build directory, into one that is configured and has nothing yet."""
    for compiled in build.glob("CMakeFiles/hakmem*.dir/**/*.o"):
        copy = destination / compiled.relative_to(build)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(compiled, copy)


def test_archive_is_made_by_a_compiler_of_two_words(build: Path, tmp_path: Path) -> None:
    """As in CC="ccache gcc"."""
    launcher = tmp_path / "launcher"
    launcher.write_text('#!/bin/sh\ncase $1 in -*) exit 1 ;; esac\nexec "$@"\n', encoding="utf-8")
    launcher.chmod(0o755)
    configure(ROOT, tmp_path, f"-DCMAKE_C_COMPILER={launcher};{CC}")
    bring_objects(build, tmp_path)
    run("make", "-C", tmp_path, "-f", "CMakeFiles/hakmem_static.dir/build.make", "static/hakmem.o")
    assert " T malloc\n" in run("nm", tmp_path / "static/hakmem.o")


# Leaves a part of what it was to link, and make is killed with it, so that nobody removes that.
KILLED_LINKER = """#!/bin/sh
"$@" || exit
[ -e "$0.kill" ] || exit 0
while [ "$1" != -o ]; do shift; done
truncate --size=20000 "$2"
kill -KILL 0
"""

KILLED_OBJCOPY = """#!/bin/sh
[ ! -e "$0.kill" ] || kill -KILL 0
exec objcopy "$@"
"""


def test_a_library_whose_linker_was_killed_is_linked_again(build: Path, tmp_path: Path) -> None:
    """And meanwhile it is the one of before."""
    launcher, kill = tmp_path / "launcher", tmp_path / "launcher.kill"
    launcher.write_text(KILLED_LINKER, encoding="utf-8")
    launcher.chmod(0o755)
    configure(ROOT, tmp_path, f"-DCMAKE_C_LINKER_LAUNCHER={launcher}")
    bring_objects(build, tmp_path)
    library = tmp_path / "libhakmem.so"
    command = ("make", "-C", tmp_path, "-f", "CMakeFiles/hakmem.dir/build.make", library.name)
    run(*command)
    # What is newer by less than the file system's clock tells is not.
    os.utime(library, ns=(0, library.stat().st_mtime_ns - 10**9))
    before = library.stat()
    kill.touch()
    killed = subprocess.run(command, capture_output=True, start_new_session=True)
    assert killed.returncode == -signal.SIGKILL
    assert os.path.samestat(library.stat(), before)
    assert library.stat().st_size == before.st_size
    kill.unlink()
    run(*command)
    assert library.stat().st_size == before.st_size
    assert not os.path.samestat(library.stat(), before)


def test_an_object_of_the_archive_is_whole_or_not_there(build: Path, tmp_path: Path) -> None:
    """Killed before its names are local, it would clash with a program's."""
    objcopy, kill = tmp_path / "objcopy", tmp_path / "objcopy.kill"
    objcopy.write_text(KILLED_OBJCOPY, encoding="utf-8")
    objcopy.chmod(0o755)
    configure(ROOT, tmp_path, f"-DCMAKE_OBJCOPY={objcopy}")
    bring_objects(build, tmp_path)
    whole = "static/hakmem.o"
    command = ("make", "-C", tmp_path, "-f", "CMakeFiles/hakmem_static.dir/build.make", whole)
    kill.touch()
    killed = subprocess.run(command, capture_output=True, start_new_session=True)
    assert killed.returncode == -signal.SIGKILL
    kill.unlink()
    run(*command)
    shown = run("nm", tmp_path / whole)
    assert " T malloc\n" in shown and " T slab_" not in shown


def test_a_comma_in_the_name_of_a_directory_ends_no_option(build: Path, tmp_path: Path) -> None:
    tree, below = tmp_path / "tree, or link", tmp_path / "build, too"
    tree.symlink_to(ROOT)
    configure(tree, below)
    bring_objects(build, below)
    command = ("make", "-C", below, "-f", "CMakeFiles/hakmem.dir/build.make", "libhakmem.so")
    run(*command)
    assert ".text_untouched" in run("size", "-A", below / "libhakmem.so")


def levels(build: Path) -> set[str]:
    """The levels that the files of the library are optimised at; "" for none."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    assert commands
    return {
        (re.findall(r" (-O\S*)", entry["command"]) or [""])[-1]
        for entry in commands
        if entry["file"].startswith(f"{ROOT}/src/")
    }


def test_level_of_the_flags_is_kept(packaged: Path) -> None:
    assert levels(packaged) == {"-O1"}


def test_level_is_chosen_where_none_is_named(tmp_path: Path) -> None:
    text = f"""
        cmake_minimum_required(VERSION 3.25)
        project(including LANGUAGES C CXX)
        add_subdirectory({ROOT} hakmem)
    """
    (tmp_path / "CMakeLists.txt").write_text(text, encoding="utf-8")
    configure(tmp_path, tmp_path / "build", CFLAGS="-g", CXXFLAGS="-g")
    assert levels(tmp_path / "build") == {"-O2"}


def werror(build: Path) -> set[bool]:
    """Whether warnings stop the compilation of the library's files, and of the stress tests'."""
    commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    folders = (f"{ROOT}/src/", f"{ROOT}/tests/stress/storm")
    return {" -Werror " in each["command"] for each in commands if each["file"].startswith(folders)}


def test_warnings_stop_the_tests_in_a_directory_that_was_without(tmp_path: Path) -> None:
    """And where only the library is built they stop nobody, unless that is wanted."""
    # By the presets, as make does it; their own directory is this tree's.
    configure(ROOT, tmp_path, "--preset", "release", "-DHAKMEM_TESTS=OFF")
    assert werror(tmp_path) == {False}
    configure(ROOT, tmp_path, "-DHAKMEM_TESTS=ON")
    assert werror(tmp_path) == {True}
    configure(ROOT, tmp_path, "-DHAKMEM_TESTS=OFF")
    assert werror(tmp_path) == {False}
    configure(ROOT, tmp_path, "-DHAKMEM_TESTS=OFF", "-DHAKMEM_WERROR=ON")
    assert werror(tmp_path) == {True}
    # What one configuration was told the presets forget.
    configure(ROOT, tmp_path, "--preset", "release", "-DHAKMEM_TESTS=OFF")
    assert werror(tmp_path) == {False}


@pytest.mark.parametrize("level", ["-O0", "-Os"])
def test_cxx_runtime_stays_optional_at_any_level(level: str, tmp_path: Path) -> None:
    """One strong reference is enough for every C program to load libstdc++."""
    compiled = tmp_path / "new.o"
    run(CXX, "-std=gnu++17", "-fPIC", "-DHAKMEM_SHARED", level, "-c", ROOT / "src/api/new.cc",
        "-o", compiled)  # fmt: skip
    fields = [line.split() for line in run("nm", "--undefined-only", compiled).splitlines()]
    strong = {name for kind, name in fields if kind == "U"}
    assert "malloc" in strong
    assert {name for name in strong if re.match(r"_Z(?!dl|da)|__cxa|__gxx|_Unwind", name)} == set()
