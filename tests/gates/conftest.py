"""The library under test, and the committed table it is held to."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
sys.path.insert(0, str(TOP / "bench"))

from harness import gates  # noqa: E402


@pytest.fixture(scope="session")
def library() -> Path:
    """libhakmem.so: HAKMEM_LIBRARY, or where `make lib` puts it."""
    path = Path(os.environ.get("HAKMEM_LIBRARY", TOP / "build" / "release" / "libhakmem.so"))
    assert path.is_file(), f"{path} is not there: make lib"
    return path.resolve()


@pytest.fixture(scope="session")
def table() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((HERE / "table.json").read_text())
    return loaded


@pytest.fixture(scope="session")
def start(library: Path) -> dict[str, int]:
    """The calls of a process that does nothing."""
    return gates.measure_start(library)
