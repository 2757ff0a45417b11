"""Who stands where: ratios to the best of each row, their means, and the rows that are lost."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..figures import Ratio, geometric_mean, paired_ratio
from .results import CaseFacts, Results

WHAT = ("time", "memory")
# A page asks for the same figures many times.
KEPT = 8192


@dataclass(frozen=True)
class Mean:
    """A geometric mean of ratios to the best of each row, and how many rows it is over."""

    value: float
    rows: int
    worst: float
    worst_case: str
    firsts: int


@dataclass(frozen=True)
class Standing:
    """The subject in one row: its median against the best peer's."""

    case: CaseFacts
    what: str
    own: float
    peer: str
    best: float
    ratio: Ratio

    @property
    def factor(self) -> float:
        """Of the medians; 1.2 is 20 % more time or memory than the best peer."""
        return self.own / self.best

    @property
    def first(self) -> bool:
        """No peer has a lower median."""
        return self.factor <= 1.0


@lru_cache(maxsize=KEPT)
def medians(results: Results, case: str, what: str) -> Mapping[str, float]:
    """The median of each allocator that has rows of this case, in the order of the matrix."""
    return {
        name: statistics.median(values)
        for name in results.allocators
        if (values := results.values(case, name, what))
    }


def best(results: Results, found: Mapping[str, float]) -> float:
    """The least value of a row among the contenders; among all when none of them took part."""
    rivals = [value for name, value in found.items() if name in results.contenders]
    return min(rivals or found.values())


@lru_cache(maxsize=KEPT)
def relative(results: Results, case: str, what: str) -> Mapping[str, float]:
    """Each allocator's median as a multiple of the row's best; who is no contender may lie
    below 1."""
    found = medians(results, case, what)
    least = best(results, found)
    return {name: value / least for name, value in found.items()}


def mean(results: Results, allocator: str, what: str, group: str) -> Mean | None:
    """The allocator's mean over the rows of a group in which it took part."""
    ratios = {
        case.name: relative(results, case.name, what)[allocator]
        for case in results.cases
        if case.group == group and results.of(case.name, allocator)
    }
    if not ratios:
        return None
    worst = max(ratios, key=lambda case: ratios[case])
    return Mean(
        value=geometric_mean(list(ratios.values())),
        rows=len(ratios),
        worst=ratios[worst],
        worst_case=worst,
        firsts=sum(ratio <= 1.0 for ratio in ratios.values()),
    )


@lru_cache(maxsize=KEPT)
def versus(results: Results, case: str, one: str, other: str, what: str) -> Ratio | None:
    """The paired ratio of two allocators in one row; none when they share no block."""
    own, base = results.paired(case, one, other, what)
    return paired_ratio(own, base) if own else None


def standing(results: Results, case: CaseFacts, what: str) -> Standing | None:
    """The subject against the best peer of the row; none when either side is missing."""
    found = medians(results, case.name, what)
    rivals = {name: found[name] for name in results.peers if name in found}
    if results.subject not in found or not rivals:
        return None
    peer = min(rivals, key=lambda name: rivals[name])
    ratio = versus(results, case.name, results.subject, peer, what)
    if ratio is None:
        return None
    return Standing(case, what, found[results.subject], peer, rivals[peer], ratio)


def standings(results: Results, what: str) -> list[Standing]:
    """Every row the subject and a peer have, in the order of the matrix."""
    found = [standing(results, case, what) for case in results.cases]
    return [each for each in found if each is not None]


def absent(results: Results) -> list[CaseFacts]:
    """The rows that a peer has and the subject has not: it failed or was refused there, or was
    left out. It is not first in them, and no target is met in them."""
    return [
        case
        for case in results.cases
        if not results.of(case.name, results.subject)
        and any(results.of(case.name, peer) for peer in results.peers)
    ]


def losses(results: Results, what: str) -> list[Standing]:
    """The rows in which a peer is ahead of the subject, the widest first."""
    behind = [each for each in standings(results, what) if not each.first]
    return sorted(behind, key=lambda each: -each.factor)


def groups(results: Results) -> list[str]:
    """The groups that have rows, real programs first."""
    present = {case.group for case in results.cases}
    known = [group for group in ("real", "synthetic") if group in present]
    return known + sorted(present - set(known))


def mean_ratio(
    results: Results, one: str, other: str, what: str, cases: Sequence[CaseFacts]
) -> tuple[float, int] | None:
    """Geometric mean of one allocator's medians over another's, and the number of rows both
    have."""
    ratios = []
    for case in cases:
        found = medians(results, case.name, what)
        if one in found and other in found:
            ratios.append(found[one] / found[other])
    return (geometric_mean(ratios), len(ratios)) if ratios else None
