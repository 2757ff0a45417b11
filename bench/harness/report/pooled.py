"""Rows of several series together: the subject against every peer, by the pairs of all blocks.

In one series the best peer of a row is the luckiest of a dozen medians of few runs in one hour.
Over series of several hours that luck goes out. Pairs are formed within a block (paired_ratio), so
that the series may be of hours, kernels and builds of the subject that differ; of a peer only
those count in which it was made as in the newest. Still the best of a row is chosen by the figures
that it is judged by, in the peer's favour.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BenchError
from ..figures import Ratio, interval_words, paired_ratio
from . import derived, markdown, standing
from .cells import Cell, Table, ratio_text
from .results import (
    METRIC_WORDS,
    SUBJECT,
    CaseFacts,
    Results,
    build_id,
    load,
    machine_differs,
    peers_among,
    short_id,
)

SCHEMA = "hakmem-bench-pool/1"
# What may differ between series: a block has one of each.
MAY_DIFFER = {"kernel"}
# How a peer was made. Not its build id: some libraries have a path or a time in them.
MADE = ("version", "build", "compiler", "environment")
# Of a row's most pairs: a peer of fewer would be luckier than the others.
PAIRS_LEAST = 0.5
# What the targets allow a row.
WIDE = 1.05


@dataclass(frozen=True)
class Pooled:
    """The subject in one row against each peer, whom it is furthest behind first; of that one the
    number of series."""

    case: CaseFacts
    what: str
    ratios: Mapping[str, Ratio]
    series: int
    # Peers that ran it, with their pairs: too few, as they are made and the row is run now.
    left_out: Mapping[str, int]

    @property
    def best(self) -> str:
        """The row's best peer."""
        return next(iter(self.ratios))

    @property
    def ratio(self) -> Ratio:
        """Against that one."""
        return self.ratios[self.best]


def made(results: Results, peer: str) -> list[object]:
    """What the manifest says of how a peer was made; it names all that took part."""
    facts = results.manifest["allocators"].get(peer, {})
    return [facts.get(key) for key in MADE]


@dataclass(frozen=True)
class Pool:
    """Series of one machine, the oldest first."""

    series: Sequence[Results]

    @property
    def subject(self) -> str:
        """hakmem, or of series in which it took no part the newest's first."""
        took_part = any(SUBJECT in each.allocators for each in self.series)
        return SUBJECT if took_part else self.series[-1].subject

    @property
    def peers(self) -> list[str]:
        """Of any series."""
        names = dict.fromkeys(name for each in self.series for name in each.allocators)
        return peers_among(names, self.subject)

    @property
    def builds(self) -> list[str]:
        """Of the subject, in the order in which each was last measured."""
        having = [each for each in self.series
                  if any(self.subject == name for _, name in each.rows)]  # fmt: skip
        found = [short_id(build_id(each.manifest, self.subject)) for each in having]
        return list(dict.fromkeys(reversed(found)))[::-1]

    @property
    def failed(self) -> list[str]:
        """Rows that the subject failed, or was refused in, and the series: no figure of it."""
        return [
            f"{case} in {each.folder}"
            for each in self.series
            for case, name in sorted(each.lost)
            if name == self.subject
        ]

    def alike(self, case: str, peer: str) -> list[Results]:
        """The series in which a peer, made as in the newest that has it, ran the row as in the
        newest that has both."""
        newest = [made(each, peer) for each in self.series if peer in each.allocators][-1]
        having = [
            each for each in self.series if each.of(case, peer) and made(each, peer) == newest
        ]
        return [each for each in having if each.work(case, peer) == having[-1].work(case, peer)]

    def ratio(self, case: str, peer: str, what: str) -> tuple[Ratio, int] | None:
        """Of all their blocks, and of how many series these are; none where they have none in
        common."""
        found = [each.paired(case, self.subject, peer, what) for each in self.alike(case, peer)]
        own = [value for values, _ in found for value in values]
        base = [value for _, values in found for value in values]
        return (paired_ratio(own, base), sum(bool(values) for values, _ in found)) if own else None

    def row(self, case: CaseFacts, what: str) -> Pooled | None:
        """None where the subject or all peers are missing."""
        found = {
            peer: figure
            for peer in self.peers
            if (figure := self.ratio(case.name, peer, what)) is not None
        }
        most = max((ratio.pairs for ratio, _ in found.values()), default=0)
        figures = {
            peer: (ratio, series)
            for peer, (ratio, series) in sorted(found.items(), key=lambda pair: -pair[1][0].median)
            if ratio.pairs >= PAIRS_LEAST * most
        }
        if not figures:
            return None
        ratios = {peer: ratio for peer, (ratio, _) in figures.items()}
        ran = [peer for peer in self.peers if any(each.of(case.name, peer) for each in self.series)]
        left_out = {
            peer: found[peer][0].pairs if peer in found else 0 for peer in ran if peer not in ratios
        }
        series = next(series for _, series in figures.values())
        return Pooled(case, what, ratios, series, left_out)

    def rows(self, what: str) -> list[Pooled]:
        """Every row that any of the series has, the widest gap first."""
        cases = {case.name: case for each in self.series for case in each.cases}
        found = [self.row(case, what) for case in cases.values()]
        rows = [each for each in found if each is not None]
        return sorted(rows, key=lambda each: -each.ratio.median)


