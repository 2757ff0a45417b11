"""From runs and bit planes to every count of a snapshot: sums over columns, no loop per run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from hakmem.inspect.model import (
    FULLNESS,
    HEAP_CLASS,
    PAGE_BYTES,
    BlockState,
    ClassTotals,
    RunKind,
    SizeClass,
    Table,
    Words,
)

# Rows of RUN, HEAP_CLASS and ClassTotals that count the blocks of a state other than LIVE.
COLUMNS = {
    BlockState.FREE: "free",
    BlockState.CACHED: "cached",
    BlockState.REMOTE: "remote",
    BlockState.QUARANTINED: "quarantined",
}
COUNTED = ("live", *COLUMNS.values())


def count_blocks(slabs: Table, planes: Mapping[BlockState, Words]) -> None:
    """Sets live, free, cached, remote and quarantined of each slab (a table of RUN whose words
    ascend without gaps) from the planes."""
    if len(slabs) == 0:
        return
    rest = slabs["block_count"].astype(np.int64)
    first = slabs["word"].astype(np.int64)
    for state, name in COLUMNS.items():
        words = planes.get(state)
        if words is None:
            slabs[name] = 0
            continue
        counts = np.add.reduceat(np.bitwise_count(words), first, dtype=np.int64)
        slabs[name] = counts
        rest -= counts
    slabs["live"] = np.maximum(rest, 0)


def sum_heap_classes(slabs: Table) -> Table:
    """HEAP_CLASS rows, by heap and then by class."""
    key = slabs["heap_id"].astype(np.int64) << 8 | slabs["class_index"]
    keys, group = np.unique(key, return_inverse=True)
    table = np.zeros(len(keys), HEAP_CLASS)
    table["heap_id"] = keys >> 8
    table["class_index"] = keys & 0xFF
    table["slabs"] = np.bincount(group, minlength=len(keys))
    for name in COUNTED:
        table[name] = np.bincount(group, slabs[name], len(keys))
    return table


def _fullness(slabs: Table) -> npt.NDArray[np.int64]:
    """The place in FULLNESS of each slab."""
    live, blocks = slabs["live"].astype(np.int64), slabs["block_count"].astype(np.int64)
    quarter = np.minimum((4 * live + blocks - 1) // np.maximum(blocks, 1), len(FULLNESS) - 2)
    return np.where(live >= blocks, len(FULLNESS) - 1, quarter)


def sum_classes(
    size_classes: Sequence[SizeClass], slabs: Table, slack: Mapping[int, int] | None = None
) -> tuple[ClassTotals, ...]:
    """One row for each size class, also for those without a slab."""
    count = len(size_classes)
    index = slabs["class_index"]
    sums = {
        name: np.bincount(index, slabs[name], count).astype(np.int64)
        for name in (*COUNTED, "resident_bytes")
    }
    slab_count = np.bincount(index, minlength=count)
    key = index.astype(np.int64) * len(FULLNESS) + _fullness(slabs)
    full = np.bincount(key, minlength=count * len(FULLNESS))
    return tuple(
        ClassTotals(
            index=row.index,
            block_bytes=row.block_bytes,
            slab_bytes=int(slab_count[row.index]) * row.slab_pages * PAGE_BYTES,
            slabs=int(slab_count[row.index]),
            live_blocks=int(sums["live"][row.index]),
            free_blocks=int(sums["free"][row.index]),
            cached_blocks=int(sums["cached"][row.index]),
            remote_blocks=int(sums["remote"][row.index]),
            quarantined_blocks=int(sums["quarantined"][row.index]),
            fullness=tuple(full.reshape(count, -1)[row.index].tolist()),
            resident_bytes=int(sums["resident_bytes"][row.index]),
            slack_bytes=None if slack is None else slack.get(row.index, 0),
        )
        for row in size_classes
    )


def live_by_class(slabs: Table) -> dict[int, int]:
    """Live blocks by size class."""
    counts = np.bincount(slabs["class_index"], slabs["live"])
    return {index: int(count) for index, count in enumerate(counts)}


def select_slabs(runs: Table) -> Table:
    chosen: Table = runs[runs["kind"] == RunKind.SLAB]
    return chosen
