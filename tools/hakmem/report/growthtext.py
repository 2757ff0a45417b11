"""What grew, as text for people."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hakmem.inspect.errors import plain
from hakmem.inspect.model import Snapshot
from hakmem.inspect.text import table
from hakmem.render import Style, size
from hakmem.report.growth import (
    GREW,
    INCONCLUSIVE,
    Change,
    Growth,
    Limits,
    is_same_process,
    judge,
)
from hakmem.report.parts import row_words

ROWS_MOST = 12


def signed(count: int) -> str:
    """Bytes with their sign; 0 has none."""
    sign = "+" if count > 0 else "-" if count < 0 else ""
    return f"{sign}{size(abs(count))}"


def _percent(change: Change) -> str:
    if not change.bytes_before:
        return "new" if change.bytes_after else "-"
    return f"{100 * change.bytes_growth / change.bytes_before:+.1f} %"


def _table(title: str, changes: Iterable[Change], what: str, *, everything: bool) -> Iterator[str]:
    """The changes with the largest growth first; those that shrank most come last."""
    changed = [change for change in changes if change.is_changed]
    if not changed:
        return
    changed.sort(key=lambda change: -abs(change.bytes_growth))
    shown = changed if everything else changed[:ROWS_MOST]
    shown.sort(key=lambda change: -change.bytes_growth)
    has_counts = any(change.count_before or change.count_after for change in shown)
    rows = []
    for change in shown:
        counts = [f"{change.count_after:,}", f"{change.count_growth:+,}"] if has_counts else []
        rows.append(
            [plain(change.name), *counts, size(change.bytes_before), size(change.bytes_after),
             signed(change.bytes_growth), _percent(change)]
        )  # fmt: skip
    yield ""
    yield title
    yield from table(
        ["", *([what, "growth"] if has_counts else []), "before", "after", "growth", ""], rows
    )
    if len(changed) > len(shown):
        yield f"  {len(changed) - len(shown)} smaller changes; --all lists them"


def verdict_line(growth: Growth, limits: Limits, style: Style) -> str:
    """What the exit status says; empty without a limit."""
    most = limits.smallest_bytes(growth.live.bytes_before)
    if most is None:
        return ""
    allowed = f"{size(round(most))} may grow"
    match judge(growth, limits):
        case status if status == GREW:
            return (
                f"{style.bad('GREW')}: live memory by {signed(growth.live.bytes_growth)}; {allowed}"
            )
        case status if status == INCONCLUSIVE:
            return (
                f"{style.bad('INCONCLUSIVE')}: live memory by {signed(growth.live.bytes_growth)}, "
                f"give or take {size(growth.uncertain_bytes)}; {allowed}. "
                "`hakmem inspect --freeze --json` takes exact pictures"
            )
        case _:
            return (
                f"{style.good('ok')}: live memory by {signed(growth.live.bytes_growth)}; {allowed}"
            )


def render(
    before: Snapshot, after: Snapshot, growth: Growth, limits: Limits, style: Style,
    *, everything: bool = False,
) -> str:  # fmt: skip
    """`everything`: no table is cut short."""
    live = growth.live
    seconds = (after.taken_ns - before.taken_ns) / 1e9
    lines = [
        f"{style.strong(plain(after.name))}: live memory {size(live.bytes_before)} -> "
        f"{size(live.bytes_after)} ({signed(live.bytes_growth)}, {_percent(live)}), "
        f"{live.count_growth:+,} blocks, in {seconds:,.1f} s"
    ]
    if not is_same_process(before, after):
        lines.append(
            f"  of two processes: {before.pid} {plain(before.exe)} and {after.pid} "
            f"{plain(after.exe)}; heaps are compared by the names of their threads"
        )
    memory = [
        Change(row_words(change.name)[0] if change.name != "resident" else "all resident",
               0, 0, change.bytes_before, change.bytes_after)
        for change in growth.memory
    ]  # fmt: skip
    for title, changes, what in (
        ("live blocks by size class", growth.classes, "blocks"),
        ("other live blocks", growth.others, "blocks"),
        ("live blocks by heap", growth.heaps, "blocks"),
        ("runs of superslabs", growth.runs, "runs"),
        ("resident memory", memory, ""),
    ):
        lines.extend(_table(title, changes, what, everything=everything))
    new = growth.new_blocks or ()
    if new:
        shown = new if everything else new[:ROWS_MOST]
        lines += ["", "large and huge blocks that are new"]
        lines.extend(
            table(["", "address", "bytes"],
                  [[block.kind, f"{block.start:#x}", size(block.bytes)] for block in shown])
        )  # fmt: skip
        if len(new) > len(shown):
            lines.append(f"  {len(new) - len(shown)} more; --all lists them")
    verdict = verdict_line(growth, limits, style)
    if verdict:
        lines += ["", verdict]
    return "\n".join(lines) + "\n"
