"""One frame of `top` as text for people and scripts, and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from hakmem.inspect import jsonform
from hakmem.inspect.errors import plain
from hakmem.render import Json, Style, size
from hakmem.top import drawing, tables
from hakmem.top.drawing import Charset
from hakmem.top.sampler import View

TOP_SCHEMA = "hakmem.top/1"
ROWS_MAX = 12
SPARKLINE_WIDTH = 32


def table_text(table: tables.Table, style: Style, rows_max: int = ROWS_MAX) -> str:
    """The first rows in aligned columns; text to the left, numbers to the right."""
    shown = table.rows[:rows_max]
    columns = list(zip(*(row.cells for row in shown), strict=True))
    widths = [
        max([len(title), *(len(cell.text) for cell in column)])
        for title, column in zip(table.columns, columns or [()] * len(table.columns), strict=True)
    ]

    def line(texts: Sequence[str], numeric: Sequence[bool]) -> str:
        parts = [
            item.rjust(width) if right else item.ljust(width)
            for item, width, right in zip(texts, widths, numeric, strict=True)
        ]
        return "  ".join(parts).rstrip()

    numeric = [bool(column) and not isinstance(column[0].value, str) for column in columns]
    numeric = numeric or [False] * len(table.columns)
    lines = [style.strong(line(table.columns, numeric))]
    lines += [line([cell.text for cell in row.cells], numeric) for row in shown]
    if len(table.rows) > len(shown):
        lines.append(f"and {len(table.rows) - len(shown)} more")
    return "\n".join(lines) + "\n"


def summary(view: View, charset: Charset, width: int = SPARKLINE_WIDTH) -> list[str]:
    """Two lines on the heap as a whole."""
    snapshot = view.snapshot
    name = tables.text(view.name).text
    if snapshot is None:
        return [f"{view.pid} {name}: {view.problem or 'not looked at yet'}"]
    gauges = snapshot.gauges
    rss = view.rss_bytes[-1] if view.rss_bytes else 0
    head = f"{view.pid} {name}, hakmem {plain(snapshot.version)} {plain(snapshot.mode)}"
    if view.ended:
        head += ", ENDED: its last picture"
    elif view.problem is not None:
        head += f", an older picture: {view.problem}"
    elif snapshot.frozen:
        head += ", frozen: exact"
    elif snapshot.unsettled_share:
        head += f", at most {snapshot.unsettled_share:.1%} of blocks moved"
    parts = [f"RSS {size(rss)} {drawing.sparkline(view.rss_bytes, width, charset)}"]
    parts += [
        f"{title} {size(gauges[name])}"
        for name, title in (
            ("live_bytes", "live"),
            ("cached_bytes", "cached"),
            ("slab_free_bytes", "free in slabs"),
            ("dirty_bytes", "dirty"),
            ("metadata_bytes", "own structures"),
        )
        if name in gauges
    ]
    return [head, " · ".join(parts) if charset is drawing.UNICODE else ", ".join(parts)]


def frame_text(views: Sequence[View], charset: Charset, style: Style, *, deep: bool) -> str:
    """The list of processes, and with `deep` everything of each."""
    parts = [table_text(tables.processes(views), style, rows_max=len(views))]
    for view in views:
        head, *more = summary(view, charset)
        parts.append("\n".join([style.strong(head), *more]) + "\n")
        if not deep or view.snapshot is None:
            continue
        parts.append(table_text(tables.classes(view.snapshot), style))
        parts.append(table_text(tables.heaps(view.snapshot), style))
        parts.append(table_text(tables.rates(view), style))
        rows = drawing.occupancy_map(view.snapshot, charset, ROWS_MAX)
        parts.append("\n".join([*rows, drawing.legend(charset)]) + "\n")
    return "\n".join(parts)


def frame_json(views: Sequence[View]) -> Json:
    """Rates are per second; `snapshot` is one of `hakmem inspect --json`, without its runs."""
    return {
        "schema": TOP_SCHEMA,
        "processes": [
            {
                "pid": view.pid,
                "state": view.state,
                "problem": view.problem,
                "rss_bytes": view.rss_bytes[-1] if view.rss_bytes else None,
                "rates": dict(view.rates),
                "snapshot": None
                if view.snapshot is None
                else jsonform.encode(view.snapshot, "totals"),
            }
            for view in views
        ],
    }
