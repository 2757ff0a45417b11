"""Positive controls of the proof: runs that must be refused, seen through the command."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import made_up
import pytest

from harness import measure, peers, proof, startup, verifying
from harness.errors import BenchError, MeasureError, RefusedError
from tests.cli.support import named_json

Compile = Callable[..., Path]
Bench = Callable[..., subprocess.CompletedProcess[str]]
Rows = Callable[..., list[dict[str, Any]]]

WHOLE = """
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


def short(*arguments: object) -> tuple[object, ...]:
    """The shortest useful run."""
    line = ("--workloads", "tiny_lifo", "--reps", "2", "--scale", "0.002", "--no-counts")
    return (*line, *arguments)


@pytest.fixture
def without_malloc(tmp_path: Path, compile_c: Compile) -> Path:
    return compile_c(tmp_path / "nothing.so", "int nothing;\n", "-shared", "-fPIC")


@pytest.fixture
def without_calloc(tmp_path: Path, compile_c: Compile) -> Path:
    """Half a malloc: calloc stays with the C library."""
    source = WHOLE.replace("void *calloc", "void *not_calloc")
    return compile_c(tmp_path / "half.so", source, "-shared", "-fPIC", "-fno-builtin")


@pytest.fixture
def wrong_library(tmp_path: Path, compile_c: Compile) -> Path:
    """A library with a complete malloc of its own that never serves: it is an auxiliary filter, and
    the loader asks the floor allocator first."""
    floor = peers.known()["floor"].library
    flags = ("-shared", "-fPIC", "-fno-builtin", f"-Wl,--auxiliary={floor}")
    return compile_c(tmp_path / "front.so", WHOLE, *flags)


@pytest.fixture
def idle_library(tmp_path: Path, compile_c: Compile) -> Path:
    """All names resolve to it, but it passes every call on to the C library: nothing moves."""
    source = """
#include <stddef.h>
void *__libc_malloc(size_t); void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t); void __libc_free(void *);
void *malloc(size_t n) { return __libc_malloc(n); }
void free(void *p) { __libc_free(p); }
void *calloc(size_t a, size_t b) { return __libc_calloc(a, b); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
"""
    flags = ("-shared", "-fPIC", "-fno-builtin", "-Wl,-z,now")
    return compile_c(tmp_path / "idle.so", source, *flags)


def test_true_rows_carry_their_proof(bench: Bench, rows: Rows, tmp_path: Path) -> None:
    done = bench("--output", tmp_path, *short("--allocators", "glibc,floor"))
    assert done.returncode == 0, done.stderr
    kept = rows(tmp_path)
    assert [row["allocator"] for row in kept].count("floor") == 2
    assert len(kept) == 4
    for row in kept:
        library = "libfloor.so" if row["allocator"] == "floor" else "libc.so.6"
        for name in proof.PROVEN_NAMES:
            assert Path(row["proof"][name]["loader"]).name == library
            assert Path(row["proof"][name]["map"]).name == library
        assert row["proof"]["moved"]["before"] != row["proof"]["moved"]["after"]
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert len(manifest["allocators"]["floor"]["sha256"]) == 64
    assert {row["proof"]["build_id"] for row in kept} == {
        each["build_id"] for each in manifest["allocators"].values()
    }
    assert manifest["kernel"] and manifest["command"] and manifest["state"] == "complete"


@pytest.mark.parametrize(
    ("library", "complaint"),
    [
        ("without_malloc", "malloc is served by"),
        ("without_calloc", "calloc is served by"),
        ("wrong_library", "libfloor.so"),
        ("idle_library", "stood still"),
    ],
)
def test_library_that_does_not_serve_is_refused(
    bench: Bench,
    rows: Rows,
    tmp_path: Path,
    library: str,
    complaint: str,
    request: pytest.FixtureRequest,
) -> None:
    path: Path = request.getfixturevalue(library)
    results = tmp_path / "results"
    line = short("--allocators", "glibc", "--allocator", f"impostor={path}")
    done = bench("--output", results, *line)
    assert done.returncode == 1
    assert "REFUSED impostor on tiny_lifo" in done.stderr
    assert complaint in done.stderr
    assert {row["allocator"] for row in rows(results)} == {"glibc"}
    refused = rows(results, "refused.jsonl")
    assert [row["kind"] for row in refused] == ["REFUSED"]
    assert complaint in refused[0]["why"]


