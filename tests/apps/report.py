#!/usr/bin/env python3
"""Prints the figures of the real programs as Markdown.

    report.py [FILE]        FILE is build/apps-times.json unless given

Each figure is the median of the rounds; a ratio below 1 is in favour of the library.
"""

import json
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

DEFAULT = Path(__file__).resolve().parents[2] / "build" / "apps-times.json"
BASELINE = "glibc"
SUBJECT = "preload"
# Of each figure: what to divide it by, and how to print it.
FIELDS = {"wall_s": (1, ".2f"), "cpu_s": (1, ".2f"), "peak_kib": (1024, ".1f")}

Runs = list[dict[str, float]]


def median(runs: Runs, field: str) -> float:
    return statistics.median(run[field] for run in runs)


def spread(runs: Runs, field: str) -> str:
    """Half the range in percent of the median; empty for a single round."""
    if len(runs) < 2:
        return ""
    values = [run[field] for run in runs]
    return f" ±{50 * (max(values) - min(values)) / statistics.median(values):.0f} %"


def row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def table(programs: dict[str, Any], subject: str, title: str) -> list[str]:
    """One row for each program that ran on both, and the geometric means of the ratios."""
    titles = ["program", "work"]
    for quantity in ("wall s", "CPU s", "peak MiB"):
        titles += [f"{quantity}: {BASELINE}", title, "ratio"]
    lines = [row(titles), row(["---"] * 2 + ["---:"] * 9)]
    ratios: dict[str, list[float]] = {field: [] for field in FIELDS}
    for name, program in sorted(programs.items()):
        before, after = program["runs"].get(BASELINE), program["runs"].get(subject)
        if not before or not after:
            continue
        cells = [name, program["what"]]
        for field, (unit, form) in FIELDS.items():
            values = [median(runs, field) / unit for runs in (before, after)]
            ratios[field].append(values[1] / values[0])
            spreads = [spread(runs, field) for runs in (before, after)]
            cells += [f"{value:{form}}{s}" for value, s in zip(values, spreads, strict=True)]
            cells.append(f"{ratios[field][-1]:.2f}")
        lines.append(row(cells))
    cells = ["geometric mean", ""]
    for values in ratios.values():
        cells += ["", "", f"{statistics.geometric_mean(values):.2f}" if values else "-"]
    return [*lines, row(cells)]


def report(content: dict[str, Any]) -> str:
    programs = content["programs"]
    rounds = max((len(r) for p in programs.values() for r in p["runs"].values()), default=0)
    machine = content["machine"]
    lines = [
        f"{content['library']} {content['library_sha256'][:12]}, {machine['cpu_count']} CPUs, "
        f"Linux {machine['kernel']}, medians of {rounds} interleaved rounds.",
    ]
    labels = sorted({label for program in programs.values() for label in program["runs"]})
    for subject in labels:
        if subject == BASELINE:
            continue
        title = content["library"] if subject == SUBJECT else subject
        lines += ["", *table(programs, subject, title)]
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    path = Path(arguments[1]) if len(arguments) > 1 else DEFAULT
    if not path.exists():
        print(f"no figures at {path}: run the tests in tests/apps first", file=sys.stderr)
        return 2
    print(report(json.loads(path.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
