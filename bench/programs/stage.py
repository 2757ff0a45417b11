"""A fresh directory in which programs are started one after the other."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from .process import Account, Finished, Program, ProgramFailedError, Running, excerpt


def nobody() -> Account | None:
    """An account for programs that refuse to run as root; None when the caller is not root."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return Account(entry.pw_uid, entry.pw_gid)


class Stage:
    """Where a run happens: `directory` is the programs' own, the rest of `base` is the caller's."""

    def __init__(self, base: Path, launcher: Path) -> None:
        self.base = base
        self.directory = base / "work"
        self.scratch = base / "scratch"
        self.steps = 0
        self._launcher = launcher
        for directory in (self.directory, self.scratch):
            directory.mkdir(mode=0o755)

    def start(self, program: Program, stdin: bytes | None = None) -> Running:
        """Starts a program; what it prints goes to files of its own."""
        self.steps += 1
        folder = self.scratch / str(self.steps)
        folder.mkdir()
        input_path = None
        if stdin is not None:
            input_path = folder / "stdin"
            input_path.write_bytes(stdin)
        return Running(self._launcher, program, folder, input_path)

    def finish(self, running: Running, *, status: int = 0, timeout_s: float) -> Finished:
        """Waits for the program's own end, which must be with this status."""
        done = running.finish(timeout_s)
        if done.status != status:
            raise ProgramFailedError(
                f"status {done.status} instead of {status}: {running.program.reproduction()}\n"
                f"{excerpt(done.stdout)}\n{excerpt(done.stderr)}"
            )
        return done
