"""The modules of a running process and their symbol tables, read from its memory.

What the loader left there is followed as a debugger does: the program's headers (auxv), its dynamic
section, the loader's list of modules in search order. 64-bit little-endian processes only.
"""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from hakmem import elf
from hakmem.errors import EXIT_USAGE, HakmemError
from hakmem.preload import GLIBC_LOADER

AT_PHDR, AT_PHNUM, AT_SECURE = 3, 5, 23
PT_LOAD, PT_DYNAMIC, PT_PHDR = 1, 2, 6
DT_PLTRELSZ, DT_STRTAB, DT_SYMTAB, DT_RELA, DT_RELASZ, DT_STRSZ = 2, 5, 6, 7, 8, 10
DT_SONAME, DT_DEBUG, DT_JMPREL, DT_GNU_HASH = 14, 21, 23, 0x6FFFFEF5
ELF_MAGIC = b"\x7fELF\x02"
PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
PAIR, SHORT_PAIR = struct.Struct("<QQ"), struct.Struct("<II")
PAGE_BYTES_MIN = 4096
# The loader's own list of modules, which it exports for debuggers.
LOADER_LIST = "_r_debug"
SYMBOL_BYTES = 24
RELA = np.dtype([("offset", "<u8"), ("type", "<u4"), ("symbol", "<u4"), ("addend", "<i8")])
# Of struct r_debug_extended: the next namespace, which dlmopen or LD_AUDIT made.
R_NEXT = 40
# More than this is no process but damage.
MODULES_MAX = 4096
HEADERS_MAX = 512
DYNAMIC_BYTES_MAX = 1 << 16
TABLE_BYTES_MAX = 1 << 28
PATH_BYTES_MAX = 4096

Relocations = npt.NDArray[np.void]


class BindingError(HakmemError):
    """The process's modules cannot be read."""

    status = EXIT_USAGE


class NoAccessError(BindingError):
    """The process is not ours to look into."""


def _unreadable(what: str, error: OSError) -> BindingError:
    kind = NoAccessError if error.errno in (errno.EACCES, errno.EPERM) else BindingError
    return kind(f"its {what} cannot be read: {error.strerror}")


