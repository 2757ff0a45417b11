"""A snapshot that a process wrote of its own heap (hakmem_snapshot_fd, or the option
snapshot_signal): pieces of memory and texts behind a header, see docs/INSPECT_ABI.md."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from hakmem.inspect.errors import DamagedError, InspectError
from hakmem.inspect.files import read_at
from hakmem.inspect.memory import Addresses, Area, Bytes, Mask, Piece, PieceSource, windows
from hakmem.inspect.model import Origin
from hakmem.inspect.process import parse_areas
from hakmem.inspect.programfile import find_program

MAGIC = b"hakmem-snapshot\0"
MAJOR = 1
BYTE_ORDER = 0x01020304
END, MEMORY, ZEROS, TEXT, LOCKED, LOCKED_AFTER = 1, 2, 3, 4, 5, 6
PIECES_MAX = 1 << 24
# Zeros take no room in the file: a damaged length must not fill the reader's memory.
REGION_BYTES_MAX = 4 << 30
LOCK_BYTES_MAX = 256
HEADER = np.dtype(
    [
        ("magic", "V16"),
        ("byte_order", "<u4"),
        ("major", "<u2"),
        ("minor", "<u2"),
        ("header_bytes", "<u4"),
        ("piece_bytes", "<u4"),
        ("root", "<u8"),
        ("process_id", "<u8"),
        ("taken_ns", "<u8"),
    ]
)
PIECE = np.dtype(
    [
        ("kind", "<u4"),
        ("reserved", "<u4"),
        ("name", "S32"),
        ("address", "<u8"),
        ("bytes", "<u8"),
    ]
)


@dataclass(frozen=True)
class _Piece:
    """`offset` of the data in the file; zeros have none."""

    kind: int
    name: str
    address: int
    bytes: int
    offset: int


class _Region(Piece):
    """Memory without a gap, of any number of pieces of the file."""

    def __init__(self, data: Bytes) -> None:
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def read(self, offset: int, count: int) -> bytes:
        return self._data[offset : offset + count].tobytes()

    def rows(self, offsets: npt.NDArray[np.int64], count: int) -> Bytes:
        return windows(self._data, offsets, count)


class SnapshotSource(PieceSource):
    """`smaps` is the text of /proc/PID/smaps as it was; empty when it could not be written."""

    origin = Origin.SNAPSHOT

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            header = _header(path, file)
            pieces = _pieces(path, file, header)
            super().__init__(_regions(path, file, pieces), path)
            self._take_texts(path, file, pieces)
        self.pid = int(header["process_id"])
        self.root_address = int(header["root"])

    def _take_texts(self, path: Path, file: BinaryIO, pieces: list[_Piece]) -> None:
        texts: dict[str, bytes] = {}
        self._locks: dict[int, dict[int, bytes]] = {LOCKED: {}, LOCKED_AFTER: {}}
        for piece in pieces:
            if piece.kind == TEXT:
                data = read_at(file, path, piece.offset, piece.bytes)
                texts[piece.name] = texts.get(piece.name, b"") + data
            elif piece.kind in self._locks and piece.bytes <= LOCK_BYTES_MAX:
                data = read_at(file, path, piece.offset, piece.bytes)
                self._locks[piece.kind][piece.address] = data
        self.name = texts.get("comm", b"").decode(errors="replace").strip() or path.name
        self.smaps = texts.get("smaps", b"").decode(errors="replace")
        maps = texts.get("maps", b"").decode(errors="replace")
        self._areas = parse_areas(maps or self.smaps)
        files = ((area.start, area.end, area.name) for area in self._areas if area.is_file)
        self.exe = find_program(texts.get("auxv", b""), files, self.name)

    def areas(self) -> tuple[Area, ...]:
        return self._areas

    def resident_areas(self) -> tuple[Area, ...]:
        """As areas(), with resident bytes; none when smaps could not be written."""
        return parse_areas(self.smaps)

    def stack_pointers(self) -> list[int]:
        """Nobody wrote them down."""
        return []

    def gather_locks(
        self, addresses: Addresses, count: int, *, is_after: bool
    ) -> tuple[Bytes, Mask]:
        """Locks as they were before and after all memory was written."""
        rows, readable = self.gather(addresses, count)
        locks = self._locks[LOCKED_AFTER if is_after else LOCKED]
        for index, address in enumerate(addresses):
            data = locks.get(int(address))
            if data is not None and len(data) >= count:
                rows[index] = np.frombuffer(data[:count], np.uint8)
                readable[index] = True
        return rows, readable


def _header(path: Path, file: BinaryIO) -> np.void:
    if os.fstat(file.fileno()).st_size < HEADER.itemsize:
        raise DamagedError(f"{path}: the snapshot is cut short: it has not even a whole header")
    header: np.void = np.frombuffer(read_at(file, path, 0, HEADER.itemsize), HEADER)[0]
    if int(header["byte_order"]) != BYTE_ORDER:
        raise InspectError(f"{path}: is the snapshot of a machine with another order of bytes")
    if int(header["major"]) != MAJOR:
        raise InspectError(
            f"{path}: is a snapshot of version {int(header['major'])}.{int(header['minor'])}; "
            f"this reader understands {MAJOR}.x only"
        )
    if int(header["header_bytes"]) < HEADER.itemsize or int(header["piece_bytes"]) < PIECE.itemsize:
        raise DamagedError(f"{path}: the snapshot's header cannot be right")
    return header


def _pieces(path: Path, file: BinaryIO, header: np.void) -> list[_Piece]:
    """All pieces, of a file that is whole."""
    file_bytes = os.fstat(file.fileno()).st_size
    pieces: list[_Piece] = []
    at, row_bytes = int(header["header_bytes"]), int(header["piece_bytes"])
    while at + row_bytes <= file_bytes and len(pieces) < PIECES_MAX:
        row = np.frombuffer(read_at(file, path, at, PIECE.itemsize), PIECE)[0]
        kind, size = int(row["kind"]), int(row["bytes"])
        at += row_bytes
        if kind == END:
            if int(row["address"]) != len(pieces):
                raise DamagedError(f"{path}: the snapshot lacks some of its pieces")
            return pieces
        name = row["name"].decode("ascii", errors="replace")
        pieces.append(_Piece(kind, name, int(row["address"]), size, at))
        if kind != ZEROS:
            if at + size > file_bytes:
                break
            at += size
    raise DamagedError(f"{path}: the snapshot is cut short, or damaged")


def _regions(path: Path, file: BinaryIO, pieces: list[_Piece]) -> list[tuple[int, _Region]]:
    """Memory in stretches without a gap, each in one buffer: a structure may lie across pieces."""
    memory = sorted(
        (piece for piece in pieces if piece.kind in (MEMORY, ZEROS)),
        key=lambda piece: piece.address,
    )
    file_bytes = os.fstat(file.fileno()).st_size
    regions: list[tuple[int, _Region]] = []
    total = index = 0
    while index < len(memory):
        first = index
        start, end = memory[index].address, memory[index].address
        while index < len(memory) and memory[index].address <= end:
            end = max(end, memory[index].address + memory[index].bytes)
            index += 1
        total += end - start
        # What is in the file may be as long as that is.
        if total > REGION_BYTES_MAX + file_bytes or end > 1 << 64:
            raise DamagedError(f"{path}: the snapshot says to hold more memory than it can")
        region = np.zeros(end - start, np.uint8)
        for piece in memory[first:index]:
            if piece.kind == MEMORY:
                offset = piece.address - start
                data = read_at(file, path, piece.offset, piece.bytes)
                region[offset : offset + piece.bytes] = np.frombuffer(data, np.uint8)
        regions.append((start, _Region(region)))
    return regions
