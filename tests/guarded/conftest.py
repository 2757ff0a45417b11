"""Runs a program on the library under test and keeps what it said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.guarded.support import Outcome, Run
from tests.patience import HANG_SECONDS


def _needed(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        pytest.fail(f"{name} is not set: run through ctest")
    return value


@pytest.fixture(scope="session")
def library() -> Path:
    return Path(_needed("HAKMEM_LIBRARY"))


@pytest.fixture(scope="session")
def programs() -> Path:
    """The directory of this directory's programs."""
    return Path(_needed("GUARDED_PROGRAMS"))


@pytest.fixture(scope="session")
def run(library: Path, programs: Path) -> Run:
    """run(program, *arguments, mode=..., OPTION=value...): a name without a slash is a program of
    this directory."""

    def run_program(
        program: str, *arguments: str, mode: str = "fast", preload: bool = True, **options: object
    ) -> Outcome:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("HAKMEM_")}
        environment["HAKMEM_MODE"] = mode
        environment |= {f"HAKMEM_{name.upper()}": str(v) for name, v in options.items()}
        if preload:
            environment["LD_PRELOAD"] = str(library)
            environment["BEHAVIOUR_ALLOCATOR"] = "hakmem"
        path = program if "/" in program else str(programs / f"guarded_{program}")
        done = subprocess.run(
            [path, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return run_program
