"""Real programs as processes: commands that end by themselves and servers that are stopped.

Both are started through the launcher (launch.c), which gives the new environment to the program
alone, measures it, and takes it along, with all that it started, when the caller is killed.
"""

import contextlib
import errno
import math
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.processes import process_tree

READY_SECONDS_MAX = 120.0
STOP_SECONDS_MAX = 120.0
KILL_SECONDS_MAX = 60.0
EXCERPT_BYTES = 3000
INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class ProgramFailedError(AssertionError):
    """A program under test crashed, hung, or ended with another status than it should."""


@dataclass(frozen=True)
class Usage:
    """What one program run cost, with the children that it waited for."""

    wall_ns: int
    user_us: int
    system_us: int
    # Of the largest of the processes.
    peak_kib: int
    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int

    @property
    def wall_s(self) -> float:
        """From start to end."""
        return self.wall_ns / 1e9

    @property
    def cpu_s(self) -> float:
        """Processor time, user and system."""
        return (self.user_us + self.system_us) / 1e6


@dataclass(frozen=True)
class Finished:
    """A program that has ended."""

    status: int
    stdout: bytes
    stderr: bytes
    usage: Usage


@dataclass(frozen=True)
class Account:
    """The user and group that a program runs as; None stays with the caller's."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Program:
    """What to execute, where, and in which environment."""

    words: Sequence[str]
    directory: Path
    environment: Mapping[str, str]
    account: Account | None = None

    def reproduction(self) -> str:
        """The shell line that does the same by hand."""
        variables = " ".join(
            f"{name}={shlex.quote(value)}" for name, value in self.environment.items()
        )
        return (
            f"cd {shlex.quote(str(self.directory))} && env -i {variables} {shlex.join(self.words)}"
        )


def excerpt(data: bytes) -> str:
    """The end of some output, for a failure message."""
    return data[-EXCERPT_BYTES:].decode(errors="replace")


def status_kib(pid: int, field: str) -> int:
    """One KiB field of /proc/PID/status; 0 for a process that is gone."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            name, _, value = line.partition(":")
            if name == field:
                return int(value.split()[0])
    return 0


def backtraces(pid: int) -> str:
    """What the threads of a hung process are doing, when a debugger is there to ask."""
    debugger = shutil.which("gdb")
    if debugger is None:
        return "(gdb is not installed: no backtrace)"
    texts = []
    for member in process_tree(pid):
        command = [debugger, "-p", str(member), "-batch", "-ex", "thread apply all backtrace 20"]
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(command, capture_output=True, timeout=60, check=False)
            texts.append(f"process {member}:\n{excerpt(done.stdout)}")
    return "\n".join(texts)


