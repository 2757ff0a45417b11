"""One run of the program on hakmem: what it cost, and what every process of it reported."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Protocol

from hakmem import preload, schema
from hakmem.analysis import UNWRITTEN
from hakmem.errors import HakmemError, UsageError
from hakmem.folders import report_folder
from hakmem.tune.guard import guarded
from hakmem.watch import Watch, children_of, file_name

LAST_WORDS = 300  # characters of standard error that a message repeats
REFUSAL = b"hakmem: profile '"  # what the library says of a profile begins so
END_WAIT_S = 5.0  # for processes that were killed
PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
PR_GET_CHILD_SUBREAPER = 37


@dataclass(frozen=True)
class Command:
    """The program with its arguments, resolved once, and the library it runs on."""

    path: str
    words: tuple[str, ...]
    library: str

    @property
    def name(self) -> str:
        return Path(self.words[0]).name


@dataclass(frozen=True)
class Run:
    """What one run cost. `peak_rss_bytes` is that of the largest process of those that are tuned;
    times are those of all processes, of what the program did not wait for too. `reports`: of those
    that are tuned. `refusal`: the first line of the library about a profile that some process did
    not take."""

    wall_s: float
    cpu_s: float
    peak_rss_bytes: int
    minor_faults: int
    reports: tuple[schema.Report, ...]
    refusal: str = ""

    @property
    def largest(self) -> schema.Report | None:
        """The report of the process with the highest peak."""
        return max(self.reports, key=lambda report: report.peak_rss_bytes, default=None)


class Companion(Protocol):
    """Somebody who looks at the processes of a run while it lasts."""

    def look(self, pids: frozenset[int]) -> float:
        """One look; returns the seconds until the next one."""


class RunFailedError(UsageError):
    """The program cannot be tuned: it failed, hung, or never ran on hakmem."""


def prepare(words: Sequence[str], library: Path) -> Command:
    """Refuses what cannot run on hakmem, with the reason."""
    try:
        target = preload.examine(words[0], os.environ)
        preload.require_same_architecture(target, library)
    except HakmemError as error:
        raise UsageError(str(error)) from None
    if not preload.is_preloadable(str(library.absolute())):
        raise UsageError(f"{library}: LD_PRELOAD takes no path with a space or a colon")
    return Command(target.path, tuple(words), str(library.absolute()))


def _environment(command: Command, directory: Path, settings: Mapping[str, str]) -> dict[str, str]:
    """The caller's, but for what would set hakmem up in another way than this run is to be."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("HAKMEM_")
    }
    return {
        **inherited,
        **settings,
        "HAKMEM_REPORT": str(directory),
        "LD_PRELOAD": preload.preload_value(command.library, os.environ.get("LD_PRELOAD")),
    }


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


Adopted = Callable[[], set[int]]  # children that this process has and did not have before a run


@contextmanager
def _adoption() -> Iterator[Adopted]:
    """Processes whose parents end become children of this one meanwhile, not of init: a daemon
    too, whose parent may end before anybody saw it. None of them is left."""
    ours = set(children_of(os.getpid()))
    libc = ctypes.CDLL(None)
    before = ctypes.c_int(0)
    libc.prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def adopted() -> set[int]:
        return set(children_of(os.getpid())) - ours

    try:
        yield adopted
    finally:
        # An interruption as the program was started kept everybody else from knowing of it.
        _reap_adopted(adopted)
        libc.prctl(PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def _reap_group(group: int) -> list[resource.struct_rusage]:
    """What the adopted processes of a group cost, which was ended."""
    usages: list[resource.struct_rusage] = []
    deadline = time.monotonic() + END_WAIT_S
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            found, _, usage = os.wait4(-group, os.WNOHANG)
            if found != 0:
                usages.append(usage)
            else:
                time.sleep(0.001)
    return usages


def _reap_one(pid: int) -> resource.struct_rusage | None:
    """What an adopted process cost, which is ended if it still runs; None of any other."""
    with contextlib.suppress(ChildProcessError, ProcessLookupError, PermissionError):
        found, _, usage = os.wait4(pid, os.WNOHANG)
        if found == 0:
            os.kill(pid, signal.SIGKILL)
            _, _, usage = os.wait4(pid, 0)
        return usage
    return None


def _reap(group: int, adopted: Adopted) -> list[resource.struct_rusage]:
    """What the processes cost that the program did not wait for: a server in the background, or one
    with a group of its own. When one is waited for, its children are adopted."""
    return [*_reap_group(group), *_reap_adopted(adopted)]


def _reap_adopted(adopted: Adopted) -> list[resource.struct_rusage]:
    usages: list[resource.struct_rusage] = []
    while True:
        found = [usage for pid in adopted() if (usage := _reap_one(pid)) is not None]
        if not found:
            return usages
        usages += found


class _Observer:
    """Watches the processes of a run from a thread of its own; stop() returns when it is done."""

    def __init__(self, pid: int, companion: Companion | None, adopted: Adopted) -> None:
        self.watch = Watch(pid)
        self._adopted = adopted
        self._companion = companion
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._observe, daemon=True)
        self._thread.start()

    def _observe(self) -> None:
        while not self._stopped.is_set():
            self.watch.alive |= self._adopted()
            self.watch.look()
            pause_s = self.watch.interval_s
            if self._companion is not None:
                pause_s = self._companion.look(frozenset(self.watch.alive))
            self._stopped.wait(pause_s)

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()


