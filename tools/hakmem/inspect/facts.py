"""What a target says besides its slabs: options, counters, huge and guarded blocks, build id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from hakmem.inspect.errors import DamagedError, InspectError, UnreadableError
from hakmem.inspect.layout import Layout, offset_of
from hakmem.inspect.memory import Area, MemorySource, area_at
from hakmem.inspect.model import SUPERSLAB_BYTES, GuardedBlock, HugeBlock, Option
from hakmem.inspect.rings import follow_chain

TEXT_BYTES_MAX = 4096
OPTION_ENUM, OPTION_STRING = 4, 5
HUGE_CHUNKS_MAX, HUGE_PER_CHUNK_MAX = 1 << 20, 1 << 16
GUARDED_SLOTS_MAX = 1 << 20
OS_PREFIX = "os_"
WORD = np.dtype("<u8")
NOTE_GNU_BUILD_ID, SEGMENT_NOTE = 3, 4
NOTE_BYTES_MAX = 1 << 16
SEGMENTS_MAX = 256


def _text(raw: bytes) -> str:
    return raw.decode("ascii", errors="replace")


def read_text(source: MemorySource, areas: Sequence[Area], address: int) -> str:
    """NUL-terminated text; empty when there is none to read."""
    area = area_at(areas, address)
    parts: list[bytes] = []
    length = 0
    while address and length < TEXT_BYTES_MAX:
        part = _read_some(source, area, address + length, 64 - (address + length) % 64)
        parts.append(part.split(b"\0")[0])
        length += len(part)
        if not part or b"\0" in part:
            break
    return b"".join(parts).decode(errors="replace")


def _read_some(source: MemorySource, area: Area, address: int, count: int) -> bytes:
    """As many of the bytes as there are: a snapshot has no more than the text."""
    while count:
        try:
            return source.read_in(area, address, count)
        except UnreadableError:
            count //= 2
    return b""


def has_profile(source: MemorySource, layout: Layout) -> bool | None:
    """Whether a profile is in force; None where the library is of a version that does not tell."""
    if layout.root.find_global("profile_in_force") is None:
        return None
    return bool(layout.root.read_global(source, "profile_in_force")[0])


def read_options(source: MemorySource, layout: Layout) -> tuple[Option, ...]:
    root = layout.root
    place = root.global_object("options")
    values = source.read(place.address, place.bytes * place.count)
    origins = root.read_global(source, "option_origins")
    origin_names = root.constants("option_origin_")
    choices = {
        (_text(row["option"]), int(row["value"])): _text(row["name"])
        for row in root.rows["choices"]
    }
    areas = source.areas()
    options = []
    for index, row in enumerate(root.rows["options"]):
        name, offset = _text(row["name"]), int(row["offset"])
        if offset + 8 > len(values) or index >= len(origins):
            raise DamagedError(f"option {name} lies outside the target's options")
        number = int.from_bytes(values[offset : offset + 8], "little")
        value: int | str = number
        text = str(number)
        if int(row["kind"]) == OPTION_STRING:
            value = text = read_text(source, areas, number)
        elif int(row["kind"]) == OPTION_ENUM:
            text = choices.get((name, number), text)
        origin = int(origins[index])
        options.append(Option(name, value, text, origin_names.get(origin, str(origin))))
    return tuple(options)


def sum_counters(source: MemorySource, layout: Layout, heaps: npt.NDArray[Any]) -> dict[str, int]:
    """Every counter over all heaps and what happened under none."""
    root = layout.root
    values = root.read_global(source, "process_counters")[0]["value"].astype(np.uint64)
    values = values + heaps["counters"]["value"].sum(axis=0, dtype=np.uint64)
    names = counter_names(layout)
    counters = {name: int(value) for name, value in zip(names, values, strict=False)}
    os_counters = root.read_global(source, "os_call_counters")[0]
    calls = np.atleast_1d(os_counters["calls"])
    for place, name in root.constants("os_call_").items():
        if OS_PREFIX + name in counters and place < len(calls):
            counters[OS_PREFIX + name] = int(calls[place])
    if OS_PREFIX + "failures" in counters:
        counters[OS_PREFIX + "failures"] = int(os_counters["failures"])
    return counters


def counter_names(layout: Layout) -> list[str]:
    return [_text(row["name"]) for row in layout.root.rows["counters"]]


def read_huge(source: MemorySource, layout: Layout) -> tuple[HugeBlock, ...]:
    """Live and kept mappings, by address."""
    root = layout.root
    table = root.read_global(source, "huge_table")[0]
    chunks = root.read_global(source, "huge_chunks")
    count = int(table["chunk_count"])
    if count > min(len(chunks), HUGE_CHUNKS_MAX):
        raise DamagedError("the target has more huge blocks than its table holds")
    dtype = root.structure("huge")
    per_chunk = root.constant("huge_chunk_count")
    live, kept = root.constant("huge_state_live"), root.constant("huge_state_kept")
    if not 0 < per_chunk <= HUGE_PER_CHUNK_MAX:
        raise DamagedError("the target's huge blocks come in impossible numbers")
    data, _ = source.gather(chunks[:count].astype(np.uint64), per_chunk * dtype.itemsize)
    rows = data.reshape(-1).view(dtype)
    rows = rows[np.isin(rows["state"], (live, kept)) & (rows["usable_bytes"] > 0)]
    return tuple(
        HugeBlock(
            start=int(row["start"]),
            usable_bytes=int(row["usable_bytes"]),
            mapped_bytes=int(row["mapped_bytes"]),
            live=int(row["state"]) == live,
        )
        for row in rows[np.argsort(rows["start"])]
    )


def guarded_pool(source: MemorySource, layout: Layout) -> tuple[int, int]:
    """Start and bytes of the pool's mapping; zeros when nothing is sampled."""
    pool = layout.root.read_global(source, "guarded_pool")[0]
    return (int(pool["base"]), int(pool["pool_bytes"])) if int(pool["slots"]) else (0, 0)


