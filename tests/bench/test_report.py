"""Tables, page, comparison and scorecard, from made-up results whose answers are known."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import made_up
import pytest

from harness import report
from harness.errors import BenchError
from harness.report import cells, compare, facts, plots, results, standing
from tests.cli.support import named_json

# An HTML element that is never closed.
VOID = {"meta", "br", "wbr", "hr", "img", "link", "input"}


def folder_of(tmp_path: Path, times: dict[str, Sequence[float]], **more: Any) -> Path:
    """A folder of one case with the given times in ms, block by block."""
    rows = [
        made_up.row("tiny_lifo", name, block, 1e6 * value)
        for name, values in times.items()
        for block, value in enumerate(values)
    ]
    return made_up.write(tmp_path, rows, allocator_order=list(times), **more)


class Balance(HTMLParser):
    """Follows opening and closing tags, and collects ids and links within the page."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id" and value:
                self.ids.append(value)
            elif name in ("href", "xlink:href") and value:
                (self.links if value.startswith("#") else self.outside).append(value)
            elif name == "src" and value:
                self.outside.append(value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing_else(tmp_path: Path) -> None:
    folder = made_up.matrix(tmp_path / "full")
    text = report.write([folder])
    page = (folder / "report.html").read_text()
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    assert len(set(balance.ids)) == len(balance.ids), "an id stands twice"
    assert {link[1:] for link in balance.links} <= set(balance.ids)
    assert balance.outside == []
    assert "@import" not in page and "url(http" not in page
    assert page.count("<svg ") == 4
    for name in made_up.CHARACTERS:
        assert f">{name}</td>" in page
    assert (folder / "table.md").read_text() == text
    assert "REFUSED" in text and "made up" in text


def test_the_same_rows_draw_the_same_page(tmp_path: Path) -> None:
    folder = made_up.matrix(tmp_path / "full", blocks=2)
    report.write([folder])
    report.write([folder], html=tmp_path / "again.html")
    assert (tmp_path / "again.html").read_text() == (folder / "report.html").read_text()


def test_what_a_row_says_is_text_and_not_markup(tmp_path: Path) -> None:
    refused = [{"case": "a", "allocator": "<b>", "kind": "FAILED", "why": "<script>|x</script>"}]
    rows = [made_up.row("tiny_lifo", "hakmem", 0, 1e6)]
    folder = made_up.write(tmp_path, rows, refused=refused, command="<script>")
    text = report.write([folder])
    page = (folder / "report.html").read_text()
    assert page.count("<script>") == 1
    assert "&lt;script&gt;|x" in page
    assert "<script>\\|x</script>" in text


def test_relative_figures_and_losses(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path, {"hakmem": [12, 12, 13], "glibc": [10, 10, 11], "floor": [5, 5, 5]}
    )
    loaded = results.load(folder)
    assert standing.relative(loaded, "tiny_lifo", "time") == pytest.approx(
        {"hakmem": 1.2, "glibc": 1.0, "floor": 0.5}
    )
    (loss,) = standing.losses(loaded, "time")
    assert loss.peer == "glibc"
    assert loss.factor == pytest.approx(1.2)
    assert loss.ratio.verdict == "slower"
    assert standing.losses(loaded, "memory") == []
    summary = report.summary([folder])
    assert "| tiny_lifo | synthetic workloads | glibc | 1.20 | 1.20 [1.18, 1.20] |" in summary
    assert "first in time on 0 of 1 rows (widest gap 1.20x, tiny_lifo)" in summary


def test_an_interval_is_called_what_it_is(tmp_path: Path) -> None:
    """Seven blocks: the interval is their whole range, which is more than 95 %."""
    own = [1.30, 1.01, 1.20, 1.21, 1.22, 1.23, 1.24]
    folder = folder_of(tmp_path, {"hakmem": own, "glibc": [1.0] * 7})
    text = report.write([folder])
    assert "interval of 98.4 % (7 pairs)" in text
    assert "1.22 [1.01, 1.30]" in text


def test_modes_and_the_floor_are_no_peers(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"hakmem": [10], "hakmem_lean": [8], "glibc": [11], "floor": [1]})
    loaded = results.load(folder)
    assert loaded.peers == ["glibc"]
    assert standing.losses(loaded, "time") == []
    assert standing.relative(loaded, "tiny_lifo", "time")["hakmem_lean"] == pytest.approx(0.8)