def _wait(process: subprocess.Popen[bytes], timeout_s: float) -> tuple[int, float, int]:
    """Exit status, processor seconds and minor faults of the program and what it waited for."""
    # Not by waiting: while it is looked at, its stops would be reported to this thread as well.
    descriptor = os.pidfd_open(process.pid)
    try:
        ended = bool(select.select([descriptor], [], [], timeout_s)[0])
    finally:
        os.close(descriptor)
    if not ended:
        raise RunFailedError(f"the program is still running after {timeout_s:.0f} s (--timeout)")
    try:
        _, status, usage = os.wait4(process.pid, 0)
    except ChildProcessError:
        # It ended while a companion held it (ptrace), and that wait took its status. A run that is
        # looked at measures nothing, and how the program ends was seen in runs before.
        process.returncode = 0
        return 0, 0.0, 0
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime, usage.ru_minflt


def _refusal(errors: BinaryIO) -> str:
    errors.seek(0)
    for line in errors:
        if line.startswith(REFUSAL):
            return line[:LAST_WORDS].decode(errors="replace").strip()
    return ""


def _last_words(errors: BinaryIO) -> str:
    """Of the program: of several processes a profile is for one, and the others refuse it."""
    errors.seek(0)
    own = (line for line in errors if not line.startswith(REFUSAL))
    text = b"".join(own).decode(errors="replace").strip()
    return f"; its last words: {text[-LAST_WORDS:]}" if text else ""


def run(
    command: Command,
    settings: Mapping[str, str],
    timeout_s: float,
    companion: Companion | None = None,
    exe: str = "",
) -> Run:
    """Runs the program once to its end, with nothing on its standard input; what it writes is
    dropped. What it leaves running is ended, and counts. `exe`: the program of those processes that
    are tuned, which may be a server beside its load generator; empty, or where none of this run is
    of it, of all. RunFailedError when it fails."""
    with (
        report_folder("hakmem-tune-") as directory,
        tempfile.TemporaryFile() as errors,
        guarded(directory) as guard,
        _adoption() as adopted,
    ):
        started = time.monotonic()
        process = subprocess.Popen(
            command.words,
            executable=command.path,
            env=_environment(command, directory, settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        guard(process.pid)
        observer = _Observer(process.pid, companion, adopted)
        try:
            status, cpu_s, minor_faults = _wait(process, timeout_s)
            wall_s = time.monotonic() - started
        finally:
            _end(process.pid)
            observer.stop()
            process.wait()
            left = _reap(process.pid, adopted)
        if status != 0:
            how = f"status {status}" if status > 0 else f"signal {-status}"
            raise RunFailedError(f"the program ended with {how}{_last_words(errors)}")
        reports = tuple(schema.read_reports(directory))
        refusal = _refusal(errors)
        unwritten = schema.unwritten(directory)
    if not reports and unwritten:
        raise RunFailedError(UNWRITTEN)
    if not reports:
        raise RunFailedError("the program ran without hakmem: `hakmem run` says why")
    reports = tuple(each for each in reports if file_name(each.exe) == file_name(exe)) or reports
    peaks = [report.peak_rss_bytes for report in reports]
    served = {file_name(report.exe) for report in reports}
    images = observer.watch.images()
    peaks += [image.peak_rss_bytes for image in images if schema.told(image.exe) in served]
    cpu_s += sum(usage.ru_utime + usage.ru_stime for usage in left)
    minor_faults += sum(usage.ru_minflt for usage in left)
    return Run(wall_s, cpu_s, max(peaks), minor_faults, reports, refusal)
