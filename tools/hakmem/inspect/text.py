"""A snapshot as text for people: what `hakmem inspect` prints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from hakmem.inspect.errors import plain
from hakmem.inspect.findings import Severity, findings, unsettled_text
from hakmem.inspect.model import (
    FULLNESS,
    KNOBS_OF_BYTES,
    KNOBS_OF_TIME,
    KNOBS_OF_WORDS,
    PAGE_BYTES,
    ClassTotals,
    Decision,
    Frame,
    GuardedSite,
    Heap,
    Snapshot,
)
from hakmem.render import Style, size

HEAPS_SHOWN = 20
LARGE_SHOWN = 8
SITES_SHOWN = 8
FRAMES_SHOWN = 8
EVENTS_SHOWN = 40
NOTES_SHOWN = 8

Row = Sequence[str]


def table(heading: Row, rows: Iterable[Row], left: int = 1) -> Iterator[str]:
    """Columns as wide as their longest text; the first `left` are aligned to the left."""
    body = [list(row) for row in rows]
    widths = [max(len(row[i]) for row in [list(heading), *body]) for i in range(len(heading))]
    for row in [list(heading), *body]:
        cells = [
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  " + "  ".join(cells).rstrip()


def share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def render(
    snapshot: Snapshot, style: Style, *, heap: int | None = None, everything: bool = False
) -> str:
    """`heap`: only this one's classes, and its row of the heaps; `everything`: no table is cut
    short. Of what the target, or JSON of anybody, calls things nothing moves the cursor."""
    lines = [plain(line) for line in _heading(snapshot)]
    if heap is not None:
        lines.append(f"Size classes and heaps: of heap {heap} alone. All else: of the whole heap.")
    sections: list[tuple[str, Iterable[str]]] = [("heap", _totals(snapshot))]
    if snapshot.waterfall is not None:
        title = "resident memory" + (
            "" if snapshot.residency else " (shares within the heap: estimated)"
        )
        sections.append((title, _waterfall(snapshot)))
    title = "size classes" if heap is None else f"size classes of heap {heap}"
    sections.append((title, _classes(snapshot, heap)))
    sections.append(("heaps", _heaps(snapshot, heap, everything)))
    sections.append(("large and huge blocks", _large(snapshot, everything)))
    if snapshot.guarded_sites:
        sections.append(("who allocated the live guarded blocks", _sites(snapshot, everything)))
    sections.append(("free pages of superslabs", _purge(snapshot)))
    if snapshot.research is not None:
        sections.append(("research", _research(snapshot)))
    if snapshot.decisions or snapshot.decisions_lost:
        sections.append(("decisions of the learner, the latest last", _decisions(snapshot)))
    if snapshot.events or snapshot.events_lost:
        sections.append(("events, the latest last", _events(snapshot, everything)))
    written = [(title, [plain(line) for line in body]) for title, body in sections]
    written.append(("what stands out", list(_findings(snapshot, style))))
    for title, body in written:
        if body:
            lines += ["", style.strong(title), *body]
    return "\n".join(lines) + "\n"


def _heading(snapshot: Snapshot) -> Iterator[str]:
    what = {"process": "process", "core": "core of process", "snapshot": "snapshot of process"}
    program = snapshot.exe or snapshot.name
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(snapshot.taken_ns / 1e9))
    yield f"{what[snapshot.origin]} {snapshot.pid} {snapshot.name} ({program})"
    build = f", build {snapshot.build_id[:12]}" if snapshot.build_id else ""
    yield f"hakmem {snapshot.version}{build}, mode {snapshot.mode}, as of {when}"
    if snapshot.frozen:
        yield "It stood still while it was read: every figure is exact."
    elif snapshot.unsettled_share:
        yield unsettled_text(snapshot)
    for note in snapshot.notes[:NOTES_SHOWN]:
        yield f"note: {note}"
    changed = [option for option in snapshot.options if option.origin != "default"]
    if changed:
        words = [f"{o.name}={o.text} ({o.origin})" for o in changed]
        yield "options: " + ", ".join(words)


def _totals(snapshot: Snapshot) -> Iterator[str]:
    classes = snapshot.classes
    rows = [
        (
            "small",
            sum(row.live_blocks for row in classes),
            sum(row.live_bytes for row in classes),
        ),
        ("large", snapshot.gauges.get("large_blocks", 0), snapshot.gauges.get("large_bytes", 0)),
        ("huge", snapshot.gauges.get("huge_blocks", 0), snapshot.gauges.get("huge_bytes", 0)),
    ]
    if snapshot.guarded:
        gauges = snapshot.gauges
        rows.append(("guarded", gauges.get("guarded_blocks", 0), gauges.get("guarded_bytes", 0)))
    rows.append(("all", sum(row[1] for row in rows), sum(row[2] for row in rows)))
    yield from table(
        ("live blocks", "count", "bytes"),
        [(name, f"{blocks:,}", size(count)) for name, blocks, count in rows],
    )


def _waterfall(snapshot: Snapshot) -> Iterator[str]:
    waterfall = snapshot.waterfall
    if waterfall is None:
        return
    rows = [
        (
            row.name.replace("_", " "),
            row.note,
            _signed(row.bytes),
            _share_of(row.bytes, waterfall.rss_bytes),
        )
        for row in waterfall.rows
        if row.bytes or row.name in ("live", "unexplained")
    ]
    rows.append(("all", "", size(waterfall.rss_bytes), ""))
    yield from table(("row", "what it is", "bytes", "share"), rows, 2)


def _signed(count: int) -> str:
    return size(count) if count >= 0 else f"-{size(-count)}"


def _share_of(part: int, whole: int) -> str:
    return share(part, whole)


def _classes(snapshot: Snapshot, heap: int | None) -> Iterator[str]:
    if heap is not None:
        yield from _classes_of_heap(snapshot, heap)
        return
    has_slack = any(row.slack_bytes is not None for row in snapshot.classes)
    has_remote = any(row.remote_blocks for row in snapshot.classes)
    has_quarantine = any(row.quarantined_blocks for row in snapshot.classes)
    columns: list[tuple[str, Callable[[ClassTotals], str]]] = [
        ("block", lambda row: f"{row.block_bytes:,}"),
        ("live", lambda row: f"{row.live_blocks:,}"),
        ("cached", lambda row: f"{row.cached_blocks:,}"),
        ("free", lambda row: f"{row.free_blocks:,}"),
    ]
    if has_remote:
        columns.append(("remote", lambda row: f"{row.remote_blocks:,}"))
    if has_quarantine:
        columns.append(("held back", lambda row: f"{row.quarantined_blocks:,}"))
    columns.append(("live bytes", lambda row: size(row.live_bytes)))
    if has_slack:
        columns.append(("slack", lambda row: size(row.slack_bytes or 0)))
    columns += [
        ("slab bytes", lambda row: size(row.slab_bytes)),
        ("unused", lambda row: f"{100 * row.fragmentation:.0f} %"),
        ("slabs", lambda row: f"{row.slabs:,}"),
        ("empty", lambda row: _count(row.fullness[0])),
        *(
            (title, lambda row, place=place: _count(row.fullness[place]))
            for place, title in enumerate(("<=25%", "<=50%", "<=75%", "<100%", "full"), 1)
        ),
    ]
    assert len(FULLNESS) == 6
    rows = [[make(row) for _, make in columns] for row in snapshot.classes if row.slabs]
    if rows:
        yield from table([title for title, _ in columns], rows)


def _count(count: int) -> str:
    return f"{count:,}" if count else "."


def _classes_of_heap(snapshot: Snapshot, heap: int) -> Iterator[str]:
    own = snapshot.heap_classes[snapshot.heap_classes["heap_id"] == heap]
    sizes = {row.index: row.block_bytes for row in snapshot.size_classes}
    names = ["live", "cached", "free", "remote"]
    titles = list(names)
    if own["quarantined"].any():
        names.append("quarantined")
        titles.append("held back")
    rows = [
        [
            f"{sizes[int(row['class_index'])]:,}",
            *(f"{int(row[name]):,}" for name in names),
            size(int(row["live"]) * sizes[int(row["class_index"])]),
            f"{int(row['slabs']):,}",
        ]
        for row in own
    ]
    if rows:
        yield from table(("block", *titles, "live bytes", "slabs"), rows)


def _heaps(snapshot: Snapshot, heap: int | None, everything: bool) -> Iterator[str]:
    chosen = [row for row in snapshot.heaps if heap is None or row.id == heap]
    chosen.sort(key=lambda row: -row.live_bytes)
    shown = chosen if everything else chosen[:HEAPS_SHOWN]

    def thread(row: Heap) -> str:
        name = row.thread_name or "-"
        return f"{name} {row.thread_id}" if row.thread_id else name

    rows = [
        (
            str(row.id),
            row.state + ("" if row.settled else " *"),
            thread(row),
            f"{row.live_blocks:,}",
            size(row.live_bytes),
            size(row.free_bytes),
            size(row.held_bytes),
            f"{row.remote_blocks:,}",
            f"{row.pending_blocks:,}",
            f"{row.slabs:,}",
            size(row.slab_bytes),
        )
        for row in shown
    ]
    if not rows:
        return
    heading = ["heap", "state", "thread", "live", "live bytes", "free", "in its cache"]
    yield from table([*heading, "remote", "sends", "slabs", "slab bytes"], rows, 3)
    if any(not row.settled for row in shown):
        yield "  * a thread was at work in it"
    if len(chosen) > len(shown):
        yield f"  and {len(chosen) - len(shown):,} more (--all)"


def _large(snapshot: Snapshot, everything: bool) -> Iterator[str]:
    rows: list[tuple[int, str, str, str]] = [
        (int(run["large_bytes"]), f"{int(run['start']):#x}", "large", "") for run in snapshot.large
    ]
    rows += [
        (block.usable_bytes, f"{block.start:#x}", "huge", "" if block.live else "freed, kept")
        for block in snapshot.huge
    ]
    rows.sort(reverse=True)
    shown = rows if everything else rows[:LARGE_SHOWN]
    if not rows:
        return
    yield from table(
        ("address", "kind", "state", "bytes"),
        [(address, kind, state or "live", size(count)) for count, address, kind, state in shown],
        3,
    )
    if len(rows) > len(shown):
        rest = sum(row[0] for row in rows[len(shown) :])
        yield f"  and {len(rows) - len(shown):,} more of {size(rest)} (--all)"


def place(frame: Frame) -> str:
    """A place of the program, as the library's own reports write it but for the address."""
    return f"{frame.module}+{frame.offset:#x}" if frame.module else f"{frame.address:#x}"


