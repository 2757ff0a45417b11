"""What was seen of a program: the demand for each size over time, and what else bears on its
heap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hakmem.inspect.model import REQUEST_STEP_BYTES, SizeClass, Snapshot

Counts = npt.NDArray[np.int64]
# More moments than this tell nothing more about the demand.
MOMENTS_MOST = 256
# So many are kept while it is looked at.
MOMENTS_KEPT = 4 * MOMENTS_MOST


@dataclass(frozen=True)
class Moment:
    """One look. `requests[i]`: live small blocks that were asked for with up to i times 16 bytes,
    and more than i - 1 times. Bytes of `parts` are named as the gauges of counters.def."""

    at_s: float
    requests: Counts
    parts: Mapping[str, int]
    rss_bytes: int

    @property
    def requested_bytes(self) -> int:
        steps = np.arange(len(self.requests))
        return int((self.requests * steps).sum()) * REQUEST_STEP_BYTES


@dataclass(frozen=True)
class Recording:
    """`exact` says whether requests are what slabs kept of each live block; they are estimated from
    what was asked for in all otherwise. Shares are of 1; `half_life_ns` is the median lifetime of
    followed blocks, None where none ended; `heaps_per_class`: how many heaps have slabs of a class,
    on average, at the most."""

    program: str
    exe: str
    seconds: float
    size_classes: tuple[SizeClass, ...]
    moments: tuple[Moment, ...]
    exact: bool
    threads: int
    heaps_per_class: float
    allocations: int
    remote_share: float
    half_life_ns: int | None
    allocations_by_class: tuple[int, ...]
    build_id: str = ""  # of the program's file; empty when it has none
    version: str = ""  # of the library that it ran on

    @property
    def demand(self) -> Counts:
        """Live blocks by size, a row for each moment."""
        return np.array([moment.requests for moment in self.moments])

    @property
    def peak(self) -> Moment:
        """The moment with the most bytes asked for."""
        return max(self.moments, key=lambda moment: moment.requested_bytes)

    @property
    def idle(self) -> Moment:
        """The last moment: what is left when the work is done."""
        return self.moments[-1]


def thinned(moments: Sequence[Moment], most: int = MOMENTS_MOST) -> tuple[Moment, ...]:
    """At most so many: the first, the last, and of equal parts of the time between them the fullest
    of each."""
    if len(moments) <= most:
        return tuple(moments)
    began_s, parts = moments[0].at_s, most - 2
    part_s = max((moments[-1].at_s - began_s) / parts, 1e-9)
    fullest: dict[int, Moment] = {}
    for moment in moments[1:-1]:
        part = min(parts - 1, int((moment.at_s - began_s) / part_s))
        before = fullest.get(part)
        if before is None or moment.requested_bytes > before.requested_bytes:
            fullest[part] = moment
    return (moments[0], *(fullest[part] for part in sorted(fullest)), moments[-1])


def remember(moments: list[Moment], moment: Moment) -> None:
    """One more. A look takes 33 KB, and a recording may go on for days: it is thinned meanwhile."""
    moments.append(moment)
    if len(moments) > MOMENTS_KEPT:
        moments[:] = thinned(moments)


def estimated_requests(snapshot: Snapshot) -> Counts:
    """Where slabs keep no sizes: each class's live blocks at the mean of what was asked for, or at
    the block's size where nothing was counted."""
    steps = max(row.block_bytes for row in snapshot.size_classes) // REQUEST_STEP_BYTES + 1
    counts = np.zeros(steps, np.int64)
    research = snapshot.research
    for row in snapshot.classes:
        asked = row.block_bytes
        if research is not None and research.requested_bytes:
            mallocs = research.operations["mallocs"][row.index]
            if mallocs:
                asked = min(asked, -(-research.requested_bytes[row.index] // mallocs))
        counts[max(1, -(-asked // REQUEST_STEP_BYTES))] += row.live_blocks
    return counts


def moment_of(snapshot: Snapshot, at_s: float, rss_bytes: int) -> Moment:
    """What one look says of the demand."""
    counts = (
        estimated_requests(snapshot)
        if snapshot.requests is None
        else np.array(snapshot.requests, np.int64)
    )
    return Moment(at_s, counts, dict(snapshot.gauges), rss_bytes)


def median(upper: Sequence[int], counts: Sequence[int]) -> int | None:
    """The bound below which half of a histogram's values are; None when it is empty."""
    total, seen = sum(counts), 0
    for bound, count in zip(upper, counts, strict=True):
        seen += count
        if count and 2 * seen >= total:
            return bound
    return None


def conclude(
    moments: Sequence[Moment], last: Snapshot, threads: int, heaps_per_class: float, seconds: float
) -> Recording:
    """The recording that these looks at one process make; `last` is the latest of them."""
    research = last.research
    mallocs = research.operations["mallocs"] if research is not None else ()
    frees = sum(research.free_hits.values()) if research is not None else 0
    lifetimes = (
        next((each for each in research.histograms if each.name == "life"), None)
        if research is not None
        else None
    )
    return Recording(
        program=last.name,
        exe=last.exe,
        seconds=seconds,
        size_classes=last.size_classes,
        moments=thinned(moments),
        exact=last.requests is not None,
        threads=threads,
        heaps_per_class=heaps_per_class,
        allocations=sum(research.hits.values()) if research is not None else 0,
        remote_share=sum(flow.blocks for flow in research.flows) / frees
        if research is not None and frees
        else 0.0,
        half_life_ns=median(lifetimes.upper, lifetimes.counts) if lifetimes is not None else None,
        allocations_by_class=tuple(mallocs),
        version=last.version,
    )