def test_pairs_are_formed_by_block(tmp_path: Path) -> None:
    """glibc lost its second block; the others still pair with their own."""
    rows = [made_up.row("tiny_lifo", "hakmem", block, time) for block, time in
            enumerate((1e6, 9e6, 3e6))]  # fmt: skip
    rows += [made_up.row("tiny_lifo", "glibc", 0, 2e6), made_up.row("tiny_lifo", "glibc", 2, 6e6)]
    loaded = results.load(made_up.write(tmp_path, rows))
    ratio = standing.versus(loaded, "tiny_lifo", "hakmem", "glibc", "time")
    assert ratio is not None
    assert ratio.pairs == 2
    assert ratio.median == pytest.approx(0.5)


def test_the_frames_own_memory_is_subtracted(tmp_path: Path) -> None:
    rows = [made_up.row("a", "hakmem", 0, 1e6, 10e6, extra={"frame_bytes": 4e6})]
    loaded = results.load(made_up.write(tmp_path / "one", rows))
    assert loaded.values("a", "hakmem", "memory") == [6e6]
    rows[0]["extra"] = {"frame_bytes": 11e6}
    loaded = results.load(made_up.write(tmp_path / "two", rows))
    with pytest.raises(BenchError, match="frame_bytes exceeds the peak"):
        loaded.values("a", "hakmem", "memory")


def test_the_metric_chooses_the_clock(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"hakmem": [10.0]})
    assert results.load(folder).values("tiny_lifo", "hakmem", "time") == [10e6]
    assert results.load(folder, "cpu").values("tiny_lifo", "hakmem", "time") == [9e6]
    with pytest.raises(BenchError, match="no metric 'moon'"):
        results.load(folder, "moon")


@pytest.mark.parametrize("metric", ["user", "system"])
def test_a_share_of_the_time_that_is_nothing_counts_a_tick(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], metric: str
) -> None:
    """So much the kernel says of short runs; there is no ratio of nothing, nor a mean with it."""
    shares: dict[str, list[float]] = {
        "hakmem": [0, 0, 0], "glibc": [0, 1e6, 0], "floor": [8e6, 8e6, 8e6],
    }  # fmt: skip
    rows = [
        {**made_up.row("tiny_lifo", name, block, 2e7), f"{metric}_ns": share}
        for name, values in shares.items()
        for block, share in enumerate(values)
    ]
    folder = made_up.write(tmp_path / "one", rows, allocator_order=list(shares))
    loaded = results.load(folder, metric)
    assert loaded.values("tiny_lifo", "hakmem", "time") == [4e6] * 3
    assert loaded.values("tiny_lifo", "floor", "time") == [8e6] * 3
    assert "1.00 [1.00, 1.00]" in report.write([folder], metric=metric)
    assert report.summary([folder], metric=metric)
    compare.main(folder, folder, metric=metric)
    assert "hakmem 1.000x time" in capsys.readouterr().out


def test_means_say_how_many_rows_they_are_over(tmp_path: Path) -> None:
    rows = [made_up.row(case, name, 0, time) for case, name, time in
            (("a", "hakmem", 1e6), ("b", "hakmem", 4e6), ("a", "glibc", 2e6), ("b", "glibc", 2e6),
             ("a", "jemalloc", 4e6))]  # fmt: skip
    folder = made_up.write(tmp_path, rows)
    loaded = results.load(folder)
    mean = standing.mean(loaded, "hakmem", "time", "synthetic")
    assert mean is not None
    assert (mean.rows, mean.firsts, mean.worst_case) == (2, 1, "b")
    assert [mean.value, mean.worst] == pytest.approx([2**0.5, 2.0])
    assert "| jemalloc | 4.00 (1 rows) |" in report.summary([folder])


def test_a_pair_that_failed_once_has_no_figures(tmp_path: Path) -> None:
    """In block 2 of 3; a counting run that failed says nothing about the timed ones."""
    times: dict[str, Sequence[float]] = {
        "hakmem": [10, 10, 10],
        "glibc": [1, 1],
        "jemalloc": [12, 12, 12],
    }
    refused = [{"case": "tiny_lifo", "allocator": "glibc", "block": 2, "kind": "FAILED", "why": ""},
               {"case": "tiny_lifo", "allocator": "jemalloc", "counting": True, "kind": "FAILED",
                "why": ""}]  # fmt: skip
    loaded = results.load(folder_of(tmp_path, times, refused=refused))
    assert loaded.values("tiny_lifo", "glibc", "time") == []
    assert loaded.values("tiny_lifo", "jemalloc", "time") == [12e6] * 3
    assert loaded.allocators == ["hakmem", "jemalloc"]
    assert "hakmem is first in time on 1 of 1 rows" in report.write([tmp_path])


