"""The installed package, used by small projects as strangers would write them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.abi.support import CC, CXX, ROOT, run

INSTALL_LIST = "usr/local/share/hakmem/install_manifest.txt"

# Allocates itself and inside libc, and checks that hakmem's own books moved by what was allocated.
CONSUMER_C = """
#include <hakmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
    struct hakmem_totals before, after;
    hakmem_totals(&before);
    void *volatile block = malloc(10 << 20);
    char *volatile copy = strdup("libc allocates too");
    hakmem_totals(&after);
    if (block == NULL || copy == NULL || after.live_bytes < before.live_bytes + (10 << 20)) {
        return 1;
    }
    printf("%s\\n", hakmem_version());
    free(copy);
    free(block);
    return hakmem_check() == 0 ? 0 : 2;
}
"""

CONSUMER_CXX = """
#include <hakmem.h>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <new>
#include <vector>
struct alignas(256) wide { char bytes[512]; };
int main() {
    struct hakmem_totals before, after;
    hakmem_totals(&before);
    std::vector<char> block(10 << 20);
    asm volatile("" : : "r"(block.data()) : "memory");
    auto aligned = std::make_unique<wide>();
    hakmem_totals(&after);
    if (after.live_bytes < before.live_bytes + (10 << 20)) {
        return 1;
    }
    if (reinterpret_cast<std::uintptr_t>(aligned.get()) % 256 != 0) {
        return 3;
    }
    try {
        volatile std::size_t impossible = SIZE_MAX / 2;
        char *volatile block = new char[impossible];
        delete[] block;
        return 4;
    } catch (const std::bad_alloc &) {
        std::puts(hakmem_version());
    }
    return hakmem_check() == 0 ? 0 : 2;
}
"""

# Names no function of malloc's family; libc allocates for it.
SILENT_C = """
#include <stdio.h>
int main(void) {
    char *line = NULL;
    size_t size = 0;
    return getline(&line, &size, stdin) < 0;
}
"""

ONLY_MALLOC_C = """
#include <stdlib.h>
int main(void) {
    char *volatile block = malloc(10);
    return block == NULL;
}
"""

# A library that has a hakmem of its own, and a program that unloads it while a thread has used it.
PLUGIN_C = """
#include <stdlib.h>
void *plugin_take(size_t bytes) { return malloc(bytes); }
void plugin_give(void *block) { free(block); }
"""

HOST_C = """
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>
static void *plugin;
static pthread_barrier_t barrier;
static void *use(void *argument) {
    void *(*take)(size_t) = (void *(*)(size_t))dlsym(plugin, "plugin_take");
    void (*give)(void *) = (void (*)(void *))dlsym(plugin, "plugin_give");
    give(take(100));
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return argument;
}
int main(int count, char **values) {
    pthread_t thread;
    int status = -1;
    plugin = count == 2 ? dlopen(values[1], RTLD_NOW) : NULL;
    if (plugin == NULL || pthread_barrier_init(&barrier, NULL, 2) != 0 ||
        pthread_create(&thread, NULL, use, NULL) != 0) {
        return 1;
    }
    pthread_barrier_wait(&barrier);
    dlclose(plugin);
    const pid_t child = fork();
    if (child == 0) {
        _exit(0);
    }
    pthread_barrier_wait(&barrier);
    return waitpid(child, &status, 0) != child || status != 0 || pthread_join(thread, NULL) != 0;
}
"""

CMAKE = """
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES C CXX)
find_package(hakmem REQUIRED)
foreach(kind c cc)
  add_executable(${kind}_shared consumer.${kind})
  target_link_libraries(${kind}_shared PRIVATE hakmem::hakmem)
  add_executable(${kind}_static consumer.${kind})
  target_link_libraries(${kind}_static PRIVATE hakmem::hakmem_static)
  add_executable(${kind}_whole consumer.${kind})
  target_link_libraries(${kind}_whole PRIVATE hakmem::hakmem_static -static)
endforeach()
add_executable(silent_shared silent.c)
target_link_options(silent_shared PRIVATE -Wl,--as-needed)
target_link_libraries(silent_shared PRIVATE hakmem::hakmem)
add_executable(silent_static silent.c)
target_link_libraries(silent_static PRIVATE hakmem::hakmem_static)
"""


@pytest.fixture(scope="module")
def prefix(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package was installed."""
    destination = tmp_path_factory.mktemp("installed")
    run("cmake", "--install", build, "--prefix", "/opt/hakmem", DESTDIR=str(destination))
    return destination / "opt/hakmem"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stranger's project."""
    directory = tmp_path_factory.mktemp("consumer")
    texts = {
        "consumer.c": CONSUMER_C,
        "consumer.cc": CONSUMER_CXX,
        "silent.c": SILENT_C,
        "CMakeLists.txt": CMAKE,
    }
    for name, text in texts.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def assert_uses_hakmem(program: Path, prefix: Path, linkage: str) -> None:
    """malloc comes from hakmem and from nowhere else."""
    defined = run("nm", "--defined-only", program)
    libraries = run("ldd", program) if linkage != "whole" else ""
    if linkage == "shared":
        assert "libhakmem.so.0" in libraries
        assert " T malloc\n" not in defined
    else:
        assert "libhakmem" not in libraries
        assert " T malloc\n" in defined
    # glibc's own malloc would bring these along.
    assert "_int_malloc" not in defined
    assert "ptmalloc_init" not in defined
    environment = {"LD_LIBRARY_PATH": str(prefix / "lib")} if linkage == "shared" else {}
    run(program, **environment)


