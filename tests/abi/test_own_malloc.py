"""A program with a malloc of its own, under which hakmem is preloaded as under everything else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.abi.support import CC, ROOT, run


@pytest.mark.parametrize("name", ["hakmem", "glibc"])
def test_reallocarray_is_served_by_the_programs_realloc(
    build: Path, tmp_path: Path, name: str
) -> None:
    program = tmp_path / "own_malloc"
    run(CC, "-O1", "-fno-builtin", "-o", program, ROOT / "tests/abi/own_malloc.c")
    run(program, **({"LD_PRELOAD": str(build / "libhakmem.so")} if name == "hakmem" else {}))
