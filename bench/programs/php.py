"""php: arrays, strings, objects with cycles, JSON; on malloc instead of its own heap."""

from __future__ import annotations

from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution
from .layout import INPUTS

ROUNDS = 2500


class Php(RealProgram):
    """Without php.ini, and so without loaded extensions: PHP loads those with RTLD_DEEPBIND, which
    binds their free to the C library's whatever is preloaded."""

    name = "php"
    about = "arrays, objects with cycles, serialisation, JSON (USE_ZEND_ALLOC=0)"
    executable = Path("/usr/bin/php8.2")
    packages = ("php-cli",)

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        rounds = scaled(ROUNDS, scale)
        words = [str(self.executable), "-n", str(INPUTS / "churn.php"), str(rounds)]
        done = execution.command(words, environment={"USE_ZEND_ALLOC": "0"})
        return Outcome(rounds, "rounds of 600 objects", done.stdout)