def test_installed_files(prefix: Path) -> None:
    installed = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    assert {
        "include/hakmem.h",
        "include/hakmem_inspect.h",
        "lib/libhakmem.a",
        "lib/libhakmem.so",
        "lib/libhakmem.so.0",
        "lib/pkgconfig/hakmem.pc",
        "lib/cmake/hakmem/hakmem-config.cmake",
        "lib/cmake/hakmem/hakmem-config-version.cmake",
        "lib/cmake/hakmem/hakmem-targets.cmake",
        "share/doc/hakmem/LICENSE",
        "share/doc/hakmem/docs/OPERATING.md",
        "share/hakmem/profiles/lean.profile",
        "share/man/man1/hakmem.1",
        "share/man/man3/hakmem.3",
    } <= installed


def tree_of(build: Path, folder: Path) -> Path:
    """A tree with this build directory, for the goals of its Makefile that need nothing else."""
    tree = folder / "tree"
    (tree / "build").mkdir(parents=True)
    (tree / "build/release").symlink_to(build)
    shutil.copy(ROOT / "Makefile", tree)
    return tree


@pytest.mark.parametrize("directory", ["my stage", "a'b $(false) *", "plain"])
@pytest.mark.parametrize("prefix_given", ["/usr/local", "/opt/also here", ""])
def test_uninstall_removes_what_install_brought_and_nothing_else(
    build: Path, tmp_path: Path, directory: str, prefix_given: str
) -> None:
    """Whatever the directories are called: a space in a name is no end of it."""
    tree = tree_of(build, tmp_path)
    stage = tmp_path / directory
    kept = [tmp_path / "my/file", tmp_path / "a", tree / "stage/file", tree / "here/file"]
    kept += [stage / prefix_given.strip("/") / "lib/libother.so", stage / "opt/also/file"]
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    def make(goal: str) -> set[Path]:
        """With the library as it is built already; what there is of files then."""
        run("make", "-C", tree, "-o", "lib", goal, f"prefix={prefix_given}",
            f"DESTDIR={str(stage).replace('$', '$$')}")  # fmt: skip
        return {path for path in tmp_path.rglob("*") if not path.is_dir()}

    before = {path for path in tmp_path.rglob("*") if not path.is_dir()}
    installed = make("install") - before
    root = stage / prefix_given.strip("/")
    assert len(installed) > 15
    assert root / "lib/libhakmem.so.0" in installed
    assert all(path.is_relative_to(root) for path in installed)
    assert make("uninstall") == before


@pytest.mark.parametrize("libdir", ["lib64", "/opt/also lib"])
def test_others_can_read_what_is_installed_and_it_goes_from_any_directory(
    build: Path, tmp_path: Path, libdir: str
) -> None:
    """Also by a root whose files nobody else may read, and after `make clean`. Fedora's libraries
    are in lib64."""
    other, stage = tmp_path / "other", tmp_path / "stage"
    run("cmake", "-S", ROOT, "-B", other, f"-DCMAKE_C_COMPILER={CC}",
        f"-DCMAKE_CXX_COMPILER={CXX}", f"-DCMAKE_INSTALL_LIBDIR={libdir}")  # fmt: skip
    for built in build.glob("libhakmem.*"):
        shutil.copy(built, other, follow_symlinks=False)
    tree = tree_of(other, tmp_path)
    make = ("make", "-C", tree, "-o", "lib", f"DESTDIR={stage}")
    umask = os.umask(0o077)
    try:
        run(*make, "install")
    finally:
        os.umask(umask)
    folder = stage / "usr/local" / libdir if libdir == "lib64" else stage / libdir.strip("/")
    assert (folder / "libhakmem.so.0").exists()
    assert all(path.stat().st_mode & 0o055 == 0o055 for path in stage.rglob("*") if path.is_dir())
    run("make", "-C", tree, "clean")
    run(*make, "uninstall")
    assert not [path for path in stage.rglob("*") if not path.is_dir() or path.name == "hakmem"]