def test_whole_library_is_not_refused(bench: Bench, tmp_path: Path, compile_c: Compile) -> None:
    """The counterpart of the controls: the same source, complete and preloaded, is measured."""
    own = compile_c(tmp_path / "own.so", WHOLE, "-shared", "-fPIC", "-fno-builtin")
    done = bench("--output", tmp_path / "r", *short("--allocators", "glibc"),
                 "--allocator", f"own={own}", "--scale", "0.0005")  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_library_that_does_not_load_is_refused(bench: Bench, tmp_path: Path) -> None:
    ghost = tmp_path / "ghost.so"
    ghost.write_text("no library")
    line = short("--allocators", "glibc", "--allocator", f"ghost={ghost}")
    done = bench("--output", tmp_path / "found", *line)
    assert done.returncode == 1
    assert "REFUSED ghost on tiny_lifo: malloc is served by" in done.stderr


@pytest.mark.parametrize("flags", [("-static",), ("-static-pie",)])
def test_static_program_is_refused(
    built: Path, bench: Bench, rows: Rows, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    objects = [
        str(each)
        for target in ("frame", "tiny")
        for each in (built / "CMakeFiles" / f"{target}.dir").rglob("*.o")
    ]
    assert len(objects) > 4
    subprocess.run(
        ["cc", "-w", *flags, *objects, "-o", str(tmp_path / "tiny"), "-lpthread"],
        check=True,
        capture_output=True,
    )
    results = tmp_path / "results"
    line = short("--allocators", "floor", "--programs", tmp_path)
    done = bench("--output", results, *line)
    assert done.returncode == 1
    assert "REFUSED floor on tiny_lifo" in done.stderr
    assert rows(results) == []


@pytest.fixture
def statement(built: Path) -> dict[str, Any]:
    """A true statement of a process on the C library."""
    row = measure.run(verifying.TRIAL, peers.known()["glibc"], built, cpu=None)
    found: dict[str, Any] = row["proof"]
    return found


def test_each_part_of_the_statement_counts(statement: dict[str, Any]) -> None:
    glibc = peers.known()["glibc"]
    proof.verify(statement, glibc)
    with pytest.raises(RefusedError, match="gave no proof"):
        proof.verify(None, glibc)

    def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        other = copy.deepcopy(statement)
        change(other)
        return other

    controls: list[tuple[str, Callable[[dict[str, Any]], object]]] = [
        ("does not say where its free", lambda s: s.pop("free")),
        ("realloc is served by no file", lambda s: s["realloc"].pop("map")),
        ("calloc is served by /bin/true", lambda s: s["calloc"].update(loader="/bin/true")),
        ("build id in memory is missing", lambda s: s.pop("build_id")),
        ("build id in memory is abad1dea", lambda s: s.update(build_id="abad1dea")),
        ("whether the allocator's counter moved", lambda s: s.pop("moved")),
        ("stood still at 7", lambda s: s["moved"].update(before=7, after=7)),
    ]
    for complaint, change in controls:
        with pytest.raises(RefusedError, match=complaint):
            proof.verify(changed(change), glibc)


@pytest.mark.parametrize("loader", ["", ".", "/", "/bin/true", None])
def test_a_kept_row_needs_the_loaders_word(statement: dict[str, Any], loader: str | None) -> None:
    """The name of no file is the beginning of every name."""
    kept = {"library": statement["malloc"]["map"], "build_id": statement["build_id"]}
    proof.verify_kept(statement, kept)
    if loader is None:
        del statement["free"]["loader"]
    else:
        statement["free"]["loader"] = loader
    with pytest.raises(RefusedError, match=f"free: the loader says {loader or 'nothing'}, the"):
        proof.verify_kept(statement, kept)


def test_verify_shows_the_proof_of_this_moment(bench: Bench, without_malloc: Path) -> None:
    done = bench("verify", "--allocators", "glibc,floor")
    assert done.returncode == 0, done.stdout
    assert "proven   glibc" in done.stdout and "libfloor.so" in done.stdout
    done = bench("verify", "--allocators", "glibc", "--allocator", f"impostor={without_malloc}",
                 "--json")  # fmt: skip
    assert done.returncode == 1
    statements = {each["allocator"]: each for each in named_json(done.stdout)["statements"]}
    assert statements["glibc"]["holds"] and not statements["impostor"]["holds"]
    assert "malloc is served by" in statements["impostor"]["why"]


def test_verify_of_starts_tells_what_the_loader_bound(tmp_path: Path) -> None:
    """They are too short for the proof of a workload."""
    start = {"program": "true", "kind": "memory", "status": 0}
    rows: list[dict[str, Any]] = [
            {"program": "true", "allocator": "glibc", "kind": "proof", "bound": {"malloc": 3}},
            {**start, "allocator": "glibc"}, {**start, "allocator": "glibc"},
            {**start, "allocator": "floor"}]  # fmt: skip
    folder = made_up.write(tmp_path / "a", rows, kind="startup", allocators={"glibc": {}})
    glibc, floor = verifying.of_folder(folder)
    assert (glibc["holds"], glibc["where"]) == (True, "true, 2 rows")
    assert floor["holds"] is False
    text = verifying.text([glibc, floor])
    assert "bound to it by the loader: malloc 3\n" in text
    assert "REFUSED  floor (true, 1 rows): nothing says what the loader bound it to" in text
    rows[0]["build_id"] = "11"
    for build, holds in (("11", True), ("22", False)):
        folder = made_up.write(tmp_path / build, rows, kind="startup",
                               allocators={"glibc": {"build_id": build}})  # fmt: skip
        assert verifying.of_folder(folder)[0]["holds"] is holds
    without = made_up.write(tmp_path / "b", rows, kind="profiles")
    with pytest.raises(BenchError, match="of kind profiles, which keep no proof"):
        verifying.of_folder(without)


def test_verify_checks_kept_rows(bench: Bench, rows: Rows, tmp_path: Path) -> None:
    """A folder holds until a row of another library is slipped in."""
    assert bench("--output", tmp_path, *short("--allocators", "glibc,floor")).returncode == 0
    done = bench("verify", tmp_path)
    assert done.returncode == 0, done.stdout
    assert "glibc (2 rows)" in done.stdout
    with (tmp_path / "refused.jsonl").open("a") as refused:
        refused.write('{"allocator": "floor", "case": "x", "kind": "FAILED", "why": "a crash"}\n')
    done = bench("verify", tmp_path)
    assert done.returncode == 0 and "left out floor (x): failed: a crash" in done.stdout
    kept = rows(tmp_path)
    kept[0]["allocator"] = "floor" if kept[0]["allocator"] == "glibc" else "glibc"
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in kept))
    done = bench("verify", tmp_path)
    assert done.returncode == 1
    assert f"REFUSED  {kept[0]['allocator']}" in done.stdout


