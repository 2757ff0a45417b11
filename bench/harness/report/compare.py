"""Two result folders side by side: what became faster, slower, leaner, larger.

The runs of two folders were not interleaved, so nothing cancels out: the intervals come from
drawing each side's repetitions anew on its own, and the floor's row shows how far the machine
itself moved between them.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..figures import SAME_WITHIN, Ratio, geometric_mean, unpaired_ratio
from . import derived, markdown, standing
from .cells import Cell, Table, ratio_text, value_text
from .results import METRIC_WORDS, Results, load

SLOWER, INCONCLUSIVE = 1, 3
NOISE_MOST = 0.10


@dataclass(frozen=True)
class Change:
    """One pair of case and allocator, before and after."""

    case: str
    allocator: str
    before: dict[str, float]
    after: dict[str, float]
    ratios: dict[str, Ratio]


def common(a: Results, b: Results, case: str, allocator: str) -> bool:
    """Whether both folders have the pair."""
    return bool(a.of(case, allocator) and b.of(case, allocator))


def unlike(a: Results, b: Results) -> list[str]:
    """The rows that both have, but with other arguments, or of another scale."""
    return [
        case.name
        for case in a.cases
        if any(
            common(a, b, case.name, name) and a.work(case.name, name) != b.work(case.name, name)
            for name in a.allocators
        )
    ]


def changes(a: Results, b: Results) -> list[Change]:
    """Every pair that both folders have and ran alike, in the order of the first."""
    found = []
    others = unlike(a, b)
    for case in a.cases:
        for name in a.allocators:
            if case.name in others or not common(a, b, case.name, name):
                continue
            values = {
                what: (a.values(case.name, name, what), b.values(case.name, name, what))
                for what in standing.WHAT
            }
            found.append(
                Change(
                    case.name,
                    name,
                    {what: standing.medians(a, case.name, what)[name] for what in standing.WHAT},
                    {what: standing.medians(b, case.name, what)[name] for what in standing.WHAT},
                    {what: unpaired_ratio(after, before)
                     for what, (before, after) in values.items()},
                )
            )  # fmt: skip
    return found


def _table(found: list[Change], a: Results, b: Results) -> Table:
    rows = []
    for change in found:
        line = [Cell(change.case), Cell(change.allocator)]
        for what in standing.WHAT:
            ratio = change.ratios[what]
            words = {"faster": "less", "slower": "more"} if what == "memory" else {}
            line += [
                Cell(value_text(what, change.before[what])),
                Cell(value_text(what, change.after[what])),
                Cell(ratio_text(ratio)),
                Cell(words.get(ratio.verdict, ratio.verdict)),
            ]
        rows.append(line)
    means = [
        f"{name} {geometric_mean([each.ratios['time'].median for each in own]):.3f}x time, "
        f"{geometric_mean([each.ratios['memory'].median for each in own]):.3f}x memory"
        for name in dict.fromkeys(change.allocator for change in found)
        if (own := [each for each in found if each.allocator == name])
    ]
    return Table(
        f"{a.folder.name} to {b.folder.name}",
        f"Medians of {METRIC_WORDS[a.metric]} and of peak RSS, and the second over the first with "
        f"its 95 % bootstrap interval; less is better. Geometric means: {'; '.join(means)}.",
        ["row", "allocator", "time a", "time b", "b / a", "verdict", "RSS a", "RSS b", "b / a",
         "verdict"],
        rows,
        text_columns=2,
    )  # fmt: skip


def worse(ratio: Ratio) -> bool:
    """More time or memory, and by more than two runs of the same code differ."""
    return ratio.verdict == "slower" and ratio.median > 1 + SAME_WITHIN


def hidden(ratio: Ratio) -> bool:
    """The noise, or that there are so few pairs, could hide that it became worse by more than
    NOISE_MOST."""
    high = ratio.high if ratio.covers_enough else math.inf
    return ratio.verdict == "inconclusive" and high > 1 + NOISE_MOST


def failed(a: Results, b: Results) -> list[str]:
    """The rows that the subject had in the first folder and failed, or was refused in, in the
    second."""
    return [
        case.name
        for case in a.cases
        if a.of(case.name, a.subject) and (case.name, a.subject) in b.lost
    ]


def only_of_one(a: Results, b: Results) -> list[str]:
    """The rows of the subject that one of the folders has, and that the other did not try."""
    of_one = {case.name for case in a.cases if a.of(case.name, a.subject)} ^ {
        case.name for case in b.cases if b.of(case.name, a.subject)
    }
    tried = {name for name, allocator in a.lost | b.lost if allocator == a.subject}
    return sorted(of_one - tried)


def status(found: list[Change], subject: str, lost: Sequence[str] = ()) -> int:
    """0: nothing of the subject became slower or larger; 1: something did, beyond the noise, or it
    failed a row that it had; 3: nothing did for certain, but a row is too noisy to tell."""
    if lost:
        return SLOWER
    ratios = [
        ratio for change in found if change.allocator == subject for ratio in change.ratios.values()
    ]
    if any(worse(ratio) for ratio in ratios):
        return SLOWER
    return INCONCLUSIVE if not ratios or any(hidden(ratio) for ratio in ratios) else 0


def trusted(status_found: int, *of: Results) -> int:
    """A status, which results that are unsound make 1, and 0 is not said of unfinished ones."""
    states = {state for results in of for state in results.states}
    if "unsound" in states:
        return SLOWER
    return INCONCLUSIVE if states != {"complete"} and status_found == 0 else status_found


def as_json(found: list[Change], a: Results, b: Results) -> dict[str, Any]:
    """The comparison for programs."""
    lost = failed(a, b)
    return {
        "schema": "hakmem-bench-comparison/1",
        "subject": a.subject,
        "status": trusted(status(found, a.subject, lost), a, b),
        "states": sorted({*a.states, *b.states}),
        "failed": lost,
        "left_out": sorted({*only_of_one(a, b), *unlike(a, b)}),
        "changes": [
            {
                "case": change.case,
                "allocator": change.allocator,
                **{
                    what: {
                        "before": change.before[what],
                        "after": change.after[what],
                        **derived.ratio(change.ratios[what]),
                    }
                    for what in standing.WHAT
                },
            }
            for change in found
        ],
    }


def main(a: Path, b: Path, metric: str = "wall", as_json_text: bool = False) -> int:
    """Prints the comparison; see `status` and `trusted` for what it returns."""
    first, second = load(a, metric), load(b, metric)
    found, lost = changes(first, second), failed(first, second)
    for results in (first, second):
        if said := markdown.warning(results):
            print(f"{results.folder}: {said}", file=sys.stderr)
    for case in unlike(first, second):
        print(f"left out, of another scale or with other arguments: {case}", file=sys.stderr)
    if names := only_of_one(first, second):
        print(f"left out, only one folder has them: {', '.join(names)}", file=sys.stderr)
    if not found and not lost:
        print("the two folders share no row", file=sys.stderr)
        return trusted(INCONCLUSIVE, first, second)
    subject = first.subject
    if as_json_text:
        print(json.dumps(as_json(found, first, second), indent=2))
    else:
        print(markdown.section(_table(found, first, second)))
        for case in lost:
            print(f"worse: {subject} failed or was refused on {case}")
        for change in found:
            for what, ratio in change.ratios.items():
                if change.allocator == subject and (worse(ratio) or hidden(ratio)):
                    word = "worse" if worse(ratio) else "too noisy to tell"
                    print(f"{word}: {what} of {subject} on {change.case}: {ratio_text(ratio)}")
    return trusted(status(found, subject, lost), first, second)