def test_uninstall_takes_what_an_earlier_version_brought(build: Path, tmp_path: Path) -> None:
    tree, stage = tree_of(build, tmp_path), tmp_path / "stage"
    make = ("make", "-C", tree, "-o", "lib", f"DESTDIR={stage}")
    run(*make, "install")
    earlier, names = stage / "usr/local/lib/libhakmem.so.0.0.9", stage / INSTALL_LIST
    earlier.touch()
    names.write_text(names.read_text() + "/usr/local/lib/libhakmem.so.0.0.9\n")
    run(*make, "install")
    run(*make, "uninstall")
    assert not [path for path in stage.rglob("*") if not path.is_dir()]


def test_uninstall_says_where_it_does_not_know_what_was_installed(tmp_path: Path) -> None:
    stage = tmp_path / "stage"
    kept = stage / "usr/local/lib64/libhakmem.so.0"
    kept.parent.mkdir(parents=True)
    kept.touch()
    make = ("make", "-C", tree_of(tmp_path, tmp_path), f"DESTDIR={stage}", "uninstall")
    done = subprocess.run(make, capture_output=True, text=True)
    assert done.returncode == 2
    assert f"make: there is no {stage / INSTALL_LIST}, which tells" in done.stderr
    assert kept.exists()


def test_clean_leaves_what_a_killed_setup_has_to_end(tmp_path: Path) -> None:
    tree = tree_of(tmp_path, tmp_path)
    kept = ("venv", "setup.stay_off", ".setup.lock")
    for name in (*kept, "other.log"):
        (tree / "build" / name).touch()
    run("make", "-C", tree, "clean")
    assert {path.name for path in (tree / "build").iterdir()} == set(kept)


def test_installed_files_name_no_build_path(prefix: Path, build: Path) -> None:
    for path in (*prefix.rglob("*.pc"), *prefix.rglob("*.cmake")):
        text = path.read_text(encoding="utf-8")
        assert str(build) not in text
        assert str(build.parent.parent) not in text


def test_named_profiles_are_found(prefix: Path, build: Path) -> None:
    """Where they were installed, and in the build tree; a name that is none draws one line."""
    for library in (prefix / "lib/libhakmem.so.0", build / "libhakmem.so"):
        shown = run("/bin/true", LD_PRELOAD=str(library), HAKMEM_PROFILE="lean", HAKMEM_VERBOSE="1")
        assert re.search(r"^hakmem: mode +lean +\(profile\)$", shown, re.MULTILINE), shown
    shown = run("/bin/true", LD_PRELOAD=str(build / "libhakmem.so"), HAKMEM_PROFILE="no-such")
    assert shown == "hakmem: profile 'no-such' is not installed; the default is used\n"


@pytest.fixture(scope="module")
def built_with_cmake(project: Path, prefix: Path) -> Path:
    run(
        "cmake", "-S", project, "-B", project / "build", f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DCMAKE_C_COMPILER={CC}", f"-DCMAKE_CXX_COMPILER={CXX}",
    )  # fmt: skip
    run("cmake", "--build", project / "build")
    return project / "build"


@pytest.mark.parametrize("linkage", ["shared", "static", "whole"])
@pytest.mark.parametrize("kind", ["c", "cc"])
def test_find_package(built_with_cmake: Path, prefix: Path, kind: str, linkage: str) -> None:
    assert_uses_hakmem(built_with_cmake / f"{kind}_{linkage}", prefix, linkage)


@pytest.mark.parametrize("linkage", ["shared", "static"])
def test_program_that_never_names_malloc(
    built_with_cmake: Path, prefix: Path, linkage: str
) -> None:
    assert_uses_hakmem(built_with_cmake / f"silent_{linkage}", prefix, linkage)


def test_find_package_in_the_build_tree(project: Path, build: Path) -> None:
    directory = project / "in-tree"
    run("cmake", "-S", project, "-B", directory, f"-Dhakmem_DIR={build}")
    run("cmake", "--build", directory, "--target", "c_shared")
    run(directory / "c_shared")


@pytest.mark.parametrize("flags", [(), ("-Wl,--gc-sections",), ("-static", "-Wl,--gc-sections")])
def test_static_program_keeps_the_inspect_root(
    project: Path, prefix: Path, flags: tuple[str, ...]
) -> None:
    """A program that names malloc alone, stripped: readers find the root and its tables."""
    program = project / "only_malloc"
    source = project / "only_malloc.c"
    source.write_text(ONLY_MALLOC_C, encoding="utf-8")
    run(CC, "-O2", "-s", *flags, "-o", program, source, prefix / "lib/libhakmem.a", "-lpthread")
    text = program.read_bytes()
    assert text.count(b"hakmem-inspect\0\0") == 1
    assert b"remote_summary\0" in text