def blocks_of(sites: Sequence[GuardedSite]) -> str:
    """Their blocks and bytes together."""
    count = sum(site.blocks for site in sites)
    return f"{count:,} block{'' if count == 1 else 's'} of {size(sum(s.bytes for s in sites))}"


def _sites(snapshot: Snapshot, everything: bool) -> Iterator[str]:
    sites = snapshot.guarded_sites
    shown = sites if everything else sites[:SITES_SHOWN]
    for site in shown:
        yield f"  {blocks_of([site])}"
        frames = site.frames if everything else site.frames[:FRAMES_SHOWN]
        for number, frame in enumerate(frames):
            yield f"    #{number} {place(frame)}"
        if len(site.frames) > len(frames):
            yield f"    and {len(site.frames) - len(frames):,} further out (--all)"
    if len(sites) > len(shown):
        rest = sites[len(shown) :]
        yield f"  and {blocks_of(rest)} from {len(rest):,} more places (--all)"


def _purge(snapshot: Snapshot) -> Iterator[str]:
    superslabs = snapshot.superslabs
    runs_bytes = sum(snapshot.gauges.get(name, 0) for name in ("slab_bytes", "large_bytes"))
    dirty_bytes = snapshot.gauges.get("dirty_bytes", 0)
    if not len(superslabs) and runs_bytes + dirty_bytes:
        yield f"  {size(dirty_bytes)} freed and still backed by memory; not known page by page"
        return

    def page_bytes(name: str) -> int:
        return int(np.bitwise_count(superslabs[name]).sum(dtype=np.int64)) * PAGE_BYTES

    words = {
        "free": "in no run",
        "dirty_young": "freed lately, still backed by memory",
        "dirty_old": "next to be given back",
        "zero": "given back, or never used",
        "purging": "being given back",
        "stuck": "the system refused to make them accessible again",
    }
    yield from table(
        ("pages", "what they are", "bytes"),
        [
            (name.replace("_", " "), text, size(page_bytes(name)))
            for name, text in words.items()
            if name not in ("purging", "stuck") or page_bytes(name)
        ],
        2,
    )
    yield f"  {len(superslabs):,} superslabs of 4 MiB"


