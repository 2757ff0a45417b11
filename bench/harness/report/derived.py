"""The derived figures as JSON: times in ns, sizes in bytes."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from ..figures import Ratio, spread
from . import standing
from .results import Results

SCHEMA = "hakmem-bench-figures/1"


def ratio(found: Ratio) -> dict[str, Any]:
    """A ratio with its verdict; a single pair has no upper end."""
    return {
        "median": found.median,
        "low": found.low,
        "high": found.high if math.isfinite(found.high) else None,
        "pairs": found.pairs,
        "coverage": found.coverage,
        "verdict": found.verdict,
    }


def _row(results: Results, case: str, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"allocator": name}
    best = {what: standing.relative(results, case, what)[name] for what in standing.WHAT}
    for what in standing.WHAT:
        row[what] = {
            **asdict(spread(results.values(case, name, what))),
            "relative_to_best": best[what],
        }
        versus = standing.versus(results, case, name, results.baseline, what)
        if versus is not None and name != results.baseline:
            row[what]["versus_baseline"] = ratio(versus)
    return row


def figures(results: Results) -> dict[str, Any]:
    """Means, rows and losses."""
    return {
        "schema": SCHEMA,
        "metric": results.metric,
        "subject": results.subject,
        "baseline": results.baseline,
        "means": [
            {"allocator": name, "group": group, "what": what, **asdict(mean)}
            for name in results.allocators
            for group in standing.groups(results)
            for what in standing.WHAT
            if (mean := standing.mean(results, name, what, group)) is not None
        ],
        "cases": [
            {
                **asdict(case),
                "allocators": [
                    _row(results, case.name, name)
                    for name in results.allocators
                    if results.of(case.name, name)
                ],
            }
            for case in results.cases
        ],
        "not_first": [
            {
                "case": each.case.name,
                "what": what,
                "peer": each.peer,
                "factor": each.factor,
                "ratio": ratio(each.ratio),
            }
            for what in standing.WHAT
            for each in standing.losses(results, what)
        ],
        "refused": results.refused,
    }
