"""What a user may name to be looked at: a process, a core file, a snapshot file, saved JSON."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from hakmem import interruption
from hakmem.inspect import corefile, files, jsonform, snapshotfile
from hakmem.inspect.errors import InspectError, NoHakmemError
from hakmem.inspect.freeze import PAUSE_SECONDS, STOP_SECONDS, Freeze
from hakmem.inspect.memory import MemorySource
from hakmem.inspect.model import Snapshot
from hakmem.inspect.process import PROC, ProcessSource
from hakmem.inspect.reading import Session
from hakmem.inspect.root import find

JSON_BYTES_MAX = 1 << 30
HEAD_BYTES = 16
# zstd, lz4, xz, gzip: systemd-coredump keeps core files so.
PACKED = (b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"\xfd7zXZ\0", b"\x1f\x8b")

SHARED = "a thread waits for the child of its vfork, which shares the memory and was not stopped"


def is_process(target: str) -> bool:
    return target.isascii() and target.isdecimal()


def open_source(target: str) -> MemorySource:
    """The memory of a process or of a file that holds one's."""
    if is_process(target):
        return ProcessSource(int(target))
    path = Path(target)
    head = files.head(path, HEAD_BYTES)
    if head.startswith(corefile.MAGIC):
        return corefile.CoreSource(path)
    if head == snapshotfile.MAGIC:
        return snapshotfile.SnapshotSource(path)
    if head.startswith(PACKED):
        raise InspectError(
            f"{path}: is compressed: unpack it first (coredumpctl dump -o FILE PID, or zstd -d)"
        )
    raise InspectError(f"{path}: is neither a core file nor a snapshot of hakmem")


def take(
    target: str,
    *,
    freeze: bool = False,
    events: bool = False,
    decisions: bool = False,
    residency: bool = True,
) -> Snapshot:
    """A snapshot of what `target` names; InspectError says in a sentence why there is none."""
    if not is_process(target):
        if freeze:
            raise InspectError("only a living process can be frozen")
        if files.head(Path(target), HEAD_BYTES).lstrip()[:1] == b"{":
            return read_json(Path(target))
    with Session(open_source(target)) as session:
        if freeze:
            return take_frozen(session, events=events, decisions=decisions, residency=residency)
        return session.take(events=events, decisions=decisions, residency=residency)


def take_frozen(
    session: Session, *, events: bool = False, decisions: bool = False, residency: bool = True
) -> Snapshot:
    """The target stands still while it is read, and goes on in any case. Ctrl-Z stops the reader
    when it has let go."""
    tracer = 0

    def take_held() -> Snapshot:
        nonlocal tracer
        tracer = threading.get_native_id()
        with Freeze(session.source.pid, session.code_ranges(), session.holds_lock) as freeze:
            snapshot = session.take(
                events=events, decisions=decisions, frozen=freeze.exact, residency=residency
            )
            if freeze.is_shared:
                return replace(snapshot, notes=(*snapshot.notes, SHARED))
            return snapshot

    # In a thread that ends with it: of one that does not react, or whose sibling another debugger
    # has, only the end of the thread that traces it lets go.
    with interruption.stopped_later():
        try:
            with ThreadPoolExecutor(max_workers=1) as pool:
                return pool.submit(take_held).result()
        finally:
            _await_end(tracer)


def _await_end(thread: int) -> None:
    """Of one of ours, which can be joined a moment before it is gone."""
    place = PROC / "self" / "task" / str(thread)
    deadline = time.monotonic() + STOP_SECONDS
    while place.exists() and time.monotonic() < deadline:
        time.sleep(PAUSE_SECONDS)


def read_json(path: Path) -> Snapshot:
    """What `hakmem inspect --json` wrote."""
    try:
        if path.stat().st_size > JSON_BYTES_MAX:
            raise InspectError(f"{path}: is too large to be a snapshot as JSON")
        facts = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InspectError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InspectError(f"{path}: is not JSON that can be read") from None
    return jsonform.decode(facts)


def find_processes() -> list[int]:
    """The processes that use hakmem, of those that this user may read."""
    found = []
    for entry in sorted(PROC.iterdir(), key=lambda place: (len(place.name), place.name)):
        if not entry.name.isdecimal():
            continue
        try:
            source = ProcessSource(int(entry.name))
        except (InspectError, OSError):
            continue
        try:
            find(source, files_only=True)
            found.append(source.pid)
        except NoHakmemError:
            pass
        except (InspectError, OSError):
            # Another version of the ABI, or gone meanwhile.
            continue
        finally:
            source.close()
    return found
