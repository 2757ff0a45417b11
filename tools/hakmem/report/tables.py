"""The tables of a page: size classes, heaps, large and huge blocks, events, settings, words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from hakmem.inspect.findings import share_text
from hakmem.inspect.model import FULLNESS, ClassTotals, Frame, Heap, Snapshot
from hakmem.inspect.text import place
from hakmem.render import size
from hakmem.report.parts import (
    Cell,
    Column,
    address,
    attribute,
    bar,
    bytes_cell,
    count,
    details,
    legend,
    percent,
    safe,
    table,
    text,
)

# Rows at most; the rest is said in one line.
HEAPS_MOST = 500
BLOCKS_MOST = 300
EVENTS_MOST = 300
SITES_MOST = 100

STATES = ("live", "cached", "remote", "quarantined", "free")
STATE_WORDS = {
    "live": "live",
    "cached": "in a thread cache",
    "remote": "freed by another thread, on its way",
    "quarantined": "quarantined",
    "free": "free in its slab",
}
FULLNESS_WORDS = ("no live block", "up to a quarter live", "up to a half", "up to three quarters",
                  "less than all", "all live")  # fmt: skip


def state_legend(states: Iterable[str] = STATES) -> str:
    return legend([(state, STATE_WORDS[state]) for state in states])


def _left_out(shown: int, whole: int, what: str) -> str:
    if shown >= whole:
        return ""
    return f'<p class="soft">The {shown:,} largest of {whole:,} {safe(what)} are listed.</p>'


# ---- Size classes


def _blocks(row: ClassTotals) -> dict[str, int]:
    return {state: int(getattr(row, f"{state}_blocks")) for state in STATES}


def _used_bar(row: ClassTotals) -> str:
    """The class's slabs by the state of their blocks."""
    blocks = {state: number for state, number in _blocks(row).items() if number}
    label = ", ".join(f"{number:,} {state}" for state, number in blocks.items())
    held = max(row.slab_bytes, 1)
    return bar(
        [(state, number * row.block_bytes / held) for state, number in blocks.items()], label
    )


def _fullness_bars(row: ClassTotals) -> str:
    """Six bars: how many slabs are how full."""
    most = max(row.fullness, default=0) or 1
    label = ", ".join(
        f"{number:,} {words}"
        for number, words in zip(row.fullness, FULLNESS_WORDS, strict=True)
        if number
    )
    bars = "".join(
        f'<rect x="{index * 10}" y="{16 - 16 * number / most:.1f}" width="8" '
        f'height="{16 * number / most:.1f}"/>'
        for index, number in enumerate(row.fullness)
    )
    return (
        f'<svg class="spark" viewBox="0 0 60 16" preserveAspectRatio="none" role="img" '
        f'aria-label="Slabs: {safe(label)}"><title>Slabs: {safe(label)}</title>{bars}</svg>'
    )


def classes(snapshot: Snapshot) -> str:
    """One row for each size class that has slabs."""
    rows = [row for row in snapshot.classes if row.slabs]
    is_sampled = any(row.slack_bytes is not None for row in rows)
    columns = [
        Column("block", hint="bytes of one block"), Column("slabs"), Column("slab bytes"),
        Column("live blocks"),
        Column("live"), Column("use of the slabs", "text", sortable=False), Column("cached"),
        Column("remote", hint="freed by other threads, not yet back"), Column("free in slabs"),
        *([Column("slack", hint="estimated from samples")] if is_sampled else []),
        Column("fragmentation", hint="share of the slabs' bytes that no live block uses"),
        Column("slabs by fullness", "text", sortable=False,
               hint="from slabs without a live block, left, to full ones, right"),
    ]  # fmt: skip
    body = [
        [
            count(row.block_bytes), count(row.slabs), bytes_cell(row.slab_bytes),
            count(row.live_blocks),
            bytes_cell(row.live_bytes), Cell(_used_bar(row), kind="text"),
            bytes_cell(row.cached_bytes), bytes_cell(row.remote_blocks * row.block_bytes),
            bytes_cell(row.free_bytes),
            *([bytes_cell(row.slack_bytes)] if is_sampled else []),
            percent(row.fragmentation), Cell(_fullness_bars(row), kind="text"),
        ]
        for row in rows
    ]  # fmt: skip
    live = sum(row.live_bytes for row in rows)
    held = sum(row.slab_bytes for row in rows)
    total = [
        text("all", ""), count(sum(row.slabs for row in rows)), bytes_cell(held),
        count(sum(row.live_blocks for row in rows)), bytes_cell(live), text(""),
        bytes_cell(sum(row.cached_bytes for row in rows)),
        bytes_cell(sum(row.remote_blocks * row.block_bytes for row in rows)),
        bytes_cell(sum(row.free_bytes for row in rows)),
        *([bytes_cell(sum(row.slack_bytes or 0 for row in rows))] if is_sampled else []),
        percent(1 - live / held if held else 0.0), text(""),
    ]  # fmt: skip
    if not rows:
        return ""
    states = [state for state in STATES if any(_blocks(row)[state] for row in rows)]
    drawn = table(columns, body, caption="Size classes with slabs", total=total, anchor="by-class")
    return state_legend(states) + drawn


