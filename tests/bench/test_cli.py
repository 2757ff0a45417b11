"""The command line: verbs, exit status, what goes where."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hakmem.cli import make_parser
from harness import cli, setup
from harness.peers import locate
from tests.cli.support import named_json

Bench = Callable[..., subprocess.CompletedProcess[str]]

MEASURED = ("--workloads", "tiny_lifo", "--allocators", "glibc,floor", "--reps", "2",
            "--scale", "0.01", "--no-counts")  # fmt: skip


def even(row: dict[str, Any]) -> None:
    """Gives a row the figures of a machine without noise."""
    row.update(wall_ns=10_000_000 + row["block"], peak_rss_bytes=64_000_000 + row["block"])


def change(folder: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    """Rewrites the rows of a result folder."""
    file = folder / "rows.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        edit(row)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_list_names_everything(bench: Bench) -> None:
    done = bench("list", "--json")
    assert done.returncode == 0, done.stderr
    told = named_json(done.stdout)
    workloads = {each["name"]: each for each in told["workloads"]}
    allocators = {each["name"]: each for each in told["allocators"]}
    assert workloads["tiny_lifo"]["group"] == "synthetic" and workloads["redis"]["group"] == "real"
    assert allocators["glibc"]["installed"] and allocators["floor"]["kind"] == "floor"
    assert not allocators["hakmem_research"]["default"]
    text = bench("list").stdout
    assert all(f"{name} " in text for name in [*workloads, *allocators])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--allocator", "mine=/no/such/lib.so"), "mine: there is no file /no/such/lib.so"),
        (("--cpu", "100000"), "--cpu 100000 is none of this process's"),
        (("--html", "/no/such/folder/page.html"), "there is no directory /no/such/folder"),
        (("--html", "/tmp"), "--html /tmp: is a directory"),
    ],
)
def test_a_slip_of_the_pen_is_told_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    words: str,
) -> None:
    def build_nothing(*_: object, **__: object) -> None:
        raise AssertionError("it began to build")

    monkeypatch.setattr(setup, "build_needed", build_nothing)
    options = make_parser().parse_args(["bench", "--allocators", "glibc", *arguments])
    assert cli.run_bench(options) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--workloads", "nonesuch"),
        ("--allocators", "nonesuch"),
        ("--allocator", "just-a-name"),
        ("--allocator", "a/b=x.so"),
        ("--reps", "0"),
        ("--scale", "-1"),
        ("--cpu", "100000", "--allocators", "glibc"),
        ("--nonesuch",),
        ("compare", "one"),
        ("nonesuch",),
        ("report", "/no/such/folder"),
        ("verify", "/no/such/folder"),
        ("scorecard", "/no/such/folder"),
        ("compare", "/no/such/folder", "/no/such/folder"),
        ("compare", "one", "two", "three"),
        ("pool", "/no/such/folder"),
        ("profiles", "nonesuch"),
        ("compare", "/no/such/folder", "--against", "glibc"),
        ("compare", "one", "--against", "glibc", "--least-better", "101"),
    ],
)
def test_wrong_usage_is_told_and_ends_with_2(
    bench: Bench, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    measures = arguments[0].startswith("--")
    output = ("--output", tmp_path / "r") if measures else ()
    done = bench(*arguments, *output)
    assert done.returncode == 2, done.stderr
    assert "hakmem" in done.stderr and done.stdout == ""
    assert "Traceback" not in done.stderr


def test_tables_can_be_derived_again(bench: Bench, tmp_path: Path) -> None:
    results, page = tmp_path / "r", tmp_path / "page.html"
    done = bench("--output", results, *MEASURED)
    assert done.returncode == 0, done.stderr
    assert "glibc" in done.stdout
    table = (results / "table.md").read_text()
    (results / "table.md").unlink()
    done = bench("report", results, "--html", page)
    assert done.returncode == 0, done.stderr
    assert (results / "table.md").read_text() == table
    assert "</html>" in page.read_text()


def test_a_folder_compared_with_itself_is_the_same(bench: Bench, tmp_path: Path) -> None:
    results = tmp_path / "r"
    assert bench("--output", results, *MEASURED).returncode == 0
    change(results, even)
    done = bench("compare", results, results)
    assert done.returncode == 0, done.stdout
    assert "tiny_lifo" in done.stdout


def test_slower_rows_end_with_1(bench: Bench, tmp_path: Path) -> None:
    """A copy of the results in which one allocator takes three times as long."""
    before, after = tmp_path / "a", tmp_path / "b"
    assert bench("--output", before, *MEASURED).returncode == 0
    change(before, even)
    shutil.copytree(before, after)
    change(after, lambda row: row["allocator"] == "glibc" and row.update(wall_ns=30_000_000))
    done = bench("compare", before, after)
    assert done.returncode == 1, done.stdout
    assert "slower" in done.stdout


def test_a_configuration_is_an_allocator_of_its_own(bench: Bench, tmp_path: Path) -> None:
    """Its environment is in the manifest and reaches the process: here the C library's own."""
    results = tmp_path / "r"
    other = f"odd={locate('libc.so.6')},GLIBC_TUNABLES=glibc.malloc.arena_max=1"
    # Of two blocks nothing is said.
    done = bench("--output", results, *MEASURED, "--reps", "3", "--allocator", other)
    assert done.returncode == 0, done.stderr
    manifest = json.loads((results / "manifest.json").read_text())
    expected = {"GLIBC_TUNABLES": "glibc.malloc.arena_max=1"}
    assert manifest["allocators"]["odd"]["environment"] == expected
    assert "GLIBC_TUNABLES=glibc.malloc.arena_max=1" in (results / "table.md").read_text()
    change(results, even)
    done = bench("compare", results, "--of", "odd", "--against", "glibc")
    assert done.returncode == 0, done.stderr
    assert "of 1 rows 0 better, 0 worse, 1 equal, 0 unclear" in done.stdout


def test_help_has_examples(bench: Bench) -> None:
    done = bench("--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout and "compare" in done.stdout
