"""The inspect root: found in a target's memory, checked, and its tables turned into numpy types.

The rows of the root's tables are the one layout written down here (include/hakmem_inspect.h, fixed
for a major version); every structure of the heap is decoded by what the rows say of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hakmem.inspect.errors import DamagedError, InspectError, NoHakmemError, UnreadableError
from hakmem.inspect.memory import Area, MemorySource, area_at

MAGIC = b"hakmem-inspect\0\0"
ALIGNMENT = 64
MAJOR = 1
BYTE_ORDER = 0x01020304
NAME, UNIT = "S32", "S16"
ROWS_MAX = 1 << 14
ROW_BYTES_MAX = 1 << 12
STRUCTURE_BYTES_MAX = 1 << 24
NESTED_MAX = 16  # structures within structures
# What is searched for the root at most, in one target: its files' data, not its heap.
SEARCH_BYTES_MAX = 1 << 30
CHUNK_BYTES = 4 << 20

TABLE = np.dtype([("rows", "<u8"), ("count", "<u4"), ("row_bytes", "<u4")])
ROOT = np.dtype(
    [
        ("magic", "S16"),
        ("self", "<u8"),
        ("byte_order", "<u4"),
        ("major", "<u2"),
        ("minor", "<u2"),
        ("root_bytes", "<u4"),
        ("pointer_bytes", "<u4"),
        ("version", NAME),
        ("elf_header", "<u8"),
        ("structures", TABLE),
        ("fields", TABLE),
        ("constants", TABLE),
        ("globals", TABLE),
        ("options", TABLE),
        ("choices", TABLE),
        ("counters", TABLE),
        ("size_classes", TABLE),
    ]
)
# Tables that came with a later minor version, behind the others in this order.
LATER_TABLES = ("event_kinds",)
ROWS = {
    "structures": np.dtype([("name", NAME), ("bytes", "<u8")]),
    "fields": np.dtype(
        [
            ("structure", NAME),
            ("name", NAME),
            ("target", NAME),
            ("unit", UNIT),
            ("offset", "<u4"),
            ("bytes", "<u4"),
            ("count", "<u4"),
            ("kind", "<u4"),
        ]
    ),
    "constants": np.dtype([("name", NAME), ("value", "<u8")]),
    "globals": np.dtype(
        [
            ("name", NAME),
            ("target", NAME),
            ("address", "<u8"),
            ("bytes", "<u4"),
            ("count", "<u4"),
            ("kind", "<u4"),
            ("reserved", "<u4"),
        ]
    ),
    "options": np.dtype(
        [
            ("name", NAME),
            ("unit", UNIT),
            ("offset", "<u4"),
            ("kind", "<u4"),
            ("live", "<u4"),
            ("reserved", "<u4"),
        ]
    ),
    "choices": np.dtype([("option", NAME), ("name", NAME), ("value", "<u8")]),
    "counters": np.dtype([("name", NAME), ("unit", UNIT)]),
    "size_classes": np.dtype(
        [("block_bytes", "<u4"), ("slab_pages", "<u4"), ("block_count", "<u4"), ("reserved", "<u4")]
    ),
    "event_kinds": np.dtype(
        [("name", NAME), ("a_unit", UNIT), ("b_unit", UNIT), ("number", "<u4"), ("always", "<u4")]
    ),
}
NUMBER, POINTER, STRUCTURE = 1, 2, 3


@dataclass(frozen=True)
class Global:
    """An object that everything else is reached from."""

    address: int
    target: str
    bytes: int  # of one element
    count: int
    kind: int


@dataclass
class Root:
    """`rows` are the tables by name. Asking for what they do not have is a DamagedError."""

    address: int
    version: str
    elf_header: int
    rows: dict[str, npt.NDArray[Any]]
    area: Area  # that it was found in
    _types: dict[str, np.dtype[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._constants = {_text(row["name"]): int(row["value"]) for row in self.rows["constants"]}
        self._structures = {
            _text(row["name"]): int(row["bytes"]) for row in self.rows["structures"]
        }
        self._globals = {
            _text(row["name"]): Global(
                int(row["address"]),
                _text(row["target"]),
                int(row["bytes"]),
                int(row["count"]),
                int(row["kind"]),
            )
            for row in self.rows["globals"]
        }

    def constant(self, name: str) -> int:
        if name not in self._constants:
            raise DamagedError(f"the inspect tables of the target have no constant {name}")
        return self._constants[name]

    def constants(self, prefix: str) -> dict[int, str]:
        """The names of an enumeration, without the prefix, by value."""
        return {
            value: name.removeprefix(prefix)
            for name, value in self._constants.items()
            if name.startswith(prefix)
        }

    def find_global(self, name: str) -> Global | None:
        """For what a minor version may lack."""
        return self._globals.get(name)

    def global_object(self, name: str) -> Global:
        found = self.find_global(name)
        if found is None:
            raise DamagedError(f"the inspect tables of the target have no global {name}")
        return found

    def has_structure(self, name: str) -> bool:
        return name in self._structures

    def structure(self, name: str) -> np.dtype[Any]:
        """The structure as a numpy type, its fields at their offsets."""
        return self._structure(name, ())

    def _structure(self, name: str, outer: tuple[str, ...]) -> np.dtype[Any]:
        if name in self._types:
            return self._types[name]
        size = self._structures.get(name, 0)
        if not 0 < size <= STRUCTURE_BYTES_MAX or name in outer or len(outer) > NESTED_MAX:
            raise DamagedError(f"the inspect tables of the target have no structure {name}")
        names: list[str] = []
        formats: list[Any] = []
        offsets: list[int] = []
        rows = self.rows["fields"]
        for row in rows[rows["structure"] == name.encode()]:
            element = self._element(row, (*outer, name))
            count = int(row["count"])
            offset = int(row["offset"])
            if count < 1 or offset + count * element.itemsize > size:
                raise DamagedError(f"field {_text(row['name'])} lies outside its structure {name}")
            names.append(_text(row["name"]))
            formats.append((element, (count,)) if count > 1 else element)
            offsets.append(offset)
        if len(set(names)) != len(names):
            raise DamagedError(f"structure {name} has two fields of one name")
        made = np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": size})
        self._types[name] = made
        return made

    def _element(self, row: np.void, outer: tuple[str, ...]) -> np.dtype[Any]:
        size, kind = int(row["bytes"]), int(row["kind"])
        if kind == STRUCTURE:
            element = self._structure(_text(row["target"]), outer)
            if element.itemsize == size:
                return element
        elif (kind == NUMBER and size in (1, 2, 4, 8)) or (kind == POINTER and size == 8):
            return np.dtype(f"<u{size}")
        raise DamagedError(f"field {_text(row['name'])} of {outer[-1]} is of no known kind")

    def read_global(self, source: MemorySource, name: str) -> npt.NDArray[Any]:
        """The rows of a global: numbers and pointers as such, structures decoded."""
        found = self.global_object(name)
        if found.kind == STRUCTURE:
            dtype = self.structure(found.target)
        elif found.bytes in (1, 2, 4, 8):
            dtype = np.dtype(f"<u{found.bytes}")
        else:
            raise DamagedError(f"global {name} is of no known kind")
        return source.read_array(found.address, dtype, found.count)


def _text(raw: bytes) -> str:
    return raw.decode("ascii", errors="replace")


def find(source: MemorySource, *, files_only: bool = False) -> Root:
    """The root of the library that serves the target; NoHakmemError when there is none. Of several
    (one preloaded and one linked, or loaded by dlmopen) that with most metadata: the others are
    idle, or serve a part. `files_only`: a quick look, where a living process has it; any does."""
    refusal: InspectError | None = None
    found: list[Root] = []
    for area, address in _candidates(source, files_only, found):
        if found and not area.is_file:
            break
        try:
            root = _read(source, area, address)
        except UnreadableError:
            continue
        except InspectError as error:
            # A damaged copy must not hide the real one.
            refusal = refusal or error
            continue
        if root is not None:
            found.append(root)
            if files_only:
                break
    if len(found) > 1:
        return max(found, key=lambda root: _metadata_bytes(source, root))
    if found:
        return found[0]
    if refusal is not None:
        raise refusal
    perhaps = (
        ", or the file lacks the memory that would show it (/proc/PID/coredump_filter)"
        if source.is_partial
        else ""
    )
    raise NoHakmemError(f"{describe(source)} does not use hakmem{perhaps}")


def _metadata_bytes(source: MemorySource, root: Root) -> int:
    try:
        return int(root.read_global(source, "metadata")[0]["bytes"])
    except (InspectError, LookupError, ValueError):
        return 0


def describe(source: MemorySource) -> str:
    name = f" ({source.name})" if source.name else ""
    return f"process {source.pid}{name}" if source.pid else (source.name or "the file")


def _candidates(
    source: MemorySource, files_only: bool, found: Sequence[Root]
) -> Iterator[tuple[Area, int]]:
    """What has no file, such as all of the heap, is not searched once there is one in `found`, nor
    of a process that lives: it would bring back what was swapped out, and a gigabyte of it. The
    root is of a file there; a core may not tell which areas have one."""
    if source.root_address is not None:
        yield area_at(source.areas(), source.root_address), source.root_address
        return
    searched = 0
    for area in _in_order(source):
        if (files_only or found or source.changes) and not area.is_file:
            break
        size = min(area.end - area.start, SEARCH_BYTES_MAX - searched)
        searched += size
        for address in _search(source, area, area.start + size):
            yield area, address


def _in_order(source: MemorySource) -> list[Area]:
    """Writable data: hakmem's own file first, then the program's, then other files', then what has
    no file (data behind a file's end; a core file may not tell)."""

    def rank(area: Area) -> int:
        if "hakmem" in Path(area.name).name:
            return 0
        if area.name and area.name == source.exe:
            return 1
        return 2 if area.is_file else 3

    usable = [area for area in source.areas() if area.readable and area.writable and area.private]
    return sorted(usable, key=lambda area: (rank(area), area.end - area.start))


def _search(source: MemorySource, area: Area, end: int) -> Iterator[int]:
    for start in range(area.start, end, CHUNK_BYTES):
        try:
            data = source.read_in(area, start, min(CHUNK_BYTES, end - start))
        except UnreadableError:
            continue
        at = data.find(MAGIC)
        while at >= 0:
            if (start + at) % ALIGNMENT == 0:
                yield start + at
            at = data.find(MAGIC, at + 1)


def _read(source: MemorySource, area: Area, address: int) -> Root | None:
    """None for bytes that only look like a root: a copy of one, or the magic in some text."""
    row = source.read_array(address, ROOT, area=area)[0]
    if int(row["self"]) != address:
        return None
    if int(row["byte_order"]) != BYTE_ORDER or int(row["pointer_bytes"]) != 8:
        raise InspectError(
            f"{describe(source)} is of a machine with another order or size of words"
        )
    if int(row["major"]) != MAJOR:
        raise InspectError(
            f"{describe(source)} uses hakmem {_text(row['version'])} with inspect ABI "
            f"{int(row['major'])}.{int(row['minor'])}; this reader understands {MAJOR}.x only"
        )
    if int(row["root_bytes"]) < ROOT.itemsize:
        raise DamagedError(f"{describe(source)}: its inspect root is cut short")
    tables = {name: row[name] for name in ROWS if name not in LATER_TABLES}
    there = (int(row["root_bytes"]) - ROOT.itemsize) // TABLE.itemsize
    later = LATER_TABLES[: max(0, there)]
    behind = source.read_array(address + ROOT.itemsize, TABLE, len(later), area)
    tables |= zip(later, behind, strict=True)
    areas = source.areas()
    rows = {name: _rows(source, areas, table, ROWS[name], name) for name, table in tables.items()}
    return Root(address, _text(row["version"]), int(row["elf_header"]), rows, area)


def _rows(
    source: MemorySource, areas: Sequence[Area], table: np.void, known: np.dtype[Any], name: str
) -> npt.NDArray[Any]:
    count, row_bytes = int(table["count"]), int(table["row_bytes"])
    if count > ROWS_MAX or not known.itemsize <= row_bytes <= ROW_BYTES_MAX:
        raise DamagedError(f"{describe(source)}: its inspect table of {name} cannot be right")
    # A later minor version may have longer rows.
    padded = np.dtype(
        {
            "names": list(known.names or ()),
            "formats": [known[column] for column in known.names or ()],
            "offsets": [known.fields[column][1] for column in known.names or () if known.fields],
            "itemsize": row_bytes,
        }
    )
    address = int(table["rows"])
    return source.read_array(address, padded, count, area_at(areas, address))