def fullness(snapshot: Snapshot) -> str:
    """All slabs by how full they are: where memory is held by few live blocks."""
    sums = [
        sum(row.fullness[index] * row.slab_bytes // row.slabs for row in snapshot.classes
            if row.slabs)
        for index in range(len(FULLNESS))
    ]  # fmt: skip
    slabs = [sum(row.fullness[index] for row in snapshot.classes) for index in range(len(FULLNESS))]
    whole = sum(sums)
    if not whole:
        return ""
    rows = [
        [
            text(words), count(slabs[index]), bytes_cell(sums[index]),
            Cell(share_text(sums[index], whole), sums[index]),
            Cell(bar([("live", sums[index] / whole)], share_text(sums[index], whole)), kind="text"),
        ]
        for index, words in enumerate(FULLNESS_WORDS)
    ]  # fmt: skip
    return table(
        [Column("live blocks in a slab", "text", sortable=False), Column("slabs"),
         Column("of bytes"), Column("of all slabs"), Column("", "text", sortable=False)],
        rows,
        caption="Slabs by how full they are",
        anchor="by-fullness",
    )  # fmt: skip


# ---- Heaps


def heaps(snapshot: Snapshot) -> str:
    """One row for each heap, the largest first."""
    ordered = sorted(snapshot.heaps, key=lambda heap: -heap.slab_bytes)
    shown = ordered[:HEAPS_MOST]
    rows = [
        [
            count(heap.id), text(heap.thread_name or "-", "name"),
            count(heap.thread_id) if heap.thread_id else text("-", ""),
            text(heap.state + ("" if heap.settled else ", changing")), count(heap.slabs),
            bytes_cell(heap.slab_bytes), bytes_cell(heap.live_bytes),
            Cell(_heap_bar(heap), kind="text"), bytes_cell(heap.cached_bytes),
            bytes_cell(heap.free_bytes), count(heap.remote_blocks), count(heap.pending_blocks),
            bytes_cell(heap.structure_bytes),
        ]
        for heap in shown
    ]  # fmt: skip
    if not rows:
        return ""
    drawn = table(
        [Column("heap"), Column("thread", "text"), Column("thread id"), Column("state", "text"),
         Column("slabs"), Column("slab bytes"), Column("live"),
         Column("use of the slabs", "text", sortable=False), Column("cached"), Column("free"),
         Column("remote", hint="blocks freed by other threads, not yet back in this heap's slabs"),
         Column("pending", hint="blocks of other heaps, freed by this thread and in its cache"),
         Column("structures", hint="of the thread cache")],
        rows,
        caption="Heaps and their threads",
        anchor="by-heap",
        is_tall=len(rows) > 20,
    )  # fmt: skip
    return drawn + _left_out(len(shown), len(ordered), "heaps")


def _heap_bar(heap: Heap) -> str:
    parts = {"live": heap.live_bytes, "cached": heap.cached_bytes, "free": heap.free_bytes}
    label = ", ".join(f"{size(number)} {state}" for state, number in parts.items() if number)
    held = max(heap.slab_bytes, 1)
    return bar([(state, number / held) for state, number in parts.items()], label)


# ---- Large, huge and guarded blocks


def blocks(snapshot: Snapshot) -> str:
    """Blocks outside slabs, the largest first."""
    rows: list[tuple[int, Sequence[Cell]]] = []
    large = snapshot.large
    for run in large[np.argsort(-large["large_bytes"].astype(np.int64), kind="stable")][
        :BLOCKS_MOST
    ]:
        usable = int(run["large_bytes"])
        resident = int(run["resident_bytes"]) if snapshot.residency else None
        rows.append((usable, _block("large", int(run["start"]), usable, resident, "live")))
    for block in snapshot.huge:
        resident = block.resident_bytes if snapshot.residency else None
        state = "live" if block.live else "freed, kept for reuse"
        usable = block.usable_bytes
        rows.append((usable, _block("huge", block.start, usable, resident, state)))
    for guarded in snapshot.guarded:
        cells = _block("guarded", guarded.start, guarded.bytes, None, guarded.state)
        rows.append((guarded.bytes, cells))
    rows.sort(key=lambda each: -each[0])
    whole = len(large) + len(snapshot.huge) + len(snapshot.guarded)
    if not rows:
        return ""
    drawn = table(
        [Column("kind", "text"), Column("address", "text"), Column("usable"), Column("resident"),
         Column("state", "text")],
        [cells for _, cells in rows[:BLOCKS_MOST]],
        caption="Blocks that are no part of a slab",
        anchor="by-block",
        is_tall=len(rows) > 20,
    )  # fmt: skip
    return drawn + _left_out(min(len(rows), BLOCKS_MOST), whole, "blocks")


