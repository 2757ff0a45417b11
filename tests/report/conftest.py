"""Where the tests of the views find the reader, and one browser for all of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from tests.inspect.support.targets import await_line, running  # noqa: E402
from tests.patience import HANG_SECONDS  # noqa: E402
from tests.report.support.browser import Browser  # noqa: E402
from tests.report.support.grower import Grower  # noqa: E402


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with closing(Browser(tmp_path_factory.mktemp("browser") / "profile")) as opened:
        yield opened


@pytest.fixture(scope="session")
def grower_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("programs") / "grower"
    source = Path(__file__).parent / "programs" / "grower.c"
    subprocess.run(
        ["gcc", "-O1", "-fno-builtin", "-o", program, source], check=True, timeout=HANG_SECONDS
    )
    return program


@pytest.fixture
def grower(grower_program: Path) -> Iterator[Grower]:
    """A running process on the library under test that grows when it is told to."""
    with running([grower_program]) as process:
        await_line(process, "ready")
        yield Grower(process)
