"""The library under test, and the instruction table it is held to."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "bench"))

from harness import gate  # noqa: E402


@pytest.fixture(scope="session")
def library() -> Path:
    """libhakmem.so as it was built."""
    return gate.library_under_test()
