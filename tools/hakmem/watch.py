"""A watch over the processes below one process, through /proc: who runs which program, and how much
memory it needed at most. It finds the programs that never loaded hakmem and so leave no report.

It looks now and then, so it can miss a process that lives for a moment; it never guesses.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")
ENDED = (b"Z", b"X")
PAGE_BYTES_OF_SYSTEM = os.sysconf("SC_PAGE_SIZE")
INTERVAL_FIRST_S = 0.004
INTERVAL_LAST_S = 0.25
INTERVAL_GROWTH = 1.4
# A look may take this share of the time at most.
SHARE_MAX = 0.05
PROCESSES_MAX = 4096
# A program has its libraries soon after it was started; many that lack one are not asked forever.
LOOKS_FOR_LIBRARY = 4
DELETED = " (deleted)"


@dataclass
class Image:
    """One program that one process ran. `inner_pid` is its number in its own pid namespace. `exe`
    is empty where the process may not be looked into: another user's, or one that forbids it.
    `preload` and `report`: LD_PRELOAD and HAKMEM_REPORT as it was given them, None where that could
    not be read. `has_library`: that which the watch looks for was seen there; otherwise it is not
    known."""

    pid: int
    inner_pid: int
    parent_exe: str | None
    exe: str
    preload: str | None
    report: str | None = None
    peak_rss_bytes: int = 0
    has_library: bool = False
    looks: int = 0


@dataclass
class _Known:
    start_time: str
    images: list[Image] = field(default_factory=list)


class Watch:
    def __init__(self, root: int, library: Path | None = None) -> None:
        self.root = root
        self.library_name = library.resolve().name if library is not None else None
        self.known: dict[tuple[int, str], _Known] = {}
        self.alive: set[int] = {root}
        self._starts: dict[int, str] = {}
        self.interval_s = INTERVAL_FIRST_S

    def images(self) -> list[Image]:
        return [image for known in self.known.values() for image in known.images]

    def look(self) -> None:
        """One look at the whole tree; sets when the next is due."""
        started = time.thread_time()
        pending: list[tuple[int, str | None]] = [(pid, None) for pid in self.alive]
        seen: set[int] = set()
        while pending and len(seen) < PROCESSES_MAX:
            pid, parent_exe = pending.pop()
            if pid in seen:
                continue
            exe = self._look_at(pid, parent_exe)
            if exe is not None:
                seen.add(pid)
                pending.extend((child, exe) for child in children_of(pid))
        self.alive = seen
        cost_s = time.thread_time() - started
        self.interval_s = max(
            min(self.interval_s * INTERVAL_GROWTH, INTERVAL_LAST_S), cost_s / SHARE_MAX
        )

    def _look_at(self, pid: int, parent_exe: str | None) -> str | None:
        try:
            start_time = _stat(PROC / str(pid))[19].decode()
            place = PROC / str(running_thread(pid))
            if parent_exe is None and self._starts.get(pid, start_time) != start_time:
                # Seen before, and not as a child: its number is another process's by now.
                return None
            exe = _exe(place)
            status = (place / "status").read_text(encoding="utf-8", errors="replace")
        except (OSError, IndexError):
            return None
        if exe is None:
            return None
        known = self.known.setdefault((pid, start_time), _Known(start_time))
        self._starts[pid] = start_time
        image = known.images[-1] if known.images else None
        if image is None or image.exe != exe:
            if image is not None:
                parent_exe = image.exe
            image = Image(pid, _inner_pid(pid), parent_exe, exe, *_given(place))
            known.images.append(image)
        elif image.preload is None and exe:
            preload, report = _given(place)
            same = _exe(place) == exe
            image.preload = preload or ("" if same else None)
            image.report = report or ("" if same else None)
        image.peak_rss_bytes = max(image.peak_rss_bytes, _peak_rss_bytes(status))
        self._look_for_library(image, place)
        return exe

    def _look_for_library(self, image: Image, place: Path) -> None:
        if self.library_name is None or image.has_library or image.looks == LOOKS_FOR_LIBRARY:
            return
        image.looks += 1
        # A program that followed by exec meanwhile has mappings of its own.
        image.has_library = _maps_file(place, self.library_name) and _exe(place) == image.exe


def _peak_rss_bytes(status: str) -> int:
    """By the text of a status file; 0 of a process that has ended."""
    peak = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
    return int(peak[1]) * 1024 if peak is not None else 0


def peak_rss_bytes(pid: int | str) -> int:
    """The most that was resident so far; 0 where that is not known."""
    try:
        status = (PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return _peak_rss_bytes(status)


def file_name(exe: str) -> str:
    """Of a program as the kernel names it, which adds a word once the file was removed or replaced:
    what runs is the same program. What lies below a space is a question mark, as in a report."""
    name = exe.removesuffix(DELETED)
    return "".join("?" if letter < " " else letter for letter in name)


def _exe(place: Path) -> str | None:
    """None for a process that has ended; empty for one that is not ours to look into."""
    try:
        return file_name(str((place / "exe").readlink()))
    except PermissionError:
        return ""
    except OSError:
        return None


def _maps_file(place: Path, name: str) -> bool:
    """By its name, since a process may have another root."""
    try:
        maps = (place / "maps").read_bytes()
    except OSError:
        return False
    return re.search(rb"/%s$" % re.escape(os.fsencode(name)), maps, re.MULTILINE) is not None


def _inner_pid(pid: int) -> int:
    try:
        status = (PROC / str(pid) / "status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return pid
    found = re.search(r"^NSpid:.*?(\d+)\s*$", status, re.MULTILINE)
    return int(found[1]) if found is not None else pid


def _given(place: Path) -> tuple[str | None, str | None]:
    """LD_PRELOAD and HAKMEM_REPORT as the program was given them; None when that cannot be read."""
    try:
        variables = (place / "environ").read_bytes().split(b"\0")
    except OSError:
        return None, None
    # No environment at all may also be a program that is just being started, or ending.
    if not any(variables):
        return None, None
    return _value(variables, b"LD_PRELOAD="), _value(variables, b"HAKMEM_REPORT=")


def _value(variables: Iterable[bytes], start: bytes) -> str:
    """Of the first that begins so, as the C library has it; "" where there is none."""
    found = next((one for one in variables if one.startswith(start)), start)
    return found.removeprefix(start).decode(errors="surrogateescape")


def children_of(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for task in (PROC / str(pid) / "task").iterdir():
            children.extend(int(child) for child in (task / "children").read_text().split())
    except (OSError, ValueError):
        pass
    return children


def _stat(place: Path) -> list[bytes]:
    """The words of a stat file from the third on, which is the state."""
    return (place / "stat").read_bytes().rpartition(b")")[2].split()


def state_of(place: Path) -> bytes:
    """One letter, of the folder of a thread, or of a process: its main thread."""
    return _stat(place)[0]


def has_ended(place: Path) -> bool:
    """Of the folder of a thread, or of a process: its main thread. What may not be looked into
    (/proc mounted with hidepid=1) is there."""
    try:
        return state_of(place) in ENDED
    except PermissionError:
        return False
    except (OSError, IndexError):
        return True


def running_thread(pid: int) -> int | None:
    """The main thread; when it has ended, another one that has not; None: the process has ended.
    A process lives as long as one of its threads, and /proc says nothing about its memory in the
    folder of one that has ended."""
    if not has_ended(PROC / str(pid)):
        return pid
    try:
        tasks = [task for task in (PROC / str(pid) / "task").iterdir() if not has_ended(task)]
    except OSError:
        return None
    return min((int(task.name) for task in tasks), default=None)


def is_alive(pid: int) -> bool:
    return running_thread(pid) is not None


def why_unseen(pid: int) -> str:
    """Of a process that /proc does not show: with hidepid=2 it hides those of others."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return f"process {pid} is another user's, and /proc hides it (hidepid) from all but root"
    except (OSError, OverflowError):
        pass
    return f"there is no process {pid}"


def resident_bytes(pid: int) -> int:
    """Resident memory as the kernel counts it; 0 for a process that has ended."""
    try:
        words = (PROC / str(running_thread(pid)) / "statm").read_text(encoding="ascii").split()
        return int(words[1]) * PAGE_BYTES_OF_SYSTEM
    except (OSError, IndexError, ValueError):
        return 0
