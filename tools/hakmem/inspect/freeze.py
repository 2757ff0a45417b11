"""Stops a process for a moment, so that its heap can be read without anything moving.

Each thread is seized and interrupted with ptrace, which sends no signal. When this process ends,
however it ends, or the thread that traced, the kernel lets go, and the target goes on. While this
process is stopped it does not: see take_frozen.

A thread may have been stopped in the middle of hakmem: while it moves blocks under a lock, or
between the heap and its magazine. So threads that are inside hakmem's code, or in a function of the
C library that it called, go on for a moment, and all of them while a lock is held, until none is.

A thread that waits in vfork until its child has ended, or runs another program, cannot be stopped
before. It stands still as well: the kernel stops it where it would go on. But the child runs in the
same memory, and may change it.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import struct
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from hakmem.inspect.errors import GoneError, InspectError
from hakmem.watch import has_ended, state_of

PROC = Path("/proc")
PTRACE_CONT, PTRACE_DETACH = 7, 17
PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_GETREGSET = 0x4206, 0x4207, 0x4204
NT_PRSTATUS = 1
EVENT_STOP = 128
WAIT_ALL = 0x40000000  # __WALL: threads as well
# A target that is not outside of hakmem within this time is read as it is.
SETTLE_SECONDS = 2.0
PAUSE_SECONDS = 0.0005
STOP_SECONDS = 10.0
# The child of a vfork usually runs another program within a few milliseconds.
VFORK_SECONDS = 0.1
# The numbers of vfork, clone and clone3. First comes what clone is to do, or where clone3 has it.
VFORK_CALLS = {"x86_64": (58, 56, 435), "aarch64": (None, 220, 435)}
CLONE_VFORK = 0x4000
UNINTERRUPTIBLE = b"D"
# How much of a stack is searched for who called: memmove and memset have nothing there but where
# they return to, and clock_gettime has two frames of a few words.
CALLERS_BYTES = 64
# What aarch64 calls a link register, where a function returns to that calls none itself.
AARCH64_LINK = 30


@dataclass
class _Thread:
    """`pending` is a signal that arrived as it was stopped; it gets it when it goes on. `grouped`:
    stopped by job control anyway. `vforked`: not stopped, but before it goes on, see above."""

    stopped: bool = False
    pending: int = 0
    grouped: bool = False
    vforked: bool = False


class _Piece(ctypes.Structure):
    """struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("bytes", ctypes.c_size_t))


