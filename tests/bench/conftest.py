"""The benchmark's modules, its command, and libraries that a row must be refused for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "bench"))
sys.path.insert(0, str(TOP / "tools"))

from harness import workshop  # noqa: E402
from tests.patience import HANG_SECONDS  # noqa: E402

Bench = Callable[..., subprocess.CompletedProcess[str]]
Rows = Callable[..., list[dict[str, Any]]]


def pytest_configure(config: pytest.Config) -> None:
    mark = "needs_bench_setup: runs a program that only `hakmem bench setup` installs"
    config.addinivalue_line("markers", mark)


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


@pytest.fixture
def bench(built: Path) -> Bench:
    """Runs `hakmem bench` with these arguments."""
    del built

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, str(TOP / "hakmem"), "bench", *map(str, arguments)]
        return subprocess.run(
            line, capture_output=True, text=True, check=False, timeout=HANG_SECONDS
        )

    return run


@pytest.fixture
def rows() -> Rows:
    """Raw rows of a result folder."""

    def read(folder: Path, file: str = "rows.jsonl") -> list[dict[str, Any]]:
        path = folder / file
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    return read
