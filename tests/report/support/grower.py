"""A process that grows when it is told to."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

from tests.inspect.support.targets import await_line
from tests.patience import HANG_SECONDS


@dataclass
class Grower:
    process: subprocess.Popen[bytes]

    @property
    def pid(self) -> str:
        return str(self.process.pid)

    def grow(self, count: int, size: int) -> None:
        """Allocates and keeps `count` more blocks of `size` bytes."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count} {size}\n".encode())
        self.process.stdin.flush()
        await_line(self.process, "done")

    def end(self) -> None:
        """Lets it end by itself, and reaps it."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"end\n")
        self.process.stdin.flush()
        self.process.wait(timeout=HANG_SECONDS)