class Memory:
    """/proc/PID/mem."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        try:
            self._file = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise _unreadable("memory", error) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self._file)

    def read(self, address: int, count: int) -> bytes:
        """Exactly `count` bytes; BindingError when they are not there."""
        if not (0 <= address < 1 << 63 and 0 <= count <= TABLE_BYTES_MAX):
            raise BindingError(f"its modules point to nowhere ({address:#x}, {count} bytes)")
        try:
            data = os.pread(self._file, count, address)
        except OSError as error:
            raise BindingError(f"its memory at {address:#x}: {error.strerror}") from None
        if len(data) != count:
            raise BindingError(f"its memory at {address:#x} ends too early")
        return data

    def holds_elf(self, address: int) -> bool:
        """A 64-bit file begins there."""
        try:
            return self.read(address, len(ELF_MAGIC)) == ELF_MAGIC
        except BindingError:
            return False

    def word(self, address: int) -> int:
        return int.from_bytes(self.read(address, 8), "little")

    def text(self, address: int) -> str:
        """Up to the zero byte, in steps that never leave a page."""
        data = b""
        while b"\0" not in data and len(data) < PATH_BYTES_MAX:
            data += self.read(address + len(data), 64 - (address + len(data)) % 64)
        return data.split(b"\0")[0].decode("utf-8", "surrogateescape")

    def file_at(self, address: int) -> MappedFile | None:
        """The file that is mapped there."""
        try:
            text = Path(f"/proc/{self._pid}/maps").read_bytes()
        except OSError as error:
            raise _unreadable("list of mappings", error) from None
        if not text:
            raise BindingError("it has no mappings: it has ended, or is the kernel's")
        starts: dict[bytes, int] = {}
        # A name may hold whatever else ends a line; of a line feed the kernel writes the number.
        for line in text.removesuffix(b"\n").split(b"\n"):
            span, _, offset, device, inode, *name = line.split(None, 5)
            low, high = (int(end, 16) for end in span.split(b"-"))
            file = device + b" " + inode
            if int(offset, 16) == 0:
                starts[file] = low
            if low <= address < high:
                if inode == b"0" or file not in starts:
                    return None
                return MappedFile(starts[file], b"".join(name).decode("utf-8", "surrogateescape"))
        return None


class MappedFile(NamedTuple):
    """`start` is where its first byte is."""

    start: int
    name: str


def auxiliary_vector(process: Path) -> dict[int, int]:
    """What the kernel told the program of a process, by its folder in /proc, at its start."""
    try:
        data = (process / "auxv").read_bytes()
    except OSError as error:
        raise _unreadable("auxiliary vector", error) from None
    pair = SHORT_PAIR if is_short(process) else PAIR
    return dict(pair.iter_unpack(data[: len(data) // pair.size * pair.size]))


def is_short(process: Path) -> bool:
    """Whether a process, by its folder in /proc, has addresses of 32 bits."""
    try:
        with (process / "exe").open("rb") as file:
            header = elf.read_program(file)
    except OSError:
        return False
    return header is not None and header.bits == 32


def gnu_hash(name: str) -> int:
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) & 0xFFFFFFFF
    return value


@dataclass
class Module:
    """`base` is what is added to an address of the file."""

    name: str
    base: int
    low: int
    high: int
    memory: Memory
    dynamic: dict[int, int] = field(default_factory=dict)

    def holds(self, address: int) -> bool:
        return self.low <= address < self.high

    def _table(self, tag: int) -> int:
        """Some modules have addresses of the file there, and not of the process. 0: none."""
        value = self.dynamic.get(tag, 0)
        if self.holds(value):
            return value
        return self.base + value if value and self.holds(self.base + value) else 0

    def _relocations(self, table: int, size: int) -> Relocations:
        start, count = self._table(table), self.dynamic.get(size, 0) // RELA.itemsize
        if start == 0 or not self.holds(start + count * RELA.itemsize - 1):
            return np.zeros(0, RELA)
        return np.frombuffer(self.memory.read(start, count * RELA.itemsize), RELA)

    @cached_property
    def calls(self) -> Relocations:
        return self._relocations(DT_JMPREL, DT_PLTRELSZ)

    @cached_property
    def slots(self) -> Relocations:
        return self._relocations(DT_RELA, DT_RELASZ)

    @cached_property
    def strings(self) -> bytes:
        start, count = self._table(DT_STRTAB), self.dynamic.get(DT_STRSZ, 0)
        if start == 0 or not self.holds(start + max(count, 1) - 1):
            return b""
        return self.memory.read(start, count)

    def names(self, symbols: npt.NDArray[np.uint32]) -> dict[int, str]:
        """The names of these symbols."""
        start = self._table(DT_SYMTAB)
        if start == 0 or len(symbols) == 0:
            return {}
        count = int(symbols.max()) + 1
        if not self.holds(start + count * SYMBOL_BYTES - 1):
            return {}
        table = self.memory.read(start, count * SYMBOL_BYTES)
        found = {}
        for index in np.unique(symbols).tolist():
            (place,) = struct.unpack_from("<I", table, index * SYMBOL_BYTES)
            end = self.strings.find(b"\0", place)
            if 0 < place < end:
                found[index] = self.strings[place:end].decode("utf-8", "surrogateescape")
        return found

    def may_define(self, name: str) -> bool:
        """Also where it has no table that would tell, or a resolver chooses the address."""
        return self._table(DT_GNU_HASH) == 0 or self.definition(name) is not None

    def definition(self, name: str) -> int | None:
        """The address of the module's own definition of a name that others can bind to."""
        table, symbols = self._table(DT_GNU_HASH), self._table(DT_SYMTAB)
        if table == 0 or symbols == 0:
            return None
        buckets, first, bloom, _ = struct.unpack("<4I", self.memory.read(table, 16))
        if buckets == 0:
            return None
        hashed = gnu_hash(name)
        bucket_table = table + 16 + bloom * 8
        index = self._short(bucket_table + hashed % buckets * 4)
        chain = bucket_table + buckets * 4
        while index >= first:
            link = self._short(chain + (index - first) * 4)
            if link | 1 == hashed | 1:
                symbol = self.memory.read(symbols + index * SYMBOL_BYTES, SYMBOL_BYTES)
                place, _, _, section, value, _ = struct.unpack("<IBBHQQ", symbol)
                wanted = name.encode() + b"\0"
                if section != 0 and self.strings[place : place + len(wanted)] == wanted:
                    return self.base + int(value)
            if link & 1:
                return None
            index += 1
        return None

    def _short(self, address: int) -> int:
        if not self.holds(address):
            raise BindingError(f"{self.name}: its symbol table leads out of it")
        return int.from_bytes(self.memory.read(address, 4), "little")


