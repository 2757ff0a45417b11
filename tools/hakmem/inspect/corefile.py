"""The memory of a process that is gone, in the core file it left (the kernel's, or gcore's)."""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

from elftools.elf.elffile import ELFFile

from hakmem.inspect.errors import InspectError
from hakmem.inspect.memory import Area, PieceSource
from hakmem.inspect.model import Origin
from hakmem.inspect.programfile import find_program

MAGIC = b"\x7fELF"
EXECUTE, WRITE, READ = 1, 2, 4
SEGMENTS_MAX = 1 << 20

# Of elf(5). Identity, type, machine, version, entry, the offsets of both tables, flags, bytes of
# this header; bytes of a row and rows of the table of segments, then of that of sections; names.
HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
# Kind, flags, offset, address, physical address, bytes in the file and in memory, alignment.
PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
CLASS_64, LITTLE, BIG, ET_CORE = 2, 1, 2, 4
PT_LOAD, PT_NOTE = 1, 4
# PN_XNUM: the number of segments is in the field sh_info of the first section.
ROWS_ELSEWHERE, SECTION_HEADER_BYTES, SECTION_INFO = 0xFFFF, 64, 44
WHY_CUT = "(a limit of its size, ulimit -c, or a full disk)"


class CoreSource(PieceSource):
    """`pid`, `name` and `exe` are those the process had, as far as the core's notes tell."""

    origin = Origin.CORE

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            # Before the parser, which fails at the first byte that is missing and cannot say so.
            _require_whole(path, self._map)
            try:
                segments, notes = _parse(file)
            except Exception:
                # It was not made for damaged files: it fails in every way there is.
                raise InspectError(f"{path}: is damaged, or no core file") from None
        view = memoryview(self._map)
        super().__init__(
            [(start, view[offset : offset + size]) for start, _, offset, size, _ in segments], path
        )
        self.is_partial = any(
            flags & WRITE and size < end - start for start, end, _, size, flags in segments
        )
        self.files: list[tuple[int, int, str]] = []
        self._take_notes(notes)
        self.name = self.name or path.name
        self._areas = tuple(self._name_areas(segments))

    def _take_notes(self, notes: list[dict[str, Any]]) -> None:
        auxv = b""
        for note in notes:
            if note["n_type"] == "NT_PRPSINFO":
                self.pid = int(note["n_desc"]["pr_pid"])
                self.name = _text(note["n_desc"]["pr_fname"])
            elif note["n_type"] == "NT_AUXV":
                auxv = note["n_desc"]
            elif note["n_type"] == "NT_FILE":
                names = note["n_desc"]["filename"]
                rows = note["n_desc"]["Elf_Nt_File_Entry"]
                self.files += [
                    (int(row["vm_start"]), int(row["vm_end"]), _text(name))
                    for row, name in zip(rows, names, strict=False)
                ]
        self.exe = find_program(auxv, self.files, self.name)

    def _name_areas(self, segments: list[tuple[int, int, int, int, int]]) -> Iterator[Area]:
        names = {start: name for start, _, name in self.files}
        for start, end, _, _, flags in sorted(segments):
            yield Area(
                start=start,
                end=end,
                readable=bool(flags & READ),
                writable=bool(flags & WRITE),
                executable=bool(flags & EXECUTE),
                private=True,
                name=names.get(start, ""),
            )

    def areas(self) -> tuple[Area, ...]:
        return self._areas


def _text(value: Any) -> str:
    raw = value if isinstance(value, bytes) else str(value).encode()
    return raw.split(b"\0")[0].decode(errors="replace")


def _parse(
    file: BinaryIO,
) -> tuple[list[tuple[int, int, int, int, int]], list[dict[str, Any]]]:
    """Segments as (address, end, offset in the file, bytes in the file, flags), and the notes."""
    elf = ELFFile(file)
    segments: list[tuple[int, int, int, int, int]] = []
    notes: list[dict[str, Any]] = []
    segment: Any
    for segment in elf.iter_segments():
        if segment["p_type"] == "PT_LOAD":
            start = int(segment["p_vaddr"])
            segments.append(
                (
                    start,
                    start + int(segment["p_memsz"]),
                    int(segment["p_offset"]),
                    int(segment["p_filesz"]),
                    int(segment["p_flags"]),
                )
            )
        elif segment["p_type"] == "PT_NOTE":
            notes += [note for note in segment.iter_notes() if note["n_name"] == "CORE"]
    return segments, notes


def _require_whole(path: Path, data: mmap.mmap) -> None:
    """InspectError unless it is a core of a machine as this one, and has all that its headers tell
    of: the segments, and behind them what only gdb writes, the headers of sections."""
    _require_headers(path, data, HEADER.size)
    ident, _, _, _, _, table, sections, _, _, row_bytes, rows, section_bytes, section_count, _ = (
        HEADER.unpack_from(data)
    )
    order: Literal["big", "little"] = "big" if ident[5] == BIG else "little"
    if int.from_bytes(data[len(ident) : len(ident) + 2], order) != ET_CORE:
        raise InspectError(f"{path}: is a program or library, not a core file")
    if (ident[4], ident[5]) != (CLASS_64, LITTLE):
        raise InspectError(f"{path}: is the core of a machine with another order or size of words")
    if row_bytes != PROGRAM_HEADER.size:
        raise InspectError(f"{path}: is damaged, or no core file")
    if rows == ROWS_ELSEWHERE and sections:
        _require_headers(path, data, sections + SECTION_HEADER_BYTES)
        (rows,) = struct.unpack_from("<I", data, sections + SECTION_INFO)
    if rows > SEGMENTS_MAX:
        raise InspectError(f"{path}: is damaged: it says to have {rows:,} segments")
    table_end = table + rows * row_bytes
    _require_headers(path, data, table_end)
    wanted = sections + section_count * section_bytes
    for kind, _, offset, _, _, size, _, _ in PROGRAM_HEADER.iter_unpack(data[table:table_end]):
        if kind in (PT_LOAD, PT_NOTE):
            wanted = max(wanted, offset + size)
    if wanted > len(data):
        missing = f"{wanted - len(data):,} of {wanted:,} bytes are missing"
        raise InspectError(f"{path}: the core file is cut short: {missing} {WHY_CUT}")


def _require_headers(path: Path, data: mmap.mmap, end: int) -> None:
    if end > len(data):
        raise InspectError(
            f"{path}: the core file is cut short: it ends before its headers do {WHY_CUT}"
        )
