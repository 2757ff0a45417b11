"""node: buffers, compression and messages in worker threads."""

from __future__ import annotations

from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution
from .layout import INPUTS

TURNS = 100
GENERATIONS = 2


class Node(RealProgram):
    """JavaScript objects do not lie in blocks of malloc; buffers, zlib and V8's own data do."""

    name = "node"
    about = "worker threads, buffers outside the JavaScript heap, zlib"
    executable = Path("/usr/bin/node")
    packages = ("nodejs",)
    threads = 4

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        turns = scaled(TURNS, scale)
        script = str(INPUTS / "workers.js")
        done = execution.command([str(self.executable), script, str(turns), str(GENERATIONS)])
        return Outcome(turns * 4 * GENERATIONS, "turns of 40 buffers", done.stdout)