def _module(memory: Memory, name: str, base: int, headers: bytes) -> Module:
    low, high, dynamic_at = 1 << 64, 0, 0
    for kind, _, _, address, _, _, size, _ in PROGRAM_HEADER.iter_unpack(headers):
        if kind == PT_LOAD:
            low, high = min(low, base + address), max(high, base + address + size)
        elif kind == PT_DYNAMIC:
            dynamic_at = base + address
    module = Module(name, base, low, high, memory)
    for offset in range(0, DYNAMIC_BYTES_MAX, 16) if module.holds(dynamic_at) else ():
        tag, value = struct.unpack("<QQ", memory.read(dynamic_at + offset, 16))
        if tag == 0:
            break
        module.dynamic[tag] = value
    return module


def _headers(memory: Memory, address: int, count: int) -> bytes:
    if count > HEADERS_MAX:
        raise BindingError(f"{count} program headers are no program")
    return memory.read(address, count * PROGRAM_HEADER.size)


def read_modules(memory: Memory, vector: dict[int, int], program: str) -> list[Module]:
    """In the order in which the loader searches them, then those of other namespaces; the program,
    which has no name there, first: `program`, or what the loader runs that was started as one.
    Only the program when no loader runs."""
    at = vector.get(AT_PHDR, 0)
    headers = _headers(memory, at, vector.get(AT_PHNUM, 0))
    base = next(
        (at - row[3] for row in PROGRAM_HEADER.iter_unpack(headers) if row[0] == PT_PHDR), None
    )
    modules: list[Module] = []
    if base is not None:
        modules = [_module(memory, program, base, headers)]
        namespace = modules[0].dynamic.get(DT_DEBUG, 0)
    else:
        namespace = _started_loaders_list(memory, at, headers)
    found: set[int] = set()
    entries: set[int] = set()
    while namespace and namespace not in found:
        found.add(namespace)
        version, entry = struct.unpack("<I4xQ", memory.read(namespace, 16))
        while entry and entry not in entries and len(entries) < MODULES_MAX:
            entries.add(entry)
            base, name_at, dynamic_at, following = struct.unpack("<4Q", memory.read(entry, 32))
            name = memory.text(name_at) if name_at else ""
            # The loader itself is in all namespaces.
            if (name or not modules) and dynamic_at not in found:
                found.add(dynamic_at)
                modules.append(_file_module(memory, name, base, dynamic_at))
            entry = following
        namespace = memory.word(namespace + R_NEXT) if version >= 2 else 0
    if not modules:
        raise BindingError("its loader has not loaded the program yet")
    return modules


def _started_loaders_list(memory: Memory, at: int, headers: bytes) -> int:
    """Of a program that was started by the loader's name (`ld.so PROGRAM`), which the kernel takes
    for the program: where the loader's list is."""
    start = at // PAGE_BYTES_MIN * PAGE_BYTES_MIN
    if memory.holds_elf(start):
        loader = _module(memory, "", start, headers)
        name = loader.strings[loader.dynamic.get(DT_SONAME, 0) :].split(b"\0")[0]
        if GLIBC_LOADER.fullmatch(name.decode("utf-8", "replace")):
            return loader.definition(LOADER_LIST) or 0
    raise BindingError("its program has no headers of its own: it is statically linked")


def _file_module(memory: Memory, name: str, base: int, dynamic_at: int) -> Module:
    """A file that is linked for an address of its own does not begin at `base`."""
    start = base
    if not name or not memory.holds_elf(base):
        file = memory.file_at(dynamic_at)
        if file is not None:
            start, name = file.start, name or file.name
    header = memory.read(start, 64) if memory.holds_elf(start) else b""
    if not header:
        raise BindingError(f"{name}: no 64-bit ELF file lies at {start:#x}")
    (table,) = struct.unpack_from("<Q", header, 32)
    (count,) = struct.unpack_from("<H", header, 56)
    return _module(memory, name, base, _headers(memory, start + table, count))
