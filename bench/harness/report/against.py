"""Two allocators of one session, row by row: where the first is better, where worse.

Their runs were interleaved: ratios are formed within a block (figures.paired_ratio), and what
disturbs a whole block cancels out. Two configurations of one library are compared so.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BenchError
from ..figures import SAME_WITHIN, Ratio, geometric_mean, interval_words
from . import derived, markdown, standing
from .cells import Cell, Table, ratio_text, value_text
from .compare import INCONCLUSIVE, NOISE_MOST, hidden, trusted, worse
from .results import GROUPS, METRIC_WORDS, CaseFacts, Results, load

SCHEMA = "hakmem-bench-against/1"
BAD = 1
BETTER, WORSE, EQUAL, UNCLEAR = "better", "worse", "equal", "unclear"
STATES = (BETTER, WORSE, EQUAL, UNCLEAR)
# A smaller gain is not counted, however certain.
GAIN_LEAST = {"time": 0.03, "memory": 0.05}


@dataclass(frozen=True)
class Pair:
    """One row of the matrix on both allocators; ratios below 1 are better for the first."""

    case: CaseFacts
    ratios: dict[str, Ratio]

    def state(self, what: str) -> str:
        """Of time or memory alone."""
        ratio = self.ratios[what]
        if worse(ratio):
            return WORSE
        if ratio.verdict == "faster" and ratio.median <= 1 - GAIN_LEAST[what]:
            return BETTER
        return UNCLEAR if hidden(ratio) else EQUAL

    @property
    def verdict(self) -> str:
        """A row is better when it gained one of the two and surely did not pay with the other."""
        found = {self.state(what) for what in standing.WHAT}
        return next(each for each in (WORSE, UNCLEAR, BETTER, EQUAL) if each in found)


@dataclass(frozen=True)
class Verdicts:
    """All rows that both have. `failed` are those that the first failed, or was refused in, and the
    other has; `left_out` are all others that only one of them has."""

    results: Results
    of: str
    against: str
    pairs: list[Pair]
    left_out: list[str]
    failed: list[str]

    def count(self, state: str) -> int:
        """Rows of this verdict."""
        return sum(pair.verdict == state for pair in self.pairs)

    @property
    def better_percent(self) -> float:
        """The share of better rows."""
        return 100 * self.count(BETTER) / len(self.pairs)

    def mean(self, what: str, group: str | None = None) -> float:
        """Geometric mean of the paired ratios, of one group or of all."""
        chosen = [pair for pair in self.pairs if group in (None, pair.case.group)]
        return geometric_mean([pair.ratios[what].median for pair in chosen])

    def status(self, least_better: float) -> int:
        """1: a row is worse or failed, or fewer are better than wanted; 3: a row is too noisy to
        tell; and as `trusted` says of results that are unsound or not finished."""
        if self.failed or self.count(WORSE) or self.better_percent < least_better:
            return BAD
        return trusted(INCONCLUSIVE if self.count(UNCLEAR) else 0, self.results)


def judge(results: Results, of: str, against: str) -> Verdicts:
    """Every row of the first allocator against the second's."""
    for name in (of, against):
        if name not in results.allocators:
            known = ", ".join(results.allocators)
            raise BenchError(f"{results.folder} has no row of '{name}'; it has those of {known}")
    pairs: list[Pair] = []
    left_out: list[str] = []
    failed: list[str] = []
    for case in results.cases:
        ratios = {
            what: ratio
            for what in standing.WHAT
            if (ratio := standing.versus(results, case.name, of, against, what)) is not None
        }
        if ratios:
            pairs.append(Pair(case, ratios))
        elif (case.name, of) in results.lost and results.of(case.name, against):
            failed.append(case.name)
        elif results.of(case.name, of) or results.of(case.name, against):
            left_out.append(case.name)
    if not pairs:
        raise BenchError(f"{results.folder}: {of} and {against} share no row")
    return Verdicts(results, of, against, pairs, left_out, failed)