def guarded_slots(source: MemorySource, layout: Layout) -> npt.NDArray[Any]:
    """All slots of the pool; none when nothing is sampled."""
    root = layout.root
    pool = root.read_global(source, "guarded_pool")[0]
    count = int(pool["slot_count"]) if int(pool["slots"]) else 0
    if count > GUARDED_SLOTS_MAX:
        raise DamagedError("the target has an impossible number of guarded slots")
    return source.read_array(int(pool["slots"]), root.structure("guarded_slot"), count)


def describe_guarded(layout: Layout, slots: npt.NDArray[Any]) -> tuple[GuardedBlock, ...]:
    """Those slots that have or had a block."""
    states = layout.root.constants("guarded_state_")
    unused = layout.root.constant("guarded_state_unused")
    return tuple(
        GuardedBlock(int(slot["start"]), int(slot["bytes"]), states[int(slot["state"])])
        for slot in slots
        if int(slot["state"]) != unused and int(slot["state"]) in states
    )


def metadata_chunks(source: MemorySource, layout: Layout) -> list[tuple[int, int]]:
    """Start and bytes of every mapping of hakmem's own structures."""
    root = layout.root
    dtype = root.structure("metadata_chunk")
    first = int(root.read_global(source, "metadata")[0]["chunks"])
    places = follow_chain(source, first, offset_of(dtype, "next"), (), "metadata")
    return [(place, int(source.read_array(place, dtype)[0]["bytes"])) for place in places]


def metadata_bytes(source: MemorySource, layout: Layout) -> int:
    return int(layout.root.read_global(source, "metadata")[0]["bytes"])


def mapped_bytes_max(source: MemorySource, layout: Layout) -> int:
    """Of superslabs and huge blocks, each at their highest so far."""
    arena = layout.root.read_global(source, "arena")[0]
    table = layout.root.read_global(source, "huge_table")[0]
    return int(arena["superslab_count_max"]) * SUPERSLAB_BYTES + int(table["peak_bytes"])


def read_build_id(source: MemorySource, area: Area, header: int) -> str:
    """The GNU build id of the file whose first byte is mapped at `header`, in an area as read_in()
    takes it; empty when its notes are not in the target's memory."""
    try:
        return _build_id(partial(source.read_in, area), header) if header else ""
    except (InspectError, IndexError):
        return ""


def _build_id(read: Callable[[int, int], bytes], header: int) -> str:
    start = read(header, 64)
    if start[:5] != b"\x7fELF\x02":
        return ""
    number = int.from_bytes
    table, size = number(start[32:40], "little"), number(start[54:56], "little")
    count = min(number(start[56:58], "little"), SEGMENTS_MAX)
    segments = [read(header + table + index * size, 56) for index in range(count)]
    loads = [segment for segment in segments if number(segment[:4], "little") == 1]
    base = header - (number(loads[0][16:24], "little") if loads else 0)
    for segment in segments:
        length = number(segment[40:48], "little")
        if number(segment[:4], "little") == SEGMENT_NOTE and length <= NOTE_BYTES_MAX:
            found = _find_note(read(base + number(segment[16:24], "little"), length))
            if found:
                return found.hex()
    return ""


def _find_note(notes: bytes) -> bytes:
    at = 0
    while at + 12 <= len(notes):
        name_bytes, bytes_, kind = (
            int.from_bytes(notes[at + 4 * i : at + 4 * i + 4], "little") for i in range(3)
        )
        name_end = at + 12 + (name_bytes + 3) // 4 * 4
        if kind == NOTE_GNU_BUILD_ID and notes[at + 12 : at + 16] == b"GNU\0":
            return notes[name_end : name_end + bytes_]
        at = name_end + (bytes_ + 3) // 4 * 4
    return b""
