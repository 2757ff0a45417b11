"""Positive controls of the proof: runs that must be refused, seen through the commands."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import measure, peers
from harness.errors import RefusedError
from harness.layout import TOP

Compile = Callable[..., Path]
WORKLOADS = TOP / "bench" / "workloads"

HALF = """
#include <stddef.h>
#include <string.h>
static char pool[1 << 26]; static size_t used;
void *malloc(size_t n) {
    size_t at = __atomic_fetch_add(&used, (n + 15) & ~15ul, 0);
    return at + n > sizeof pool ? 0 : pool + at;
}
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return malloc(a * b); }
void *realloc(void *p, size_t n) { void *q = malloc(n); return p ? memmove(q, p, n) : q; }
"""


def bench(
    folder: Path, *arguments: str, program: str = "run.py"
) -> subprocess.CompletedProcess[str]:
    """Runs the command with its results in `folder`."""
    line = [sys.executable, str(TOP / "bench" / program), "--output", str(folder), *arguments]
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)


def short(*arguments: str) -> tuple[str, ...]:
    """The shortest useful run."""
    return ("--workloads", "tiny_lifo", "--reps", "2", "--scale", "0.002", *arguments)


def rows(folder: Path, file: str = "rows.jsonl") -> list[dict[str, Any]]:
    """Raw rows of a result folder."""
    path = folder / file
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def without_malloc(tmp_path: Path, compile_c: Compile) -> Path:
    return compile_c(tmp_path / "nothing.so", "int nothing;\n", "-shared", "-fPIC")


@pytest.fixture
def without_realloc(tmp_path: Path, compile_c: Compile) -> Path:
    """Half a malloc: realloc stays with the C library."""
    source = HALF.replace("void *realloc", "void *not_realloc")
    return compile_c(tmp_path / "half.so", source, "-shared", "-fPIC", "-fno-builtin")


@pytest.fixture
def wrong_library(tmp_path: Path, compile_c: Compile) -> Path:
    """A library with a complete malloc of its own that never serves: it is an auxiliary filter, and
    the loader asks the floor allocator first."""
    floor = peers.known()["floor"].library
    flags = ("-shared", "-fPIC", "-fno-builtin", f"-Wl,--auxiliary={floor}")
    return compile_c(tmp_path / "front.so", HALF, *flags)


def test_true_rows_carry_their_proof(built: Path, tmp_path: Path) -> None:
    done = bench(tmp_path, *short("--allocators", "glibc,floor"))
    assert done.returncode == 0, done.stderr
    kept = rows(tmp_path)
    assert [row["allocator"] for row in kept].count("floor") == 2
    assert len(kept) == 4
    for row in kept:
        library = "libfloor.so" if row["allocator"] == "floor" else "libc.so.6"
        assert set(row["proof"]) == set(measure.PROVEN_NAMES)
        for witnesses in row["proof"].values():
            assert Path(witnesses["loader"]).name == library
            assert Path(witnesses["map"]).name.startswith(library)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert len(manifest["allocators"]["floor"]["sha256"]) == 64
    assert manifest["kernel"] and manifest["command"] and manifest["state"] == "complete"
    assert "| tiny_lifo |" in (tmp_path / "table.md").read_text()


@pytest.mark.parametrize(
    ("library", "complaint"),
    [
        ("without_malloc", "malloc is served by"),
        ("without_realloc", "realloc is served by"),
        ("wrong_library", "libfloor.so"),
    ],
)
def test_library_that_does_not_serve_is_refused(
    built: Path, tmp_path: Path, library: str, complaint: str, request: pytest.FixtureRequest
) -> None:
    path: Path = request.getfixturevalue(library)
    results = tmp_path / "results"
    line = short("--allocators", "glibc", "--allocator", f"impostor={path}")
    done = bench(results, *line)
    assert done.returncode == 1
    assert "REFUSED impostor on tiny_lifo" in done.stderr
    assert complaint in done.stderr
    assert {row["allocator"] for row in rows(results)} == {"glibc"}
    assert [row["kind"] for row in rows(results, "refused.jsonl")] == ["REFUSED"]
    assert "impostor |" not in (results / "table.md").read_text().split("###")[1]


def test_library_that_is_not_there_is_refused(built: Path, tmp_path: Path) -> None:
    done = bench(tmp_path, *short("--allocators", "glibc", "--allocator", "ghost=/no/such.so"))
    assert done.returncode == 1
    assert "REFUSED ghost on tiny_lifo: malloc is served by" in done.stderr


@pytest.mark.parametrize("flags", [("-static",), ("-static-pie",)])
def test_static_program_is_refused(built: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    sources = [str(WORKLOADS / "tiny.c"), str(WORKLOADS / "frame.c")]
    subprocess.run(
        ["cc", "-O1", "-fno-builtin", "-w", "-D_GNU_SOURCE", *flags, *sources,
         "-o", str(tmp_path / "tiny"), "-lpthread"],
        check=True,
        capture_output=True,
    )  # fmt: skip
    results = tmp_path / "results"
    done = bench(results, *short("--allocators", "floor", "--programs", str(tmp_path)))
    assert done.returncode == 1
    assert "REFUSED floor on tiny_lifo" in done.stderr
    assert rows(results) == []


def test_program_without_proof_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="gave no proof"):
        measure.verify(None, peers.known()["glibc"])
    with pytest.raises(RefusedError, match="does not say where its free"):
        one = {"loader": str(peers.known()["glibc"].library)}
        measure.verify({"malloc": {**one, "map": one["loader"]}}, peers.known()["glibc"])


def test_short_programs_are_proved_by_the_loader(
    built: Path, tmp_path: Path, without_malloc: Path, compile_c: Compile
) -> None:
    floor = peers.known()["floor"]
    bound = measure.verify_bindings(["/bin/true"], floor)
    assert bound["malloc"] > 0 and bound["free"] > 0
    with pytest.raises(RefusedError, match=r"is bound to .*libc"):
        measure.verify_bindings(["/bin/true"], peers.Allocator("impostor", without_malloc))
    static = compile_c(tmp_path / "static", "int main(void) { return 0; }\n", "-static")
    with pytest.raises(RefusedError, match="linked statically"):
        measure.verify_bindings([str(static)], floor)


def test_start_up_table(built: Path, tmp_path: Path, without_malloc: Path) -> None:
    line = ("--allocators", "glibc", "--allocator", f"impostor={without_malloc}")
    done = bench(tmp_path, "--runs", "2", "--starts", "25", *line, program="rss.py")
    assert done.returncode == 1
    assert "REFUSED impostor on true" in done.stderr
    assert "### /bin/true" in done.stdout and "impostor" not in done.stdout
    memory = [row for row in rows(tmp_path) if row.get("kind") == "memory"]
    assert len(memory) == 4
    for row in memory:
        parts = row["private_dirty_bytes"] + row["private_clean_bytes"] + row["shared_clean_bytes"]
        assert 0 < row["private_dirty_bytes"] < row["rss_bytes"]
        assert parts <= row["rss_bytes"]
    proof = next(row for row in rows(tmp_path) if row.get("kind") == "proof")
    assert proof["os_calls"]["mmap"] > 0 and proof["os_calls"]["execve"] == 1
