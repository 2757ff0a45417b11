"""Rows of several series together, on made-up rows whose figures are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import made_up
import pytest

from harness.errors import BenchError
from harness.report import pooled


def series(
    folder: Path,
    at: str,
    times: dict[str, list[float]],
    *,
    case: str = "tiny_lifo",
    versions: dict[str, str] | None = None,
    **manifest: Any,
) -> Path:
    """A folder with one row: each allocator's times of it, in ms, one for each block. Each block
    has a disturbance of its own, which all allocators feel."""
    rows = [
        made_up.row(case, name, block, 1e6 * value * (1 + block % 3), 1e7 * value, **row_facts)
        for name, values in times.items()
        for block, value in enumerate(values)
        for row_facts in (manifest.get("row", {}),)
    ]
    facts = {
        name: {"version": (versions or {}).get(name, "1.0"), "build_id": f"{folder.name}{name}"}
        for name in times
    }
    own = {key: value for key, value in manifest.items() if key != "row"}
    return made_up.write(folder, rows, at=at, allocators=facts, allocator_order=list(times), **own)


def even(hakmem: float, glibc: float, jemalloc: float, blocks: int = 5) -> dict[str, list[float]]:
    return {"hakmem": [hakmem] * blocks, "glibc": [glibc] * blocks, "jemalloc": [jemalloc] * blocks}


def test_the_pairs_of_all_blocks_count(tmp_path: Path) -> None:
    """Where one series alone would have the other peer first."""
    a = series(tmp_path / "a", "2026-01-01", even(1.0, 0.9, 1.25))
    b = series(tmp_path / "b", "2026-01-02", even(1.0, 1.25, 0.8, blocks=4))
    c = series(tmp_path / "c", "2026-01-03", even(1.0, 0.9, 1.25, blocks=3))
    (row,) = pooled.read([c, a, b]).rows("time")
    assert (row.case.name, row.best, row.series) == ("tiny_lifo", "glibc", 3)
    assert row.ratio.pairs == 12
    assert row.ratio.median == pytest.approx(1 / 0.9)
    assert row.ratio.low == pytest.approx(0.8)
    assert row.ratios["jemalloc"].median == pytest.approx(0.8)
    (alone,) = pooled.read([b]).rows("time")
    assert alone.best == "jemalloc"


def test_memory_is_pooled_too(tmp_path: Path) -> None:
    a = series(tmp_path / "a", "2026-01-01", even(1.0, 2.0, 4.0))
    (row,) = pooled.read([a]).rows("memory")
    assert row.best == "glibc"
    assert row.ratio.median == pytest.approx(0.5)


def test_a_peer_that_was_made_in_another_way_is_left_out(tmp_path: Path) -> None:
    """Its library may have another build id and be the same."""
    old = series(tmp_path / "old", "2026-01-01", even(1.0, 0.5, 0.5), versions={"glibc": "0.9"})
    new = series(tmp_path / "new", "2026-01-02", even(1.0, 1.25, 1.25))
    (row,) = pooled.read([new, old]).rows("time")
    assert row.ratios["glibc"].pairs == 5
    assert row.ratios["glibc"].median == pytest.approx(0.8)
    assert row.ratios["jemalloc"].pairs == 10


def test_a_row_of_other_arguments_is_left_out(tmp_path: Path) -> None:
    old = series(
        tmp_path / "old", "2026-01-01", even(1.0, 0.5, 0.5), row={"arguments": ["--ops", "1"]}
    )
    new = series(
        tmp_path / "new", "2026-01-02", even(1.0, 1.25, 2.0), row={"arguments": ["--ops", "2"]}
    )
    short = series(tmp_path / "short", "2025-12-31", even(1.0, 0.5, 0.5), scale=0.1)
    (row,) = pooled.read([old, new, short]).rows("time")
    assert (row.ratio.pairs, row.series) == (5, 1)
    assert row.ratio.median == pytest.approx(0.8)


def test_a_peer_of_few_pairs_is_not_the_best(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    few = series(
        tmp_path / "few",
        "2026-01-02",
        {"hakmem": [1.0] * 5, "glibc": [1.0] * 5, "jemalloc": [0.5] * 2},
    )
    (row,) = pooled.read([few]).rows("time")
    assert list(row.ratios) == ["glibc"]
    pooled.main([few])
    assert "jemalloc has too few pairs: tiny_lifo (2)" in capsys.readouterr().err


def test_a_row_that_the_newest_has_not_is_kept_and_one_without_peers_is_not(tmp_path: Path) -> None:
    old = series(tmp_path / "old", "2026-01-01", even(1.0, 2.0, 2.0), case="burst")
    alone = series(tmp_path / "alone", "2026-01-01", {"hakmem": [1.0] * 5}, case="larson_medium_1")
    new = series(tmp_path / "new", "2026-01-02", even(1.0, 0.5, 2.0))
    rows = pooled.read([old, new, alone]).rows("time")
    assert [(row.case.name, row.series) for row in rows] == [("tiny_lifo", 1), ("burst", 1)]


def test_rows_are_counted_by_median_and_by_interval(tmp_path: Path) -> None:
    wide = series(tmp_path / "1", "2026-01-01", even(1.2, 1.0, 2.0), case="a")
    near = series(tmp_path / "2", "2026-01-02", even(1.02, 1.0, 2.0), case="b")
    noisy_times = {"hakmem": [0.9, 1.2, 1.2, 1.2, 0.9], "glibc": [1.0] * 5}
    noisy = series(tmp_path / "3", "2026-01-03", noisy_times, case="c")
    first = series(tmp_path / "4", "2026-01-04", even(0.9, 1.0, 2.0), case="d")
    two = series(tmp_path / "5", "2026-01-05", even(1.2, 1.0, 2.0, blocks=2), case="e")
    rows = pooled.read([wide, near, noisy, first, two]).rows("time")
    assert pooled.counts(rows) == {
        "rows": 5, "first": 1, "behind": 4, "surely_behind": 2, "wide": 3, "surely_wide": 1,
    }  # fmt: skip


def test_series_of_two_machines_are_refused(tmp_path: Path) -> None:
    here = series(tmp_path / "here", "2026-01-01", even(1.0, 1.0, 1.0), huge_pages="always")
    there = series(tmp_path / "there", "2026-01-02", even(1.0, 1.0, 1.0), huge_pages="madvise")
    later = series(
        tmp_path / "later", "2026-01-03", even(1.0, 1.0, 1.0), huge_pages="madvise", kernel="9"
    )
    with pytest.raises(BenchError, match="huge_pages"):
        pooled.read([here, there])
    assert len(pooled.read([later, there]).series) == 2
    with pytest.raises(BenchError, match="twice"):
        pooled.read([there, there])


def test_unsound_series_are_refused_and_unfinished_ones_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = series(tmp_path / "bad", "2026-01-01", even(1.0, 1.0, 1.0), state="unsound")
    with pytest.raises(BenchError, match="unsound"):
        pooled.read([bad])
    half = series(tmp_path / "half", "2026-01-01", even(1.0, 1.0, 1.0), state="interrupted")
    pooled.main([half])
    assert "was interrupted" in capsys.readouterr().err


def test_rows_that_the_subject_failed_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = series(tmp_path / "old", "2026-01-01", even(1.0, 2.0, 2.0))
    new = series(tmp_path / "new", "2026-01-02", even(1.0, 2.0, 2.0))
    refused = {"case": "tiny_lifo", "allocator": "hakmem", "kind": "FAILED", "why": "made up"}
    (new / "refused.jsonl").write_text(json.dumps(refused) + "\n")
    pooled.main([old, new])
    said = capsys.readouterr()
    assert f"failed or was refused on tiny_lifo in {new}" in said.err
    assert "| tiny_lifo | glibc | **0.50 [0.50, 0.50]** | 5 | 1 |" in said.out
    assert "1 builds of hakmem, the newest oldhakmem" in said.out
    pooled.main([new])
    assert "0 builds of hakmem, the newest -" in capsys.readouterr().out


def test_the_builds_are_the_subjects(tmp_path: Path) -> None:
    def build(folder: str, at: str, build_id: str, subject: str = "hakmem") -> Path:
        times = {subject: [1.0] * 5, "glibc": [1.0] * 5}
        path = series(tmp_path / folder, at, times)
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["allocators"][subject]["build_id"] = build_id
        (path / "manifest.json").write_text(json.dumps(manifest))
        return path

    a = build("a", "2026-01-01", "one")
    b = build("b", "2026-01-02", "two")
    again = build("c", "2026-01-03", "one")
    without = build("d", "2026-01-04", "three", subject="jemalloc")
    pool = pooled.read([a, b, again, without])
    assert pool.builds == ["two", "one"]
    assert pool.subject == "hakmem"
    (row,) = pool.rows("time")
    assert list(row.ratios) == ["glibc"]
    assert (row.series, row.ratio.pairs) == (3, 15)


def test_few_pairs_have_the_interval_that_they_have(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pooled.main([series(tmp_path / "a", "2026-01-01", even(1.2, 1.0, 2.0))])
    assert "interval of 93.8 % (5 pairs)" in capsys.readouterr().out


def test_the_tables_say_what_they_are_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = series(tmp_path / "a", "2026-01-01", even(1.2, 1.0, 2.0))
    b = series(tmp_path / "b", "2026-01-02", even(1.2, 1.0, 2.0))
    pooled.main([a, b])
    text = capsys.readouterr().out
    assert "| tiny_lifo | glibc | 1.20 [1.20, 1.20] | 10 | 2 |" in text
    assert "## Time over 2 series" in text and "## Memory over 2 series" in text
    assert "behind on 1, on 1 by the whole interval; by more than a twentieth on 1 and 1" in text
    assert "2 builds of hakmem, the newest bhakmem" in text
    pooled.main([a, b], as_json_text=True)
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == pooled.SCHEMA and found["time"]["counts"]["wide"] == 1
    assert found["time"]["rows"][0]["peers"]["jemalloc"]["median"] == pytest.approx(0.6)
