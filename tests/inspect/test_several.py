"""A process with more than one hakmem, and one that becomes another program."""

from __future__ import annotations

from pathlib import Path

import pytest

from hakmem.inspect.targets import take
from tests.cli.support import library
from tests.inspect.support.corewriter import write_core
from tests.inspect.support.targets import archive, await_line, compile_program, preloaded, running

BLOCKS = 5000


@pytest.mark.parametrize("how", ["linked and preloaded", "another namespace"])
def test_the_library_that_serves_is_shown(how: str, tmp_path: Path) -> None:
    """The other one is idle."""
    is_linked = how == "linked and preloaded"
    extra: list[str | Path] = [archive(), "-ldl"] if is_linked else ["-ldl"]
    program = compile_program("several.c", tmp_path / "several", *extra)
    words: list[str | Path] = [program] if is_linked else [program, library()]
    with running(words, preloaded()) as process:
        await_line(process, "ready")
        alive = take(str(process.pid))
        core = tmp_path / "core"
        write_core(process.pid, core)
    for snapshot in (alive, take(str(core))):
        assert sum(row.live_blocks for row in snapshot.classes) >= BLOCKS