def test_short_programs_are_proved_by_the_loader(
    built: Path, tmp_path: Path, without_malloc: Path, compile_c: Compile
) -> None:
    floor = peers.known()["floor"]
    bound = proof.verify_bindings(["/bin/true"], floor)
    assert bound["malloc"] > 0 and bound["free"] > 0
    with pytest.raises(RefusedError, match=r"is bound to .*libc"):
        proof.verify_bindings(["/bin/true"], peers.Allocator("impostor", without_malloc))
    static = compile_c(tmp_path / "static", "int main(void) { return 0; }\n", "-static")
    with pytest.raises(RefusedError, match="linked statically"):
        proof.verify_bindings([str(static)], floor)


def test_starts_that_fail_are_no_starts(built: Path) -> None:
    with pytest.raises(MeasureError, match=r"^/bin/false failed: "):
        startup.watch(["/bin/false"], peers.known()["glibc"], 2, memory=False)


def test_start_up_table(bench: Bench, rows: Rows, tmp_path: Path, without_malloc: Path) -> None:
    line = ("--allocators", "glibc", "--allocator", f"impostor={without_malloc}")
    results = tmp_path / "results"
    done = bench("startup", "--output", results, "--runs", "2", "--starts", "25", *line)
    assert done.returncode == 1
    assert "REFUSED impostor on true" in done.stderr
    assert "### /bin/true" in done.stdout and "impostor" not in done.stdout
    memory = [row for row in rows(results) if row.get("kind") == "memory"]
    assert len(memory) == 4
    for row in memory:
        parts = row["private_dirty_bytes"] + row["private_clean_bytes"] + row["shared_clean_bytes"]
        assert 0 < row["private_dirty_bytes"] < row["rss_bytes"]
        assert parts <= row["rss_bytes"]
    told = next(row for row in rows(results) if row.get("kind") == "proof")
    assert told["os_calls"]["mmap"] > 0 and told["os_calls"]["execve"] == 1
    assert json.loads((results / "manifest.json").read_text())["kind"] == "startup"
