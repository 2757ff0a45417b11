"""Takes a snapshot of a target: a process, a core file, a snapshot file or saved JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

import numpy as np

from hakmem.inspect import facts, requests, research, resident, totals
from hakmem.inspect.callers import Callers
from hakmem.inspect.check import find_violations
from hakmem.inspect.errors import DamagedError, InspectError
from hakmem.inspect.events import read_events
from hakmem.inspect.heaps import describe_heaps
from hakmem.inspect.layout import Layout
from hakmem.inspect.learned import NOTHING_LEARNED, read_learned
from hakmem.inspect.memory import MemorySource, area_at
from hakmem.inspect.model import (
    PAGE_BYTES,
    SUPERSLAB_BYTES,
    ClassTotals,
    Event,
    GuardedBlock,
    Heap,
    HugeBlock,
    RunKind,
    Snapshot,
)
from hakmem.inspect.picture import Picture
from hakmem.inspect.process import ProcessSource
from hakmem.inspect.root import describe, find
from hakmem.inspect.snapshotfile import SnapshotSource
from hakmem.inspect.walk import Walker
from hakmem.watch import DELETED


@contextmanager
def damage_told(source: MemorySource) -> Iterator[None]:
    """The last net: what damaged metadata makes fail in a way that nobody foresaw."""
    try:
        yield
    except (ArithmeticError, LookupError, MemoryError, TypeError, ValueError) as error:
        words = f"{type(error).__name__}: {error}".splitlines()[0]
        raise DamagedError(f"{describe(source)}: its metadata is damaged ({words})") from error


class Session:
    """One target, looked at as often as one likes: what never changes is read once. Use it as a
    context, or close() it."""

    def __init__(self, source: MemorySource) -> None:
        self.source = source
        try:
            with damage_told(source):
                self.root = find(source)
                self.layout = Layout(self.root)
                header = self.root.elf_header
                area = area_at(source.areas(), header)
        except InspectError:
            source.close()
            raise
        self.walker = Walker(source, self.layout)
        self.callers = Callers(source, self.layout)
        self.build_id = facts.read_build_id(source, area, header)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.source.close()

    def code_ranges(self) -> list[tuple[int, int]]:
        """Where the code of hakmem is mapped; empty when it is part of the program's own file."""
        path = self.root.area.path
        if not path or path == self.source.exe.removesuffix(DELETED):
            return []
        return [
            (area.start, area.end)
            for area in self.source.areas()
            if area.executable and area.path == path
        ]

    def holds_lock(self) -> bool:
        """Whether some thread holds a lock of the heap at this moment."""
        return self.walker.holds_lock()

    def take(
        self,
        *,
        events: bool = False,
        decisions: bool = False,
        frozen: bool = False,
        residency: bool = True,
    ) -> Snapshot:
        """The heap as it is now. `frozen`: the target does not move. `residency`: of a process,
        also what of it is resident, which takes the kernel longer to say than all the rest."""
        with damage_told(self.source):
            return self._take(events, decisions, frozen, residency)

    def _moved_most(self, picture: Picture) -> int:
        return self.layout.node_slots * len(picture.caches)

    def _take(self, events: bool, decisions: bool, frozen: bool, residency: bool) -> Snapshot:
        source, layout = self.source, self.layout
        picture = self.walker.read(is_still=frozen)
        # Where the code is not known, its threads were not waited for.
        is_exact = frozen and len(self.code_ranges()) != 0
        options = facts.read_options(source, layout)
        huge = facts.read_huge(source, layout)
        slots = facts.guarded_slots(source, layout)
        guarded = facts.describe_guarded(layout, slots)
        counters = facts.sum_counters(source, layout, picture.heaps)
        slabs = totals.select_slabs(picture.runs)
        totals.count_blocks(slabs, picture.planes)
        picture.runs[picture.runs["kind"] == RunKind.SLAB] = slabs
        found_research = research.read_research(source, layout, picture.caches)
        slack = research.slack_bytes(layout, found_research, totals.live_by_class(slabs))
        waterfall = None
        if residency and (
            isinstance(source, ProcessSource)
            or (isinstance(source, SnapshotSource) and source.smaps)
        ):
            waterfall, huge = resident.measure(
                source, layout, self.root, picture, huge, slack, frozen=frozen
            )
            slabs = totals.select_slabs(picture.runs)
        # What was read is only worth something while the same program still runs.
        source.read(self.root.address, 16)
        classes = totals.sum_classes(layout.size_classes, slabs, slack)
        heaps = describe_heaps(picture, layout, source.thread_names())
        found_events, events_lost = self._events(picture) if events else ((), 0)
        learned = read_learned(source, layout) if decisions else NOTHING_LEARNED
        return Snapshot(
            origin=source.origin,
            pid=source.pid,
            inner_pid=source.inner_pid,
            root_address=self.root.address,
            guarded_sites=self.callers.sites(slots),
            has_profile=facts.has_profile(source, layout),
            name=source.name,
            exe=source.exe,
            version=self.root.version,
            build_id=self.build_id,
            mode=next((option.text for option in options if option.name == "mode"), ""),
            taken_ns=source.taken_ns(),
            frozen=frozen,
            unsettled_share=picture.unsettled_share(),
            unsettled_bytes=picture.unsettled_bytes(layout.block_bytes),
            options=options,
            size_classes=layout.size_classes,
            heaps=heaps,
            classes=classes,
            heap_classes=totals.sum_heap_classes(slabs),
            superslabs=picture.superslabs,
            runs=picture.runs,
            planes=picture.planes,
            huge=huge,
            guarded=guarded,
            counters=counters,
            gauges=self._gauges(picture, classes, heaps, huge, guarded),
            events=found_events,
            events_lost=events_lost,
            decisions=learned.decisions,
            decisions_lost=learned.decisions_lost,
            windows=learned.windows,
            research=found_research,
            requests=requests.live_requests(source, layout, picture),
            residency=waterfall is not None and isinstance(source, ProcessSource),
            waterfall=waterfall,
            notes=find_violations(picture, 0 if is_exact else self._moved_most(picture)),
        )

    def _events(self, picture: Picture) -> tuple[tuple[Event, ...], int]:
        in_use = self.layout.root.constant("cache_state_in_use")
        caches = picture.caches[picture.caches["state"] == in_use]
        pointers = "thread_pointer" in (caches.dtype.names or ())
        threads = (
            {int(row["thread_pointer"]): int(row["thread_id"]) for row in caches}
            if pointers
            else {}
        )
        return read_events(self.source, self.layout, threads)

    def _gauges(
        self,
        picture: Picture,
        classes: Sequence[ClassTotals],
        heaps: Sequence[Heap],
        huge: Sequence[HugeBlock],
        guarded: Sequence[GuardedBlock],
    ) -> dict[str, int]:
        """Named as in counters.def, and meaning the same, but for what threads that a fork lost had
        cached: which blocks these are nothing tells, and they are live here."""
        live = [block for block in huge if block.live]
        kept_bytes = sum(block.mapped_bytes for block in huge if not block.live)
        sampled = [block for block in guarded if block.state == "live"]
        large = picture.runs[picture.runs["kind"] == RunKind.LARGE]
        gauges = {
            "cached_bytes": sum(row.cached_bytes for row in classes),
            "cache_structure_bytes": sum(
                heap.structure_bytes for heap in heaps if heap.state in ("in use", "kept")
            ),
            "slab_bytes": sum(row.slab_bytes for row in classes),
            "slab_free_bytes": sum(row.freed_bytes for row in classes),
            "large_blocks": len(large),
            "large_bytes": int(large["large_bytes"].sum(dtype=np.int64)),
            "huge_blocks": len(live),
            "huge_bytes": sum(block.usable_bytes for block in live),
            "huge_cached_bytes": kept_bytes,
            "guarded_blocks": len(sampled),
            "guarded_bytes": sum(block.bytes for block in sampled),
            "dirty_bytes": _page_count(picture, "dirty_young", "dirty_old") * PAGE_BYTES,
            "mapped_bytes": len(picture.superslabs) * SUPERSLAB_BYTES
            + sum(block.mapped_bytes for block in live)
            + kept_bytes
            + facts.guarded_pool(self.source, self.layout)[1],
            "mapped_bytes_max": facts.mapped_bytes_max(self.source, self.layout),
            "metadata_bytes": facts.metadata_bytes(self.source, self.layout),
            "heaps": len(picture.caches),
            "heaps_in_use": sum(heap.state == "in use" for heap in heaps),
        }
        # The peak leaves out what is kept, and the pool of guarded blocks.
        gauges["mapped_bytes_max"] = max(gauges["mapped_bytes_max"], gauges["mapped_bytes"])
        beside = ("large", "huge", "guarded")
        gauges["live_blocks"] = sum(row.live_blocks for row in classes) + sum(
            gauges[f"{name}_blocks"] for name in beside
        )
        gauges["live_bytes"] = sum(row.live_bytes for row in classes) + sum(
            gauges[f"{name}_bytes"] for name in beside
        )
        return gauges


def _page_count(picture: Picture, *names: str) -> int:
    words = np.zeros(len(picture.superslabs), np.uint64)
    for name in names:
        words |= picture.superslabs[name]
    return int(np.bitwise_count(words).sum(dtype=np.int64))