def _table(found: Verdicts) -> Table:
    rows = []
    for pair in found.pairs:
        line = [Cell(pair.case.name, hint=pair.case.about)]
        for what in standing.WHAT:
            middle = standing.medians(found.results, pair.case.name, what)
            line += [
                Cell(value_text(what, middle[found.against])),
                Cell(value_text(what, middle[found.of])),
                Cell(ratio_text(pair.ratios[what])),
                Cell(pair.state(what)),
            ]
        rows.append([*line, Cell(pair.verdict)])
    words = interval_words(ratio for pair in found.pairs for ratio in pair.ratios.values())
    note = (
        f"Medians of {METRIC_WORDS[found.results.metric]} and of peak RSS; ratio: {found.of} over "
        f"{found.against} in the same block, median and {words}; less is better. better: the "
        f"whole interval is below 1, the median by {GAIN_LEAST['time']:.0%} in time or "
        f"{GAIN_LEAST['memory']:.0%} in memory. worse: above 1, the median by more than "
        f"{SAME_WITHIN:.0%}. unclear: the interval holds 1, and reaches above {1 + NOISE_MOST:.2f}."
    )
    return Table(
        f"{found.of} against {found.against}",
        note,
        ["row", f"time {found.against}", f"time {found.of}", "ratio", "time",
         f"RSS {found.against}", f"RSS {found.of}", "ratio", "RSS", "row is"],
        rows,
    )  # fmt: skip


def summary(found: Verdicts) -> str:
    """The counts and the means, line by line."""
    counts = ", ".join(f"{found.count(state)} {state}" for state in STATES)
    lines = [
        f"{found.of} against {found.against}: of {len(found.pairs)} rows {counts}; "
        f"{found.better_percent:.0f} % are better."
    ]
    groups = standing.groups(found.results)
    for group in [*groups, None] if len(groups) > 1 else [None]:
        means = ", ".join(f"{what} {found.mean(what, group):.3f}x" for what in standing.WHAT)
        of = "all rows" if group is None else GROUPS.get(group, group)
        lines.append(f"Geometric means of {of}: {means}.")
    if found.failed:
        lines.append(f"Worse: {found.of} failed or was refused on {', '.join(found.failed)}.")
    if found.left_out:
        lines.append(f"Left out, only one has them: {', '.join(found.left_out)}.")
    return "\n".join(lines)


def as_json(found: Verdicts, least_better: float) -> dict[str, Any]:
    """The comparison for programs."""
    return {
        "schema": SCHEMA,
        "of": found.of,
        "against": found.against,
        "metric": found.results.metric,
        "status": found.status(least_better),
        "states": sorted(found.results.states),
        "counts": {state: found.count(state) for state in STATES},
        "better_percent": found.better_percent,
        "means": {what: found.mean(what) for what in standing.WHAT},
        "failed": found.failed,
        "left_out": found.left_out,
        "rows": [
            {
                "case": pair.case.name,
                "group": pair.case.group,
                "verdict": pair.verdict,
                **{
                    what: {**derived.ratio(pair.ratios[what]), "verdict": pair.state(what)}
                    for what in standing.WHAT
                },
            }
            for pair in found.pairs
        ],
    }


def main(
    folders: Sequence[Path],
    of: str,
    against: str,
    *,
    metric: str = "wall",
    least_better: float = 0.0,
    as_json_text: bool = False,
) -> int:
    """Prints the comparison; see `Verdicts.status` for what it returns."""
    results = load(folders[0], metric, newer=folders[1:])
    found = judge(results, of, against)
    if warning := markdown.warning(results):
        print(warning, file=sys.stderr)
    if as_json_text:
        print(json.dumps(as_json(found, least_better), indent=2))
    else:
        print(markdown.section(_table(found)))
        print(summary(found))
    return found.status(least_better)
