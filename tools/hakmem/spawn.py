"""Runs one program in the foreground, as if it had been started directly.

Its standard streams and terminal are ours, and so is its process group: the terminal's signals
reach it by themselves."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hakmem import watch
from hakmem.errors import EXIT_SIGNAL, CannotExecuteError, HakmemError, NotFoundError
from hakmem.watch import Watch

# The command's own: what cannot be caught, what stops it and lets it go on, the end of a child, and
# faults.
OWN = {
    signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT,
    signal.SIGCHLD, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP,
    signal.SIGSYS, signal.SIGPIPE, signal.SIGXFSZ,
}  # fmt: skip
FORWARDED = tuple(sorted(signal.valid_signals() - OWN))
# Python ignores these two at its start, and forgets what they were: the program gets the default.
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
SI_KERNEL = 0x80
# A signal that somebody sent to the whole group should end the program before it is sent again.
FORWARD_DELAY_S = 0.05


@dataclass(frozen=True)
class Ended:
    """How the program ended: `code` is its exit status, or -n when signal n killed it.
    `peak_rss_bytes`: of it, what it ran before by exec, and the children it waited for, the
    largest; 0 where the kernel's figure may be ours, which a started process begins with."""

    pid: int
    code: int
    wall_s: float
    user_s: float
    system_s: float
    peak_rss_bytes: int = 0
    left_core: bool = False

    @property
    def exit_status(self) -> int:
        return self.code if self.code >= 0 else EXIT_SIGNAL - self.code

    @property
    def signal_name(self) -> str | None:
        if self.code >= 0:
            return None
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"


def _start(path: str, arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        # The kernel would throw the program's exit status away.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, [*FORWARDED, signal.SIGCHLD])

    def spawn(path: str, arguments: Sequence[str]) -> int:
        return os.posix_spawn(
            path, list(arguments), dict(environment), setsigmask=mask, setsigdef=RESTORED
        )

    try:
        try:
            return spawn(path, arguments)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # What execvp does with a file that the kernel does not know.
            return spawn("/bin/sh", ["/bin/sh", path, *arguments[1:]])
    except OSError as error:
        if error.errno == errno.E2BIG:
            raise HakmemError(f"{path}: {error.strerror}") from None
        kind = NotFoundError if error.errno == errno.ENOENT else CannotExecuteError
        raise kind(f"{path}: {error.strerror}") from None


def _has_reached_the_group(info: signal.struct_siginfo) -> bool:
    """A signal from the terminal went to the program too. Ours alone is that of a timer, which our
    caller may have set before exec; and of a terminal that hangs up the kernel tells the leader of
    the session."""
    if info.si_code != SI_KERNEL or info.si_signo == signal.SIGALRM:
        return False
    return info.si_signo != signal.SIGHUP or os.getsid(0) != os.getpid()


class Running:
    """The started program. Create it in the main thread: it takes over the process's signals."""

    def __init__(
        self,
        path: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        library: Path | None = None,
    ) -> None:
        self.started = time.monotonic()
        self.pid = _start(path, arguments, environment)
        self.watch = Watch(self.pid, library)
        self._forward_later: list[tuple[float, int]] = []

    def wait(self) -> Ended:
        """Until the program has ended; looks at its processes and passes signals on meanwhile."""
        awaited = {*FORWARDED, signal.SIGCHLD}
        look_due = self.started
        while True:
            ended = self._reap()
            if ended is not None:
                return ended
            now = time.monotonic()
            if now >= look_due:
                self.watch.look()
                look_due = time.monotonic() + self.watch.interval_s
            self._forward_due(now)
            dues = [look_due, *(due for due, _ in self._forward_later)]
            info = signal.sigtimedwait(awaited, max(0.0, min(dues) - time.monotonic()))
            if info is None or info.si_signo == signal.SIGCHLD:
                continue
            if not _has_reached_the_group(info):
                self._forward_later.append((time.monotonic() + FORWARD_DELAY_S, info.si_signo))

    def _forward_due(self, now: float) -> None:
        for due, number in self._forward_later:
            if due <= now:
                os.kill(self.pid, number)
        self._forward_later = [entry for entry in self._forward_later if entry[0] > now]

    def _reap(self) -> Ended | None:
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        peak_rss_bytes = usage.ru_maxrss * 1024
        return Ended(
            pid=pid,
            code=os.waitstatus_to_exitcode(status),
            wall_s=time.monotonic() - self.started,
            user_s=usage.ru_utime,
            system_s=usage.ru_stime,
            peak_rss_bytes=peak_rss_bytes if peak_rss_bytes > watch.peak_rss_bytes("self") else 0,
            left_core=os.WCOREDUMP(status),
        )
