"""sqlite3: tables, indices, full text, JSON, windows and VACUUM in memory."""

from __future__ import annotations

from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution
from .layout import INPUTS

ROWS = 60_000


class Sqlite(RealProgram):
    """The database lies in memory, and so in blocks of the allocator."""

    name = "sqlite3"
    about = "joins, full text, JSON, windows, VACUUM; the database in memory"
    executable = Path("/usr/bin/sqlite3")
    packages = ("sqlite3",)
    quick = True

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        rows = scaled(ROWS, scale, least=100)
        script = f".parameter set :rows {rows}\n".encode() + (INPUTS / "tables.sql").read_bytes()
        words = [str(self.executable), "-batch", "-bail", ":memory:"]
        return Outcome(rows, "rows", execution.command(words, stdin=script).stdout)
