"""Where the built libraries are."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def build() -> Path:
    """The build tree whose libraries are looked at."""
    return Path(os.environ.get("ABI_BUILD_DIRECTORY", ROOT / "build/release"))