def test_a_row_that_the_subject_failed_is_one_it_is_not_first_in(tmp_path: Path) -> None:
    rows = [made_up.row(case, name, 0, time) for case in ("burst", "gcc")
            for name, time in (("hakmem", 1e6), ("glibc", 2e6))]  # fmt: skip
    refused = [{"case": "gcc", "allocator": "hakmem", "block": 1, "kind": "FAILED", "why": "-11"}]
    folder = made_up.write(tmp_path, rows, refused=refused)
    says = "hakmem is first in time on 1 of 2 rows and in memory on 1 of 2 rows. It has no figures"
    assert f"{says} on gcc." in report.summary([folder])
    assert "0 of 2 rows, the widest first" in report.summary([folder])
    refused.append({"case": "burst", "allocator": "hakmem", "kind": "FAILED", "why": "-11"})
    folder = made_up.write(tmp_path, rows, refused=refused)
    text = report.write([folder])
    assert "hakmem has no figures on burst, gcc." in text
    assert "| hakmem | - |" in text


@pytest.mark.parametrize(
    ("files", "complaint"),
    [({}, "no result folder"), ({"manifest.json": "{}"}, "no measured row"),
     ({"manifest.json": "{}", "rows.jsonl": '{"case": "a", "bl\n{}\n'}, r"rows.jsonl:1:")],
)  # fmt: skip
def test_a_broken_folder_is_said_to_be_one(
    tmp_path: Path, files: dict[str, str], complaint: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(BenchError, match=complaint):
        report.write([tmp_path])


@pytest.mark.parametrize(
    ("state", "says"),
    [("interrupted", "was interrupted: not all rows"), ("running", "has not finished"),
     ("unsound", "is unsound"), ("strange", "state of this run is &#x27;strange&#x27;")],
)  # fmt: skip
def test_a_run_that_is_not_complete_says_so_everywhere(
    tmp_path: Path, state: str, says: str
) -> None:
    folder = folder_of(tmp_path, {"hakmem": [1], "glibc": [2]}, state=state)
    text = report.write([folder])
    assert says in (folder / "report.html").read_text()
    assert unescape(says) in text
    assert unescape(says) in report.summary([folder])


def test_a_run_without_hakmem_has_a_subject(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"floor": [1], "glibc": [2], "jemalloc": [3]})
    assert results.load(folder).subject == "glibc"
    assert "glibc is first in time on 1 of 1 rows" in report.summary([folder])


def test_figures_as_json(tmp_path: Path) -> None:
    found = report.as_json([folder_of(tmp_path, {"hakmem": [12] * 3, "glibc": [10] * 3})])
    assert named_json(json.dumps(found, allow_nan=False)) == found
    row = found["cases"][0]["allocators"][0]
    assert row["time"]["median"] == 12e6
    assert row["time"]["versus_baseline"]["verdict"] == "slower"
    assert [(each["case"], each["what"]) for each in found["not_first"]] == [("tiny_lifo", "time")]
    means = {(each["allocator"], each["what"]): each["value"] for each in found["means"]}
    assert means["hakmem", "time"] == pytest.approx(1.2)
    assert len(found["means"]) == len(means) > 1
    one = report.as_json([folder_of(tmp_path / "one", {"hakmem": [12], "glibc": [10]})])
    assert json.dumps(one, allow_nan=False)


def test_each_name_stands_for_a_build(tmp_path: Path) -> None:
    table = facts.allocators(results.load(made_up.matrix(tmp_path, blocks=2)))
    rows = [[cell.text for cell in row] for row in table.rows]
    assert [row[0] for row in rows] == list(made_up.CHARACTERS)
    assert all(
        row[1:] == ["1.0", "Debian package", "GCC 12.2.0", "-", "ab" * 6, "cd" * 6] for row in rows
    )


