"""One program on one allocator: how it ends."""

from __future__ import annotations

import resource
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ABORT = "ABORT"
FAULT = "FAULT"
WARNED = "warned"
IGNORED = "ignored"
CORRUPT = "CORRUPT"
TIMEOUT = "TIMEOUT"
OK = "ok"
BAD = "bad"
ABSENT = "-"
# The program could not make its mistake: the board is wrong, not the allocator.
BROKEN = "BROKEN"

STATUSES = {3: CORRUPT, 4: BAD, 5: ABSENT}
# abort(), and the trap instructions that some allocators end with.
ABORTS = (signal.SIGABRT, signal.SIGILL, signal.SIGTRAP)
FAULTS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE)
CPU_SECONDS = 30
SECONDS = 120


class ServedByAnotherError(Exception):
    """A run was not on the allocator it was meant for."""


@dataclass(frozen=True)
class Run:
    """How a process ended (None: it did not), and what it said."""

    status: int | None
    said: tuple[str, ...]  # lines of stdout
    complaints: tuple[str, ...]  # lines of stderr


def _limits() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 1))


def start(program: Path, environment: Mapping[str, str], seconds: float = SECONDS) -> Run:
    """Runs a program to its end, without a core file."""
    try:
        done = subprocess.run(
            [program],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            preexec_fn=_limits,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Run(None, (), ())
    return Run(done.returncode, tuple(done.stdout.splitlines()), tuple(done.stderr.splitlines()))


def served_by(run: Run) -> list[str]:
    """The files that the process says serve malloc, free, realloc and malloc_usable_size."""
    return [line.removeprefix("served ") for line in run.said if line.startswith("served ")]


def _of_signal(number: int) -> str:
    if number in ABORTS:
        return ABORT
    if number in FAULTS:
        return FAULT
    return TIMEOUT if number in (signal.SIGXCPU, signal.SIGKILL) else BROKEN


def _of_exit(run: Run) -> str:
    if run.status == 0:
        if "sound" not in run.said:
            return BROKEN
        return WARNED if run.complaints else IGNORED
    if run.status in STATUSES:
        return STATUSES[run.status]
    # Some allocators end the process by exit, with a message.
    return ABORT if run.status not in (None, 1) and run.complaints else BROKEN


def judge(run: Run, *, contract: bool) -> str:
    """The class of a run."""
    if run.status is None:
        return TIMEOUT
    found = _of_signal(-run.status) if run.status < 0 else _of_exit(run)
    if not contract or found in (ABSENT, BROKEN):
        return found
    return OK if found in (IGNORED, WARNED) else BAD
