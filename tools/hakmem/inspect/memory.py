"""Memory of a target, wherever it is: what all sources have in common."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hakmem.inspect.errors import DamagedError, UnreadableError
from hakmem.inspect.model import Origin
from hakmem.watch import DELETED

Addresses = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

# No array that a reader asks for is longer: a damaged length must not fill the reader's memory.
GATHER_BYTES_MAX = 16 << 30


@dataclass(frozen=True)
class Area:
    """A mapping of the target. `rss_bytes` is None where it is not known; `name` is that of its
    file, or the kernel's in brackets, or empty."""

    start: int
    end: int
    readable: bool
    writable: bool
    executable: bool
    private: bool
    name: str
    rss_bytes: int | None = None
    offset: int = 0  # of its start in the file
    file: tuple[str, int] | None = None  # device as major:minor, and inode, where they are known

    @property
    def is_file(self) -> bool:
        return self.name.startswith("/")

    @property
    def path(self) -> str:
        """The name that its file had as it was mapped: it may be removed or replaced since."""
        return self.name.removesuffix(DELETED)


def area_at(areas: Iterable[Area], address: int) -> Area:
    """The mapping that an address lies in; an empty one where none is known."""
    known = (area for area in areas if area.start <= address < area.end)
    return next(known, Area(address, address, True, True, False, True, ""))


class MemorySource(ABC):
    """`pid` is the target's as the reader sees it; 0 when unknown. `inner_pid` is that of its own
    PID namespace. Addresses and sizes in bytes."""

    origin: Origin
    pid: int = 0
    inner_pid: int | None = None
    name: str = ""
    exe: str = ""
    changes = False  # it lives: what is read twice may differ
    root_address: int | None = None  # where the inspect root is, if the source knows
    is_partial = False  # it has not all of the memory that could be written

    def taken_ns(self) -> int:
        """When the memory was as it is read, since the epoch."""
        return time.time_ns()

    @abstractmethod
    def areas(self) -> tuple[Area, ...]:
        """The mappings, by address. UnreadableError when they are not known."""

    def mapped_files(self) -> tuple[Area, ...]:
        """Where files are mapped, with their offsets: of a core also what areas() lacks."""
        return tuple(area for area in self.areas() if area.is_file)

    @abstractmethod
    def read(self, address: int, count: int) -> bytes:
        """Exactly `count` bytes; UnreadableError, or GoneError when the process has ended."""

    def read_in(self, area: Area, address: int, count: int) -> bytes:
        """As read(), of what lies in a mapping that areas() told of just now: where that is of a
        file, without a page becoming resident that the target has not touched."""
        return self.read(address, count)

    @abstractmethod
    def gather(self, addresses: Addresses, count: int) -> tuple[Bytes, Mask]:
        """`count` bytes at each address, one row each, and which rows could be read; the others are
        zero. GoneError when the process has ended."""

    def gather_locks(
        self, addresses: Addresses, count: int, *, is_after: bool
    ) -> tuple[Bytes, Mask]:
        """As gather(): locks as they are before, or after, the memory that they cover is read."""
        return self.gather(addresses, count)

    def thread_names(self) -> dict[int, str]:
        """Names of the threads by their number in the process's own namespace."""
        return {}

    @abstractmethod
    def close(self) -> None:
        """The source is not used again."""

    def read_array(
        self, address: int, dtype: np.dtype[Any], count: int = 1, area: Area | None = None
    ) -> npt.NDArray[Any]:
        """`count` rows of a type that lie one behind the other; with an area as read_in()."""
        size = count * dtype.itemsize
        if not 0 <= size <= GATHER_BYTES_MAX:
            raise DamagedError(f"the heap's metadata asks for {count} rows at {address:#x}")
        data = self.read(address, size) if area is None else self.read_in(area, address, size)
        return np.frombuffer(data, dtype)

    def gather_rows(
        self, addresses: Addresses, dtype: np.dtype[Any]
    ) -> tuple[npt.NDArray[Any], Mask]:
        """A row of a type at each address, and which could be read."""
        data, readable = self.gather(addresses, dtype.itemsize)
        return data.reshape(-1).view(dtype), readable


class Piece(ABC):
    """Bytes that lie one behind the other, counted from the first."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def read(self, offset: int, count: int) -> bytes:
        """As many as there are of `count`."""

    @abstractmethod
    def rows(self, offsets: npt.NDArray[np.int64], count: int) -> Bytes:
        """`count` bytes at each offset, all of them within the piece, one row each."""


def windows(data: Bytes, offsets: npt.NDArray[np.int64], count: int) -> Bytes:
    """`count` bytes of an array at each offset."""
    view = np.lib.stride_tricks.sliding_window_view(data, max(count, 1))
    found: Bytes = view[offsets][:, :count]
    return found


class PieceSource(MemorySource):
    """Memory in pieces: core files and snapshots."""

    def __init__(self, pieces: Sequence[tuple[int, Piece]], path: Path) -> None:
        self._written_ns = path.stat().st_mtime_ns
        self._pieces = sorted((piece for piece in pieces if len(piece[1])), key=lambda p: p[0])
        self._starts = np.array([start for start, _ in self._pieces], np.uint64)

    def taken_ns(self) -> int:
        return self._written_ns

    def _part(self, address: int, count: int) -> bytes:
        """As many of the bytes there as one piece has."""
        place = int(np.searchsorted(self._starts, np.uint64(address), "right")) - 1
        if place < 0:
            return b""
        start, piece = self._pieces[place]
        offset = address - start
        return piece.read(offset, count) if offset < len(piece) else b""

    def close(self) -> None:
        self._pieces.clear()

    def read(self, address: int, count: int) -> bytes:
        if 0 <= address < 1 << 64 and count >= 0:
            found = self._part(address, count)
            if len(found) == count:
                return found
            return self._read_across(address, count)
        raise self._missing(address, count)

    def _missing(self, address: int, count: int) -> UnreadableError:
        why = (
            ", which lacks memory of the process (/proc/PID/coredump_filter)"
            if self.is_partial
            else ""
        )
        return UnreadableError(f"{count:,} bytes at {address:#x} are not in the file{why}")

    def _read_across(self, address: int, count: int) -> bytes:
        """Pieces may touch."""
        parts: list[bytes] = []
        end = address + count
        while address < end:
            part = self._part(address, end - address)
            if not part:
                raise self._missing(end - count, count)
            parts.append(part)
            address += len(part)
        return b"".join(parts)

    def gather(self, addresses: Addresses, count: int) -> tuple[Bytes, Mask]:
        if len(addresses) * count > GATHER_BYTES_MAX:
            raise DamagedError(f"the heap's metadata asks for {len(addresses):,} pieces of memory")
        rows = np.zeros((len(addresses), count), np.uint8)
        readable = np.zeros(len(addresses), np.bool_)
        places = np.searchsorted(self._starts, addresses, "right").astype(np.int64) - 1
        for place in np.unique(places):
            if place < 0:
                continue
            start, piece = self._pieces[place]
            chosen = np.flatnonzero(places == place)
            offsets = (addresses[chosen] - np.uint64(start)).astype(np.int64)
            inside = (offsets >= 0) & (offsets <= len(piece) - count)
            chosen, offsets = chosen[inside], offsets[inside]
            if len(chosen):
                rows[chosen] = piece.rows(offsets, count)
                readable[chosen] = True
        return rows, readable
