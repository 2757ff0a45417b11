"""The plots of a report, as SVG text that can stand in a page. Lower and further left is better."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import standing
from .results import FLOOR, GROUPS, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..soak import Sample

# The subject stands out; its modes share its hue; the peers have colours that people with a colour
# weakness tell apart (Tol's "muted" and "bright" sets), and a marker each.
SUBJECT_COLOUR = "#d5006d"
MODE_COLOURS = ("#f06aa8", "#a64d79", "#e8a0bf")
PEER_COLOURS = (
    "#222222", "#332288", "#2f9fd0", "#117733", "#ddaa33", "#aa4499", "#44aa99", "#6699cc",
    "#999933", "#661100", "#004488", "#77aa00", "#bb5566", "#009988",
)  # fmt: skip
MARKERS = "osD^vPX<>ph*dH8"
FLOOR_COLOUR = "#9a9a9a"
# The floor may lie far left of everyone; the scale of the strips ends here.
LEAST_SHOWN = 0.6
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "hakmem",
    "font.family": "sans-serif",
    "font.sans-serif": ["Inter", "Helvetica Neue", "Arial", "DejaVu Sans"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.linewidth": 0.7,
    "axes.labelcolor": "#333333",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "xtick.color": "#555555",
    "ytick.color": "#555555",
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
}


class Palette:
    """A colour and a marker for each allocator, the same in every plot of a page."""

    def __init__(self, results: Results) -> None:
        self.subject = results.subject
        self.colours: dict[str, str] = {results.subject: SUBJECT_COLOUR, FLOOR: FLOOR_COLOUR}
        modes = [name for name in results.allocators if name.startswith(f"{results.subject}_")]
        for turn, name in enumerate(modes):
            self.colours[name] = MODE_COLOURS[turn % len(MODE_COLOURS)]
        for turn, name in enumerate(results.peers):
            self.colours[name] = PEER_COLOURS[turn % len(PEER_COLOURS)]
        self.markers = {
            name: MARKERS[turn % len(MARKERS)] for turn, name in enumerate(results.allocators)
        }

    def line(self, name: str) -> dict[str, Any]:
        """How this allocator's lines look."""
        if name == FLOOR:
            return {"color": FLOOR_COLOUR, "linewidth": 1.2, "linestyle": ":", "zorder": 2}
        own = name == self.subject
        return {
            "color": self.colours[name],
            "linewidth": 2.4 if own else 1.2,
            "zorder": 5 if own else 3,
        }

    def point(self, name: str) -> dict[str, Any]:
        """How this allocator's points look."""
        own = name == self.subject
        return {
            "color": self.colours[name],
            "marker": "o" if own else self.markers[name],
            "s": 70 if own else 26,
            "zorder": 5 if own else 3,
            "linewidths": 0.8,
            "edgecolors": "white" if own else "none",
            "alpha": 1.0 if own else 0.85,
        }


def _figure(width: float, height: float, rows: int = 1, columns: int = 1) -> tuple[Figure, Any]:
    """A figure with its grid of axes; matplotlib is loaded only when something is drawn."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots(rows, columns, squeeze=False)


def _svg(figure: Figure, label: str) -> str:
    """The figure as one <svg> element whose text stays text; ids are unique within a page."""
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    prefix = re.sub(r"\W+", "-", label)
    text = re.sub(r'(\bid="|url\(#|xlink:href="#)', rf"\g<1>{prefix}-", text)
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


# Where ticks of ratios stand, on wide scales and on narrow ones.
WIDE_TICKS = (1.0, 1.2, 1.5, 2.0, 3.0, 5.0, 7.0)
NARROW_TICKS = (1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.5, 2.0, 8.0, 9.0, 9.5)
NARROW = 1.6


def _ratio_axis(axis: Any) -> None:
    """A logarithmic axis of ratios with plain labels."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    low, high = axis.get_view_interval()
    ticks = NARROW_TICKS if high / low < NARROW else WIDE_TICKS
    axis.set_major_locator(LogLocator(base=10, subs=ticks))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))


