"""A series of snapshots in a file of JSON lines: `hakmem record` writes it.

The first line says what it is. Each line after it is a snapshot without runs and blocks (detail
"totals" of inspect/jsonform.py), the last perhaps one with everything, for the map of a page.
Another series of the same process may follow. A last line of the file that was cut short, because
its writer was killed or the disk was full, is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hakmem.inspect import files, jsonform
from hakmem.inspect.errors import InspectError
from hakmem.inspect.model import Snapshot
from hakmem.report import growth

SCHEMA = "hakmem.series/1"
# A longer series is thinned out to this many points for the timeline.
POINTS_MOST = 800
HEAD_BYTES = 256
HEAD_BEGIN = b'{"schema":"hakmem.series/'

Json = dict[str, Any]


class SeriesError(InspectError):
    """A file that is no series, or one without anything to look at."""


@dataclass(frozen=True)
class Point:
    """One moment of a series: resident bytes by what they are for, and live bytes by class."""

    taken_ns: int
    rss_bytes: int
    rows: Mapping[str, int]
    live_bytes: Mapping[int, int]


@dataclass(frozen=True)
class Series:
    """The first and the last snapshot, and points between them, both included."""

    first: Snapshot
    last: Snapshot
    points: tuple[Point, ...]
    count: int


def header(pid: int, every_s: float) -> Json:
    """What the first line says."""
    return {"schema": SCHEMA, "pid": pid, "every_s": every_s}


def is_series(path: Path) -> bool:
    """Whether a file begins as a series does, of this version or another."""
    return b'"hakmem.series/' in files.head(path, HEAD_BYTES).split(b"\n")[0]


def point_of(facts: Json) -> Point:
    """The point that a snapshot as JSON makes; ValueError when it is none."""
    try:
        waterfall = facts["waterfall"] or {"rows": [], "rss_bytes": 0}
        return Point(
            taken_ns=jsonform.require_moment(int(facts["taken_ns"])),
            rss_bytes=int(waterfall["rss_bytes"]),
            rows={str(row["name"]): int(row["bytes"]) for row in waterfall["rows"]},
            live_bytes=_live_bytes(facts["classes"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"no snapshot of a series: {error}") from None


def _live_bytes(classes: Iterable[Json]) -> dict[int, int]:
    """By block size, which with a profile's classes more than one row may have."""
    found: dict[int, int] = {}
    for row in classes:
        size = int(row["block_bytes"])
        found[size] = found.get(size, 0) + size * int(row["live_blocks"])
    return found


def _lines(path: Path, pid: object) -> Iterator[bytes]:
    """The whole lines behind the header, without those of a series of the same process that was
    appended; SeriesError where one is of another."""
    with path.open("rb") as file:
        next(file, b"")
        for line in file:
            if not line.endswith(b"\n"):
                continue
            if not line.startswith(HEAD_BEGIN):
                yield line
                continue
            other = _parse(path, line)
            if (other.get("schema"), other.get("pid")) != (SCHEMA, pid):
                what = f"a series of process {other.get('pid')} ({other.get('schema')})"
                raise SeriesError(f"{path}: {what} follows that of process {pid}")


def _parse(path: Path, line: bytes) -> Json:
    try:
        facts = json.loads(line)
    except (ValueError, RecursionError):
        raise SeriesError(f"{path}: a line of the series is not JSON") from None
    if not isinstance(facts, dict):
        raise SeriesError(f"{path}: a line of the series is no snapshot")
    return facts


def read(path: Path) -> Series:
    """The series in a file; InspectError says in a sentence what is wrong with it."""
    files.require_regular(path)
    try:
        with path.open("rb") as file:
            opened = _parse(path, file.readline())
        if opened.get("schema") != SCHEMA:
            raise SeriesError(
                f"{path}: has the schema {opened.get('schema')!r}; {SCHEMA!r} is understood"
            )
        pid = opened.get("pid")
        count = sum(1 for _ in _lines(path, pid))
        if not count:
            raise SeriesError(f"{path}: the series has no snapshot")
        step = max(1, -(-count // POINTS_MOST))
        points, first, last = [], None, None
        for index, line in enumerate(_lines(path, pid)):
            if index % step and index != count - 1:
                continue
            facts = _parse(path, line)
            points.append(point_of(facts))
            first = jsonform.decode(facts) if first is None else first
            last = facts
    except OSError as error:
        raise SeriesError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise SeriesError(f"{path}: {error}") from None
    if first is None or last is None:
        raise SeriesError(f"{path}: was changed while it was read")
    latest = jsonform.decode(last)
    if not growth.is_same_process(first, latest):
        raise SeriesError(f"{path}: its last snapshot is of another process than its first")
    return Series(first, latest, tuple(points), count)
