"""From snapshots to metric families. Names and help come from the rows of counters.def; sizes are
bytes, shares are ratios, and nothing else has a unit of its own.

The number of series is bounded: per process one for each counter and gauge, and for each size class
with a slab; the heaps beyond the largest HEAPS_MAX are one, heap="other".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    InfoMetricFamily,
    Metric,
)

from hakmem.inspect.model import ClassTotals, Heap, Snapshot
from hakmem.options import Counter

PREFIX = "hakmem_"
HEAPS_MAX = 32
OTHER_HEAPS = "other"
NAME_LENGTH_MAX = 64
PROCESS_LABELS = ("pid", "name")

CLASS_GAUGES: tuple[tuple[str, str, Callable[[ClassTotals], int]], ...] = (
    ("class_live_blocks", "Blocks of a size class that the program holds", lambda c: c.live_blocks),
    ("class_cached_blocks", "Free blocks in thread caches", lambda c: c.cached_blocks),
    ("class_free_blocks", "Free blocks in slabs", lambda c: c.free_blocks),
    ("class_remote_blocks", "Blocks on their way back to their heap", lambda c: c.remote_blocks),
    ("class_live_bytes", "Bytes of blocks that the program holds", lambda c: c.live_bytes),
    ("class_slab_bytes", "Bytes of slabs of a size class", lambda c: c.slab_bytes),
)

HEAP_GAUGES: tuple[tuple[str, str, Callable[[Heap], int]], ...] = (
    ("heap_live_bytes", "Bytes of small blocks that the program holds", lambda h: h.live_bytes),
    ("heap_free_bytes", "Bytes of free blocks in slabs of a heap", lambda h: h.free_bytes),
    ("heap_cached_bytes", "Bytes of free blocks in a thread's cache", lambda h: h.cached_bytes),
    ("heap_slab_bytes", "Bytes of slabs of a heap", lambda h: h.slab_bytes),
)


@dataclass(frozen=True)
class Look:
    """A process that was to be looked at; `snapshot` None: it could not be read."""

    pid: int
    snapshot: Snapshot | None


def metric_name(counter: Counter) -> str:
    """With the unit at its end, where a metric has it: mapped_bytes_max is hakmem_mapped_max_bytes.
    A counter gets its _total where it is written."""
    words = counter.name.split("_")
    if counter.unit in words and counter.unit == "bytes":
        words.remove("bytes")
        words.append("bytes")
    return PREFIX + "_".join(words)


def _unit(name: str) -> str:
    return next((unit for unit in ("bytes", "ratio") if name.endswith(f"_{unit}")), "")


def _gauge(name: str, help_text: str, labels: Sequence[str] = ()) -> GaugeMetricFamily:
    full = PREFIX + name
    return GaugeMetricFamily(full, help_text, labels=[*PROCESS_LABELS, *labels], unit=_unit(full))


def _of(look: Look) -> list[str]:
    name = look.snapshot.name if look.snapshot is not None else ""
    return [str(look.pid), name[:NAME_LENGTH_MAX]]


def families(looks: Sequence[Look], rows: Iterable[Counter]) -> list[Metric]:
    """Every family, also those without a sample: what is exported does not depend on the moment."""
    read = [(look, look.snapshot) for look in looks if look.snapshot is not None]
    made: list[Metric] = [_readable(looks), _info(read)]
    for row in rows:
        made.append(_row_family(row, read))
    unsettled = _gauge(
        "unsettled_ratio", "Share of blocks that may have moved while they were read, at most"
    )
    parts = _gauge("resident_bytes", "Resident memory by what it is for", ["part"])
    for look, snapshot in read:
        unsettled.add_metric(_of(look), snapshot.unsettled_share)
        for part in snapshot.waterfall.rows if snapshot.waterfall is not None else ():
            parts.add_metric([*_of(look), part.name], part.bytes)
    return [*made, unsettled, parts, *_class_families(read), *_heap_families(read)]


Read = Sequence[tuple[Look, Snapshot]]


def _readable(looks: Sequence[Look]) -> Metric:
    family = GaugeMetricFamily(
        PREFIX + "readable",
        "1 when the process could be read, 0 when not, for instance because it has ended",
        labels=["pid"],
    )
    for look in looks:
        family.add_metric([str(look.pid)], float(look.snapshot is not None))
    return family


def _info(read: Read) -> Metric:
    family = InfoMetricFamily(
        PREFIX + "process", "The hakmem that a process runs on", labels=PROCESS_LABELS
    )
    for look, snapshot in read:
        facts = {"version": snapshot.version, "mode": snapshot.mode, "build_id": snapshot.build_id}
        family.add_metric(_of(look), facts)
    return family


def _row_family(row: Counter, read: Read) -> Metric:
    name = metric_name(row)
    kind = CounterMetricFamily if row.kind == "COUNTER" else GaugeMetricFamily
    family = kind(name, row.help, labels=PROCESS_LABELS, unit=_unit(name))
    for look, snapshot in read:
        values = snapshot.counters if row.kind == "COUNTER" else snapshot.gauges
        if row.name in values:
            family.add_metric(_of(look), values[row.name])
    return family


def _class_families(read: Read) -> Iterable[Metric]:
    for name, help_text, value in CLASS_GAUGES:
        family = _gauge(name, help_text, ["class"])
        for look, snapshot in read:
            for row in snapshot.classes:
                if row.slabs:
                    family.add_metric([*_of(look), str(row.block_bytes)], value(row))
        yield family


def _heap_families(read: Read) -> Iterable[Metric]:
    for name, help_text, value in HEAP_GAUGES:
        family = _gauge(name, help_text, ["heap"])
        for look, snapshot in read:
            heaps = sorted(snapshot.heaps, key=lambda heap: (-heap.slab_bytes, heap.id))
            for heap in heaps[:HEAPS_MAX]:
                family.add_metric([*_of(look), str(heap.id)], value(heap))
            if len(heaps) > HEAPS_MAX:
                rest = sum(value(heap) for heap in heaps[HEAPS_MAX:])
                family.add_metric([*_of(look), OTHER_HEAPS], rest)
        yield family
