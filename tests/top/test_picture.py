"""Rows and characters of a picture: they say what the snapshot says."""

from __future__ import annotations

import argparse
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from hakmem.commands.top import _once
from hakmem.inspect.model import SUPERSLAB_PAGES, RunKind
from hakmem.render import Style, json_text
from hakmem.top import drawing, frame, tables
from hakmem.top.sampler import View
from tests.inspect.support.synthetic import make_snapshot
from tests.top.support import MadeUpSession, made_up_sampler

PLAIN = Style(io.StringIO(), {})


def make_view(pid: int = 4242, rss_bytes: tuple[int, ...] = (1 << 20, 3 << 20)) -> View:
    return View(pid, False, None, make_snapshot(pid=pid), {"refills": 12.5}, rss_bytes)


# ---- Tables


def test_classes_say_what_the_snapshot_says() -> None:
    snapshot = make_snapshot()
    table = tables.classes(snapshot)
    shown = {int(row.key): [cell.value for cell in row.cells] for row in table.rows}
    for row in snapshot.classes:
        values = shown.pop(row.block_bytes)
        assert values[:4] == [row.block_bytes, row.live_blocks, row.live_bytes, row.cached_blocks]
    assert shown == {}
    bytes_column = [row.cells[table.sort].value for row in table.rows]
    assert bytes_column == sorted(bytes_column, reverse=True)


def test_every_column_sorts_both_ways() -> None:
    views = [make_view(7, (5,)), make_view(12, (9,)), make_view(9, (7,))]
    for table in (
        tables.processes(views),
        tables.classes(make_snapshot()),
        tables.heaps(make_snapshot()),
        tables.rates(views[0]),
    ):
        assert len(table.rows) > 1
        for column in range(len(table.columns)):
            down = [row.cells[column].value for row in table.sorted_by(column).rows]
            up = [row.cells[column].value for row in table.sorted_by(column, reverse=True).rows]
            first = sorted(down) if isinstance(down[0], str) else sorted(down, reverse=True)
            assert down == first
            assert up == first[::-1]


def test_names_reach_the_terminal_without_control_characters() -> None:
    evil = "evil\x1b[2J\n"
    snapshot = replace(make_snapshot(), name=evil, version=evil, mode=evil)
    view = View(1, False, None, snapshot, {}, ())
    assert tables.processes([view]).rows[0].cells[1].text == "evil?[2J?"
    assert "\x1b" not in frame.frame_text([view], drawing.UNICODE, PLAIN, deep=True)


# ---- Characters


def test_sparkline_stretches_from_lowest_to_highest() -> None:
    assert drawing.sparkline([0, 7, 14], 8) == "▁▅█"
    assert drawing.sparkline([5, 5], 8) == "▁▁"
    assert drawing.sparkline([], 8) == drawing.sparkline([1, 2], 0) == ""
    assert drawing.sparkline(range(100), 4, drawing.ASCII) == "_-*#"


def test_map_has_each_page_once() -> None:
    """Against a plain loop over every page."""
    snapshot = make_snapshot(superslab_count=4)
    kinds = drawing.page_kinds(snapshot)
    assert kinds.shape == (4, SUPERSLAB_PAGES)
    found = set()
    for number, superslab in enumerate(snapshot.superslabs):
        expected = {}
        for run in snapshot.runs_of(number):
            first = (int(run["start"]) - int(superslab["start"])) >> 16
            for page in range(first, first + int(run["pages"])):
                if run["kind"] == RunKind.LARGE:
                    expected[page] = drawing.LARGE if page == first else drawing.LARGE_MORE
                elif run["live"] == 0:
                    expected[page] = drawing.SLAB_EMPTY
                elif run["live"] == run["block_count"]:
                    expected[page] = drawing.SLAB_FULL
                else:
                    third = 3 * int(run["live"]) // int(run["block_count"])
                    expected[page] = drawing.SLAB_LOW + third
        for page in range(SUPERSLAB_PAGES):
            if int(superslab["dirty_young"]) >> page & 1:
                expected[page] = drawing.DIRTY
            elif int(superslab["zero"]) >> page & 1:
                expected[page] = drawing.PURGED
        assert kinds[number].tolist() == [expected[page] for page in range(SUPERSLAB_PAGES)]
        found |= set(expected.values())
    # The made-up slabs are empty, a tenth live, half live or full.
    assert found == set(range(drawing.OTHER)) - {drawing.SLAB_HIGH}