def test_latency_is_the_median_of_the_repetitions(tmp_path: Path) -> None:
    """Of malloc alone: nothing was noted of free."""
    rows = [
        made_up.row("latency", name, block, 1e6,
                    latency={"malloc": dict.fromkeys(facts.LATENCY_POINTS, ns)})
        for name, times in (("hakmem", (10, 1000, 20)), ("glibc", (40, 40, 1)))
        for block, ns in enumerate(times)
    ]  # fmt: skip
    (table,) = facts.latency(results.load(made_up.write(tmp_path, rows)))
    assert table.title == "latency: malloc"
    shown = {row[0].text: (row[1].text, row[1].ratio, row[1].first) for row in table.rows}
    assert shown == {"hakmem": ("20", 1.0, True), "glibc": ("40", 2.0, False)}


def test_plots_are_well_formed_and_name_everyone(tmp_path: Path) -> None:
    loaded = results.load(made_up.matrix(tmp_path / "full", blocks=2))
    drawn = [plots.scatter(loaded), plots.strips(loaded), plots.rss_over_time(loaded),
             plots.latency(loaded)]  # fmt: skip
    for svg in drawn:
        assert svg is not None
        text = " ".join(ElementTree.fromstring(svg).itertext())
        assert all(name in text for name in made_up.CHARACTERS if name != "floor")


def test_nothing_recorded_draws_nothing(tmp_path: Path) -> None:
    loaded = results.load(folder_of(tmp_path, {"hakmem": [1], "glibc": [2]}))
    assert plots.rss_over_time(loaded) is None
    assert plots.latency(loaded) is None


def test_exceedance_of_a_histogram() -> None:
    uppers, shares = plots.exceedance([(10, 90), (20, 9), (40, 1)])
    assert uppers == [10, 20]
    assert shares == pytest.approx([0.10, 0.01])


def test_shades_grow_with_the_ratio() -> None:
    from harness.report.page import shade

    tones = [shade(ratio) for ratio in (1.0, 1.001, 1.5, 3.0, 4.0, 40.0)]
    assert len(set(tones[:5])) == 5
    assert tones[4] == tones[5]


SAME = [10.0, 10.1, 9.9, 10.0, 10.05, 9.95, 10.0]


@pytest.mark.parametrize(
    ("factor", "noise", "status", "says"),
    [(1.0, 0.0, 0, "same"), (1.15, 0.0, 1, "worse: time of hakmem on tiny_lifo: 1.15"),
     (0.8, 0.0, 0, "faster"), (1.02, 0.0, 0, "same"), (1.0, 3.0, 3, "too noisy to tell")],
)  # fmt: skip
def test_comparison_of_two_folders(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    factor: float,
    noise: float,
    status: int,
    says: str,
) -> None:
    """A planted change is found, and only that; noise that could hide one is admitted."""
    before = folder_of(tmp_path / "a", {"hakmem": SAME, "glibc": SAME})
    later = [factor * (value + noise * (-1) ** turn) for turn, value in enumerate(SAME)]
    after = folder_of(tmp_path / "b", {"hakmem": later, "glibc": SAME})
    assert compare.main(before, after) == status
    assert says in capsys.readouterr().out
    assert compare.main(before, after, as_json_text=True) == status
    assert named_json(capsys.readouterr().out)["status"] == status


def test_a_peer_that_became_slower_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = folder_of(tmp_path / "a", {"hakmem": SAME, "glibc": SAME})
    after = folder_of(tmp_path / "b", {"hakmem": SAME, "glibc": [2 * value for value in SAME]})
    assert compare.main(before, after) == 0
    assert "| slower |" in capsys.readouterr().out


@pytest.mark.parametrize("block", [0, 3])
def test_a_row_that_the_second_folder_failed_is_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], block: int
) -> None:
    """In its first block or in a later one; a counting run that failed says nothing, and a row that
    was left out does not either."""
    cases = ("tiny_lifo", "burst", "gcc", "redis_set")
    rows = [made_up.row(case, "hakmem", 0, 1e6) for case in cases]
    before = made_up.write(tmp_path / "a", [{**row, "block": n} for n in range(7) for row in rows])
    later = [{**row, "block": n} for n in range(7) for row in rows[:3]
             if row["case"] != "gcc" or n < block]  # fmt: skip
    lost = {"allocator": "hakmem", "kind": "FAILED", "why": ""}
    counting = {**lost, "case": "burst", "counting": True}
    after = made_up.write(tmp_path / "b", later, refused=[counting])
    assert compare.main(before, after) == 0
    refused = [counting, {**lost, "case": "gcc", "block": block}]
    after = made_up.write(tmp_path / "b", later, refused=refused)
    capsys.readouterr()
    assert compare.main(before, after) == 1
    assert "worse: hakmem failed or was refused on gcc\n" in capsys.readouterr().out
    assert compare.main(before, after, as_json_text=True) == 1
    assert json.loads(capsys.readouterr().out)["failed"] == ["gcc"]


