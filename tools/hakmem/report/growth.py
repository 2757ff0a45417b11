"""What grew between two snapshots: by size class, by heap, by run, by kind of memory.

Live bytes are compared, rounding included. When a snapshot was taken while its process ran, blocks
may have moved meanwhile; what live bytes can be off by for that is the uncertainty of the growth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hakmem.inspect.model import PAGE_BYTES, Heap, Origin, Snapshot, Table

SCHEMA = "hakmem.diff/1"
PASSED, GREW, INCONCLUSIVE = 0, 1, 3
# The kernel's mark of a file that is another by now.
REPLACED = " (deleted)"

Json = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """Something before and after: counts of blocks (or runs) and bytes."""

    name: str
    count_before: int
    count_after: int
    bytes_before: int
    bytes_after: int

    @property
    def count_growth(self) -> int:
        return self.count_after - self.count_before

    @property
    def bytes_growth(self) -> int:
        return self.bytes_after - self.bytes_before

    @property
    def is_changed(self) -> bool:
        return bool(self.count_growth or self.bytes_growth)


@dataclass(frozen=True)
class Block:
    """A large or huge block that only the second snapshot has."""

    kind: str
    start: int
    bytes: int


@dataclass(frozen=True)
class Growth:
    """`live` is all the program holds; `others` large, huge and guarded blocks. `runs` are slabs
    and large runs with the memory they take; `memory` the rows of the waterfalls, with the resident
    memory as its last, or nothing when one of the two has none. `new_blocks` is None when one of
    them has no runs, and for two processes. `uncertain_bytes` is what `live` may be off by."""

    live: Change
    classes: tuple[Change, ...]
    heaps: tuple[Change, ...]
    others: tuple[Change, ...]
    runs: tuple[Change, ...]
    memory: tuple[Change, ...]
    new_blocks: tuple[Block, ...] | None
    uncertain_bytes: int


def _pair(
    before: Mapping[Any, tuple[str, int, int]], after: Mapping[Any, tuple[str, int, int]]
) -> tuple[Change, ...]:
    """Changes of everything that either has: {key: (name, count, bytes)}."""
    changes = []
    for key in dict.fromkeys([*before, *after]):
        old, new = before.get(key), after.get(key)
        name = (new or old or ("", 0, 0))[0]
        _, old_count, old_bytes = old or ("", 0, 0)
        _, new_count, new_bytes = new or ("", 0, 0)
        changes.append(Change(name, old_count, new_count, old_bytes, new_bytes))
    return tuple(changes)


def _classes(snapshot: Snapshot) -> dict[int, tuple[str, int, int]]:
    found: dict[int, tuple[str, int, int]] = {}
    for row in snapshot.classes:
        # With the classes of a profile all places behind the last one are of its size, too.
        name, count, held = found.get(row.block_bytes, (f"{row.block_bytes:,} B", 0, 0))
        found[row.block_bytes] = (name, count + row.live_blocks, held + row.live_bytes)
    return found


def is_same_process(before: Snapshot, after: Snapshot) -> bool:
    """One number, which may be that in its own namespace, and, as far as both tell, the same
    program, loaded to one place: that tells apart what has the number 1 in each container."""
    numbers = ({snapshot.pid, snapshot.inner_pid} - {None} for snapshot in (before, after))
    places = {before.root_address, after.root_address}
    if not set.intersection(*numbers) or len(places - {None}) > 1:
        return False
    # That its file was replaced meanwhile changes nothing.
    one, other = (Path(snapshot.exe.removesuffix(REPLACED)) for snapshot in (before, after))
    # Of one file each root of a file system has a name.
    is_one = one == other if None in places else one.name == other.name
    return is_one or not before.exe or not after.exe


def is_turned_round(before: Snapshot, after: Snapshot) -> bool:
    """Whether both are of one process that was looked at, the second one first. Of a core or a
    snapshot only the time of the file is known."""
    looked = before.origin is after.origin is Origin.PROCESS
    return looked and is_same_process(before, after) and before.taken_ns > after.taken_ns


def _heap_key(heap: Heap, *, is_same_process: bool) -> object:
    """A heap is the same one in one process; between two, threads of a name are compared."""
    return heap.id if is_same_process else (heap.thread_name or heap.state)


def _heaps(snapshot: Snapshot, *, is_same_process: bool) -> dict[object, tuple[str, int, int]]:
    found: dict[object, tuple[str, int, int]] = {}
    for heap in snapshot.heaps:
        key = _heap_key(heap, is_same_process=is_same_process)
        who = heap.thread_name or heap.state
        name = f"{heap.id} {who}" if is_same_process else who
        _, count, held = found.get(key, ("", 0, 0))
        found[key] = (name, count + heap.live_blocks, held + heap.live_bytes)
    return found


def _others(snapshot: Snapshot) -> dict[str, tuple[str, int, int]]:
    """Large, huge and guarded blocks: from the tables where they are, else from the gauges."""
    huge = [block for block in snapshot.huge if block.live]
    guarded = [block for block in snapshot.guarded if block.state == "live"]
    return {
        "large": ("large blocks", *snapshot.large_totals),
        "huge": ("huge blocks", len(huge), sum(block.usable_bytes for block in huge)),
        "guarded": ("guarded blocks", len(guarded), sum(block.bytes for block in guarded)),
    }


def _runs(snapshot: Snapshot, *, has_large: bool) -> dict[str, tuple[str, int, int]]:
    slabs = sum(row.slabs for row in snapshot.classes)
    slab_bytes = sum(row.slab_bytes for row in snapshot.classes)
    found = {"slabs": ("slabs", slabs, slab_bytes)}
    if has_large:
        pages = int(snapshot.large["pages"].sum())
        found["large"] = ("large runs", len(snapshot.large), pages * PAGE_BYTES)
    return found


def _memory(before: Snapshot, after: Snapshot) -> tuple[Change, ...]:
    if before.waterfall is None or after.waterfall is None:
        return ()
    rows = [
        {row.name: (row.name, 0, row.bytes) for row in snapshot.waterfall.rows}
        | {"resident": ("resident", 0, snapshot.waterfall.rss_bytes)}
        for snapshot in (before, after)
        if snapshot.waterfall is not None
    ]
    return _pair(*rows)


def _new_blocks(before: Snapshot, after: Snapshot) -> tuple[Block, ...] | None:
    if not len(before.runs) or not len(after.runs) or not is_same_process(before, after):
        return None

    def starts(table: Table) -> set[int]:
        return set(table["start"].tolist())

    old_large, old_huge = starts(before.large), {block.start for block in before.huge if block.live}
    found = [
        Block("large", int(run["start"]), int(run["large_bytes"]))
        for run in after.large
        if int(run["start"]) not in old_large
    ]
    found += [
        Block("huge", block.start, block.usable_bytes)
        for block in after.huge
        if block.live and block.start not in old_huge
    ]
    return tuple(sorted(found, key=lambda block: -block.bytes))


def _sum(name: str, changes: Iterable[Change]) -> Change:
    listed = list(changes)
    return Change(
        name,
        sum(change.count_before for change in listed),
        sum(change.count_after for change in listed),
        sum(change.bytes_before for change in listed),
        sum(change.bytes_after for change in listed),
    )


def _uncertain_bytes(snapshot: Snapshot) -> int:
    """What live bytes may be off by. JSON of an earlier version says only how many blocks may have
    moved; they are taken to be of average size then."""
    if snapshot.unsettled_bytes is not None:
        return snapshot.unsettled_bytes
    return round(snapshot.unsettled_share * sum(row.slab_bytes for row in snapshot.classes))


def compare(before: Snapshot, after: Snapshot) -> Growth:
    """Everything that changed from one to the other."""
    is_same = is_same_process(before, after)
    has_runs = bool(len(before.runs) and len(after.runs))
    classes = _pair(_classes(before), _classes(after))
    others = _pair(_others(before), _others(after))
    uncertain = _uncertain_bytes(before) + _uncertain_bytes(after)
    return Growth(
        live=_sum("live", (*classes, *others)),
        classes=classes,
        heaps=_pair(
            _heaps(before, is_same_process=is_same), _heaps(after, is_same_process=is_same)
        ),
        others=others,
        runs=_pair(_runs(before, has_large=has_runs), _runs(after, has_large=has_runs)),
        memory=_memory(before, after),
        new_blocks=_new_blocks(before, after),
        uncertain_bytes=uncertain,
    )


@dataclass(frozen=True)
class Limits:
    """Growth of live memory that is no failure; None: any growth is."""

    bytes: int | None = None
    percent: float | None = None

    def smallest_bytes(self, before_bytes: int) -> float | None:
        """The bytes from which on growth fails, of the stricter limit."""
        limits = [float(self.bytes)] if self.bytes is not None else []
        if self.percent is not None:
            limits.append(before_bytes * self.percent / 100)
        return min(limits, default=None)


def judge(growth: Growth, limits: Limits) -> int:
    """PASSED, GREW, or INCONCLUSIVE when the uncertainty could turn the verdict."""
    most = limits.smallest_bytes(growth.live.bytes_before)
    if most is None:
        return PASSED
    grown, off = growth.live.bytes_growth, growth.uncertain_bytes
    if grown - off > most:
        return GREW
    return INCONCLUSIVE if grown + off > most else PASSED


def _facts(change: Change) -> Json:
    return {
        **asdict(change),
        "count_growth": change.count_growth,
        "bytes_growth": change.bytes_growth,
    }


def as_json(before: Snapshot, after: Snapshot, growth: Growth, limits: Limits) -> Json:
    """The growth for programs."""
    lists = {
        name: [_facts(change) for change in getattr(growth, name) if change.is_changed]
        for name in ("classes", "heaps", "others", "runs", "memory")
    }
    return {
        "schema": SCHEMA,
        "before": {"pid": before.pid, "name": before.name, "taken_ns": before.taken_ns},
        "after": {"pid": after.pid, "name": after.name, "taken_ns": after.taken_ns},
        "fail_above_bytes": limits.bytes,
        "fail_above_percent": limits.percent,
        "status": judge(growth, limits),
        "uncertain_bytes": growth.uncertain_bytes,
        "live": _facts(growth.live),
        **lists,
        "new_blocks": None if growth.new_blocks is None
        else [asdict(block) for block in growth.new_blocks],
    }  # fmt: skip