class Freeze:
    """A context in which process `pid` does not move. `code`: address ranges of hakmem's code;
    `holds_lock` says whether a lock of the heap is held, and may raise InspectError. `exact` is
    False when some thread did not leave hakmem in time, or the child of a vfork runs."""

    def __init__(
        self,
        pid: int,
        code: Sequence[tuple[int, int]],
        holds_lock: Callable[[], bool],
    ) -> None:
        self.pid = pid
        self.exact = False
        self._code = code
        self._holds_lock = holds_lock
        self._threads: dict[int, _Thread] = {}
        self._ended: set[int] = set()  # threads that do not move any more, still listed
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.ptrace.argtypes = [ctypes.c_long] * 4
        self._libc.ptrace.restype = ctypes.c_long

    def __enter__(self) -> Freeze:
        try:
            self._stop_all()
            self._leave_hakmem()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._release()

    @property
    def is_shared(self) -> bool:
        """Whether the child of a vfork may run in the memory of the process."""
        return any(thread.vforked for thread in self._threads.values())

    def _ptrace(self, request: int, thread: int, data: int = 0) -> int:
        """0, or the number of the error."""
        ctypes.set_errno(0)
        if self._libc.ptrace(request, thread, 0, data) >= 0:
            return 0
        return ctypes.get_errno()

    def _task_numbers(self) -> list[int]:
        try:
            return [int(task.name) for task in (PROC / str(self.pid) / "task").iterdir()]
        except (OSError, ValueError):
            raise GoneError(f"process {self.pid} ended while it was being stopped") from None

    def _stop_all(self) -> None:
        """Until a look finds no thread that is not stopped: one that runs may start others."""
        deadline = time.monotonic() + STOP_SECONDS
        while True:
            known = self._threads.keys() | self._ended
            fresh = [number for number in self._task_numbers() if number not in known]
            threads = self._threads.values()
            if not fresh and all(thread.stopped or thread.vforked for thread in threads):
                if not self._threads:
                    raise GoneError(f"process {self.pid} has ended")
                return
            for number in fresh:
                self._seize(number)
            self._interrupt([number for number in fresh if number in self._threads], deadline)

    def _place(self, number: int) -> Path:
        return PROC / str(self.pid) / "task" / str(number)

    def _seize(self, number: int) -> None:
        problem = self._ptrace(PTRACE_SEIZE, number)
        if problem == 0:
            self._threads[number] = _Thread()
        elif problem == errno.EPERM and has_ended(self._place(number)):
            self._ended.add(number)
        elif problem == errno.EPERM:
            raise InspectError(
                f"process {self.pid} cannot be stopped: a debugger has it already, or tracing it "
                "is not permitted (/proc/sys/kernel/yama/ptrace_scope)"
            )
        elif problem != errno.ESRCH:
            raise InspectError(f"process {self.pid} cannot be stopped: {os.strerror(problem)}")

    def _interrupt(self, numbers: Sequence[int], deadline: float) -> None:
        for number in numbers:
            self._ptrace(PTRACE_INTERRUPT, number)
        patience = time.monotonic() + VFORK_SECONDS
        for number in numbers:
            self._await_stop(number, patience, deadline)

    def _await_stop(self, number: int, patience: float, deadline: float) -> None:
        while not self._is_known(number):
            now = time.monotonic()
            if now > patience and self._waits_in_vfork(number):
                self._threads[number].vforked = True
                return
            if now > deadline:
                raise InspectError(
                    f"process {self.pid} cannot be stopped: thread {number} waits in the "
                    "kernel and does not react"
                )
            time.sleep(PAUSE_SECONDS)

    def _is_known(self, number: int) -> bool:
        """Whether a thread that was interrupted has stopped, or is no more."""
        try:
            waited, status = os.waitpid(number, WAIT_ALL | os.WNOHANG)
        except ChildProcessError:
            del self._threads[number]
            return True
        if waited == 0:
            if number == self.pid and has_ended(self._place(number)):
                # A main thread is told of last of all, when what we have of the others is too.
                self._ended.add(number)
                del self._threads[number]
                return True
            return False
        if not os.WIFSTOPPED(status):
            del self._threads[number]
            return True
        is_event = status >> 16 == EVENT_STOP
        reason = os.WSTOPSIG(status)
        self._threads[number] = _Thread(
            stopped=True,
            pending=0 if is_event else reason,
            grouped=is_event and reason != signal.SIGTRAP,
        )
        return True

    def _waits_in_vfork(self, number: int) -> bool:
        try:
            words = (self._place(number) / "syscall").read_text(encoding="ascii").split()
            call, argument = int(words[0]), int(words[1], 16)
            if state_of(self._place(number)) != UNINTERRUPTIBLE:
                return False
            vfork, clone, clone3 = VFORK_CALLS[platform.machine()]
            if call == clone3:
                with (self._place(number) / "mem").open("rb", buffering=0) as memory:
                    memory.seek(argument)
                    argument = int.from_bytes(memory.read(8), sys.byteorder)
        except (OSError, OverflowError, ValueError, LookupError):
            return False
        return call == vfork or (call in {clone, clone3} and argument & CLONE_VFORK != 0)

    def _leave_hakmem(self) -> None:
        deadline = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < deadline:
            for number in [number for number, thread in self._threads.items() if thread.vforked]:
                self._is_known(number)
            inside = (
                list(self._threads)
                if self._holds_lock()
                else [number for number in self._threads if self._is_inside(number)]
            )
            if not inside:
                self.exact = not self.is_shared
                return
            moving = [
                number
                for number in inside
                if self._threads[number].stopped and not self._threads[number].grouped
            ]
            if not moving and not self.is_shared:
                return
            for number in moving:
                self._go_on(number, PTRACE_CONT)
            time.sleep(PAUSE_SECONDS)
            self._interrupt(
                [number for number in moving if number in self._threads],
                time.monotonic() + STOP_SECONDS,
            )
            self._stop_all()

    def _is_inside(self, number: int) -> bool:
        """Whether a stopped thread would go on in hakmem's code, or in what that called. One that
        sleeps in a system call stays there; hakmem makes its own without the C library."""
        try:
            words = (self._place(number) / "syscall").read_text(encoding="ascii").split()
            stack, at = int(words[-2], 16), int(words[-1], 16)
        except (OSError, ValueError, IndexError):
            return False
        if self._is_code(at):
            return True
        return words[0] == "-1" and any(map(self._is_code, self._callers(number, stack)))

    def _is_code(self, address: int) -> bool:
        return any(start <= address < end for start, end in self._code)

    def _callers(self, number: int, stack: int) -> list[int]:
        """Where a function that calls few others, or none, may return to."""
        callers: list[int] = []
        try:
            with (self._place(number) / "mem").open("rb", buffering=0) as memory:
                memory.seek(stack)
                top = memory.read(CALLERS_BYTES)
            callers += struct.unpack_from(f"={len(top) // 8}Q", top)
        except (OSError, OverflowError):
            pass
        if platform.machine() == "aarch64":
            callers.append(self._link(number))
        return callers

    def _link(self, number: int) -> int:
        registers = (ctypes.c_uint64 * (AARCH64_LINK + 1))()
        piece = _Piece(ctypes.addressof(registers), ctypes.sizeof(registers))
        if self._libc.ptrace(PTRACE_GETREGSET, number, NT_PRSTATUS, ctypes.addressof(piece)) < 0:
            return 0
        return int(registers[AARCH64_LINK])

    def _go_on(self, number: int, request: int) -> None:
        thread = self._threads[number]
        if self._ptrace(request, number, thread.pending) == errno.ESRCH and thread.stopped:
            self._threads.pop(number, None)
            return
        thread.stopped, thread.pending = False, 0

    def _release(self) -> None:
        for number in list(self._threads):
            self._go_on(number, PTRACE_DETACH)
        self._threads.clear()