@pytest.mark.parametrize("linkage", ["shared", "static", "whole"])
@pytest.mark.parametrize(("kind", "compiler"), [("c", CC), ("cc", CXX)])
def test_pkg_config(project: Path, prefix: Path, kind: str, compiler: str, linkage: str) -> None:
    static = ["--static"] if linkage != "shared" else []
    words = run(
        "pkg-config", *static, "--cflags", "--libs", "hakmem",
        PKG_CONFIG_PATH=str(prefix / "lib/pkgconfig"),
    ).split()  # fmt: skip
    if linkage == "static":
        words = [word.replace("-lhakmem", "-l:libhakmem.a") for word in words]
    elif linkage == "whole":
        words.append("-static")
    program = project / f"pc_{kind}_{linkage}"
    run(compiler, "-O2", "-o", program, project / f"consumer.{kind}", *words)
    assert_uses_hakmem(program, prefix, linkage)


@pytest.mark.parametrize("header", ["hakmem.h", "hakmem_inspect.h"])
@pytest.mark.parametrize(
    ("compiler", "language"),
    [(CC, "c -std=c99"), (CC, "c -std=c17"), (CXX, "c++ -std=c++11"), (CXX, "c++ -std=c++20")],
)
def test_headers_cause_no_warning(
    header: str, compiler: str, language: str, project: Path, prefix: Path
) -> None:
    """Whatever warnings a stranger's project asks for."""
    unit = project / "headers.c"
    unit.write_text(f'#include "{header}"\n', encoding="utf-8")
    run(
        compiler, "-x", *language.split(), "-Wall", "-Wextra", "-Wpedantic", "-Wshadow",
        "-Wconversion", "-Werror", "-fsyntax-only", "-I", prefix / "include", unit,
    )  # fmt: skip


def test_program_with_its_own_cxx_runtime(project: Path, prefix: Path) -> None:
    """It has of the runtime what it refers to, which is not all that a failing new asks for."""
    program = project / "own_runtime"
    run(
        CXX, "-O2", "-static-libstdc++", "-static-libgcc", "-I", prefix / "include", "-o", program,
        project / "consumer.cc", "-L", prefix / "lib", "-lhakmem",
    )  # fmt: skip
    assert_uses_hakmem(program, prefix, "shared")


def test_library_with_the_archive_is_not_unloaded(project: Path, prefix: Path) -> None:
    """Handlers of fork and the destructors of threads lead into it."""
    (project / "plugin.c").write_text(PLUGIN_C, encoding="utf-8")
    (project / "host.c").write_text(HOST_C, encoding="utf-8")
    plugin, host = project / "plugin.so", project / "host"
    run(
        CC, "-shared", "-fPIC", "-Wl,--exclude-libs,ALL", "-o", plugin, project / "plugin.c",
        prefix / "lib/libhakmem.a", "-lpthread",
    )  # fmt: skip
    run(CC, "-o", host, project / "host.c", "-lpthread", "-ldl")
    run(host, plugin)


def compile_commands(source: Path, build: Path) -> dict[str, str]:
    """How the release build compiles each file: command, without the place of the tree, to file."""
    run("cmake", "-S", source, "-B", build, "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", f"-DCMAKE_C_COMPILER={CC}",
        f"-DCMAKE_CXX_COMPILER={CXX}")  # fmt: skip
    commands: dict[str, str] = {}
    for entry in json.loads((build / "compile_commands.json").read_text(encoding="utf-8")):
        command = entry["command"].replace(str(build), "BUILD").replace(str(source), "SOURCE")
        commands[command] = Path(entry["file"]).name
    return commands


def test_compiled_the_same_wherever_the_tree_lies(tmp_path: Path) -> None:
    """Also in directories called as those of src/ are, whose names say what is for size; and while
    an editor has a source open, whose lock is a link to nothing."""
    source = tmp_path / "tree"
    for name in ("cmake", "docs", "include", "profiles", "src"):
        shutil.copytree(ROOT / name, source / name)
    for name in ("CHANGELOG.md", "CMakeLists.txt", "LICENSE", "SECURITY.md"):
        shutil.copy(ROOT / name, source)
    moved = tmp_path / "base/src/control/config/base"
    usual = compile_commands(source, tmp_path / "build")
    moved.parent.mkdir(parents=True)
    source.rename(moved)
    for name in ("src/heap/.#heap.c", "include/.#hakmem.h"):
        (moved / name).symlink_to("user@host.1234:1")
    assert compile_commands(moved, tmp_path / "base/build") == usual
    for name, size in (("heap.c", False), ("cache.c", False), ("stats.c", True)):
        flags = [command for command, file in usual.items() if file == name]
        assert flags
        assert all((" -Os " in command) is size for command in flags)
