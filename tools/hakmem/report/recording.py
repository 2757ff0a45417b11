"""Takes snapshots of a process at fixed moments and writes them as a series, line by line.

Every line is written whole or not at all: when the disk is full, the file ends with the last whole
one. SIGINT, SIGTERM and SIGHUP end the series, as the end of the process and of the wanted time do,
and as a reader does who has had enough of it (`| head`).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from hakmem import watch
from hakmem.errors import EXIT_FAILURE, HakmemError
from hakmem.inspect import jsonform
from hakmem.inspect.errors import GoneError, InspectError
from hakmem.inspect.model import Snapshot
from hakmem.inspect.reading import Session
from hakmem.report import series

# So many snapshots in a row that cannot be read end the series.
FAILURES_MOST = 10
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Json = dict[str, Any]


class NoRoomError(HakmemError):
    """The file system took no more; what was written before is whole."""

    status = EXIT_FAILURE


@dataclass
class Outcome:
    """How a recording went. `reason` is why it ended, in words."""

    written: int = 0
    unreadable: int = 0
    reason: str = ""


def _end(descriptor: int) -> int:
    """Where the next byte goes; 0 of a pipe or a device, which is not cut."""
    try:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND:
            return os.fstat(descriptor).st_size
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    except OSError:
        return 0


class Lines:
    """A file of JSON lines that never ends in half of one, where the file can be cut: behind what
    others wrote there before. `is_unread`: a pipe that nobody reads any more; what is written is
    thrown away then."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.descriptor = descriptor
        self.name = name
        self.end = _end(descriptor)
        self.is_unread = False

    def write(self, value: Json) -> None:
        """One line. NoRoomError when it did not fit; the file is then as it was before."""
        data = json.dumps(value, separators=(",", ":")).encode() + b"\n"
        rest = data
        try:
            while rest:
                rest = rest[os.write(self.descriptor, rest) :]
        except BrokenPipeError:
            self.is_unread = True
            return
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            self._cut()
            raise NoRoomError(f"{self.name}: {error.strerror}") from None
        self.end += len(data)

    def _cut(self) -> None:
        try:
            os.ftruncate(self.descriptor, self.end)
        except OSError:
            # A pipe or a device: its reader leaves out what is no whole line.
            return


class Stop:
    """Set by SIGINT, SIGTERM, and SIGHUP unless that is ignored, as under nohup; ends a wait at
    once."""

    def __init__(self) -> None:
        self.signal_name = ""
        self.wake, self._alarm = os.pipe()
        os.set_blocking(self._alarm, False)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        self.signal_name = signal.Signals(number).name
        os.write(self._alarm, b".")

    def wait(self, seconds: float) -> bool:
        """True as soon as a signal has come, False after so long."""
        return bool(select.select([self.wake], [], [], max(0.0, seconds))[0])

    @contextmanager
    def listening(self) -> Iterator[Stop]:
        """The handlers are as before when the block ends."""
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._on_signal) for number in numbers}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(self.wake)
            os.close(self._alarm)


def record(
    session: Session, lines: Lines, stop: Stop, *, every_s: float, for_s: float | None,
    progress: Callable[[Outcome, Snapshot], None],
) -> Outcome:  # fmt: skip
    """Writes a series until it is told to stop, the time is up, or the process has ended or become
    another program.

    The first snapshot must succeed: its InspectError is the caller's. The last one, when the
    process still lives, has every block, for the map of a report."""
    outcome = Outcome()
    if for_s is not None:
        # A series has its end too, and that is not its beginning.
        every_s = min(every_s, for_s)
    pid = session.source.pid
    begin = time.monotonic()
    failures = 0
    lines.write(series.header(pid, every_s))
    while True:
        is_last = for_s is not None and time.monotonic() - begin > for_s - every_s / 2
        try:
            snapshot = session.take()
        except InspectError as error:
            if not outcome.written and watch.is_alive(pid):
                raise
            if isinstance(error, GoneError) and watch.is_alive(pid):
                outcome.reason = str(error)
                return outcome
            if not watch.is_alive(pid):
                outcome.reason = f"process {pid} ended"
                return outcome
            outcome.unreadable += 1
            failures += 1
            if failures >= FAILURES_MOST:
                outcome.reason = f"process {pid} could not be read {failures} times in a row"
                return outcome
        else:
            failures = 0
            is_last = is_last or bool(stop.signal_name)
            lines.write(jsonform.encode(snapshot, "blocks" if is_last else "totals"))
            if lines.is_unread:
                outcome.reason = "nobody reads it any more"
                return outcome
            outcome.written += 1
            progress(outcome, snapshot)
        if is_last:
            outcome.reason = stop.signal_name or "the time was up"
            return outcome
        # The moments stay where they were planned; those that were missed are left out.
        elapsed = time.monotonic() - begin
        stop.wait(every_s - elapsed % every_s)


def say_progress(outcome: Outcome, snapshot: Snapshot) -> None:
    """One line that is written over, where somebody looks."""
    if sys.stderr.isatty():
        resident = snapshot.waterfall.rss_bytes if snapshot.waterfall is not None else 0
        sys.stderr.write(f"\r{outcome.written:,} snapshots, {resident / 1048576:,.1f} MiB resident")
        sys.stderr.flush()
