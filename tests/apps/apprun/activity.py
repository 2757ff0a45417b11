"""Proof that a library's malloc serves a program.

A preloaded library that is mapped need not be the one that is called: the program may be linked to
an allocator of its own, or the library may define no malloc. Two independent witnesses tell:

- of a live process, the addresses in the slots through which its modules call malloc, read from
  outside;
- of a command too short to look at, the loader's own record of which symbol it bound to which file.
"""

import functools
import os
import re
import shutil
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

CORE_NAMES = frozenset({"malloc", "free", "calloc", "realloc"})
FAMILY_NAMES = CORE_NAMES | {
    "reallocarray",
    "posix_memalign",
    "aligned_alloc",
    "memalign",
    "valloc",
    "pvalloc",
    "malloc_usable_size",
    "malloc_trim",
    "malloc_stats",
    "malloc_info",
    "mallinfo",
    "mallinfo2",
    "mallopt",
}

# Relocations that hold a symbol's address, by ELF machine: GLOB_DAT, JUMP_SLOT, the plain word.
SLOT_TYPES = {"EM_X86_64": {1, 6, 7}, "EM_AARCH64": {257, 1025, 1026}}
RELA_ENTRY = struct.Struct("<QQq")
SLOT = struct.Struct("<Q")


class NotActiveError(AssertionError):
    """The library is not the malloc of the program."""


@dataclass(frozen=True)
class Mapping:
    """One line of /proc/PID/maps that maps a file."""

    start: int
    end: int
    path: str


@dataclass(frozen=True)
class Binding:
    """One of malloc's names, as one module of a process sees it."""

    module: str
    name: str
    target: str


@dataclass(frozen=True)
class Slot:
    """A word in a module that holds the address of one of malloc's names."""

    name: str
    offset: int


def real(path: str | Path) -> str:
    return os.path.realpath(path)


@functools.cache
def exported_names(library: str) -> frozenset[str]:
    """The dynamic symbols that a library defines."""
    with Path(library).open("rb") as file:
        symbols: Any = ELFFile(file).get_section_by_name(".dynsym")
        if symbols is None:
            return frozenset()
        return frozenset(
            symbol.name for symbol in symbols.iter_symbols() if symbol["st_shndx"] != "SHN_UNDEF"
        )


@functools.cache
def served_names(library: str) -> frozenset[str]:
    """The names that must resolve to the library: malloc's core, and what else it defines."""
    return CORE_NAMES | (FAMILY_NAMES & exported_names(library))


@functools.cache
def family_slots(module: str) -> tuple[Slot, ...]:
    """The slots of a module's relocation tables that belong to malloc's names.

    The tables are decoded as plain words: a large module has tens of thousands of entries, of which
    a handful is of interest.
    """
    with Path(module).open("rb") as file:
        try:
            elf: Any = ELFFile(file)
        except Exception:
            return ()  # A mapped data file.
        symbols = elf.get_section_by_name(".dynsym")
        types = SLOT_TYPES.get(elf["e_machine"], set())
        names: dict[int, str] = {}
        slots = []
        for section in elf.iter_sections("SHT_RELA"):
            if not section["sh_flags"] & 2:  # SHF_ALLOC: not an object file's table.
                continue
            for offset, info, _ in RELA_ENTRY.iter_unpack(section.data()):
                index = info >> 32
                if index == 0 or info & 0xFFFFFFFF not in types:
                    continue
                if index not in names:
                    names[index] = symbols.get_symbol(index).name
                if names[index] in FAMILY_NAMES:
                    slots.append(Slot(names[index], offset))
        return tuple(slots)


@functools.cache
def link_base(module: str) -> int:
    """Where a module's first loaded byte was linked to lie; 0 for all but fixed programs."""
    with Path(module).open("rb") as file:
        loads = [s["p_vaddr"] for s in ELFFile(file).iter_segments() if s["p_type"] == "PT_LOAD"]
        return int(min(loads)) & ~0xFFF


