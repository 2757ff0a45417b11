"""python3 on malloc instead of its own small-object heap: a script, and tests of its own."""

from __future__ import annotations

import re
from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution
from .layout import INPUTS

ROUNDS = 250
# Debian's own build; another python3 may come first in PATH.
EXECUTABLE = Path("/usr/bin/python3")
# Hashes of strings are the same in every run; objects come from malloc.
ENVIRONMENT = {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}
# None of these starts a process of its own.
TESTS = (
    "test_dict",
    "test_re",
    "test_struct",
    "test_collections",
    "test_dataclasses",
    "test_configparser",
)


class Python(RealProgram):
    """Containers, strings, objects with cycles."""

    name = "python3"
    about = "containers, strings, objects with cycles, JSON (PYTHONMALLOC=malloc)"
    executable = EXECUTABLE
    packages = ("python3",)
    quick = True

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        rounds = scaled(ROUNDS, scale)
        words = [str(EXECUTABLE), str(INPUTS / "churn.py"), str(rounds)]
        done = execution.command(words, environment=ENVIRONMENT)
        return Outcome(rounds, "rounds of 300 entries", done.stdout)


class PythonTests(RealProgram):
    """Parts of the interpreter's own test suite, in one process."""

    name = "python3_tests"
    about = f"{len(TESTS)} of its own tests (PYTHONMALLOC=malloc)"
    executable = Path("/usr/lib/python3.11/test/test_list.py")
    packages = ("python3", "libpython3.11-testsuite")

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        tests = TESTS[: scaled(len(TESTS), min(scale, 1.0))]
        words = [str(EXECUTABLE), "-m", "unittest", "-v", *(f"test.{test}" for test in tests)]
        done = execution.command(words, environment=ENVIRONMENT)
        # A line for each test with its outcome; addresses and times are chance.
        outcomes = re.sub(rb" in [0-9.]+s\b|0x[0-9a-f]{6,}", b"", done.stderr)
        return Outcome(len(tests), "test modules", outcomes)