def _block(
    kind: str, start: int, usable: int, resident: int | None, state: str
) -> tuple[Cell, ...]:
    return (text(kind), address(start), bytes_cell(usable), bytes_cell(resident), text(state))


def sites(snapshot: Snapshot) -> str:
    """Who allocated the guarded blocks that are live, most bytes first."""
    shown = snapshot.guarded_sites[:SITES_MOST]
    rows = [
        [
            count(site.blocks), bytes_cell(site.bytes),
            Cell("<br>".join(_frame(frame) for frame in site.frames) or "-", kind="text"),
        ]
        for site in shown
    ]  # fmt: skip
    if not rows:
        return ""
    drawn = table(
        [Column("blocks"), Column("bytes"), Column("calls, the innermost first", "text",
                                                   sortable=False)],
        rows,
        caption="Who allocated the live guarded blocks",
        anchor="by-site",
        is_tall=len(rows) > 5,
    )  # fmt: skip
    return drawn + _left_out(len(shown), len(snapshot.guarded_sites), "places")


def _frame(frame: Frame) -> str:
    build = f"build {frame.build_id}" if frame.build_id else ""
    return f'<span class="mono"{attribute("title", build)}>{safe(place(frame))}</span>'


# ---- Everything else


def events(snapshot: Snapshot) -> str:
    """What the slow paths noted, the last first."""
    shown = snapshot.events[-EVENTS_MOST:][::-1]
    last_ns = max((event.time_ns for event in shown if event.time_ns is not None), default=0)
    rows = [
        [
            Cell("-" if event.time_ns is None else f"{(event.time_ns - last_ns) / 1e9:.6f}",
                 None if event.time_ns is None else float(event.time_ns)),
            count(event.thread_id) if event.thread_id else text("-", ""), text(event.kind),
            text(", ".join(f"{name} {_argument(name, value)}"
                           for name, value in event.arguments.items()), "name"),
        ]
        for event in shown
    ]  # fmt: skip
    if not rows:
        return ""
    return table(
        [Column("seconds"), Column("thread"), Column("event", "text"),
         Column("about", "text", sortable=False)],
        rows,
        caption="Events of the slow paths, the last first",
        is_tall=len(rows) > 20,
    )  # fmt: skip


def _argument(name: str, value: int) -> str:
    if name in ("start", "address"):
        return f"{value:#x}"
    return size(value) if name == "bytes" else f"{value:,}"


def settings(snapshot: Snapshot) -> str:
    """Options; what somebody set comes first."""
    ordered = sorted(snapshot.options, key=lambda option: option.origin == "default")
    rows = [
        [text(option.name), text(option.text or "-"), text(option.origin)] for option in ordered
    ]
    if not rows:
        return ""
    return table(
        [Column("option", "text"), Column("value", "text"), Column("set by", "text")],
        rows,
        caption="Options in effect",
        anchor="options",
    )


def counters(snapshot: Snapshot) -> str:
    """Counters since the start, and gauges."""
    rows = [
        [text(name), text(kind), count(value)]
        for kind, values in (("counter", snapshot.counters), ("gauge", snapshot.gauges))
        for name, value in values.items()
        if value
    ]
    if not rows:
        return ""
    return table(
        [Column("name", "text"), Column("kind", "text"), Column("value")],
        rows,
        caption="Counters since the start, and gauges; those at 0 are left out",
        anchor="counters",
    )


WORDS = (
    ("block", "what malloc returns: small ones lie in slabs; large ones (over 64 KiB) are runs of "
     "pages; huge ones (over 2 MiB) are mappings of their own"),
    ("size class", "one of the sizes that blocks of slabs have"),
    ("slab", "a run of pages cut into blocks of one class"),
    ("superslab", "4 MiB of addresses, 64 pages of 64 KiB, for slabs and large blocks"),
    ("heap", "the slabs that one thread allocates from; it outlives the thread"),
    ("live", "in the program's hands"),
    ("cached", "free, held ready by the thread of its heap"),
    ("remote", "freed by another thread than its heap's, not yet back in its slab"),
    ("slack", "what blocks are larger than what was asked for"),
    ("dirty", "free pages that are still resident, until they are given back"),
    ("fragmentation", "share of slabs that no live block uses"),
)  # fmt: skip


def words() -> str:
    """What the words on the page mean."""
    rows = "".join(f"<dt>{safe(word)}</dt><dd>{safe(meaning)}</dd>" for word, meaning in WORDS)
    return f'<dl class="words">{rows}</dl>'


def rest(snapshot: Snapshot) -> str:
    """What only some readers want, behind a line each."""
    lost = f"; {snapshot.events_lost:,} older ones are lost" if snapshot.events_lost else ""
    return (
        details("Options", settings(snapshot))
        + details("Counters and gauges", counters(snapshot))
        + details(f"Events ({len(snapshot.events):,}{lost})", events(snapshot))
        + details("Words", words())
    )
