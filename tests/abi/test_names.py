"""The names both libraries define, and what the shared one needs from others."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

ROOT = Path(__file__).resolve().parents[2]
# In a static program this is the C library's alone (src/api/atfork.c).
SHARED_ALONE = {"__register_atfork"}


def listed(path: Path) -> list[str]:
    """The names in a list of one name a line, # for comments."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def run(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def symbols(*arguments: str | Path) -> dict[str, str]:
    """Defined global symbols and their nm type."""
    found = {}
    for line in run("nm", "--defined-only", "--extern-only", *arguments).splitlines():
        fields = line.split()
        if len(fields) == 3:
            found[fields[2]] = fields[1]
    return found


@pytest.fixture(scope="module")
def shared(build: Path) -> Iterator[ELFFile]:
    with (build / "libhakmem.so").open("rb") as file:
        yield ELFFile(file)


@pytest.fixture(scope="module")
def exports() -> list[str]:
    return listed(ROOT / "tests/abi/exports.txt")


@pytest.fixture(scope="module")
def glibc_malloc_object() -> list[str]:
    """The global names of the object of glibc's static library that defines malloc."""
    archive = run(os.environ.get("CC", "gcc"), "-print-file-name=libc.a").strip()
    names: list[str] = []
    member = ""
    for line in run("nm", "--defined-only", "--extern-only", archive).splitlines():
        if line.endswith(".o:"):
            member = line[:-1]
        elif member == "malloc.o" and line:
            names.append(line.split()[2])
    assert "malloc" in names
    return names


def test_exports_are_the_committed_list(build: Path, exports: list[str]) -> None:
    built = symbols("--dynamic", build / "libhakmem.so")
    assert sorted(built) == exports
    assert built.pop("hakmem_inspect_root") == "D"
    assert set(built.values()) <= {"T", "W"}, "only functions are exported, and the inspect root"


def test_imports_are_known(build: Path) -> None:
    """Each has a row that says why it is safe under a lock, or where it is watched."""
    rows = (line.split() for line in listed(ROOT / "tests/abi/imports.txt"))
    kinds = {name: kind for kind, name in rows}
    needed = run("nm", "--dynamic", "--undefined-only", build / "libhakmem.so").splitlines()
    # What else the compiler takes from libc differs, so some rows may be of another compiler's.
    assert {line.split()[-1].split("@")[0] for line in needed} <= kinds.keys()
    assert set(kinds.values()) <= {"watched", "pure", "loader", "outside"}
    wrapped = (ROOT / "tests/unit/CMakeLists.txt").read_text(encoding="utf-8")
    for name in (name for name, kind in kinds.items() if kind == "watched"):
        assert re.search(rf"\b{name}\b", wrapped), f"nobody watches {name}"


def test_exports_belong_to_malloc_or_to_hakmem(exports: list[str]) -> None:
    operators = [name for name in exports if name.startswith("_Z")]
    assert len(operators) == 20
    assert all(re.match(r"_Z(nw|na|dl|da)", name) for name in operators)
    header = (ROOT / "include/hakmem.h").read_text(encoding="utf-8")
    inspect = (ROOT / "include/hakmem_inspect.h").read_text(encoding="utf-8")
    declared = set(re.findall(r"^\w[^\n(]*?\b(hakmem_\w+)\(", header, re.MULTILINE))
    declared |= set(re.findall(r"^extern struct \w+ (\w+);", inspect, re.MULTILINE))
    assert {name for name in exports if name.startswith("hakmem_")} == declared


def test_complete_surface_is_exported(exports: list[str], glibc_malloc_object: list[str]) -> None:
    standard = {
        "free_sized", "free_aligned_sized", "cfree", "reallocarray",
        *(name for name in glibc_malloc_object if not name.startswith("_")),
    }  # fmt: skip
    assert standard <= set(exports)
    # What glibc's shared library offers under a second name must not hand out glibc's blocks.
    libc = symbols("--dynamic", "/lib/x86_64-linux-gnu/libc.so.6")
    second = {
        name.split("@")[0]
        for name in libc
        if re.match(r"__(libc|posix)_(malloc|free|calloc|realloc|memalign|valloc|pvalloc)@", name)
    }
    assert "__libc_malloc" in second
    assert second <= set(exports)


def test_static_library_defines_what_it_promises(build: Path, exports: list[str]) -> None:
    built = set(symbols(build / "libhakmem.a"))
    promised = set(exports) - SHARED_ALONE | set(listed(ROOT / "src/api/static_names.txt"))
    assert promised <= built
    # Everything else would clash with a program's own names.
    own = ("hakmem_", "DW.ref.", "__clang_")
    others = {name for name in built - promised if not name.startswith(own)}
    assert others == set()


def test_static_library_replaces_glibcs_object(build: Path, glibc_malloc_object: list[str]) -> None:
    assert set(glibc_malloc_object) <= set(symbols(build / "libhakmem.a"))


def test_shared_library_needs_libc_alone(shared: ELFFile) -> None:
    dynamic = shared.get_section_by_name(".dynamic")
    assert isinstance(dynamic, DynamicSection)
    tags = {tag.entry.d_tag: tag for tag in dynamic.iter_tags()}
    strings = dynamic._get_stringtable()
    needed = [strings.get_string(tag.entry.d_val) for tag in dynamic.iter_tags("DT_NEEDED")]
    assert needed == ["libc.so.6"]
    assert strings.get_string(tags["DT_SONAME"].entry.d_val) == "libhakmem.so.0"
    assert "DT_TEXTREL" not in tags
    flags = tags["DT_FLAGS_1"].entry.d_val
    assert flags & 0x1, "all names are bound at load time: none inside a malloc"
    assert flags & 0x8, "never unloaded"


def test_thread_local_storage_is_one_word(shared: ELFFile) -> None:
    sizes = [s.header.p_memsz for s in shared.iter_segments() if s.header.p_type == "PT_TLS"]
    assert sizes == [8]


def test_stack_is_not_executable_and_nothing_is_both(shared: ELFFile) -> None:
    write, execute = 2, 1
    for segment in shared.iter_segments():
        if segment.header.p_type in ("PT_LOAD", "PT_GNU_STACK"):
            assert segment.header.p_flags & (write | execute) != write | execute


def test_c_program_does_not_load_the_cxx_runtime(build: Path) -> None:
    preload = {**os.environ, "LD_PRELOAD": str(build / "libhakmem.so")}
    command = ["cat", "/proc/self/maps"]
    maps = subprocess.run(command, env=preload, check=True, capture_output=True, text=True).stdout
    assert "libhakmem.so" in maps
    assert "libstdc++" not in maps
