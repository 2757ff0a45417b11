"""ruby: objects, strings and arrays, with collections in between."""

from __future__ import annotations

from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution
from .layout import INPUTS

ROUNDS = 400


class Ruby(RealProgram):
    """Its threads take turns: one runs at a time."""

    name = "ruby"
    about = "objects, strings, arrays, compacting collections, threads that take turns"
    executable = Path("/usr/bin/ruby3.1")
    packages = ("ruby",)

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        rounds = scaled(ROUNDS, scale, least=4)
        words = [str(self.executable), str(INPUTS / "churn.rb"), str(rounds)]
        return Outcome(rounds, "rounds of 300 arrays", execution.command(words).stdout)
