"""A core file of a process that goes on, as gcore would write it: what can be written, with names.

For machines whose kernel hands cores to a program. gdb's own gcore also copies memory that was only
reserved, which takes half a minute for the page map."""

from __future__ import annotations

import struct
from pathlib import Path

from hakmem.inspect.process import ProcessSource

PAGE_BYTES = 4096
NT_PRPSINFO, NT_AUXV, NT_FILE = 3, 6, 0x46494C45
PT_LOAD, PT_NOTE = 1, 4


def _note(kind: int, data: bytes) -> bytes:
    padded = data + b"\0" * (-len(data) % 4)
    return struct.pack("<III", 5, len(data), kind) + b"CORE\0\0\0\0" + padded


def _process_note(source: ProcessSource) -> bytes:
    name = source.name.encode()[:15]
    head = struct.pack("<bcbb4xQIIiiii", 0, b"S", 0, 0, 0, 0, 0, source.pid, 1, 1, 1)
    return _note(NT_PRPSINFO, head + name.ljust(16, b"\0") + name.ljust(80, b"\0"))


def write_core(pid: int, path: Path) -> None:
    """The process must not move meanwhile: its threads sleep."""
    source = ProcessSource(pid)
    areas = source.areas()
    files = [area for area in areas if area.is_file]
    table = b"".join(
        struct.pack("<QQQ", area.start, area.end, area.offset // PAGE_BYTES) for area in files
    )
    names = b"".join(area.name.encode() + b"\0" for area in files)
    notes = _process_note(source)
    notes += _note(NT_AUXV, (source.place / "auxv").read_bytes())
    notes += _note(NT_FILE, struct.pack("<QQ", len(files), PAGE_BYTES) + table + names)
    dumped = [area for area in areas if area.readable and area.private and area.writable]
    # The first page of each file, for its build id, as the kernel does.
    headers = [area for area in files if not area.writable and area.readable]
    pieces = sorted(
        [(area.start, area.end - area.start, 6) for area in dumped]
        + [(area.start, PAGE_BYTES, 4) for area in headers]
    )
    segments = [(PT_NOTE, 4, 0, len(notes))] + [(PT_LOAD, f, a, n) for a, n, f in pieces]
    offset = 64 + 56 * len(segments)
    offset += -offset % PAGE_BYTES
    note_offset = offset
    offset += len(notes) + -len(notes) % PAGE_BYTES
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head = struct.pack("<HHIQQQIHHHHHH", 4, 62, 1, 0, 64, 0, 0, 64, 56, len(segments), 64, 0, 0)
    with path.open("wb") as file:
        file.write(ident + head)
        at = offset
        for kind, flags, address, size in segments:
            place = note_offset if kind == PT_NOTE else at
            at += 0 if kind == PT_NOTE else size
            file.write(
                struct.pack("<IIQQQQQQ", kind, flags, place, address, 0, size, size, PAGE_BYTES)
            )
        file.seek(note_offset)
        file.write(notes)
        at = offset
        for address, size, _ in pieces:
            for start in range(0, size, 1 << 20):
                count = min(1 << 20, size - start)
                data = source.read(address + start, count)
                if any(data):
                    file.seek(at + start)
                    file.write(data)
            at += size
        file.truncate(at)
    source.close()
