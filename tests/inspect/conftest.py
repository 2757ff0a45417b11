"""Where the tests of the reader find it, and the program that most of them read."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from tests.inspect.support.targets import compile_program  # noqa: E402


@pytest.fixture(scope="session")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("truth.c", tmp_path_factory.mktemp("programs") / "truth")
