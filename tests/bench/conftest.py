"""The benchmark's modules, and libraries that a row must be refused for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "bench"))

from harness import workshop  # noqa: E402


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder of the built workload programs."""
    return workshop.build()


@pytest.fixture
def compile_c() -> Callable[..., Path]:
    """Compiles one C text: compile_c(output, source, flag...) returns the output."""

    def compile_text(output: Path, source: str, *flags: str) -> Path:
        file = output.with_suffix(".c")
        file.write_text(source)
        subprocess.run(["cc", "-O1", "-o", str(output), str(file), *flags], check=True)
        return output

    return compile_text
