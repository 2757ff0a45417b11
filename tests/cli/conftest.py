"""Fixtures for the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from tests.cli.support import (  # noqa: E402
    HAKMEM,
    PROGRAMS,
    Compile,
    Outcome,
    Run,
    Summarise,
    Summary,
    call,
    library,
)
from tests.patience import HANG_SECONDS  # noqa: E402


@pytest.fixture
def run() -> Run:
    """hakmem run on the library under test: run(program, *args, options=[...], ...)."""

    def run_on_library(
        *command: str | Path, options: Sequence[str | Path] = (), **more: Any
    ) -> Outcome:
        words = [*HAKMEM, "run", "--library", library(), *options, "--", *command]
        return call(words, **more)

    return run_on_library


@pytest.fixture
def summarise(run: Run, tmp_path: Path) -> Summarise:
    """hakmem run with its summary as JSON, read back."""

    def run_and_read(
        *command: str | Path, options: Sequence[str | Path] = (), **more: Any
    ) -> Summary:
        file = tmp_path / "summary.json"
        outcome = run(*command, options=["--json", "--summary-file", file, *options], **more)
        facts = json.loads(file.read_text(encoding="utf-8"))
        return Summary(outcome.status, outcome.stdout, outcome.stderr, facts)

    return run_and_read


@pytest.fixture(scope="session")
def build_program(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """build_program("plain.c", "-static") is the path of the compiled program."""
    directory = tmp_path_factory.mktemp("programs")
    done: dict[tuple[str, ...], Path] = {}

    def compile_source(source: str, *flags: str) -> Path:
        key = (source, *flags)
        if key not in done:
            compiler = "g++" if source.endswith(".cc") else "gcc"
            result = directory / f"{Path(source).stem}{len(done)}"
            subprocess.run(
                [compiler, "-O1", "-fno-builtin", "-o", result, PROGRAMS / source, *flags],
                check=True,
                timeout=HANG_SECONDS,
            )
            done[key] = result
        return done[key]

    return compile_source
