"""The tables of a report about time and memory: means, relative figures, losses, every row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..figures import Ratio, geometric_mean, interval_words, spread
from . import standing
from .cells import (
    MIB,
    Cell,
    Table,
    bytes_text,
    cells,
    factor_text,
    ratio_text,
    seconds_text,
    value_text,
)
from .results import GROUPS, METRIC_WORDS, CaseFacts, Results, Row


def measure_words(results: Results, what: str) -> str:
    """What the figures of time or memory are."""
    return METRIC_WORDS[results.metric] if what == "time" else "peak RSS"


def scoreboard(results: Results) -> Table:
    """Geometric means of all allocators, by group: the best in time and memory together first,
    those beside the contest last."""
    shown = standing.groups(results)
    header = ["allocator"]
    for group in shown:
        for what in standing.WHAT:
            header += [f"{what}, {GROUPS.get(group, group)}", "first in", "worst row"]
    lines: list[tuple[bool, float, list[Cell]]] = []
    totals = {group: sum(case.group == group for case in results.cases) for group in shown}
    for name in results.allocators:
        line, order = [Cell(name)], []
        for group in shown:
            for what in standing.WHAT:
                mean = standing.mean(results, name, what, group)
                if mean is None:
                    line += cells("-", "-", "-")
                    continue
                whole = mean.rows == totals[group]
                text = f"{mean.value:.2f}" + ("" if whole else f" ({mean.rows} rows)")
                line += [
                    Cell(text, ratio=mean.value),
                    Cell(f"{mean.firsts}/{mean.rows}" if name in results.contenders else "-"),
                    Cell(f"{mean.worst:.2f}", ratio=mean.worst, hint=mean.worst_case),
                ]
                order.append(mean.value)
        beside = name not in results.contenders
        lines.append((beside, geometric_mean(order) if order else math.inf, line))
    lines.sort(key=lambda entry: entry[:2])
    return Table(
        "Geometric means",
        f"Each row of the matrix is divided by its best one of {results.subject} and its peers, so "
        "1.00 is first everywhere; less is better. Other modes of hakmem, and the floor, which is "
        "no allocator but the cost of the calls alone, are shown beside and may lie below 1. A "
        "mean over fewer rows than the group has says so and compares with nothing.",
        header,
        [line for _, _, line in lines],
        anchor="means",
    )


def relative(results: Results, what: str) -> Table:
    """All allocators on all rows, as multiples of the best of the row."""
    rows = []
    for case in results.cases:
        found = standing.relative(results, case.name, what)
        middle = standing.medians(results, case.name, what)
        best = standing.best(results, middle)
        line = [Cell(case.name, hint=case.about), Cell(value_text(what, best))]
        for name in results.allocators:
            if name not in found:
                line.append(Cell("-"))
                continue
            value = found[name]
            contender = name in results.contenders
            line.append(
                Cell(
                    f"{value:.2f}",
                    ratio=value if contender else None,
                    first=contender and value <= 1.0,
                    hint=value_text(what, middle[name]),
                )
            )
        rows.append(line)
    words = measure_words(results, what)
    return Table(
        f"Relative {what}",
        f"Median {words} as a multiple of the row's best allocator; less is better. The second "
        "column is what that best one took.",
        ["row", "best", *results.allocators],
        rows,
        anchor=f"relative-{what}",
    )


def losses(results: Results, what: str) -> Table:
    """Every row in which a peer is ahead."""
    all_rows = standing.standings(results, what)
    behind = standing.losses(results, what)
    rows = [
        [
            Cell(each.case.name, hint=each.case.about),
            Cell(GROUPS.get(each.case.group, each.case.group)),
            Cell(each.peer),
            Cell(factor_text(each.factor), ratio=each.factor),
            Cell(ratio_text(each.ratio)),
            Cell(each.ratio.verdict if what == "time" else _memory_verdict(each.ratio)),
            Cell(value_text(what, each.own)),
            Cell(value_text(what, each.best)),
            *(_beside(results, each) if what == "time" else []),
        ]
        for each in behind
    ]
    subject = results.subject
    absent = [case.name for case in standing.absent(results)]
    missing = f" No figures of {subject}: {', '.join(absent)}." if absent else ""
    return Table(
        f"Where {subject} is not first in {what}",
        f"{len(behind)} of {len(all_rows) + len(absent)} rows, the widest first, against the best "
        f"peer of each row ({measure_words(results, what)}; factor of the medians, and the paired "
        f"ratio with its {interval_words(each.ratio for each in all_rows)}). The peer is chosen by "
        "these same medians, and rows by being behind one: as a whole they speak against "
        f"{subject}."
        f"{f' {BESIDE_NOTE}' if what == 'time' else ''}{missing}",
        ["row", "group", "best peer", "factor", "paired ratio", "verdict", subject, "best",
         *(BESIDE if what == "time" else {})],
        rows,
        text_columns=3,
        anchor=f"losses-{what}",
    )  # fmt: skip


# What stands beside a time: the column, and what it is in a row of the results.
BESIDE: dict[str, Callable[[Sequence[Row]], float]] = {
    "lowest ms": lambda rows: min(float(row["wall_ns"]) for row in rows) / NS_A_MS,
    "user ms": lambda rows: _median(rows, "user_ns") / NS_A_MS,
    "system ms": lambda rows: _median(rows, "system_ns") / NS_A_MS,
    "page faults": lambda rows: _median(rows, "minor_faults"),
    "waits": lambda rows: _median(rows, "voluntary_switches"),
    "peak MiB": lambda rows: _median(rows, "peak_rss_bytes") / MIB,
}
BESIDE_NOTE = (
    "Beside them, of both in the same runs: wall time of the fastest run, medians of processor "
    "time, page faults, voluntary switches (what a lock or a join made a thread sleep for), peak "
    "(with the workload's own books, which the comparisons of memory leave out)."
)
NS_A_MS = 1e6


def _median(rows: Sequence[Row], key: str) -> float:
    return spread([float(row[key]) for row in rows]).median


def _beside(results: Results, each: standing.Standing) -> list[Cell]:
    own, peer = (results.of(each.case.name, name) for name in (results.subject, each.peer))
    return cells(*(f"{_figure(value(own))} / {_figure(value(peer))}" for value in BESIDE.values()))


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _memory_verdict(ratio: Ratio) -> str:
    return {"faster": "less", "slower": "more"}.get(ratio.verdict, ratio.verdict)


def detail(results: Results, case: CaseFacts) -> Table:
    """Every figure of one row of the matrix."""
    baseline = results.baseline
    rows = []
    for name in results.allocators:
        own = results.of(case.name, name)
        if not own:
            continue
        time = spread(results.values(case.name, name, "time"))
        memory = spread(results.values(case.name, name, "memory"))
        ratio = standing.versus(results, case.name, name, baseline, "time")
        versus = ("1", "baseline") if name == baseline else ("-", "-")
        if ratio is not None and name != baseline:
            versus = (ratio_text(ratio), ratio.verdict)
        rows.append(
            cells(
                name,
                seconds_text(time.median),
                seconds_text(time.low),
                seconds_text(time.high),
                f"{time.cv_percent:.1f}",
                *versus,
                _median_text(own, "user_ns", seconds_text),
                _median_text(own, "system_ns", seconds_text),
                bytes_text(memory.median),
                _median_text(own, "end_rss_bytes", bytes_text),
                _median_text(own, "minor_faults", _count_text),
                _median_text(own, "voluntary_switches", _count_text),
                _median_text(own, "involuntary_switches", _count_text),
            )
        )
    ops = next((row for row in results.of(case.name, results.subject) or [{}]), {})
    work = f" Work: {ops['ops']:,} {ops.get('unit', '')}." if ops.get("ops") else ""
    return Table(
        case.name,
        f"{case.about}.{work} {METRIC_WORDS[results.metric].capitalize()}, less is better."
        if case.about
        else f"{METRIC_WORDS[results.metric].capitalize()}, less is better.{work}",
        ["allocator", "median", "min", "max", "CV %", f"x {baseline}", "verdict", "user", "system",
         "peak RSS", "RSS at end", "page faults", "waits", "preempted"],
        rows,
        anchor=f"row-{case.name}",
    )  # fmt: skip


def _count_text(value: float) -> str:
    return f"{value:,.0f}"


def _median_text(rows: Sequence[Row], key: str, text: Callable[[float], str]) -> str:
    values = [float(row[key]) for row in rows if row.get(key) is not None]
    return text(spread(values).median) if values else "-"
