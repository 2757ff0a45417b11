"""The workloads: fixed work, checked contents, and failures that cannot pass for results."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import cases, peers

SMALL = {
    "tiny": ("--ops", "20000", "--warm", "200"),
    "random_mixed": ("--ops", "20000", "--warm", "200"),
    "queue": ("--ops", "20000", "--warm", "200"),
    "larson": ("--ops", "20000", "--slots", "100", "--rounds", "5", "--threads", "2"),
    "pairs": ("--ops", "20000", "--slots", "100"),
}

# Hands out each block twice before it moves on: two live blocks overlap.
OVERLAPPING = """
#include <stddef.h>
#include <string.h>
static char pool[1 << 28]; static size_t used; static unsigned turn;
void *malloc(size_t n) {
    n = (n + 15) & ~15ul;
    if (++turn % 2 == 0 && turn > 64) return pool + used - n;
    used += n;
    return pool + used - n;
}
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { void *p = malloc(a * b); return memset(p, 0, a * b); }
void *realloc(void *p, size_t n) { void *q = malloc(n); return p ? memmove(q, p, n) : q; }
"""


def run(
    built: Path, program: str, *arguments: str, preload: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {"LD_PRELOAD": str(preload)} if preload else {}
    return subprocess.run(
        [str(built / program), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def result(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    row: dict[str, Any] = json.loads(done.stdout)
    return row


@pytest.mark.parametrize("program", SMALL)
def test_the_same_work_everywhere(built: Path, program: str) -> None:
    """Two runs and another allocator agree on operations and checksum; the floor's blocks overlap,
    so it runs without the check."""
    first = result(run(built, program, *SMALL[program]))
    again = result(run(built, program, *SMALL[program]))
    floor = peers.known()["floor"].library
    other = result(run(built, program, *SMALL[program], "--check", "0", preload=floor))
    for row in (again, other):
        assert (row["ops"], row["checksum"]) == (first["ops"], first["checksum"])
    assert first["ops"] == 20000
    assert first["wall_ns"] > 0 and first["cpu_ns"] > 0
    assert first["peak_rss_bytes"] >= first["end_rss_bytes"] > 0


@pytest.mark.parametrize("program", ["random_mixed", "queue", "larson"])
def test_the_seed_makes_the_work(built: Path, program: str) -> None:
    one = result(run(built, program, *SMALL[program], "--seed", "1"))
    two = result(run(built, program, *SMALL[program], "--seed", "2"))
    assert one["checksum"] != two["checksum"]


@pytest.mark.parametrize("program", ["tiny", "random_mixed", "queue", "larson"])
def test_overlapping_blocks_are_noticed(
    built: Path, tmp_path: Path, program: str, compile_c: Callable[..., Path]
) -> None:
    library = compile_c(
        tmp_path / "overlapping.so", OVERLAPPING, "-shared", "-fPIC", "-fno-builtin"
    )
    done = run(built, program, *SMALL[program], preload=library)
    assert done.returncode == 3, (done.returncode, done.stdout, done.stderr)
    assert "lost its contents" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [("--ops",), ("--ops", "x"), ("--ops", "0"), ("--min", "4"), ("--min", "64", "--max", "32"),
     ("--variant", "random"), ("--colour", "1"), ("--threads", "0")],
)  # fmt: skip
def test_options_are_checked(built: Path, arguments: tuple[str, ...]) -> None:
    done = run(built, "tiny", *arguments)
    assert done.returncode == 2
    assert done.stdout == "" and done.stderr != ""


def test_every_row_of_the_matrix_runs(built: Path) -> None:
    matrix = cases.synthetic()
    assert len({case.name for case in matrix}) == len(matrix)
    assert {case.program for case in matrix if case.quick} == {"tiny", "random_mixed", "queue"}
    for case in matrix:
        shorter = {**case.arguments, "ops": 4000, "warm": 400}
        line = [text for key, value in shorter.items() for text in (f"--{key}", str(value))]
        assert result(run(built, case.program, *line))["threads"] == case.threads