def scatter(results: Results) -> str:
    """Mean time over mean memory, a panel per group: the lower left corner is where to be."""
    palette = Palette(results)
    shown = standing.groups(results)
    figure, grid = _figure(5.6 * len(shown), 4.4, 1, len(shown))
    labels: list[tuple[Axes, list[tuple[str, float, float]]]] = []
    for axes, group in zip(grid[0], shown, strict=True):
        axes.set_xscale("log")
        axes.set_yscale("log")
        points = []
        for name in results.allocators:
            time = standing.mean(results, name, "time", group)
            memory = standing.mean(results, name, "memory", group)
            if time is None or memory is None or name == FLOOR:
                continue
            axes.scatter([time.value], [memory.value], **palette.point(name))
            points.append((name, time.value, memory.value))
        labels.append((axes, points))
        axes.set_title(GROUPS.get(group, group), loc="left")
        axes.set_xlabel("time, geometric mean, x best of row  (less is better)")
        axes.set_ylabel("peak RSS, geometric mean, x best of row")
        axes.margins(0.16)
        axes.grid(visible=True)
        axes.set_axisbelow(True)
        axes.plot([1.0], [1.0], marker="+", color="#888888", markersize=9, zorder=2)
        _ratio_axis(axes.xaxis)
        _ratio_axis(axes.yaxis)
    # Where the points lie on the paper is known once the axes have their final size.
    figure.draw_without_rendering()
    for axes, points in labels:
        _label_points(axes, points, palette)
    return _svg(figure, "time over memory")


def _label_points(axes: Axes, points: Sequence[tuple[str, float, float]], palette: Palette) -> None:
    """Names beside points, moved up or down until they cover neither each other nor a point."""
    spots = [axes.transData.transform((x, y)) for _, x, y in points]
    taken = [(left - 5, bottom - 4, 10.0) for left, bottom in spots]
    to_points = 72 / axes.figure.dpi
    for name, x, y in sorted(points, key=lambda point: (point[2], point[1])):
        left, bottom = axes.transData.transform((x, y))
        width = 7.0 * len(name)
        # Nearest free place first: right of the point, then further up and down.
        for step in sorted(range(-60, 61, 3), key=abs):
            at = bottom + step - 4
            if all(left + 8 > a + w or a > left + 8 + width or abs(at - b) >= 11
                   for a, b, w in taken):  # fmt: skip
                break
        taken.append((left + 8, at, width))
        axes.annotate(
            name,
            (x, y),
            xytext=(8 * to_points, (at - bottom) * to_points),
            textcoords="offset points",
            fontsize=8.5,
            color=palette.colours[name],
            fontweight="bold" if name == palette.subject else "normal",
        )


def strips(results: Results) -> str:
    """Every row of the matrix: all allocators on a scale of ratios, time and memory."""
    palette = Palette(results)
    cases = [case for group in standing.groups(results) for case in results.cases
             if case.group == group]  # fmt: skip
    borders = [at for at in range(1, len(cases)) if cases[at].group != cases[at - 1].group]
    figure, grid = _figure(11.2, 1.4 + 0.24 * len(cases), 1, 2)
    for axes, what in zip(grid[0], standing.WHAT, strict=True):
        axes.set_xscale("log")
        for line, case in enumerate(cases):
            found = standing.relative(results, case.name, what)
            for name, value in found.items():
                axes.scatter([value], [line], **palette.point(name))
        axes.axvline(1.0, color="#666666", linewidth=0.9, zorder=1)
        axes.set_xlim(left=max(LEAST_SHOWN, axes.get_xlim()[0]))
        for border in borders:
            axes.axhline(border - 0.5, color="#bbbbbb", linewidth=0.8)
        axes.set_ylim(len(cases) - 0.4, -0.6)
        axes.set_yticks(range(len(cases)), [case.name for case in cases])
        axes.grid(visible=True)
        axes.set_axisbelow(True)
        axes.set_title("time" if what == "time" else "peak RSS", loc="left")
        axes.set_xlabel("x best of row  (less is better)")
        _ratio_axis(axes.xaxis)
    grid[0][1].set_yticklabels([])
    _legend(figure, results, palette)
    return _svg(figure, "every row")


def _legend(figure: Figure, results: Results, palette: Palette) -> None:
    from matplotlib.lines import Line2D

    handles = []
    for name in results.allocators:
        own = name == palette.subject
        handles.append(
            Line2D(
                [], [], linestyle="none", label=name, color=palette.colours[name],
                marker="o" if own else palette.markers[name], markersize=8 if own else 5,
            )
        )  # fmt: skip
    figure.legend(handles=handles, loc="outside upper center", ncols=7, fontsize=8.5,
                  frameon=False)  # fmt: skip


def rss_over_time(results: Results) -> str | None:
    """Resident memory while a workload runs: one panel per row that recorded it."""
    recorded = [
        case
        for case in results.cases
        if any(row.get("rss_series") for name in results.allocators
               for row in results.of(case.name, name))
    ]  # fmt: skip
    if not recorded:
        return None
    palette = Palette(results)
    lines = -(-len(recorded) // 2)
    figure, grid = _figure(11.2, 0.6 + 3.1 * lines, lines, 2)
    for axes, case in zip(grid.flat, recorded, strict=False):
        for name in results.allocators:
            series = next((row["rss_series"] for row in results.of(case.name, name)
                           if row.get("rss_series")), None)  # fmt: skip
            if series:
                times = [point[0] / 1e3 for point in series]
                sizes = [point[1] / 2**20 for point in series]
                axes.plot(times, sizes, label=name, drawstyle="steps-post", **palette.line(name))
        axes.set_title(case.name, loc="left")
        axes.set_xlabel("seconds")
        axes.set_ylabel("RSS, MiB")
        axes.set_ylim(bottom=0)
        axes.grid(visible=True)
    for axes in list(grid.flat)[len(recorded) :]:
        axes.set_visible(False)
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=7,
                  fontsize=8.5, frameon=False)  # fmt: skip
    return _svg(figure, "RSS over time")


