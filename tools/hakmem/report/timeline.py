"""The timeline of a series: resident memory over time, stacked by what it is for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from hakmem.render import size
from hakmem.report.parts import (
    FOREIGN,
    Cell,
    Column,
    bytes_cell,
    details,
    legend,
    table,
)
from hakmem.report.series import Point, Series

# What is stacked, from below: title, colour, rows of the waterfall.
LAYERS = (
    ("live small blocks", "live", ("live", "slack")),
    ("large blocks", "large", ("large", "guarded")),
    ("huge blocks", "huge", ("huge",)),
    ("thread caches", "cached", ("cached", "remote", "quarantined")),
    ("free in slabs", "free", ("slab_free",)),
    ("free pages and kept mappings", "dirty", ("dirty", "huge_kept")),
    ("hakmem's structures", "metadata", ("metadata",)),
    ("not malloc's", "other", (*FOREIGN, "unexplained")),
)
# About as wide as the page, so that its letters are as large as others.
DRAWN_WIDTH = 1150
HEIGHT, LEFT, TOP, BOTTOM = 260, 78, 10, 24
TICKS = 4
# Rows of the table of figures, for those who do not see the drawing.
ROWS_MOST = 60


def nice_step(most: float, ticks: int) -> float:
    """The smallest step of 1, 2 or 5 times a power of ten that needs no more ticks."""
    raw = max(most, 1e-9) / ticks
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.9999)


def _bytes_step(most: int) -> int:
    unit = 1
    while most / TICKS > 900 * unit and unit < 1 << 40:
        unit <<= 10
    return max(1, int(nice_step(most / unit, TICKS) * unit))


def layer_bytes(point: Point) -> list[int]:
    """Bytes of each layer."""
    return [max(0, sum(point.rows.get(name, 0) for name in names)) for _, _, names in LAYERS]


class _Frame:
    """Where moments and sizes lie in the drawing."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.begin_ns = points[0].taken_ns
        self.span_ns = max(points[-1].taken_ns - self.begin_ns, 1)
        stacked = [sum(layer_bytes(point)) for point in points]
        self.most = max(*stacked, *(point.rss_bytes for point in points), 1)

    def x(self, point: Point) -> float:
        return LEFT + (DRAWN_WIDTH - LEFT) * (point.taken_ns - self.begin_ns) / self.span_ns

    def y(self, count: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - count / (self.most * 1.04))

    def seconds(self, point: Point) -> float:
        return (point.taken_ns - self.begin_ns) / 1e9


def _areas(points: Sequence[Point], frame: _Frame) -> str:
    """One closed shape for each layer, upon the ones below it."""
    below = [0] * len(points)
    drawn = []
    for index, (words, colour, _) in enumerate(LAYERS):
        above = [low + layer_bytes(point)[index] for low, point in zip(below, points, strict=True)]
        if above != below:
            there = [f"{frame.x(point):.1f},{frame.y(high):.1f}"
                     for point, high in zip(points, above, strict=True)]  # fmt: skip
            back = [f"{frame.x(point):.1f},{frame.y(low):.1f}"
                    for point, low in zip(points, below, strict=True)][::-1]  # fmt: skip
            drawn.append(
                f'<polygon class="{colour}" points="{" ".join([*there, *back])}">'
                f"<title>{escape(words)}</title></polygon>"
            )
        below = above
    return "".join(drawn)


def _axes(points: Sequence[Point], frame: _Frame) -> str:
    step = _bytes_step(frame.most)
    lines = []
    for value in range(0, frame.most + 1, step):
        y = frame.y(value)
        lines.append(
            f'<line class="rule" x1="{LEFT}" x2="{DRAWN_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="soft end" x="{LEFT - 8}" y="{y + 4:.1f}">{size(value)}</text>'
        )
    span_s = frame.span_ns / 1e9
    step_s = nice_step(span_s, 8)
    at = 0.0
    while at <= span_s * 1.0001:
        x = LEFT + (DRAWN_WIDTH - LEFT) * at / span_s
        anchor = "end" if x > DRAWN_WIDTH - 20 else "middle"
        lines.append(
            f'<text class="soft {anchor}" x="{x:.1f}" y="{HEIGHT - 6}">{_seconds_text(at)}</text>'
        )
        at += step_s
    return "".join(lines)


def _seconds_text(seconds: float) -> str:
    if seconds >= 3600:
        return f"{seconds / 3600:.3g} h"
    return f"{seconds / 60:.3g} min" if seconds >= 120 else f"{seconds:.3g} s"


def _figures(points: Sequence[Point], frame: _Frame) -> str:
    step = max(1, -(-len(points) // ROWS_MOST))
    chosen = [point for index, point in enumerate(points)
              if index % step == 0 or index == len(points) - 1]  # fmt: skip
    return table(
        [Column("seconds"), Column("resident"), *(Column(words) for words, _, _ in LAYERS)],
        [
            [Cell(f"{frame.seconds(point):.1f}", frame.seconds(point)),
             bytes_cell(point.rss_bytes), *(bytes_cell(count) for count in layer_bytes(point))]
            for point in chosen
        ],
        caption="The figures of the timeline",
        anchor="timeline-rows",
        is_tall=len(chosen) > 20,
    )  # fmt: skip


def drawing(series: Series | None) -> str:
    """The figure with its legend and a table of its figures; empty without two moments."""
    points = series.points if series is not None else ()
    if series is None or len(points) < 2 or not any(point.rss_bytes for point in points):
        return ""
    frame = _Frame(points)
    line = " ".join(f"{frame.x(point):.1f},{frame.y(point.rss_bytes):.1f}" for point in points)
    used = [
        (colour, words)
        for index, (words, colour, _) in enumerate(LAYERS)
        if any(layer_bytes(point)[index] for point in points)
    ]
    thinned = (
        f", {len(points):,} of them drawn" if len(points) < series.count else ""
    )  # fmt: skip
    return (
        f'<figure class="panel timeline">{legend(used)}'
        f'<svg id="timeline-drawing" viewBox="0 0 {DRAWN_WIDTH} {HEIGHT}" role="img" '
        'aria-label="Resident memory over time; the table below has its figures">'
        f"{_areas(points, frame)}{_axes(points, frame)}"
        f'<polyline class="rss" points="{line}"/>'
        f'<line id="timeline-mark" class="mark-line" y1="{TOP}" y2="{HEIGHT - BOTTOM}" '
        'visibility="hidden"/></svg>'
        f'<figcaption><span id="timeline-words" class="mono">{series.count:,} snapshots'
        f"{thinned}; the line is all that is resident.</span></figcaption></figure>"
        + details("Figures of the timeline", _figures(points, frame))
    )


def data(series: Series | None) -> dict[str, Any] | None:
    """What the page's script needs to tell the figures under the pointer."""
    if not drawing(series) or series is None:
        return None
    frame = _Frame(series.points)
    return {
        "x": [round(frame.x(point), 1) for point in series.points],
        "seconds": [round(frame.seconds(point), 3) for point in series.points],
        "rss": [point.rss_bytes for point in series.points],
        "layers": [words for words, _, _ in LAYERS],
        "bytes": [layer_bytes(point) for point in series.points],
    }
