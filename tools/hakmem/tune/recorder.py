"""Looks at the processes of a run, or at one that runs already, while research mode counts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from hakmem.elf import read_build_id
from hakmem.errors import UsageError
from hakmem.inspect.control import Control
from hakmem.inspect.errors import GoneError, InspectError
from hakmem.inspect.layout import read_option
from hakmem.inspect.model import Snapshot
from hakmem.inspect.process import ProcessSource
from hakmem.inspect.reading import Session
from hakmem.inspect.targets import take_frozen
from hakmem.tune import execution
from hakmem.tune.execution import Command
from hakmem.tune.recording import Moment, Recording, conclude, moment_of, remember
from hakmem.watch import is_alive, resident_bytes, running_thread

# What the library is told while a program is recorded.
SETTINGS = {"HAKMEM_RESEARCH": "1", "HAKMEM_REQUEST_SIZES": "1"}
# Between two looks, and at least as long as they take together.
PAUSE_S = 0.01
PAUSE_LONG_S = 0.1
# A program that cannot be read so often in a row is none of ours, it seems: it is looked at seldom.
FAILURES_MOST = 20
PAUSE_FAILED_S = 1.0


def build_id(path: str) -> str:
    """The GNU build id of a program's file; empty when there is none to read."""
    return read_build_id(Path(path)) or ""


@dataclass
class _Subject:
    """One program of a process, looked at again and again."""

    pid: int
    began: float
    moments: list[Moment] = field(default_factory=list)
    last: Snapshot | None = None
    threads: int = 0
    heaps_per_class: float = 1.0
    may_freeze: bool = True
    build_id: str = ""

    def look(self, session: Session) -> None:
        if self.last is None:
            # Not by its name: the file may be replaced, or of another root.
            self.build_id = build_id(f"/proc/{running_thread(self.pid)}/exe")
        snapshot = self._take(session)
        self.last = snapshot
        self.threads = max(self.threads, sum(heap.state == "in use" for heap in snapshot.heaps))
        classes = len(set(snapshot.heap_classes["class_index"].tolist()))
        if classes:
            self.heaps_per_class = max(self.heaps_per_class, len(snapshot.heap_classes) / classes)
        at_s = time.monotonic() - self.began
        remember(self.moments, moment_of(snapshot, at_s, resident_bytes(self.pid)))

    def _take(self, session: Session) -> Snapshot:
        """Of a process that stands still, where that is allowed: one that takes a lock for each
        operation leaves a reader little else."""
        if self.may_freeze:
            try:
                return take_frozen(session, residency=False)
            except InspectError:
                self.may_freeze = is_alive(self.pid) and self.last is not None
                if not is_alive(self.pid):
                    raise
        return session.take(residency=False)

    def conclude(self) -> Recording:
        if self.last is None:
            raise UsageError("nothing could be seen of the program: it ran for too short a time")
        seconds = time.monotonic() - self.began
        found = conclude(self.moments, self.last, self.threads, self.heaps_per_class, seconds)
        return replace(found, build_id=self.build_id)


@dataclass(frozen=True)
class Image:
    """One program that a process ran. A wrapper that ends in exec and what follows it have one pid;
    `vector` tells them apart: what the kernel hands each program, with addresses drawn anew."""

    pid: int
    vector: bytes


def image_of(pid: int) -> Image:
    """The program that a process runs now."""
    try:
        return Image(pid, Path(f"/proc/{running_thread(pid)}/auxv").read_bytes())
    except OSError:
        return Image(pid, b"")


class Recorder:
    """A companion of a run: each program that uses hakmem is looked at as often as it may."""

    def __init__(self) -> None:
        self.subjects: dict[Image, _Subject] = {}
        self.sessions: dict[Image, Session] = {}  # of those that run
        self.failures: Counter[Image] = Counter()
        self.due: dict[Image, float] = {}
        self.refusal = ""  # why the latest look that failed did

    def look(self, pids: frozenset[int]) -> float:
        began = time.monotonic()
        images = [image_of(pid) for pid in sorted(pids)]
        for gone in self.sessions.keys() - set(images):
            # Each costs open files, and a program may have run thousands of processes.
            self.sessions.pop(gone).close()
        for image in images:
            if began >= self.due.get(image, began):
                self._look_at(image)
        return max(PAUSE_S, time.monotonic() - began)

    def _look_at(self, image: Image) -> None:
        try:
            if image not in self.sessions:
                self.sessions[image] = Session(ProcessSource(image.pid))
            subject = self.subjects.setdefault(image, _Subject(image.pid, time.monotonic()))
            subject.look(self.sessions[image])
            del self.failures[image]
        except (InspectError, OSError) as error:
            # Not loaded yet, gone, or another program meanwhile.
            self.refusal = str(error)
            self.failures[image] += 1
            if self.failures[image] >= FAILURES_MOST:
                self.due[image] = time.monotonic() + PAUSE_FAILED_S
            if image in self.sessions and self.subjects[image].last is None:
                self.sessions.pop(image).close()
                del self.subjects[image]

    def close(self) -> None:
        for session in self.sessions.values():
            session.close()

    def largest(self) -> Recording:
        """Of the program that asked for most at its peak."""
        seen = [subject for subject in self.subjects.values() if subject.last is not None]
        if not seen:
            why = f"; the latest look: {self.refusal}" if self.refusal else ""
            raise UsageError(
                "nothing could be seen of the program: it has to run for some tenths of a second"
                + why
            )
        return max(
            (subject.conclude() for subject in seen),
            key=lambda recording: recording.peak.requested_bytes,
        )


def record_command(command: Command, timeout_s: float) -> tuple[Recording, execution.Run]:
    """Runs the program once in research mode."""
    recorder = Recorder()
    try:
        done = execution.run(command, SETTINGS, timeout_s, recorder)
        return recorder.largest(), done
    finally:
        recorder.close()


def _switch_off(control: Control) -> None:
    try:
        control.set_option("research", 0)
    except GoneError:
        return
    except InspectError:
        if is_alive(control.source.pid):
            raise


def record_process(pid: int, for_s: float, wait: Callable[[float], bool]) -> Recording:
    """Looks at a running process for so long, with research mode on meanwhile; `wait` sleeps, and
    returns True to stop at once. The process is left as it was; when it ends meanwhile, what was
    seen of it counts."""
    source = ProcessSource(pid)
    with Session(source) as session:
        control = Control(source, session.layout)
        # Not by the threads: one that sleeps or has ended says what was so when it last looked.
        was_on = read_option(source, session.layout, "research") != 0
        control.set_option("research", 1)
        subject = _Subject(pid, time.monotonic())
        try:
            while time.monotonic() - subject.began < for_s:
                began = time.monotonic()
                try:
                    subject.look(session)
                except InspectError as error:
                    is_gone = isinstance(error, GoneError) or not is_alive(pid)
                    if not is_gone or subject.last is None:
                        raise
                    break  # what was seen before it ended stands
                if wait(max(PAUSE_LONG_S, time.monotonic() - began)):
                    break
        finally:
            if not was_on:
                _switch_off(control)
        return subject.conclude()