@contextlib.contextmanager
def interrupt_held() -> Iterator[None]:
    """Ctrl-C inside, and what is handled like it, comes at the end of the block: nobody would know
    of a process half started."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in INTERRUPTIONS}
    held = {number: handler for number, handler in handlers.items() if callable(handler)}
    came: list[int] = []
    for number in held:
        signal.signal(number, lambda number, _frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])


def await_end(process: subprocess.Popen[bytes], timeout_s: float) -> None:
    """As Popen.wait(timeout_s), at the moment of the end: that one looks every 50 ms, and what a
    client's end is timed by would come in such steps. TimeoutExpired when it still runs. Without a
    descriptor of the process (a filter of system calls, no descriptors left) it is Popen.wait."""
    if process.poll() is not None:
        return
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        process.wait(timeout_s)
        return
    ends = select.poll()
    ends.register(descriptor, select.POLLIN)
    try:
        ended = bool(ends.poll(math.ceil(timeout_s * 1000)))
    finally:
        os.close(descriptor)
    if not ended:
        raise subprocess.TimeoutExpired(process.args, timeout_s)
    process.wait()


class Running:
    """A program that has been started; `finish` or `kill` must follow."""

    def __init__(self, launcher: Path, program: Program, scratch: Path, stdin: Path | None) -> None:
        self.program = program
        self._gone = False
        self._stdout_path = scratch / "stdout"
        self._stderr_path = scratch / "stderr"
        try:
            with interrupt_held():
                self._launch(launcher, stdin)
                first = self._report.readline().split()
        except KeyboardInterrupt:
            self.kill()
            raise
        if len(first) != 2:
            self.kill()
            raise ProgramFailedError(f"cannot start {program.words[0]}: {excerpt(self.stderr())}")
        self.pid = int(first[1])

    def _launch(self, launcher: Path, stdin: Path | None) -> None:
        program, account = self.program, self.program.account
        read_end, write_end = os.pipe()
        words = [str(launcher), str(write_end)]
        words += [f"{name}={value}" for name, value in program.environment.items()]
        words += ["--", *program.words]
        with (
            (stdin or Path(os.devnull)).open("rb") as input_file,
            self._stdout_path.open("wb") as stdout_file,
            self._stderr_path.open("wb") as stderr_file,
        ):
            self._launcher = subprocess.Popen(
                words,
                cwd=program.directory,
                env={"PATH": program.environment["PATH"]},
                stdin=input_file,
                stdout=stdout_file,
                stderr=stderr_file,
                pass_fds=[write_end],
                start_new_session=True,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
            )
        os.close(write_end)
        self._report = os.fdopen(read_end)

    def stdout(self) -> bytes:
        return self._stdout_path.read_bytes()

    def stderr(self) -> bytes:
        return self._stderr_path.read_bytes()

    def alive(self) -> bool:
        return self._launcher.poll() is None

    def finish(self, timeout_s: float) -> Finished:
        """Wait for the program's own end."""
        try:
            await_end(self._launcher, timeout_s)
        except subprocess.TimeoutExpired:
            hung = backtraces(self.pid)
            self.kill()
            raise ProgramFailedError(
                f"still running after {timeout_s:.0f} s: {self.program.reproduction()}\n{hung}"
            ) from None
        except BaseException:  # Ctrl-C, above all.
            self.kill()
            raise
        self._end_group()
        lines = (line.split() for line in self._report.read().splitlines())
        report = {name: int(value) for name, value in lines}
        self._report.close()
        status = report.pop("status")
        return Finished(status, self.stdout(), self.stderr(), Usage(**report))

    def _end_group(self) -> None:
        """What the program left behind: it is in the launcher's group, unless it left that. A group
        keeps its number as long as it has a member."""
        self._gone = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._launcher.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the program and what it started, however far it has come; nothing after `finish`."""
        if self._gone:
            return
        # The launcher is left alone, so that it reaps its child and ends as well.
        members = process_tree(self._launcher.pid)[1:] if self.alive() else []
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        try:
            self._launcher.wait(KILL_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._launcher.kill()
            self._launcher.wait()
        self._end_group()
        self._report.close()
        deadline = time.monotonic() + KILL_SECONDS_MAX
        while any(status_kib(member, "VmRSS") for member in members):
            if time.monotonic() > deadline:
                raise ProgramFailedError(f"cannot be killed: {self.program.reproduction()}")
            time.sleep(0.005)


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Server:
    """A program that serves one loopback port until it is told to stop."""

    def __init__(self, running: Running, port: int) -> None:
        self.running = running
        self.port = port
        self.pid = running.pid
        # Of the whole life, known after the orderly end.
        self.usage: Usage | None = None

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=READY_SECONDS_MAX)

    def processes(self) -> list[int]:
        return process_tree(self.pid)

    def peak_kib(self) -> int:
        """The peak resident size of the largest process of the server."""
        return max(status_kib(pid, "VmHWM") for pid in self.processes())

    def wait_ready(self) -> bool:
        """True when the port answers, False when the program ended first."""
        deadline = time.monotonic() + READY_SECONDS_MAX
        while time.monotonic() < deadline:
            if not self.running.alive():
                return False
            with contextlib.suppress(OSError), self.connect():
                return True
            time.sleep(0.01)
        hung = backtraces(self.pid)
        raise ProgramFailedError(f"does not listen: {self.running.program.reproduction()}\n{hung}")

    def stop(self, stop_signal: signal.Signals) -> None:
        """Ask the program to end; it must do so in order, with status 0."""
        os.kill(self.pid, stop_signal)
        done = self.running.finish(STOP_SECONDS_MAX)
        if done.status != 0:
            raise ProgramFailedError(
                f"status {done.status} after {stop_signal.name}: "
                f"{self.running.program.reproduction()}\n{excerpt(done.stdout + done.stderr)}"
            )
        self.usage = done.usage


@contextlib.contextmanager
def serving(
    start: Callable[[int], Running], stop_signal: signal.Signals = signal.SIGTERM
) -> Iterator[Server]:
    """A server that answers on a free port; it is gone when the block is left, also by an error."""
    attempts_left = 3
    while True:
        port = free_port()
        running = start(port)
        server = Server(running, port)
        try:
            if server.wait_ready():
                break
        except BaseException:
            running.kill()
            raise
        done = running.finish(STOP_SECONDS_MAX)
        attempts_left -= 1
        # Another process may have taken the port between the choice and the bind.
        taken = os.strerror(errno.EADDRINUSE).encode() in done.stdout + done.stderr
        if attempts_left == 0 or not taken:
            raise ProgramFailedError(
                f"status {done.status} at start: {running.program.reproduction()}\n"
                f"{excerpt(done.stdout + done.stderr)}"
            )
    try:
        yield server
        server.stop(stop_signal)
    finally:
        running.kill()  # Also where it has crashed: its children may live.


def in_threads(tasks: Sequence[Callable[[], None]], timeout_s: float) -> None:
    """Run client tasks side by side; the first error of any of them is raised here."""
    errors: list[BaseException] = []

    def guarded(task: Callable[[], None]) -> None:
        try:
            task()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(task,), daemon=True) for task in tasks]
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    if errors:
        raise errors[0]
    if any(thread.is_alive() for thread in threads):
        raise ProgramFailedError(f"clients still wait for the server after {timeout_s:.0f} s")
