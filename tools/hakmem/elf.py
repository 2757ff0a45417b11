"""What the kernel reads of a program before it starts it: the identification of an ELF file, the
processor it is for, and the loader it asks for; the build id, which a profile may name; and whether
it defines a name. Nothing else of the format is read here."""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

MAGIC = b"\x7fELF"
PT_DYNAMIC = 2
PT_INTERP = 3
PT_NOTE = 4
NT_GNU_BUILD_ID = 3
NOTES_BYTES_MAX = 64 << 10
# Tables of symbols: the linker's, which `strip` takes away, and the loader's.
SHT_SYMTAB, SHT_DYNSYM = 2, 11
SECTION_BYTES, SYMBOL_BYTES = 64, 24
TABLE_BYTES_MAX = 1 << 30
PROGRAM_HEADERS_MAX = 512
PATH_BYTES_MAX = 4096

MACHINES = {
    3: "32-bit x86",
    8: "MIPS",
    21: "64-bit PowerPC",
    22: "IBM Z",
    40: "32-bit ARM",
    62: "x86-64",
    183: "aarch64",
    243: "RISC-V",
    258: "LoongArch",
}


@dataclass(frozen=True)
class Program:
    """`loader` is None for a program that the kernel starts without one: a static program."""

    bits: int
    machine: int
    loader: str | None
    dynamic: bool

    @property
    def architecture(self) -> str:
        name = MACHINES.get(self.machine, f"ELF machine {self.machine}")
        return f"{name} with 32-bit pointers" if (self.bits, self.machine) == (32, 62) else name


def read_program(file: BinaryIO) -> Program | None:
    """None when the file is no ELF file, or a damaged one, which the kernel would refuse."""
    file.seek(0)
    header = file.read(64)
    if (
        len(header) < 52
        or header[:4] != MAGIC
        or header[4] not in (1, 2)
        or header[5] not in (1, 2)
    ):
        return None
    bits = 32 if header[4] == 1 else 64
    order = "<" if header[5] == 1 else ">"
    try:
        return _read(file, header, bits, order)
    except (struct.error, OSError, ValueError):
        return None


def _read(file: BinaryIO, header: bytes, bits: int, order: str) -> Program:
    (machine,) = struct.unpack_from(order + "H", header, 18)
    if bits == 64:
        (table,) = struct.unpack_from(order + "Q", header, 32)
        entry_bytes, count = struct.unpack_from(order + "HH", header, 54)
    else:
        (table,) = struct.unpack_from(order + "I", header, 28)
        entry_bytes, count = struct.unpack_from(order + "HH", header, 42)
    loader: str | None = None
    dynamic = False
    for index in range(min(count, PROGRAM_HEADERS_MAX)):
        file.seek(table + index * entry_bytes)
        entry = file.read(56 if bits == 64 else 32)
        (kind,) = struct.unpack_from(order + "I", entry, 0)
        if kind == PT_DYNAMIC:
            dynamic = True
        elif kind == PT_INTERP:
            if bits == 64:
                offset, length = struct.unpack_from(order + "Q16xQ", entry, 8)
            else:
                offset, length = struct.unpack_from(order + "I8xI", entry, 4)
            file.seek(offset)
            loader = file.read(min(length, PATH_BYTES_MAX)).split(b"\0")[0].decode(errors="replace")
    return Program(bits, machine, loader, dynamic)


def open_regular(path: str | Path) -> BinaryIO:
    """A file that somebody else named. OSError of a pipe, which would be waited for, and a device:
    neither is opened."""

    def at_once(name: str, flags: int) -> int:
        place = os.open(name, os.O_PATH | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(place).st_mode):
                raise OSError(errno.EINVAL, "is no regular file", name)
            return os.open(f"/proc/self/fd/{place}", flags | os.O_NONBLOCK)
        finally:
            os.close(place)

    return open(path, "rb", opener=at_once)


