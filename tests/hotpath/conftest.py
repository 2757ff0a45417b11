"""The library under test, and the instruction table it is held to."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "bench"))


@pytest.fixture(scope="session")
def library() -> Path:
    """libhakmem.so: HAKMEM_LIBRARY, or where `make lib` puts it."""
    path = Path(os.environ.get("HAKMEM_LIBRARY", TOP / "build" / "release" / "libhakmem.so"))
    assert path.is_file(), f"{path} is not there: make lib"
    return path.resolve()
