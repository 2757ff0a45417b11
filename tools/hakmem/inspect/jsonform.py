"""A snapshot as JSON and back: `hakmem inspect --json`, and each line of a recorded series.

Three details: "totals" has no runs and superslabs, and neither what stands out nor who allocated,
"runs" has them without the state of each block, "blocks" has everything. Sizes are integers of
bytes. What is read back may come from anybody: it is checked against the model's own types, and
refused in one sentence.
"""

from __future__ import annotations

import base64
import types
import typing
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from hakmem.inspect.errors import InspectError
from hakmem.inspect.findings import findings
from hakmem.inspect.model import (
    HEAP_CLASS,
    RUN,
    SLAB_BLOCKS_MAX,
    SUPERSLAB,
    BlockState,
    RunKind,
    Snapshot,
    Table,
    Words,
)

SCHEMA = "hakmem.inspect/1"
DETAILS = ("totals", "runs", "blocks")

Json = dict[str, Any]

# What earlier versions did not write.
ADDED = ("unsettled_bytes", "inner_pid", "root_address", "has_profile", "guarded_sites")
TABLES = {"heap_classes": HEAP_CLASS, "superslabs": SUPERSLAB, "runs": RUN}
# In the year 2262; what is shown of a moment is not made for later ones.
MOMENT_NS_MAX = (1 << 63) - 1
ROWS_MAX = 1 << 28


class SchemaError(InspectError):
    """JSON that is no snapshot, or one of another schema."""


def encode(snapshot: Snapshot, detail: str = "runs") -> Json:
    """Everything json.dumps takes. `detail` is one of DETAILS."""
    facts: Json = {"schema": SCHEMA, "detail": detail}
    for field in fields(snapshot):
        value = getattr(snapshot, field.name)
        if field.name == "planes":
            kept = value if detail == "blocks" else {}
            facts["planes"] = {state.name.lower(): _pack(words) for state, words in kept.items()}
        elif field.name in TABLES:
            is_kept = detail != "totals" or field.name == "heap_classes"
            facts[field.name] = _columns(value if is_kept else value[:0])
        elif field.name == "guarded_sites" and detail == "totals":
            facts[field.name] = []
        else:
            facts[field.name] = _plain(value)
    if detail != "totals":
        # For whoever reads the JSON: they follow from the rest, and are not read back.
        facts["findings"] = _plain(findings(snapshot))
    return facts


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return value


def _columns(table: Table) -> Json:
    return {name: table[name].tolist() for name in table.dtype.names or ()}


def _pack(words: Words) -> Json:
    data = zlib.compress(words.astype("<u8").tobytes(), 1)
    return {"words": len(words), "zlib_base64": base64.b64encode(data).decode("ascii")}


def decode(facts: object) -> Snapshot:
    """The snapshot that encode() made this of; SchemaError when it did not."""
    if not isinstance(facts, dict) or not isinstance(facts.get("schema"), str):
        raise SchemaError("this JSON is no snapshot of hakmem: it names no schema")
    if facts["schema"] != SCHEMA:
        raise SchemaError(f"this JSON has the schema {facts['schema']!r}; {SCHEMA!r} is understood")
    try:
        values: dict[str, Any] = {}
        hints = typing.get_type_hints(Snapshot)
        for field in fields(Snapshot):
            if field.name in ADDED and field.name not in facts:
                continue
            value = facts[field.name]
            if field.name in TABLES:
                values[field.name] = _table(TABLES[field.name], value)
            elif field.name == "planes":
                words = _plane_words(values["runs"])
                values["planes"] = {
                    BlockState[name.upper()]: _unpack(plane, words) for name, plane in value.items()
                }
            else:
                values[field.name] = _typed(hints[field.name], value, field.name)
        snapshot = Snapshot(**values)
        _require_whole(snapshot)
        return snapshot
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, zlib.error) as error:
        raise SchemaError(f"this JSON is no whole snapshot of hakmem: {_words(error)}") from None


