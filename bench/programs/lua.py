"""lua: tables, strings, closures and coroutines."""

from __future__ import annotations

from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution
from .layout import INPUTS

ROUNDS = 500


class Lua(RealProgram):
    """The plain interpreter: every object is a malloc."""

    name = "lua"
    about = "tables, strings, closures, coroutines that live for different times"
    executable = Path("/usr/bin/lua5.4")
    packages = ("lua5.4",)
    quick = True

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        rounds = scaled(ROUNDS, scale)
        words = [str(self.executable), str(INPUTS / "churn.lua"), str(rounds)]
        return Outcome(rounds, "rounds of 400 objects", execution.command(words).stdout)
