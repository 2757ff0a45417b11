"""Markdown tables from raw rows."""

from __future__ import annotations

from collections.abc import Sequence

from .figures import Ratio, Spread, geometric_mean, paired_ratio, spread
from .measure import Row
from .programs import Case

METRICS = {"wall": "wall_ns", "cpu": "cpu_ns"}
MEGA = 1e6


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table; the first column is text, the others are figures."""
    ruler = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ruler, *rows]) + "\n"


def speed(row: Row, metric: str) -> float:
    """Operations per second."""
    return float(row["ops"]) * 1e9 / float(row[METRICS[metric]])


def _by_block(rows: Sequence[Row], case: str, allocator: str) -> dict[int, Row]:
    return {
        int(row["block"]): row
        for row in rows
        if row["case"] == case and row["allocator"] == allocator
    }


def _paired(rows: Sequence[Row], case: str, name: str, baseline: str, metric: str) -> Ratio | None:
    own, base = _by_block(rows, case, name), _by_block(rows, case, baseline)
    shared = sorted(own.keys() & base.keys())
    if not shared:
        return None
    return paired_ratio(
        [speed(own[block], metric) for block in shared],
        [speed(base[block], metric) for block in shared],
    )


def ratio_text(ratio: Ratio | None) -> list[str]:
    """Ratio with its interval, and the verdict."""
    if ratio is None:
        return ["-", "-"]
    return [f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]", ratio.verdict]


def _case_table(
    rows: Sequence[Row], case: Case, names: Sequence[str], baseline: str, metric: str
) -> str:
    lines = []
    for name in names:
        own = list(_by_block(rows, case.name, name).values())
        if not own:
            continue
        figures: Spread = spread([speed(row, metric) / MEGA for row in own])
        ratio = None if name == baseline else _paired(rows, case.name, name, baseline, metric)
        lines.append(
            [
                name,
                f"{figures.median:.1f}",
                f"{figures.low:.1f}",
                f"{figures.high:.1f}",
                f"{figures.cv_percent:.1f}",
                *(["1", "baseline"] if name == baseline else ratio_text(ratio)),
                f"{spread([row['peak_rss_bytes'] / 1024 for row in own]).median:,.0f}",
                f"{spread([row['minor_faults'] for row in own]).median:,.0f}",
            ]
        )
    header = ["allocator", "M/s median", "min", "max", "CV %", f"x {baseline}", "verdict",
              "peak RSS KiB", "page faults"]  # fmt: skip
    unit = next((str(row["unit"]) for row in rows if row["case"] == case.name), "")
    clock = "CPU time of all threads" if metric == "cpu" else "wall time"
    title = f"### {case.name}: {case.about}\n\nMillions of {unit} per second of {clock}.\n\n"
    return title + markdown(header, lines)


def _overview(rows: Sequence[Row], cases: Sequence[Case], names: Sequence[str], metric: str) -> str:
    lines = []
    for case in cases:
        cells = [case.name]
        for name in names:
            own = _by_block(rows, case.name, name)
            values = [speed(row, metric) / MEGA for row in own.values()]
            cells.append(f"{spread(values).median:.1f}" if values else "-")
        lines.append(cells)
    return markdown(["M/s, median", *names], lines)


def _means(
    rows: Sequence[Row], cases: Sequence[Case], names: Sequence[str], baseline: str, metric: str
) -> str:
    cells = []
    for name in names:
        ratios = [_paired(rows, case.name, name, baseline, metric) for case in cases]
        medians = [ratio.median for ratio in ratios if ratio is not None]
        whole = medians and len(medians) == len(cases)
        cells.append(f"{geometric_mean(medians):.2f}" if whole else "-")
    return markdown([f"speed, x {baseline}", *names], [["geometric mean of all rows", *cells]])


def report(
    rows: Sequence[Row], cases: Sequence[Case], names: Sequence[str], baseline: str, metric: str
) -> str:
    """The overview and one table per workload. Figures of speed: more is better."""
    measured = [case for case in cases if any(row["case"] == case.name for row in rows)]
    if not measured:
        return "No row was measured.\n"
    parts = [
        _overview(rows, measured, names, metric),
        _means(rows, measured, names, baseline, metric),
        *(_case_table(rows, case, names, baseline, metric) for case in measured),
    ]
    return "\n".join(parts)
