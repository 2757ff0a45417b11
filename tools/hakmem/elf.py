"""What the kernel reads of a program before it starts it: the identification of an ELF file, the
processor it is for, and the loader it asks for. Nothing else of the format is read here."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import BinaryIO

MAGIC = b"\x7fELF"
PT_DYNAMIC = 2
PT_INTERP = 3
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