def file_mappings(pid: int) -> list[Mapping]:
    """The mapped files of a process; an error (ProcessLookupError) when it has ended."""
    mappings = []
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith("/"):
            start, end = (int(word, 16) for word in fields[0].split("-"))
            mappings.append(Mapping(start, end, fields[5]))
    if not mappings:
        raise ProcessLookupError(f"process {pid} has ended")
    return mappings


def live_bindings(pid: int) -> list[Binding]:
    """The files that the slots of a live process point into.

    A slot that still points into its own module was never called (lazy binding) and is left out.
    """
    mappings = file_mappings(pid)
    bases: dict[str, int] = {}
    for mapping in mappings:
        bases.setdefault(mapping.path, mapping.start)
    bindings = []
    with Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for module, base in bases.items():
            if not Path(module).exists():
                continue
            for slot in family_slots(module):
                memory.seek(base - link_base(module) + slot.offset)
                word = memory.read(SLOT.size)
                if len(word) != SLOT.size:
                    raise ProcessLookupError(f"process {pid} has ended")
                (address,) = SLOT.unpack(word)
                target = next((m.path for m in mappings if m.start <= address < m.end), "")
                if target and target != module:
                    bindings.append(Binding(module, slot.name, target))
    return bindings


def prove_live(pid: int, library: Path) -> int:
    """Fail unless the library is mapped in the process and is what malloc's names resolve to.

    Returns the number of slots seen to point into it.
    """
    wanted = real(library)
    if wanted not in {mapping.path for mapping in file_mappings(pid)}:
        raise NotActiveError(f"process {pid}: {wanted} is not mapped")
    bindings = live_bindings(pid)
    judge(bindings, wanted, f"process {pid}")
    return sum(binding.target == wanted for binding in bindings)


def forwards(binding: Binding) -> bool:
    """True when the target only passes the call on.

    In a program linked at a fixed address, the address of a library's function is the program's own
    stub, in all modules; what counts is where the stub's slot leads, and that is a binding too.
    """
    return Path(binding.target).exists() and binding.name not in exported_names(binding.target)


def judge(bindings: Iterable[Binding], library: str, who: str) -> None:
    """Fail unless malloc and free resolve to the library, and no name it serves elsewhere."""
    names = served_names(library)
    bindings = [b for b in bindings if b.name in names and b.module != library and not forwards(b)]
    strays = {
        f"{who}: {b.name} of {b.module} resolves to {b.target}, not to {library}"
        for b in bindings
        if b.target != library
    }
    if strays:
        raise NotActiveError("\n".join(sorted(strays)))
    served = {b.name for b in bindings}
    if not {"malloc", "free"} <= served:
        raise NotActiveError(f"{who}: nothing binds malloc and free to {library}")


# ---- The loader's record

BINDING = re.compile(
    r"binding file (?P<module>.+) \[\d+\] to (?P<target>.+) \[\d+\]: normal symbol `(?P<name>\w+)'"
)


def trace_environment(directory: Path) -> dict[str, str]:
    """Makes the loader write its bindings, one file for each process, all resolved at start."""
    return {
        "LD_DEBUG": "bindings",
        "LD_DEBUG_OUTPUT": str(directory / "bindings"),
        "LD_BIND_NOW": "1",
    }


def program_file(name: str) -> str:
    """The file behind a name in the loader's record; it calls a program as its caller did."""
    found = shutil.which(name) if "/" not in name else None
    return real(found or name)


def traced_bindings(lines: Iterable[str]) -> set[Binding]:
    """The files that the loader bound malloc's names to."""
    bindings = set()
    for line in lines:
        match = BINDING.search(line)
        if match and match["name"] in FAMILY_NAMES:
            bindings.add(
                Binding(program_file(match["module"]), match["name"], program_file(match["target"]))
            )
    return bindings


def prove_traced(directory: Path, library: Path) -> int:
    """Fail unless every process that left a record in the directory was served by the library.

    Returns the number of processes.
    """
    records = sorted(directory.glob("bindings.*"))
    if not records:
        raise NotActiveError(f"no process left a loader record in {directory}")
    for record in records:
        with record.open(errors="replace") as lines:
            judge(traced_bindings(lines), real(library), f"process {record.suffix[1:]}")
    return len(records)
