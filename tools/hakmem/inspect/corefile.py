"""The memory of a process that is gone, in the core file it left (the kernel's, or gcore's)."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from elftools.elf.elffile import ELFFile

from hakmem.inspect.errors import InspectError
from hakmem.inspect.memory import Area, PieceSource
from hakmem.inspect.model import Origin

MAGIC = b"\x7fELF"
EXECUTE, WRITE, READ = 1, 2, 4
SEGMENTS_MAX = 1 << 20


class CoreSource(PieceSource):
    """`pid`, `name` and `exe` are those the process had, as far as the core's notes tell."""

    origin = Origin.CORE

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            try:
                segments, notes = _parse(path, file)
            except InspectError:
                raise
            except Exception as error:
                # The parser was not made for damaged files: it fails in every way there is.
                raise InspectError(
                    f"{path}: is damaged, or no core file: {type(error).__name__}"
                ) from None
        _require_whole(path, segments, len(self._map))
        view = memoryview(self._map)
        super().__init__(
            [(start, view[offset : offset + size]) for start, _, offset, size, _ in segments], path
        )
        self.files: list[tuple[int, int, str]] = []
        self._take_notes(notes)
        self.name = self.name or path.name
        self._areas = tuple(self._name_areas(segments))

    def _take_notes(self, notes: list[dict[str, Any]]) -> None:
        for note in notes:
            if note["n_type"] == "NT_PRPSINFO":
                self.pid = int(note["n_desc"]["pr_pid"])
                self.name = _text(note["n_desc"]["pr_fname"])
            elif note["n_type"] == "NT_FILE":
                names = note["n_desc"]["filename"]
                rows = note["n_desc"]["Elf_Nt_File_Entry"]
                self.files += [
                    (int(row["vm_start"]), int(row["vm_end"]), _text(name))
                    for row, name in zip(rows, names, strict=False)
                ]
        self.exe = next(
            (name for _, _, name in self.files if Path(name).name[:15] == self.name), ""
        )

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
    path: Path, file: BinaryIO
) -> tuple[list[tuple[int, int, int, int, int]], list[dict[str, Any]]]:
    """Segments as (address, end, offset in the file, bytes in the file, flags), and the notes."""
    elf = ELFFile(file)
    if elf.header["e_type"] != "ET_CORE":
        raise InspectError(f"{path}: is a program or library, not a core file")
    if elf.elfclass != 64 or not elf.little_endian:
        raise InspectError(f"{path}: is the core of a machine with another order or size of words")
    segments: list[tuple[int, int, int, int, int]] = []
    notes: list[dict[str, Any]] = []
    if elf.num_segments() > SEGMENTS_MAX:
        raise InspectError(f"{path}: is damaged: it says to have {elf.num_segments():,} segments")
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


def _require_whole(
    path: Path, segments: list[tuple[int, int, int, int, int]], file_bytes: int
) -> None:
    wanted = max((offset + size for _, _, offset, size, _ in segments), default=0)
    if wanted > file_bytes:
        raise InspectError(
            f"{path}: the core file is cut short: {wanted - file_bytes:,} of {wanted:,} bytes are "
            "missing (a limit of its size, ulimit -c, or a full disk)"
        )