def read_build_id(path: Path) -> str | None:
    """The GNU build id of a program of 64 bits; empty when it has none, None when that cannot be
    told."""
    try:
        with open_regular(path) as file:
            header = file.read(64) or b""
            if len(header) < 64 or header[:5] != MAGIC + b"\2" or header[5] not in (1, 2):
                return None
            return _read_build_id(file, header, "<" if header[5] == 1 else ">")
    except (struct.error, OSError, ValueError):
        return None


def _read_build_id(file: BinaryIO, header: bytes, order: str) -> str:
    (table,) = struct.unpack_from(order + "Q", header, 32)
    entry_bytes, count = struct.unpack_from(order + "HH", header, 54)
    for index in range(min(count, PROGRAM_HEADERS_MAX)):
        file.seek(table + index * entry_bytes)
        kind, offset, length, align = struct.unpack(order + "I4xQ16xQ8xQ", file.read(56))
        # Notes aligned to 8 are of another kind (.note.gnu.property).
        if kind == PT_NOTE and align <= 4:
            file.seek(offset)
            found = _build_id_among(file.read(min(length, NOTES_BYTES_MAX)), order)
            if found:
                return found
    return ""


def _build_id_among(notes: bytes, order: str) -> str:
    at = 0
    while at + 12 <= len(notes):
        name_bytes, bytes_, kind = struct.unpack_from(order + "III", notes, at)
        name = at + 12
        start = name + (name_bytes + 3) // 4 * 4
        if kind == NT_GNU_BUILD_ID and notes[name : name + name_bytes] == b"GNU\0":
            return notes[start : start + bytes_].hex()
        at = start + (bytes_ + 3) // 4 * 4
    return ""


def read_definitions(path: Path, names: Iterable[str]) -> frozenset[str]:
    """Those of the names that a file of 64 bits has a function or object of, as far as its tables
    of symbols tell; none where it cannot be read."""
    try:
        with open_regular(path) as file:
            header = file.read(64) or b""
            if len(header) < 64 or header[:5] != MAGIC + b"\2" or header[5] not in (1, 2):
                return frozenset()
            return _read_definitions(file, header, "<" if header[5] == 1 else ">", set(names))
    except (struct.error, OSError, ValueError, OverflowError, IndexError):
        return frozenset()


def _read_definitions(file: BinaryIO, header: bytes, order: str, names: set[str]) -> frozenset[str]:
    (table,) = struct.unpack_from(order + "Q", header, 40)
    entry_bytes, count = struct.unpack_from(order + "HH", header, 58)
    sections = []
    for index in range(count):
        file.seek(table + index * entry_bytes)
        # Kind, offset, bytes, and the section of the names.
        sections.append(struct.unpack(order + "4xI16xQQI20x", file.read(SECTION_BYTES)))

    def content(section: tuple[int, ...]) -> bytes:
        _, offset, size, _ = section
        file.seek(offset)
        return file.read(min(size, TABLE_BYTES_MAX))

    found = set()
    for section in sections:
        if section[0] in (SHT_SYMTAB, SHT_DYNSYM):
            strings, symbols = content(sections[section[3]]), b""
            for name in names:
                for place in _places(strings, name.encode() + b"\0"):
                    symbols = symbols or content(section)
                    if _has_definition(symbols, struct.pack(order + "I", place), order):
                        found.add(name)
    return frozenset(found)


def _places(text: bytes, word: bytes) -> Iterable[int]:
    place = text.find(word)
    while place >= 0:
        yield place
        place = text.find(word, place + 1)


def _has_definition(symbols: bytes, name: bytes, order: str) -> bool:
    """Whether a symbol of that name, a place among the strings, lies in a section of the file."""
    for place in _places(symbols, name):
        if place % SYMBOL_BYTES == 0:
            (section,) = struct.unpack_from(order + "H", symbols, place + 6)
            if section != 0:
                return True
    return False
