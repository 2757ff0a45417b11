"""`bench memory`: the process that is largest is looked at near its peak, and goes on."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import peaks, peers, setup, store
from harness.errors import BenchError
from harness.peers import Allocator
from tests.cli.support import named_json

KIB = 1024
MIB = 1024 * KIB
# A child that comes to 40 MiB, in blocks that stay, under a parent that has next to nothing.
GROWING = """
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 40000; i++) {
            char *volatile block = malloc(1024);
            memset(block, 1, 1024);
            if (i % 500 == 0) usleep(1000);
        }
        _exit(0);
    }
    int status = 1;
    return waitpid(child, &status, 0) != child || status != 0;
}
"""


@pytest.fixture(scope="module")
def hakmem() -> Allocator:
    setup.build_needed(["hakmem"], quick=False)
    return peers.known()["hakmem"]


def options(output: Path, **changes: Any) -> argparse.Namespace:
    settings = {"workloads": ["calloc_large"], "scale": 0.3, "allocators": None, "allocator": [],
                "output": output, "json": True, "write": False, **changes}  # fmt: skip
    return argparse.Namespace(**settings)


def test_a_row_says_what_its_memory_is_made_of(
    hakmem: Allocator, built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert peaks.main(options(tmp_path / "out"), "bench memory") == 0
    rows = named_json(capsys.readouterr().out)["rows"]
    assert rows == store.read_rows(tmp_path / "out")
    own, base = rows
    assert (own["allocator"], base["allocator"]) == (hakmem.name, "glibc")
    assert own["proof"]["malloc"] != base["proof"]["malloc"]
    assert sum(own["kinds"].values()) == own["looked_at_bytes"]
    # Its blocks have 64 KiB to 1 MiB, some twenty at a time.
    assert own["kinds"]["large"] > own["looked_at_bytes"] / 3
    assert 0.8 < own["looked_at_bytes"] / own["peak_rss_bytes"] < 1.2
    (line,) = [
        line for line in (tmp_path / "out" / "table.md").read_text().splitlines()
        if line.startswith("| calloc_large")
    ]  # fmt: skip
    assert f"{round(own['kinds']['large'] / KIB):,}" in line
    assert f"{round(base['peak_rss_bytes'] / KIB):,}" in line


def test_the_largest_process_is_stopped_once_and_goes_on(
    hakmem: Allocator, tmp_path: Path, compile_c: Callable[..., Path]
) -> None:
    program = compile_c(tmp_path / "growing", GROWING)
    with peaks.Watch(hakmem.library, stop_at_bytes=30 * MIB) as watch:
        done = subprocess.run(
            [program], env={"LD_PRELOAD": str(hakmem.library)}, check=False, timeout=60
        )
    assert done.returncode == 0
    assert watch.failure == ""
    assert watch.snapshot is not None
    kinds = peaks.made_of(watch.snapshot)["kinds"]
    assert 25 * MIB < kinds["live"] < 35 * MIB
    # It went on to its peak.
    assert watch.peak_bytes > 38 * MIB


def test_what_has_another_allocator_is_not_looked_at(
    hakmem: Allocator, tmp_path: Path, compile_c: Callable[..., Path]
) -> None:
    program = compile_c(tmp_path / "growing", GROWING)
    with peaks.Watch(hakmem.library, stop_at_bytes=MIB) as watch:
        subprocess.run([program], env={}, check=True, timeout=60)
    assert watch.snapshot is None
    assert watch.peak_bytes == 0


def test_an_allocator_without_a_reader_is_refused(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = peaks.main(options(tmp_path / "out", allocators=["floor"]), "bench memory")
    assert status == 1
    (refused,) = store.read_rows(tmp_path / "out", store.REFUSED)
    assert refused["allocator"] == "floor"
    assert "could not be looked at: " in refused["why"]
    assert "REFUSED calloc_large, floor" in capsys.readouterr().err


def test_the_table_goes_between_its_marks() -> None:
    document = f"before\n{peaks.BEGIN}old\n{peaks.END}after\n"
    assert peaks.with_table(document, "new\n") == f"before\n{peaks.BEGIN}new\n{peaks.END}after\n"
    for without in ("no marks", f"{peaks.BEGIN}only\nthe rest\n", f"before\n{peaks.END}only\n"):
        with pytest.raises(BenchError, match="marks of the table are missing"):
            peaks.with_table(without, "new\n")
