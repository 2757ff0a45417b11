"""hakmem report on real processes, and what it says when there is nothing to draw."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hakmem.inspect import jsonform
from hakmem.report import series
from tests.cli.support import HAKMEM, Outcome, call, clean_environment
from tests.inspect.support.corewriter import write_core
from tests.inspect.support.synthetic import make_snapshot
from tests.report.support.browser import Browser
from tests.report.support.grower import Grower
from tests.report.support.pages import open_page


def report(*arguments: str | Path) -> Outcome:
    return call([*HAKMEM, "report", *arguments])


def test_page_of_a_process_has_the_figures_of_inspect(
    grower: Grower, browser: Browser, tmp_path: Path
) -> None:
    grower.grow(4000, 48)
    grower.grow(200, 9000)
    grower.grow(3, 300_000)
    file = tmp_path / "heap.html"
    assert report("--freeze", grower.pid, "-o", file).status == 0
    seen = json.loads(call([*HAKMEM, "inspect", "--json", "--freeze", grower.pid]).stdout)
    page = open_page(browser, file)
    assert page.console == []
    shown = page.evaluate(
        "[...document.querySelectorAll('#by-class tbody tr')].map((row) =>"
        " [row.cells[0], row.cells[1], row.cells[3]].map((cell) => Number(cell.dataset.value)))"
    )
    assert shown == [
        [row["block_bytes"], row["slabs"], row["live_blocks"]]
        for row in seen["classes"]
        if row["slabs"]
    ]
    large = [bytes_ for bytes_, kind in zip(seen["runs"]["large_bytes"], seen["runs"]["kind"],
                                            strict=True) if kind == 2]  # fmt: skip
    sizes = page.evaluate(
        "[...document.querySelectorAll('#by-block tbody tr')]"
        ".map((row) => Number(row.cells[2].dataset.value))"
    )
    assert sorted(sizes) == sorted(large) and len(large) == 3
    live = "[...EXPLORER.scene.runs.live].reduce((sum, count) => sum + count, 0)"
    assert page.evaluate(live) == sum(row["live_blocks"] for row in seen["classes"])


def test_page_of_a_core_file(grower: Grower, browser: Browser, tmp_path: Path) -> None:
    """A core does not say what was resident: there is no waterfall, and the rest is as before."""
    grower.grow(4000, 48)
    core, file = tmp_path / "core", tmp_path / "core.html"
    write_core(grower.process.pid, core)
    assert report(core, "-o", file).status == 0
    page = open_page(browser, file)
    assert page.console == []
    assert page.texts("#waterfall-rows") == []
    assert "What of it was in memory, this file does not say" in page.texts(".lead")[0]
    live = "[...EXPLORER.scene.runs.live].reduce((sum, count) => sum + count, 0)"
    assert page.evaluate(live) >= 4000


def test_page_goes_to_standard_output_without_a_file(tmp_path: Path) -> None:
    saved = tmp_path / "heap.json"
    saved.write_text(json.dumps(jsonform.encode(make_snapshot(), "blocks")))
    outcome = report(saved)
    assert (outcome.status, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith(b"<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["999999999"], "no process 999999999"),
        (["nowhere"], "No such file"),
        (["/bin/true"], "not a core file"),
        (["{json}", "-o", "/nowhere/heap.html"], "No such file"),
        (["{json}", "--series", "{json}"], "schema"),
        (["{json}", "--freeze"], "only a living process"),
        (["{series}", "--freeze"], "only a living process"),
        ([], "required"),
    ],
)
def test_wrong_use_is_one_sentence_and_2(tmp_path: Path, arguments: list[str], words: str) -> None:
    saved = tmp_path / "heap.json"
    saved.write_text(json.dumps(jsonform.encode(make_snapshot(superslab_count=1), "totals")))
    recorded = tmp_path / "heap.jsonl"
    lines = (series.header(1, 1.0), jsonform.encode(make_snapshot(superslab_count=1), "totals"))
    recorded.write_text("".join(json.dumps(line) + "\n" for line in lines))
    outcome = report(*(argument.format(json=saved, series=recorded) for argument in arguments))
    assert (outcome.status, outcome.stdout) == (2, b"")
    assert words in outcome.stderr and "Traceback" not in outcome.stderr


@pytest.mark.parametrize(
    "place",
    [
        ("size_classes", 2, "block_bytes"),
        ("research", "histograms", 0, "counts", 2),
    ],
)
def test_figures_that_cannot_be_are_one_sentence(
    tmp_path: Path, place: tuple[str | int, ...]
) -> None:
    """Of saved JSON, where each may be anything."""
    facts: Any = jsonform.encode(make_snapshot(superslab_count=1), "blocks")
    within = facts
    for key in place[:-1]:
        within = within[key]
    if place[0] == "research":
        del within[place[-1]]
    else:
        within[place[-1]] = 10**30
    saved = tmp_path / "heap.json"
    saved.write_text(json.dumps(facts))
    calls: list[list[str | Path]] = [
        ["report", saved],
        ["inspect", saved, "--all"],
        ["diff", saved, saved],
    ]
    for words in calls:
        outcome = call([*HAKMEM, *words])
        assert "Traceback" not in outcome.stderr, words
        assert outcome.status == 0 or len(outcome.stderr.splitlines()) == 1
    assert call([*HAKMEM, "report", saved]).status in (0, 2)


def test_whole_numbers_that_another_program_wrote(tmp_path: Path) -> None:
    """What is a share or a mean may come without its point."""
    made = make_snapshot(superslab_count=1)
    facts = jsonform.encode(made, "totals")
    assert facts["unsettled_share"] == 0.0
    facts["unsettled_share"] = 0
    found = jsonform.decode(facts)
    assert found.unsettled_share == 0.0 and isinstance(found.unsettled_share, float)
    with pytest.raises(jsonform.SchemaError, match="unsettled_share is not what it should be"):
        jsonform.decode({**facts, "unsettled_share": "0"})


def test_process_of_another_allocator(tmp_path: Path) -> None:
    file = tmp_path / "heap.html"
    with subprocess.Popen(["sleep", "60"], env=clean_environment()) as other:
        try:
            outcome = report(str(other.pid), "-o", file)
        finally:
            other.kill()
    assert outcome.status == 2 and "Traceback" not in outcome.stderr
    assert not file.exists()
