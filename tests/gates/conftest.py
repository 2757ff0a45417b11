"""The library under test, and the committed table it is held to."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
sys.path.insert(0, str(TOP / "bench"))

from harness import gate, gates  # noqa: E402


@pytest.fixture(scope="session")
def library() -> Path:
    """libhakmem.so as it was built."""
    return gate.library_under_test()


@pytest.fixture(scope="session")
def table() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((HERE / "table.json").read_text())
    return loaded


@pytest.fixture(scope="session")
def start(library: Path) -> dict[str, int]:
    """The calls of a process that does nothing."""
    return gates.measure_start(library)