def test_rows_of_another_scale_or_work_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A quarter of the work in a quarter of the time is neither faster nor slower."""
    cases = ("tiny_lifo", "burst")
    rows = [made_up.row(case, "hakmem", block, 1e6, arguments=["--ops", "4"])
            for case in cases for block in range(7)]  # fmt: skip
    before = made_up.write(tmp_path / "a", rows, scale=1.0)
    fewer = [{**row, "wall_ns": 250_000, "arguments": ["--ops", "1"]} for row in rows[:7]]
    after = made_up.write(tmp_path / "b", fewer + rows[7:], scale=1.0, state="interrupted")
    assert compare.main(before, after) == 3
    seen = capsys.readouterr()
    assert "left out, of another scale or with other arguments: tiny_lifo\n" in seen.err
    assert "tiny_lifo" not in seen.out and "| burst |" in seen.out
    assert str(tmp_path / "b") in seen.err
    scaled = made_up.write(tmp_path / "c", rows, scale=0.25)
    assert compare.main(before, scaled) == 3
    assert "share no row" in capsys.readouterr().err


def test_a_folder_that_is_not_to_be_used_compares_to_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [made_up.row("burst", "hakmem", block, 1e6) for block in range(7)]
    folders = [made_up.write(tmp_path / state, rows, state=state)
               for state in ("complete", "running", "unsound")]  # fmt: skip
    assert [compare.main(folders[0], folder) for folder in folders] == [0, 3, 1]
    assert [compare.main(folder, folders[0]) for folder in folders] == [0, 3, 1]
    capsys.readouterr()
    compare.main(folders[0], folders[2], as_json_text=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["states"]) == (1, ["complete", "unsound"])


def test_rows_that_one_folder_has_alone_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [made_up.row(case, "hakmem", block, 1e6)
            for case in ("burst", "gcc") for block in range(7)]  # fmt: skip
    whole = made_up.write(tmp_path / "whole", rows)
    part = made_up.write(tmp_path / "part", rows[:7])
    assert compare.main(whole, part) == compare.main(part, whole) == 0
    assert capsys.readouterr().err.count("left out, only one folder has them: gcc\n") == 2
    compare.main(whole, part, as_json_text=True)
    assert json.loads(capsys.readouterr().out)["left_out"] == ["gcc"]


def test_a_baseline_that_was_not_measured_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a", {"hakmem": SAME, "glibc": SAME})
    assert results.load(folder, baseline="glibc").baseline == "glibc"
    with pytest.raises(BenchError, match="no baseline 'glib'; measured: glibc, hakmem"):
        results.load(folder, baseline="glib")


def test_results_of_another_kind_are_told_from_a_matrix(tmp_path: Path) -> None:
    starts = [{"program": "true", "allocator": "glibc", "kind": "memory"}]
    folder = made_up.write(tmp_path / "a", starts, kind="startup")
    with pytest.raises(BenchError, match="results of another kind: startup"):
        results.load(folder)


def test_folders_without_a_common_row_compare_to_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = folder_of(tmp_path / "a", {"hakmem": SAME})
    after = folder_of(tmp_path / "b", {"glibc": SAME})
    assert compare.main(before, after) == 3
    assert "share no row" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(0.5, "0.5 ns"), (999.4, "999 ns"), (999.9, "1 us"), (1234.0, "1.23 us"),
     (999_900_000.0, "1 s"), (12_340_000_000.0, "12.3 s")],
)  # fmt: skip
def test_times_have_a_unit_that_suits_them(nanoseconds: float, text: str) -> None:
    assert cells.seconds_text(nanoseconds) == text


def test_a_loss_never_reads_as_none() -> None:
    assert [cells.factor_text(factor) for factor in (0.98, 1.0, 1.004, 1.2)] == [
        "0.98", "1.00", "1.004", "1.20"
    ]  # fmt: skip
