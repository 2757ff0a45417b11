"""Flipped bytes in a snapshot: a sentence, or a view of what is left; in bounded memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.inspect.support.targets import (
    ROOT,
    await_message,
    await_ready,
    compile_program,
    preloaded,
    running,
)
from tests.patience import HANG_SECONDS

FUZZING = ROOT / "tests" / "inspect" / "support" / "fuzzing.py"
ROUNDS = 250


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz")
    program = compile_program("truth.c", folder / "truth")
    environment = preloaded(
        HAKMEM_SNAPSHOT_SIGNAL=str(int(signal.SIGUSR2)),
        HAKMEM_SNAPSHOT_DIRECTORY=str(folder),
        HAKMEM_GUARD_SAMPLE="50",
        HAKMEM_RESEARCH="1",
    )
    with running([program, "3", "500", folder / "blocks"], environment) as process:
        await_ready(process)
        process.send_signal(signal.SIGUSR2)
        assert "incomplete" not in await_message(process)
        return folder / f"hakmem.{process.pid}.1.snapshot"


@pytest.mark.parametrize("seed", [1, 2])
def test_flipped_bytes(snapshot: Path, seed: int) -> None:
    done = subprocess.run(
        [sys.executable, FUZZING, snapshot, str(seed), str(ROUNDS)],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        env={**os.environ, "PYTHONPATH": str(ROOT / "tools")},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    read, refused = (int(word) for word in done.stdout.split())
    assert read + refused == ROUNDS
    # Both happen, or nothing was tried.
    assert read > ROUNDS // 10
    assert refused > ROUNDS // 10
