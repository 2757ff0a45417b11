"""Where the tests of tune find it, and the programs they tune."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import HANG_SECONDS

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "bench")]


@pytest.fixture(scope="session")
def demand_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("programs") / "demand"
    source = Path(__file__).parent / "programs" / "demand.c"
    subprocess.run(
        ["gcc", "-O1", "-fno-builtin", "-o", program, source], check=True, timeout=HANG_SECONDS
    )
    return program