def _research(snapshot: Snapshot) -> Iterator[str]:
    research = snapshot.research
    if research is None:
        return
    sizes = [row.block_bytes for row in snapshot.size_classes]
    names = list(research.operations)
    used = [
        index
        for index in range(len(sizes))
        if any(
            counts[index : index + 1] not in ((), (0,)) for counts in research.operations.values()
        )
    ]
    if used:
        yield from table(
            ("block", *names),
            [
                (f"{sizes[index]:,}", *(f"{research.operations[name][index]:,}" for name in names))
                for index in used
            ],
        )
    for histogram in research.histograms:
        total = sum(histogram.counts)
        if total:
            found = quantiles(histogram.upper, histogram.counts)
            yield f"  {histogram.name}: {total:,}; {found} {histogram.unit}"
    for title, hits in (("malloc", research.hits), ("free", research.free_hits)):
        total = sum(hits.values())
        parts = [
            f"{name.replace('_', ' ')} {share(count, total)}"
            for name, count in hits.items()
            if count
        ]
        yield f"  {title} ended in: " + (", ".join(parts) or "nothing yet")
    for flow in sorted(research.flows, key=lambda flow: -flow.blocks)[:LARGE_SHOWN]:
        yield f"  heap {flow.from_heap} -> heap {flow.to_heap}: {flow.blocks:,} blocks"