def read(folders: Sequence[Path], metric: str = "wall") -> Pool:
    """Reads the series; BenchError where one is unsound, named twice, or was measured on another
    machine or with other settings of it than another."""
    loaded = [load(folder, metric) for folder in folders]
    if len({folder.resolve() for folder in folders}) != len(folders):
        raise BenchError("a folder is named twice: its blocks would count twice")
    for each in loaded:
        if "unsound" in each.states:
            raise BenchError(f"{each.folder}: {markdown.warning(each)}")
    series = sorted(loaded, key=lambda each: str(each.manifest.get("at", "")))
    for each in series[:-1]:
        if other := set(machine_differs(each.manifest, series[-1].manifest)) - MAY_DIFFER:
            raise BenchError(
                f"{each.folder} and {series[-1].folder} are of two machines, or of one that was "
                f"set up in two ways: {', '.join(sorted(other))}"
            )
    return Pool(series)


def counts(rows: Sequence[Pooled]) -> dict[str, int]:
    """How many rows stand where; "surely": the whole interval does."""
    return {
        "rows": len(rows),
        "first": sum(each.ratio.median <= 1 for each in rows),
        "behind": sum(each.ratio.median > 1 for each in rows),
        "surely_behind": sum(each.ratio.covers_enough and each.ratio.low > 1 for each in rows),
        "wide": sum(each.ratio.median > WIDE for each in rows),
        "surely_wide": sum(each.ratio.covers_enough and each.ratio.low > WIDE for each in rows),
    }


def _table(pool: Pool, what: str, rows: Sequence[Pooled]) -> Table:
    measure = METRIC_WORDS[pool.series[-1].metric] if what == "time" else "peak RSS"
    found = counts(rows)
    builds = pool.builds
    return Table(
        f"{what.capitalize()} over {len(pool.series)} series",
        f"Median of the paired ratios of {measure}, {pool.subject} over the best peer, and its "
        f"{interval_words(each.ratio for each in rows)}; less is better. First on {found['first']} "
        f"of {found['rows']} rows; behind on {found['behind']}, on {found['surely_behind']} by the "
        f"whole interval; by more than a twentieth on {found['wide']} and "
        f"{found['surely_wide']}. {len(builds)} builds of {pool.subject}, the newest "
        f"{builds[-1] if builds else '-'}.",
        ["row", "best peer", "ratio", "pairs", "series"],
        [
            [
                Cell(each.case.name),
                Cell(each.best),
                Cell(ratio_text(each.ratio), each.ratio.median, each.ratio.median <= 1),
                Cell(str(each.ratio.pairs)),
                Cell(str(each.series)),
            ]
            for each in rows
        ],
        text_columns=2,
    )


def as_json(pool: Pool) -> dict[str, Any]:
    """Every peer of enough pairs of every row, for programs."""
    return {
        "schema": SCHEMA,
        "subject": pool.subject,
        "metric": pool.series[-1].metric,
        "series": [str(each.folder) for each in pool.series],
        "builds": pool.builds,
        "failed": pool.failed,
        **{
            what: {
                "counts": counts(rows := pool.rows(what)),
                "rows": [
                    {
                        "case": each.case.name,
                        "series": each.series,
                        "left_out": dict(each.left_out),
                        "peers": {
                            name: derived.ratio(ratio) for name, ratio in each.ratios.items()
                        },
                    }
                    for each in rows
                ],
            }
            for what in standing.WHAT
        },
    }


def main(folders: Sequence[Path], metric: str = "wall", *, as_json_text: bool = False) -> None:
    """Prints the tables, or everything as JSON."""
    pool = read(folders, metric)
    for results in pool.series:
        if said := markdown.warning(results):
            print(f"{results.folder}: {said}", file=sys.stderr)
    for row in pool.failed:
        print(f"{pool.subject} failed or was refused on {row}", file=sys.stderr)
    rows = pool.rows("time")
    for peer in pool.peers:
        few = [
            f"{each.case.name} ({each.left_out[peer]})" for each in rows if peer in each.left_out
        ]
        if few:
            print(f"{peer} has too few pairs: {', '.join(few)}", file=sys.stderr)
    if as_json_text:
        print(json.dumps(as_json(pool), indent=2))
        return
    for what in standing.WHAT:
        print(markdown.section(_table(pool, what, pool.rows(what))))