def test_map_of_nothing_is_nothing() -> None:
    snapshot = make_snapshot()
    empty = replace(snapshot, superslabs=snapshot.superslabs[:0], runs=snapshot.runs[:0])
    assert drawing.occupancy_map(empty) == []
    bare = replace(snapshot, runs=snapshot.runs[:0])
    assert set(np.unique(drawing.page_kinds(bare))) <= {
        drawing.OTHER, drawing.DIRTY, drawing.PURGED,
    }  # fmt: skip


def test_map_is_cut_in_words() -> None:
    lines = drawing.occupancy_map(make_snapshot(superslab_count=5), drawing.ASCII, rows_max=2)
    assert len(lines) == 3 and lines[2] == "and 3 superslabs more"
    assert lines[0].isascii()


def test_charset_is_what_the_stream_can_carry() -> None:
    assert drawing.charset_for("utf-8") is drawing.UNICODE
    for encoding in ("ascii", "latin-1", "no-such-encoding", None):
        assert drawing.charset_for(encoding) is drawing.ASCII
    assert (drawing.ASCII.pages + drawing.ASCII.bars).isascii()


# ---- A frame


def test_frame_of_one_process_has_everything() -> None:
    view = make_view()
    text = frame.frame_text([view], drawing.ASCII, PLAIN, deep=True)
    assert text.isascii()
    for word in (
        "4242",
        "server",
        "CLASS",
        "HEAP",
        "worker-1",
        "refills",
        "12",
        "0x7f3a40000000",
    ):
        assert word in text
    assert "RSS 3.0 MiB _#" in text


def test_frame_of_many_has_a_line_for_each() -> None:
    ended = replace(make_view(5), ended=True, problem="process 5 has ended")
    strange = View(6, False, "process 6 is another user's", None, {}, ())
    text = frame.frame_text([make_view(), ended, strange], drawing.UNICODE, PLAIN, deep=False)
    assert "CLASS" not in text
    assert "5 server, hakmem 2.0.0 fast, ENDED: its last picture" in text
    assert "6 ?: process 6 is another user's" in text


@pytest.mark.parametrize("as_json", [False, True])
def test_one_frame_of_nobody_is_status_2(capsys: pytest.CaptureFixture[str], as_json: bool) -> None:
    options = argparse.Namespace(pids=[], json=as_json, interval=0.05)
    assert _once(made_up_sampler({}, given=False), options) == 2
    said = capsys.readouterr()
    assert "no process here uses hakmem" in said.err
    assert ('"processes": []' in said.out) == as_json
    sampler = made_up_sampler({10: MadeUpSession(10)}, given=False)
    assert _once(sampler, options) == 0
    assert capsys.readouterr().err == ""


def test_a_rate_that_is_not_known_is_no_number() -> None:
    view = make_view()
    assert view.snapshot is not None
    cells = {row.key: [cell.text for cell in row.cells] for row in tables.rates(view).rows}
    assert cells["refills"][1] == "12"
    unknown = tables.rates(replace(view, rates={}))
    assert {row.cells[1].text for row in unknown.rows} == {"-"}
    assert unknown.sorted_by(1).rows


def test_frame_as_json() -> None:
    facts = json.loads(json_text(frame.frame_json([make_view(5)])))
    assert facts["schema"] == "hakmem.top/1"
    (process,) = facts["processes"]
    assert (process["pid"], process["state"], process["rss_bytes"]) == (5, "live", 3 << 20)
    assert process["rates"] == {"refills": 12.5}
    assert process["snapshot"]["detail"] == "totals"
