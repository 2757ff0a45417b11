"""The first screen of a page: what it is about, its figures, the findings, the waterfall."""

from __future__ import annotations

from datetime import UTC, datetime

from hakmem.inspect.findings import Finding, Severity, share_text
from hakmem.inspect.model import Origin, Snapshot, Waterfall
from hakmem.render import size
from hakmem.report.parts import (
    DRAWN_WIDTH,
    FOREIGN,
    OVERHEAD,
    USED,
    Cell,
    Column,
    attribute,
    bytes_cell,
    of_waterfall,
    row_words,
    safe,
    table,
    text,
)

ROW_HEIGHT = 26
BAR_TOP, BAR_HEIGHT = 5, 16
ORIGINS = {
    Origin.PROCESS: "a running process",
    Origin.CORE: "a core file",
    Origin.SNAPSHOT: "a snapshot that the process wrote",
}
MARKS = {Severity.WARN: "Attention", Severity.NOTE: "Note", Severity.GOOD: "Good"}


def taken_text(nanoseconds: int) -> str:
    """A moment since the epoch, in UTC."""
    try:
        moment = datetime.fromtimestamp(nanoseconds / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return "at an unknown time"
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def title(snapshot: Snapshot) -> str:
    return f"{snapshot.name or 'a program'}, pid {snapshot.pid}"


def _lead(snapshot: Snapshot) -> str:
    waterfall = snapshot.waterfall
    if waterfall is None:
        return (
            f"The program holds {size(snapshot.live_bytes)}. What of it was in memory, "
            "this file does not say."
        )
    total = waterfall.rss_bytes
    used, overhead = of_waterfall(waterfall, USED), of_waterfall(waterfall, OVERHEAD)
    return (
        f"{size(total)} are resident. {size(used)} of them are blocks the program holds "
        f"({share_text(used, total)}), {size(overhead)} is what the heap keeps beside them "
        f"({share_text(overhead, total)}), {size(of_waterfall(waterfall, FOREIGN))} are not "
        "malloc's."
    )


def header(snapshot: Snapshot) -> str:
    """What was looked at, and when."""
    facts = [
        ORIGINS[snapshot.origin] + (", stopped for the picture" if snapshot.frozen else ""),
        taken_text(snapshot.taken_ns),
        f"mode {snapshot.mode}",
        f"hakmem {snapshot.version}"
        + (f" ({snapshot.build_id[:12]})" if snapshot.build_id else ""),
    ]
    return (
        f"<h1>{safe(title(snapshot))}</h1>"
        f'<div class="soft mono">{safe(snapshot.exe)}</div>'
        f'<div class="soft">{safe(" · ".join(facts))}</div>'
        f'<p class="lead">{safe(_lead(snapshot))}</p>{_cards(snapshot)}'
    )


def _cards(snapshot: Snapshot) -> str:
    cards: list[tuple[str, str, int | None]] = []
    waterfall = snapshot.waterfall
    if waterfall is not None:
        heap = of_waterfall(waterfall, (*USED, *OVERHEAD))
        overhead = of_waterfall(waterfall, OVERHEAD)
        unexplained = waterfall.unexplained_bytes
        cards += [
            (size(waterfall.rss_bytes), "resident memory (RSS)", waterfall.rss_bytes),
            (size(heap), "of it is the heap", heap),
            (share_text(overhead, heap), "of the heap is overhead", None),
            (size(unexplained), "unexplained", unexplained),
        ]
    live = snapshot.live_bytes
    blocks = sum(row.live_blocks for row in snapshot.classes)
    living = sum(heap.state == "in use" for heap in snapshot.heaps)
    cards += [
        (size(live), "of live blocks", live),
        (f"{blocks:,}", "live small blocks", blocks),
        (f"{living:,} of {len(snapshot.heaps):,}", "heaps have a living thread", None),
    ]
    items = "".join(
        f'<li class="panel"><b{attribute("data-value", "" if value is None else str(value))}>'
        f"{safe(figure)}</b><span>{safe(words)}</span></li>"
        for figure, words, value in cards
    )
    return f'<ul class="cards">{items}</ul>'


def findings(found: tuple[Finding, ...]) -> str:
    """What stands out, each with what can be done."""
    items = "".join(
        f'<li data-kind="{safe(each.kind)}"><span class="mark {each.severity}">'
        f"{MARKS[each.severity]}</span><p>{safe(each.text)}</p>"
        + (f'<p class="advice">{safe(each.advice)}</p>' if each.advice else "")
        + "</li>"
        for each in found
    )
    return f'<ul class="findings panel">{items}</ul>' if items else ""


def _steps(waterfall: Waterfall) -> list[tuple[str, int, str, int]]:
    """(name, bytes, note, bytes before it) of the rows that are not empty."""
    steps, at = [], 0
    for row in waterfall.rows:
        if row.bytes:
            steps.append((row.name, row.bytes, row.note, at))
        at += row.bytes
    return steps


def _step(colour: str, begin: int, end: int, total: int, *, is_last: bool) -> str:
    """One bar of the waterfall, and the line that leads to the next."""
    scale = DRAWN_WIDTH / max(total, 1)
    left, right = sorted((begin * scale, end * scale))
    lead = (
        ""
        if is_last
        else f'<line class="lead-line" x1="{end * scale:.1f}" x2="{end * scale:.1f}" '
        f'y1="{BAR_TOP + BAR_HEIGHT}" y2="{ROW_HEIGHT + BAR_TOP}" '
        'vector-effect="non-scaling-stroke"/>'
    )
    return (
        f'<svg class="step" viewBox="0 0 {DRAWN_WIDTH} {ROW_HEIGHT}" preserveAspectRatio="none" '
        f'aria-hidden="true"><rect class="{colour}" x="{left:.1f}" y="{BAR_TOP}" '
        f'width="{max(right - left, 1.5):.1f}" height="{BAR_HEIGHT}" rx="2"/>{lead}</svg>'
    )


def waterfall_table(waterfall: Waterfall | None) -> str:
    """Resident memory by what it is for: bars that begin where the one before ends."""
    if waterfall is None:
        return ""
    total = waterfall.rss_bytes
    steps = _steps(waterfall)
    rows = []
    for index, (name, count, note, before) in enumerate(steps):
        words, colour = row_words(name)
        drawn = _step(colour, before, before + count, total, is_last=index == len(steps) - 1)
        rows.append(
            [text(words), Cell(drawn, kind="drawn"), bytes_cell(count),
             Cell(share_text(count, total), count), text(note, "text soft note")]
        )  # fmt: skip
    whole = _step("total", 0, total, total, is_last=True)
    return table(
        [Column("part", "text", sortable=False), Column("", "drawn", sortable=False),
         Column("resident", sortable=False), Column("of all", sortable=False),
         Column("what it is", "text", sortable=False)],
        rows,
        caption="Resident memory by what it is for",
        total=[text("All"), Cell(whole, kind="drawn"), bytes_cell(total), Cell("100 %"), text("")],
        anchor="waterfall-rows",
    )  # fmt: skip
