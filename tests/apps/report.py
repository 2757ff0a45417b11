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

Runs = list[dict[str, float]]


def median(runs: Runs, field: str) -> float:
    return statistics.median(run[field] for run in runs)


def spread(runs: Runs) -> str:
    """The range of the wall times in percent of their median; empty for a single round."""
    if len(runs) < 2:
        return ""
    times = [run["wall_s"] for run in runs]
    return f" ±{50 * (max(times) - min(times)) / statistics.median(times):.0f} %"


def geometric_mean(ratios: Iterable[float]) -> float:
    return statistics.geometric_mean(ratios)


def row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"


def table(programs: dict[str, Any], subject: str, title: str) -> list[str]:
    """One row for each program that ran on both, and the geometric means of the ratios."""
    lines = [
        row("program", "work", f"{BASELINE} s", f"{title} s", "ratio")[:-1]
        + row(f"{BASELINE} peak MiB", f"{title} peak MiB", "ratio"),
        row(*["---"] * 2, *["---:"] * 6),
    ]
    ratios: list[tuple[float, float]] = []
    for name, program in sorted(programs.items()):
        before, after = program["runs"].get(BASELINE), program["runs"].get(subject)
        if not before or not after:
            continue
        wall = median(after, "wall_s") / median(before, "wall_s")
        peak = median(after, "peak_kib") / median(before, "peak_kib")
        ratios.append((wall, peak))
        lines.append(
            row(
                name,
                program["what"],
                f"{median(before, 'wall_s'):.2f}{spread(before)}",
                f"{median(after, 'wall_s'):.2f}{spread(after)}",
                f"{wall:.2f}",
                f"{median(before, 'peak_kib') / 1024:.1f}",
                f"{median(after, 'peak_kib') / 1024:.1f}",
                f"{peak:.2f}",
            )
        )
    if ratios:
        walls, peaks = zip(*ratios, strict=True)
        lines.append(
            row(
                "geometric mean",
                f"{len(ratios)} programs",
                "",
                "",
                f"{geometric_mean(walls):.2f}",
                "",
                "",
                f"{geometric_mean(peaks):.2f}",
            )
        )
    return lines if ratios else []


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