def _words(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def _typed(hint: Any, value: Any, where: str) -> Any:
    origin, parameters = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in parameters:
            return None
        chosen = [part for part in parameters if part is not type(None)]
        part = next((part for part in chosen if part is type(value)), chosen[0])
        return _typed(part, value, where)
    if origin is tuple and isinstance(value, list):
        return tuple(_typed(parameters[0], item, where) for item in value)
    if origin is Mapping and isinstance(value, dict):
        return {str(key): _typed(parameters[1], item, where) for key, item in value.items()}
    if isinstance(hint, type):
        if is_dataclass(hint) and isinstance(value, dict):
            hints = typing.get_type_hints(hint)
            return hint(
                **{
                    field.name: _typed(
                        hints[field.name], value[field.name], f"{where}.{field.name}"
                    )
                    for field in fields(hint)
                }
            )
        if issubclass(hint, StrEnum):
            return hint(value)
        if hint is float and type(value) is int:
            return float(value)
        if type(value) is hint:
            return value
    raise TypeError(f"{where} is not what it should be")


def _record(kind: Any, value: Json, where: str) -> Any:
    hints = typing.get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    return kind(**{name: _typed(hints[name], value[name], f"{where}.{name}") for name in names})


def _table(dtype: np.dtype[Any], columns: Any) -> Table:
    names = dtype.names or ()
    lengths = {len(columns[name]) for name in names}
    if len(lengths) != 1 or max(lengths) > ROWS_MAX:
        raise ValueError("a table has columns of different lengths")
    table = np.zeros(lengths.pop(), dtype)
    for name in names:
        column = columns[name]
        if not isinstance(column, list) or not all(type(value) is int for value in column):
            raise TypeError(f"column {name} is not of integers")
        if column and not 0 <= min(column) <= max(column) <= np.iinfo(dtype[name]).max:
            raise ValueError(f"column {name} has a value out of range")
        table[name] = column
    return table


def _plane_words(runs: Table) -> int:
    """What the slabs have blocks for: a few bytes can be packed to any length."""
    slabs = runs[runs["kind"] == RunKind.SLAB]
    counts = slabs["block_count"].astype(np.int64)
    if len(slabs) and int(counts.max()) > SLAB_BLOCKS_MAX:
        raise ValueError("a slab has more blocks than fit")
    return int(((counts + 63) // 64).sum())


def _unpack(plane: Any, words_max: int) -> Words:
    wanted = plane["words"] * 8
    if not 0 <= wanted <= words_max * 8:
        raise ValueError("a plane is too long")
    packed = base64.b64decode(plane["zlib_base64"], validate=True)
    data = zlib.decompressobj().decompress(packed, wanted + 1)
    if len(data) != wanted:
        raise ValueError("a plane has another length than it says")
    return np.frombuffer(data, "<u8").astype(np.uint64)


def require_moment(taken_ns: int) -> int:
    """ValueError when it is no time since the epoch."""
    if not 0 <= taken_ns <= MOMENT_NS_MAX:
        raise ValueError("taken_ns is out of range")
    return taken_ns


def _require_whole(snapshot: Snapshot) -> None:
    require_moment(snapshot.taken_ns)
    lengths = {len(words) for words in snapshot.planes.values()}
    if len(lengths) > 1:
        raise ValueError("planes differ in length")
    classes = len(snapshot.size_classes)
    slabs = snapshot.runs[snapshot.runs["kind"] == RunKind.SLAB]
    if len(slabs) and int(slabs["class_index"].max()) >= classes:
        raise ValueError("a slab is of a size class that does not exist")
    if len(snapshot.runs) and int(snapshot.runs["superslab"].max()) >= len(snapshot.superslabs):
        raise ValueError("a run is of a superslab that does not exist")
    if lengths and len(slabs):
        ends = slabs["word"] + (slabs["block_count"].astype(np.uint64) + 63) // 64
        if int(ends.max()) > lengths.pop():
            raise ValueError("a slab's blocks lie outside the planes")
