"""hakmem_option_set as the first call of a process: the environment, read at its start, must not
come over what it said; and what it refuses changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hakmem.inspect.targets import take
from tests.cli.support import clean_environment, library
from tests.inspect.support.targets import await_line, running
from tests.patience import HANG_SECONDS

PROGRAMS = Path(os.environ.get("BOOKS_PROGRAMS", library().parent / "tests" / "books"))


@pytest.mark.parametrize(
    ("program", "preload", "mode"),
    [
        ("books_extensions", True, "fast"),
        ("books_extensions", True, "lean"),
        ("books_extensions", True, "hardened"),
        ("books_extensions_static", False, "fast"),
    ],
)
def test_an_option_that_is_set_at_once(program: str, *, preload: bool, mode: str) -> None:
    environment = clean_environment(
        HAKMEM_PURGE_DELAY_MS="90", HAKMEM_MODE=mode, BEHAVIOUR_ALLOCATOR="hakmem"
    )
    if preload:
        environment["LD_PRELOAD"] = str(library())
    with running([PROGRAMS / program], environment) as process:
        await_line(process, "set")
        options = {option.name: option for option in take(str(process.pid)).options}
        assert options["purge_delay_ms"].value == 7
        assert options["purge_delay_ms"].origin == "runtime"
        assert options["mode"].text == mode
        assert options["prewarm"].origin == "default"
        _, errors = process.communicate(timeout=HANG_SECONDS)
        assert (process.returncode, errors) == (0, b"")
