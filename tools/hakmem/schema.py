"""The report files that the library writes (src/control/report.h), read with suspicion: a file may
be cut short, half written, or not ours at all."""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FORMAT = "1"
HEADER_BYTES = 4096
BOOKS_OFFSET = 4096
PROOF_OFFSET = 16384
REPORT_BYTES_MAX = 1 << 20
# As many of one run are read, in the order of their names; `unread` tells of the others.
REPORTS_MAX = 100_000
REPORT_NAME = re.compile(r"([1-9][0-9]{0,9})\.[0-9a-f]{1,16}", re.ASCII)
STATE_EXITED = 2
# Of the path of a program or a library: what is longer is cut, by the library and here alike.
TOLD_BYTES = 1023
# The counters come right behind the fields that every report begins with.
LAST_OWN_FIELD = "peak_rss_bytes"


@dataclass(frozen=True)
class ProofLine:
    """`module` reaches `symbol` in the file `provider` ("-": nowhere), as seen in `phase`."""

    phase: str
    module: str
    symbol: str
    provider: str
    route: str


@dataclass(frozen=True)
class SizeClass:
    block_bytes: int
    slab_bytes: int
    live_blocks: int
    cached_blocks: int
    free_blocks: int

    @property
    def live_bytes(self) -> int:
        return self.block_bytes * self.live_blocks


@dataclass(frozen=True)
class Report:
    """One program image of one process: an exec begins another report under the same pid.

    `profile`: a profile was taken. Counters in `books` count from the beginning of this process, a
    fork included; gauges tell what is."""

    pid: int
    ppid: int
    forked: bool
    start_ns: int
    mode: str
    profile: bool
    build_id: str
    name: str
    library: str
    exe: str
    books: dict[str, int]
    classes: tuple[SizeClass, ...]
    proof: tuple[ProofLine, ...]

    @property
    def exited(self) -> bool:
        return self.books.get("state") == STATE_EXITED

    @property
    def refreshed(self) -> bool:
        return self.books.get("refreshed_ns", 0) != 0

    @property
    def proof_lost(self) -> int:
        return self.books.get("proof_lost", 0)

    @property
    def peak_rss_bytes(self) -> int:
        return self.books.get("peak_rss_bytes", 0)


def told(path: str) -> str:
    """As much of a path as a report tells."""
    return os.fsencode(path)[:TOLD_BYTES].decode(errors="surrogateescape")


def _text(data: bytes) -> str:
    """Up to the first zero byte: what follows is a megabyte of them in most reports, each of which
    would be a string of its own if all of it were split."""
    return data.partition(b"\0")[0].decode(errors="surrogateescape")


def _header(data: bytes) -> dict[str, str]:
    text = _text(data[:HEADER_BYTES])
    pairs = (line.partition(" ") for line in text.split("\n"))
    return {key: value for key, _, value in pairs}


def _books(data: bytes, count: int) -> list[int]:
    room = max(0, min(len(data), PROOF_OFFSET) - BOOKS_OFFSET) // 8
    if count > room:
        raise ValueError("more fields than the file holds")
    return list(struct.unpack_from(f"={count}Q", data, BOOKS_OFFSET))


def _proof(data: bytes) -> Iterator[ProofLine]:
    text = _text(data[PROOF_OFFSET:])
    for line in text.split("\n"):
        columns = line.split("\t")
        if len(columns) == 5:
            yield ProofLine(*columns)


def parse_report(data: bytes) -> Report | None:
    header = _header(data)
    if header.get("hakmem-report") != FORMAT:
        return None
    try:
        names = header["fields"].split()
        class_names = header["class_fields"].split()
        class_count = int(header["classes"])
        inherited_at = len(names) + class_count * len(class_names)
        inherited_count = int(header["inherited"])
        values = _books(data, inherited_at + inherited_count)
        books = dict(zip(names, values, strict=False))
        for name, inherited in zip(
            names[names.index(LAST_OWN_FIELD) + 1 :], values[inherited_at:], strict=False
        ):
            books[name] = max(0, books[name] - inherited)
        classes = []
        for index in range(class_count):
            at = len(names) + index * len(class_names)
            row = dict(zip(class_names, values[at : at + len(class_names)], strict=True))
            classes.append(SizeClass(**row))
        return Report(
            pid=int(header["pid"]),
            ppid=int(header["ppid"]),
            forked=header["forked"] == "1",
            start_ns=int(header["start_ns"]),
            mode=header["mode"],
            profile=header["profile"] == "1",
            build_id=header["build_id"],
            name=header["name"],
            library=header["library"],
            exe=told(header["exe"]),
            books=books,
            classes=tuple(classes),
            proof=tuple(_proof(data)),
        )
    except (KeyError, ValueError, TypeError):
        return None


def _read(path: Path) -> bytes | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return os.pread(descriptor, REPORT_BYTES_MAX, 0)
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _named(directory: Path) -> list[tuple[Path, int]]:
    """What has the name of a report, with the number of its process."""
    entries = sorted(directory.iterdir(), key=lambda entry: entry.name)
    names = ((entry, REPORT_NAME.fullmatch(entry.name)) for entry in entries)
    return [(entry, int(name[1])) for entry, name in names if name is not None]


def unread(directory: Path) -> list[int]:
    """For each report that read_reports leaves out, the process, by its own number."""
    return [pid for _, pid in _named(directory)[REPORTS_MAX:]]


def unwritten(directory: Path) -> list[int]:
    """The processes, by their own numbers, that left a file without contents: hakmem was loaded
    there, and could not make its report."""
    found = []
    for entry, pid in _named(directory)[:REPORTS_MAX]:
        try:
            status = entry.lstat()
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_size == 0:
            found.append(pid)
    return sorted(set(found))


def read_reports(directory: Path) -> list[Report]:
    """Every report in the directory, or as many as may be, in the order in which the programs
    started."""
    reports = []
    for entry, _ in _named(directory)[:REPORTS_MAX]:
        data = _read(entry)
        report = parse_report(data) if data is not None else None
        if report is not None:
            reports.append(report)
    return sorted(reports, key=lambda report: report.start_ns)
