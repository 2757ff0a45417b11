"""The memory of a process that is gone, in the core file it left (the kernel's, or gcore's)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt
from elftools.elf.elffile import ELFFile

from hakmem.inspect.errors import InspectError
from hakmem.inspect.files import read_at
from hakmem.inspect.memory import Area, Bytes, Piece, PieceSource, windows
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
# Bytes in a file so near to one another are read with one call.
NEAR_BYTES = 4096
BATCH_BYTES = 64 << 20
WHY_CUT = "(a limit of its size, ulimit -c, or a full disk)"

# Address, end, offset in the file, bytes in the file, flags.
Segment = tuple[int, int, int, int, int]


class _FilePart(Piece):
    """A stretch of an open file."""

    def __init__(self, file: BinaryIO, path: Path, offset: int, size: int) -> None:
        self._file, self._path = file, path
        self._offset, self._size = offset, size

    def __len__(self) -> int:
        return self._size

    def read(self, offset: int, count: int) -> bytes:
        count = min(count, self._size - offset)
        return read_at(self._file, self._path, self._offset + offset, count)

    def rows(self, offsets: npt.NDArray[np.int64], count: int) -> Bytes:
        rows = np.empty((len(offsets), count), np.uint8)
        order = np.argsort(offsets, kind="stable")
        step = max(1, BATCH_BYTES // (count + NEAR_BYTES))
        for first in range(0, len(order), step):
            chosen = order[first : first + step]
            rows[chosen] = self._sorted_rows(offsets[chosen], count)
        return rows

    def _sorted_rows(self, offsets: npt.NDArray[np.int64], count: int) -> Bytes:
        edges = np.flatnonzero(np.diff(offsets) > count + NEAR_BYTES) + 1
        firsts = np.concatenate(([0], edges))
        starts = offsets[firsts]
        sizes = offsets[np.concatenate((edges, [len(offsets)])) - 1] + count - starts
        parts = [self.read(*each) for each in zip(starts.tolist(), sizes.tolist(), strict=True)]
        # How far what was read of each stretch lies before its place in the file.
        moved = np.repeat(starts - (np.cumsum(sizes) - sizes), np.diff(firsts, append=len(offsets)))
        return windows(np.frombuffer(b"".join(parts), np.uint8), offsets - moved, count)


class CoreSource(PieceSource):
    """`pid`, `name` and `exe` are those the process had, as far as the core's notes tell."""

    origin = Origin.CORE

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        try:
            segments, notes = self._read_headers(path)
        except BaseException:
            self._file.close()
            raise
        super().__init__(
            [
                (start, _FilePart(self._file, path, offset, size))
                for start, _, offset, size, _ in segments
            ],
            path,
        )
        self.is_partial = any(
            flags & WRITE and size < end - start for start, end, _, size, flags in segments
        )
        self._files: list[Area] = []
        self._take_notes(notes)
        self.name = self.name or path.name
        self._areas = tuple(self._name_areas(segments))

    def _read_headers(self, path: Path) -> tuple[list[Segment], list[dict[str, Any]]]:
        # Before the parser, which fails at the first byte that is missing and cannot say so.
        _require_whole(path, self._file)
        try:
            return _parse(self._file)
        except Exception:
            # It was not made for damaged files: it fails in every way there is.
            raise InspectError(f"{path}: is damaged, or no core file") from None

    def close(self) -> None:
        super().close()
        self._file.close()

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
                page_bytes = int(note["n_desc"]["page_size"])
                self._files += [
                    _mapped_file(row, _text(name), page_bytes)
                    for row, name in zip(rows, names, strict=False)
                ]
        files = ((area.start, area.end, area.name) for area in self._files)
        self.exe = find_program(auxv, files, self.name)

    def _name_areas(self, segments: list[Segment]) -> Iterator[Area]:
        names = {area.start: area.name for area in self._files}
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

    def mapped_files(self) -> tuple[Area, ...]:
        return tuple(self._files)


def _mapped_file(row: Any, name: str, page_bytes: int) -> Area:
    start, end = int(row["vm_start"]), int(row["vm_end"])
    offset = int(row["page_offset"]) * page_bytes
    return Area(start, end, True, False, False, True, name, offset=offset)


def _text(value: Any) -> str:
    raw = value if isinstance(value, bytes) else str(value).encode()
    return raw.split(b"\0")[0].decode(errors="replace")


def _parse(file: BinaryIO) -> tuple[list[Segment], list[dict[str, Any]]]:
    """The segments, and the notes."""
    elf = ELFFile(file)
    segments: list[Segment] = []
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


def _require_whole(path: Path, file: BinaryIO) -> None:
    """InspectError unless it is a core of a machine as this one, and has all that its headers tell
    of: the segments, and behind them what only gdb writes, the headers of sections."""
    header = _header_bytes(path, file, 0, HEADER.size)
    ident, _, _, _, _, table, sections, _, _, row_bytes, rows, section_bytes, section_count, _ = (
        HEADER.unpack(header)
    )
    order: Literal["big", "little"] = "big" if ident[5] == BIG else "little"
    if int.from_bytes(header[len(ident) : len(ident) + 2], order) != ET_CORE:
        raise InspectError(f"{path}: is a program or library, not a core file")
    if (ident[4], ident[5]) != (CLASS_64, LITTLE):
        raise InspectError(f"{path}: is the core of a machine with another order or size of words")
    if row_bytes != PROGRAM_HEADER.size:
        raise InspectError(f"{path}: is damaged, or no core file")
    if rows == ROWS_ELSEWHERE and sections:
        first = _header_bytes(path, file, sections, SECTION_HEADER_BYTES)
        (rows,) = struct.unpack_from("<I", first, SECTION_INFO)
    if rows > SEGMENTS_MAX:
        raise InspectError(f"{path}: is damaged: it says to have {rows:,} segments")
    segments = _header_bytes(path, file, table, rows * row_bytes)
    wanted = sections + section_count * section_bytes
    for kind, _, offset, _, _, size, _, _ in PROGRAM_HEADER.iter_unpack(segments):
        if kind in (PT_LOAD, PT_NOTE):
            wanted = max(wanted, offset + size)
    there = os.fstat(file.fileno()).st_size
    if wanted > there:
        missing = f"{wanted - there:,} of {wanted:,} bytes are missing"
        raise InspectError(f"{path}: the core file is cut short: {missing} {WHY_CUT}")


def _header_bytes(path: Path, file: BinaryIO, offset: int, count: int) -> bytes:
    if offset + count > os.fstat(file.fileno()).st_size:
        raise InspectError(
            f"{path}: the core file is cut short: it ends before its headers do {WHY_CUT}"
        )
    return read_at(file, path, offset, count)
