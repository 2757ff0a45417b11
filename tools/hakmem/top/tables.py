"""What was seen, as rows: one table for processes, size classes, heaps and rates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hakmem.inspect.model import Snapshot
from hakmem.render import size
from hakmem.top.sampler import View

Value = int | float | str


@dataclass(frozen=True)
class Cell:
    """`value` sorts, `text` is shown."""

    value: Value
    text: str


@dataclass(frozen=True)
class Row:
    key: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """`sort` is the column that the rows are sorted by; numbers go down, text goes up."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    sort: int

    def sorted_by(self, column: int, *, reverse: bool = False) -> Table:
        """Equal rows keep their order; `reverse` turns the order round."""
        is_text = any(isinstance(row.cells[column].value, str) for row in self.rows)

        def place(row: Row) -> tuple[str, float]:
            value = row.cells[column].value
            return ("", float(value)) if not isinstance(value, str) else (value, 0.0)

        rows = sorted(self.rows, key=place, reverse=is_text == reverse)
        return replace(self, rows=tuple(rows), sort=column)


def count(value: int) -> Cell:
    return Cell(value, f"{value:,}")


def memory(value: int) -> Cell:
    return Cell(value, size(value))


def share(value: float) -> Cell:
    return Cell(value, f"{value:.0%}")


def text(value: str) -> Cell:
    """Names of programs and threads are anybody's: control characters do not reach the terminal."""
    return Cell(value, "".join(mark if mark.isprintable() else "?" for mark in value))


def rate(value: float | None) -> Cell:
    """None: not known, for want of two looks one after the other; sorted as 0."""
    if value is None:
        return Cell(0.0, "-")
    return Cell(value, f"{value:,.0f}" if value >= 10 else f"{value:.1f}")


def _table(name: str, columns: Sequence[str], rows: Iterable[Row], sort: int) -> Table:
    return Table(name, tuple(columns), tuple(rows), sort).sorted_by(sort)


PROCESS_COLUMNS = ("PID", "NAME", "STATE", "MODE", "RSS", "LIVE", "CACHED", "DIRTY", "HEAPS")


def processes(views: Iterable[View]) -> Table:
    rows = []
    for view in views:
        snapshot = view.snapshot
        gauges = snapshot.gauges if snapshot is not None else {}
        rows.append(
            Row(
                str(view.pid),
                (
                    Cell(view.pid, str(view.pid)),
                    text(view.name),
                    text(view.state),
                    text(snapshot.mode if snapshot is not None else ""),
                    memory(view.rss_bytes[-1] if view.rss_bytes else 0),
                    memory(gauges.get("live_bytes", 0)),
                    memory(gauges.get("cached_bytes", 0)),
                    memory(gauges.get("dirty_bytes", 0)),
                    count(gauges.get("heaps_in_use", 0)),
                ),
            )
        )
    return _table("processes", PROCESS_COLUMNS, rows, PROCESS_COLUMNS.index("RSS"))


CLASS_COLUMNS = (
    "CLASS",
    "LIVE",
    "BYTES",
    "CACHED",
    "FREE",
    "REMOTE",
    "SLABS",
    "OF SLABS",
    "UNUSED",
)


def classes(snapshot: Snapshot) -> Table:
    """Size classes that have a slab."""
    rows = [
        Row(
            str(row.block_bytes),
            (
                count(row.block_bytes),
                count(row.live_blocks),
                memory(row.live_bytes),
                count(row.cached_blocks),
                count(row.free_blocks),
                count(row.remote_blocks),
                count(row.slabs),
                memory(row.slab_bytes),
                share(row.fragmentation),
            ),
        )
        for row in snapshot.classes
        if row.slabs
    ]
    return _table("classes", CLASS_COLUMNS, rows, CLASS_COLUMNS.index("BYTES"))


HEAP_COLUMNS = (
    "HEAP", "THREAD", "NAME", "STATE", "SLABS", "LIVE", "FREE", "CACHED", "REMOTE", "PENDING",
)  # fmt: skip


def heaps(snapshot: Snapshot, rows_max: int | None = None) -> Table:
    """Of too many heaps those with the most memory in slabs."""
    shown = snapshot.heaps
    if rows_max is not None and len(shown) > rows_max:
        shown = tuple(sorted(shown, key=lambda heap: -heap.slab_bytes)[:rows_max])
    rows = [
        Row(
            str(heap.id),
            (
                count(heap.id),
                Cell(heap.thread_id, str(heap.thread_id or "-")),
                text(heap.thread_name),
                text(heap.state),
                count(heap.slabs),
                memory(heap.live_bytes),
                memory(heap.free_bytes),
                memory(heap.cached_bytes),
                count(heap.remote_blocks),
                count(heap.pending_blocks),
            ),
        )
        for heap in shown
    ]
    return _table("heaps", HEAP_COLUMNS, rows, HEAP_COLUMNS.index("LIVE"))


RATE_COLUMNS = ("COUNTER", "PER SECOND", "SO FAR")


def rates(view: View) -> Table:
    """Counters that have counted anything."""
    counters = view.snapshot.counters if view.snapshot is not None else {}
    rows = [
        Row(name, (text(name), rate(view.rates.get(name)), count(value)))
        for name, value in counters.items()
        if value
    ]
    return _table("rates", RATE_COLUMNS, rows, RATE_COLUMNS.index("PER SECOND"))
