"""perl: hashes of arrays, regular expressions, sorting."""

from __future__ import annotations

from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution
from .layout import INPUTS

ROUNDS = 400


class Perl(RealProgram):
    """The script works alone first, then in three threads, then in a forked child."""

    name = "perl"
    about = "hashes of arrays, regular expressions, sorting; threads, fork"
    executable = Path("/usr/bin/perl")
    packages = ("perl",)
    threads = 3

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        rounds = scaled(ROUNDS, scale, least=4)
        words = [str(self.executable), str(INPUTS / "churn.pl"), str(rounds)]
        done = execution.command(words, environment={"PERL_HASH_SEED": "0"})
        return Outcome(rounds, "rounds of 300 entries", done.stdout)