def quantiles(upper: Sequence[int], counts: Sequence[int]) -> str:
    total = sum(counts)
    parts = []
    for quantile in (0.5, 0.9, 0.99, 0.999):
        reached = 0
        for bound, count in zip(upper, counts, strict=True):
            reached += count
            if reached >= quantile * total:
                parts.append(f"{100 * quantile:g} % <= {bound:,}")
                break
    return ", ".join(parts)


def _decisions(snapshot: Snapshot) -> Iterator[str]:
    last = snapshot.decisions[-1].time_ns if snapshot.decisions else 0
    for decision in snapshot.decisions:
        when = f"{(decision.time_ns - last) / 1e6:>12.3f} ms"
        where = f"heap {decision.heap}" if decision.heap else "all heaps"
        of = f" of {size(decision.block_bytes)}" if decision.block_bytes else ""
        before, after = (
            decision_value(decision, value) for value in (decision.before, decision.after)
        )
        why = f"{decision.signal.replace('_', ' ')} {decision.value:,}"
        yield f"  {when}  {where:<10} {decision.knob + of:<18} {before:>10} -> {after:<10} by {why}"
    if snapshot.decisions_lost:
        yield f"  {snapshot.decisions_lost:,} earlier ones were overwritten"


def decision_value(decision: Decision, value: int) -> str:
    """A value of the decision's knob in its unit."""
    if decision.knob in KNOBS_OF_WORDS:
        return KNOBS_OF_WORDS[decision.knob][value != 0]
    if decision.knob in KNOBS_OF_TIME:
        return f"{value:,} ms"
    return size(value) if decision.knob in KNOBS_OF_BYTES else f"{value:,}"


def _events(snapshot: Snapshot, everything: bool) -> Iterator[str]:
    shown = snapshot.events if everything else snapshot.events[-EVENTS_SHOWN:]
    names = {heap.thread_id: heap.thread_name for heap in snapshot.heaps if heap.thread_id}
    last = shown[-1].time_ns if shown else None
    for event in shown:
        if event.time_ns is None or last is None:
            when = f"{event.ticks:>14} ticks"
        else:
            when = f"{(event.time_ns - last) / 1e6:>12.3f} ms"
        who = names.get(event.thread_id, "") or str(event.thread_id or "-")
        words = ", ".join(
            f"{name} {value:#x}" if name == "address" else f"{name.replace('_', ' ')} {value:,}"
            for name, value in event.arguments.items()
        )
        yield f"  {when}  {who:<16} {event.kind:<16} {words}"
    if snapshot.events_lost:
        yield f"  {snapshot.events_lost:,} earlier ones were overwritten"


def _findings(snapshot: Snapshot, style: Style) -> Iterator[str]:
    paint = {Severity.WARN: style.bad, Severity.NOTE: style.strong, Severity.GOOD: style.good}
    for finding in findings(snapshot):
        yield f"  {paint[finding.severity](f'{finding.severity:<5}')} {plain(finding.text)}"
        if finding.advice:
            yield f"        {style.faint(plain(finding.advice))}"
