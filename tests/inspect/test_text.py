"""What `hakmem inspect` prints: tables of one heap, and the names of programs."""

from __future__ import annotations

import io
import os
import shutil
from dataclasses import replace
from pathlib import Path

from hakmem.inspect.model import Decision
from hakmem.inspect.targets import take
from hakmem.inspect.text import render
from hakmem.render import Style
from tests.inspect.support.synthetic import make_snapshot
from tests.inspect.support.targets import await_line, compile_program, inspect, running

PLAIN = Style(io.StringIO(), {})


def test_one_heap_says_what_is_of_it_alone() -> None:
    made = make_snapshot()
    heap_classes = made.heap_classes.copy()
    heap_classes["quarantined"][heap_classes["heap_id"] == 2] = 4321
    snapshot = replace(made, heap_classes=heap_classes)
    said = render(snapshot, PLAIN, heap=2)
    assert "of heap 2 alone" in said
    (heading,) = [line for line in said.splitlines() if line.split()[:2] == ["block", "live"]]
    assert heading.split() == [
        "block", "live", "cached", "free", "remote", "held", "back", "live", "bytes", "slabs",
    ]  # fmt: skip
    assert "4,321" in said
    assert "held back" not in render(snapshot, PLAIN, heap=1)
    assert "alone" not in render(snapshot, PLAIN)


def test_totals_alone_tell_of_no_pages() -> None:
    """JSON without tables: zeros would be wrong."""
    made = make_snapshot()
    totals = replace(made, superslabs=made.superslabs[:0], gauges={**made.gauges, "slab_bytes": 1})
    said = render(totals, PLAIN)
    assert "not known page by page" in said
    assert "superslabs of 4 MiB" not in said
    assert "superslabs of 4 MiB" in render(made, PLAIN)


def test_research_shows_the_classes_that_were_used() -> None:
    """Of the first class nothing was counted, of each other its own number of calls."""
    made = make_snapshot()
    assert made.research is not None
    _, section = render(made, PLAIN).split("\nresearch\n")
    counts = made.research.operations["mallocs"]
    shown = [line.split() for line in section.splitlines()[1:] if line.endswith(" 0")]
    assert shown == [
        [f"{row.block_bytes:,}", str(counts[row.index]), "0"] for row in made.size_classes[1:]
    ]
    assert counts[0] == 0


def test_nothing_that_a_target_says_moves_the_cursor() -> None:
    """Of JSON anybody may have written every word; of a process its own tables have them."""
    evil = "\x1b[2J\n"
    made = make_snapshot()
    assert made.research is not None and made.waterfall is not None and made.events
    research = replace(
        made.research,
        operations={evil: next(iter(made.research.operations.values()))},
        histograms=tuple(
            replace(histogram, name=evil, unit=evil) for histogram in made.research.histograms
        ),
        hits={evil: 1},
        free_hits={evil: 1},
    )
    rows = tuple(replace(row, name=evil, note=evil) for row in made.waterfall.rows)
    snapshot = replace(
        made,
        name=evil,
        exe=evil,
        version=evil,
        build_id=evil,
        mode=evil,
        options=tuple(
            replace(option, name=evil, text=evil, origin=evil) for option in made.options
        ),
        heaps=tuple(replace(heap, state=evil, thread_name=evil) for heap in made.heaps),
        events=tuple(replace(event, kind=evil, arguments={evil: 1}) for event in made.events),
        decisions=(Decision(1, 1, 1, evil, 16, 1, 2, evil, 3),),
        research=research,
        waterfall=replace(made.waterfall, rows=rows),
        notes=(evil,),
    )
    said = render(snapshot, PLAIN, everything=True)
    assert "?[2J?" in said
    assert "\x1b" not in said
    assert len(said.splitlines()) == said.count("\n")
    assert not [line for line in said.splitlines() if line.startswith("[2J")]


def test_a_name_that_is_no_utf_8(tmp_path: Path) -> None:
    """The kernel tells it twice, as the program and as a mapped file: it is the same name."""
    program = compile_program("many.c", tmp_path / "many")
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    shutil.copy(program, odd)
    with running([odd, "1000", "64", "1"]) as process:
        await_line(process, "ready")
        snapshot = take(str(process.pid))
        done = inspect(process.pid)
    assert snapshot.exe == f"{tmp_path}/caf\ufffd"
    assert snapshot.waterfall is not None
    rows = {row.name: row.bytes for row in snapshot.waterfall.rows}
    assert rows["program"] > 0
    assert (done.returncode, done.stderr) == (0, "")
