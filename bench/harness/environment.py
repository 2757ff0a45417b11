"""The environment of a measured process, and how one is run and ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from .errors import MeasureError

# Nothing of the caller's environment reaches a measured process.
CLEAN_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
ERROR_CHARACTERS = 500
# A run that takes longer hangs, on a slow machine too.
TIMEOUT_SECONDS = 300

# Process groups under way, so that an interrupted session leaves none behind.
_groups: set[int] = set()


@contextmanager
def pinned(cpu: int | None) -> Iterator[None]:
    """Runs the body, and whatever it starts, on one CPU."""
    before = os.sched_getaffinity(0)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _end(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


def end_all() -> None:
    """Ends what other threads of this process have under way."""
    for group in list(_groups):
        _end(group)


def run_alone(
    command: Sequence[str], environment: Mapping[str, str], timeout_seconds: float
) -> str:
    """Runs a program in a session of its own and returns its output.

    When it takes too long, or this process is interrupted, all that it started ends with it.
    """
    try:
        process = subprocess.Popen(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise MeasureError(f"cannot be started: {error}") from error
    _groups.add(process.pid)
    with process:
        try:
            output, errors = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise MeasureError(f"still running after {timeout_seconds:.0f} s") from error
        finally:
            # The group outlives its leader when it left children behind.
            _end(process.pid)
            _groups.discard(process.pid)
    if process.returncode != 0:
        raise MeasureError(
            f"exit status {process.returncode}: {errors.strip()[-ERROR_CHARACTERS:]}"
        )
    return output
