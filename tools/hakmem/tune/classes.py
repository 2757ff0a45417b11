"""The table of size classes that fits a recorded demand best, by dynamic programming.

A table is a rising list of block sizes. Its cost is what its blocks would keep resident: for each
class the most that its blocks needed at one moment, since its slabs serve no other class until they
are empty, and a part of a slab and of a cache for each class in use. Choosing at most k of n sizes
so that the sum over the stretches between them is least takes k times n squared steps (as for the
optimal breaks of a histogram: Jagadish and others, "Optimal Histograms with Quality Guarantees",
VLDB 1998).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hakmem.inspect.model import REQUEST_STEP_BYTES
from hakmem.tune.recording import Counts, Recording

Costs = npt.NDArray[np.float64]

SMALL_BYTES_MAX = 64 << 10
MACHINE_PAGE_BYTES = 4096
# What a class in use costs each thread beside its blocks: half a page of its last slab, a node of
# 512 bytes, and half of what a cache starts with (cache_start_bytes).
CLASS_BYTES = MACHINE_PAGE_BYTES // 2 + 512 + (8 << 10) // 2
# Sizes that this input did not ask for, but another may: so much of the peak, spread evenly over
# the logarithm of the size.
UNSEEN_SHARE = 0.02
# No class is larger than the one before it by more than this share, or the bytes: what an input
# never seen asks for is not rounded up by more.
STEP_SHARE_MOST = 1 / 3
STEP_BYTES_MOST = 32
# More places for a boundary than this make the table hardly better.
CANDIDATES_MOST = 400
# Powers of two serve aligned requests without waste (space/size_class.h).
ALIGNMENTS = tuple(1 << shift for shift in range(4, 17))


@dataclass(frozen=True)
class Demand:
    """Live blocks by size, in steps of 16 bytes, a row for each moment; `heaps` that have slabs of
    a class in use, on average."""

    blocks: Counts
    heaps: float = 1.0

    @property
    def peak_bytes(self) -> int:
        steps = np.arange(self.blocks.shape[1]) * REQUEST_STEP_BYTES
        return int((self.blocks * steps).sum(axis=1).max())


def demand_of(recording: Recording) -> Demand:
    return Demand(recording.demand, max(1.0, recording.heaps_per_class))


class Model:
    """What tables cost for one demand, in bytes."""

    def __init__(self, demand: Demand, unseen_share: float = UNSEEN_SHARE) -> None:
        self.demand = demand
        steps = demand.blocks.shape[1]
        sizes = np.arange(steps, dtype=np.float64) * REQUEST_STEP_BYTES
        # Up to and with each step, for each moment: blocks, and bytes asked for.
        self.blocks = np.cumsum(demand.blocks, axis=1, dtype=np.float64)
        self.bytes = np.cumsum(demand.blocks * sizes, axis=1)
        unseen = np.zeros(steps)
        unseen[1:] = 1.0 / sizes[1:]
        unseen *= unseen_share * demand.peak_bytes / max(float(unseen.sum()), 1e-300)
        self.unseen_blocks = np.cumsum(
            np.divide(unseen, sizes, out=np.zeros(steps), where=sizes > 0)
        )
        self.unseen_bytes = np.cumsum(unseen)

    def class_bytes(self, below: npt.NDArray[np.int64], top: int) -> Costs:
        """What one class of `top` steps costs when the next smaller one has `below` steps, for each
        place in `below`."""
        seen = self._resident(self.blocks, self.bytes, below, top).max(axis=0)
        used = (self.blocks[:, [top]] - self.blocks[:, below]).max(axis=0) > 0
        unseen = self._resident(
            self.unseen_blocks[None, :], self.unseen_bytes[None, :], below, top
        )[0]
        costs: Costs = seen + unseen + used * float(CLASS_BYTES * self.demand.heaps)
        return costs

    @staticmethod
    def _resident(blocks: Costs, asked: Costs, below: npt.NDArray[np.int64], top: int) -> Costs:
        """Of a block's slack the whole machine pages are never touched: on average, what is beyond
        one page."""
        size = top * REQUEST_STEP_BYTES
        near = max(0, (size - MACHINE_PAGE_BYTES) // REQUEST_STEP_BYTES)
        split = np.maximum(below, near)
        whole = (blocks[:, [top]] - blocks[:, split]) * size
        part = asked[:, split] - asked[:, below]
        part = part + (blocks[:, split] - blocks[:, below]) * MACHINE_PAGE_BYTES
        resident: Costs = whole + part
        return resident

    def table_bytes(self, table: Sequence[int]) -> float:
        """What a whole table costs; block sizes in bytes, rising."""
        tops = [size // REQUEST_STEP_BYTES for size in table]
        return sum(
            float(self.class_bytes(np.array([below]), top)[0])
            for below, top in zip([0, *tops[:-1]], tops, strict=True)
        )


def candidates(demand: Demand, default: Sequence[int]) -> list[int]:
    """Block sizes, in steps, among which boundaries are chosen: those asked for (the ones with the
    most bytes, if they are many), those of the default table, and the alignments."""
    steps = np.arange(demand.blocks.shape[1])
    weight = (demand.blocks * steps).max(axis=0)
    needed = {size // REQUEST_STEP_BYTES for size in (*default, *ALIGNMENTS)}
    asked = np.flatnonzero(weight)
    room = max(0, CANDIDATES_MOST - len(needed))
    asked = asked[np.argsort(weight[asked], kind="stable")[::-1][:room]]
    top = SMALL_BYTES_MAX // REQUEST_STEP_BYTES
    return _without_gaps(sorted({int(step) for step in asked if 0 < step <= top} | needed))


def too_far(below: npt.NDArray[np.int64], top: int) -> npt.NDArray[np.bool_]:
    """Whether a class of `top` steps rounds up too much when the next smaller one has `below`."""
    step = np.maximum(below * STEP_SHARE_MOST, STEP_BYTES_MOST / REQUEST_STEP_BYTES)
    far: npt.NDArray[np.bool_] = top - below > step
    return far


def _without_gaps(places: Sequence[int]) -> list[int]:
    """With places between those that are too far from each other to be neighbours: the table that
    a profile of few classes has in force leaves none of its own."""
    found: list[int] = []
    below = 0
    for place in places:
        while too_far(np.array([below]), place)[0]:
            below += max(int(below * STEP_SHARE_MOST), STEP_BYTES_MOST // REQUEST_STEP_BYTES)
            found.append(below)
        found.append(place)
        below = place
    return found


def fit(
    model: Model,
    places: Sequence[int],
    required: Sequence[int],
    most: int,
    *,
    is_bounded: bool = True,
) -> list[int]:
    """The cheapest table of at most `most` of these block sizes (in steps, rising) that has all the
    required ones, and no class too far above the next; in bytes. The last place is always in it."""
    must = set(required) | {places[-1]}
    missing = must - set(places)
    if missing or len(must) > most:
        raise ValueError("the required sizes must be among the places, and no more than the limit")
    count = len(places)
    below = np.array([0, *places], dtype=np.int64)
    costs = np.full((count + 1, count + 1), np.inf)
    first = 0  # the last required place before this one: no class reaches below it
    for end in range(1, count + 1):
        costs[first:end, end] = model.class_bytes(below[first:end], int(below[end]))
        if is_bounded:
            costs[:end, end][too_far(below[:end], int(below[end]))] = np.inf
        if int(below[end]) in must:
            first = end
    best = np.full((most + 1, count + 1), np.inf)
    came = np.zeros((most + 1, count + 1), np.int64)
    best[0, 0] = 0.0
    for used in range(1, most + 1):
        ways = best[used - 1][:, None] + costs
        came[used] = ways.argmin(axis=0)
        best[used] = ways.min(axis=0)
    used = int(best[:, count].argmin())
    if not np.isfinite(best[used, count]):
        raise ValueError("the places are too few, or too far apart, for a table")
    table: list[int] = []
    end = count
    while end > 0:
        table.append(int(below[end]) * REQUEST_STEP_BYTES)
        end = int(came[used, end])
        used -= 1
    return table[::-1]


@dataclass(frozen=True)
class Fitted:
    """A learned table, and what the model says of it and of the default one, in bytes."""

    table: tuple[int, ...]
    bytes: float
    default_bytes: float

    @property
    def saved_bytes(self) -> float:
        return self.default_bytes - self.bytes


def learn(demand: Demand, default: Sequence[int]) -> Fitted:
    """The best table for a demand, with no more classes than the default table has."""
    model = Model(demand)
    required = [size // REQUEST_STEP_BYTES for size in ALIGNMENTS]
    table = fit(model, candidates(demand, default), required, len(default))
    return Fitted(tuple(table), model.table_bytes(table), model.table_bytes(default))