def latency(results: Results) -> str | None:
    """How large a share of calls takes longer than a time: the tails of malloc and free."""
    recorded = [
        (case, call)
        for case in results.cases
        for call in ("malloc", "free")
        if any(_histogram(results, case.name, name, call) for name in results.allocators)
    ]
    if not recorded:
        return None
    palette = Palette(results)
    lines = -(-len(recorded) // 2)
    figure, grid = _figure(11.2, 0.6 + 3.6 * lines, lines, 2)
    for axes, (case, call) in zip(grid.flat, recorded, strict=False):
        for name in results.allocators:
            histogram = _histogram(results, case.name, name, call)
            if histogram:
                uppers, shares = exceedance(histogram)
                axes.plot(uppers, shares, label=name, drawstyle="steps-post", **palette.line(name))
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_title(f"{case.name}: {call}", loc="left")
        axes.set_xlabel("nanoseconds  (less is better)")
        axes.set_ylabel("share of calls that take longer")
        axes.grid(visible=True)
        for share, words in ((1e-2, "p99"), (1e-4, "p99.99")):
            axes.axhline(share, color="#bbbbbb", linewidth=0.8, linestyle="--", zorder=1)
            axes.annotate(words, (1, share), xycoords=("axes fraction", "data"), fontsize=7.5,
                          ha="right", va="bottom", color="#777777")  # fmt: skip
    for axes in list(grid.flat)[len(recorded) :]:
        axes.set_visible(False)
    figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside upper center", ncols=7,
                  fontsize=8.5, frameon=False)  # fmt: skip
    return _svg(figure, "latency")


def _histogram(results: Results, case: str, name: str, call: str) -> list[tuple[float, float]]:
    """All repetitions of a pair added up: (upper end in ns, calls)."""
    total: dict[float, float] = {}
    for row in results.of(case, name):
        for upper, count in ((row.get("latency") or {}).get(call) or {}).get("histogram", []):
            total[float(upper)] = total.get(float(upper), 0.0) + float(count)
    return sorted(total.items())


def exceedance(histogram: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Upper ends in ns, and the share of all calls that took longer than each; the last bucket,
    which nothing exceeds, is left out."""
    total = sum(count for _, count in histogram)
    uppers, shares, above = [], [], total
    for upper, count in histogram:
        above -= count
        if above > 0:
            uppers.append(upper)
            shares.append(above / total)
    return uppers, shares


def soak(name: str, samples: Sequence[Sample], floor: Sequence[Sample]) -> str:
    """Resident memory, throughput (with the floor's, measured in between) and mappings of one long
    run, above each other; the judged half is shaded."""
    figure, grid = _figure(9.0, 6.6, 3, 1)
    alone = [sample for sample in samples if sample.held_ms == 0]
    counted = [sample for sample in samples if sample.mappings > 0]
    lines = (
        ("RSS, MiB", samples, [sample.rss_bytes / 2**20 for sample in samples]),
        (
            "million operations per second",
            alone,
            [sample.ops_per_second / 1e6 for sample in alone],
        ),
        ("mappings", counted, [float(sample.mappings) for sample in counted]),
    )
    end = samples[-1].ms / 60_000
    for axes, (label, shown, values) in zip(grid.flat, lines, strict=True):
        axes.plot([each.ms / 60_000 for each in shown], values,
                  color=SUBJECT_COLOUR, linewidth=1.2, label=name)  # fmt: skip
        axes.axvspan(end / 2, end, color="#f3f3f6", zorder=0)
        axes.set_ylabel(label)
        axes.grid(visible=True)
    grid[1][0].plot([each.ms / 60_000 for each in floor],
                    [each.ops_per_second / 1e6 for each in floor],
                    color=FLOOR_COLOUR, linestyle="", marker=".", label="floor")  # fmt: skip
    grid[1][0].legend(loc="upper left")
    for axes in grid.flat:
        axes.set_ylim(bottom=0)
    grid[0][0].set_title(f"{name}, soak", loc="left")
    grid[2][0].set_xlabel("minutes")
    return _svg(figure, "soak")
