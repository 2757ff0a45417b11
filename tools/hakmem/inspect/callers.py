"""Who allocated the guarded blocks that are live: the calls that led there, which their slots keep,
by file and offset."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import dropwhile
from operator import attrgetter
from typing import Any

import numpy.typing as npt

from hakmem.inspect import facts
from hakmem.inspect.errors import InspectError
from hakmem.inspect.layout import Layout
from hakmem.inspect.memory import Area, MemorySource, area_at
from hakmem.inspect.model import Frame, GuardedSite
from hakmem.watch import DELETED

# Of an ELF header. A program that is not position independent counts from 0, as its file does.
TYPE_PLACE, TYPE_FIXED = 16, 2
# Linux maps none that is position independent below.
FIXED_END = 1 << 32

Addresses = tuple[int, ...]


class Callers:
    """Of one target. What a file's header says is read once."""

    def __init__(self, source: MemorySource, layout: Layout) -> None:
        self.source = source
        self.layout = layout
        self._program = source.exe.removesuffix(DELETED)
        self._modules: dict[Area, tuple[int, str]] = {}

    def sites(self, slots: npt.NDArray[Any]) -> tuple[GuardedSite, ...]:
        """The live ones of facts.guarded_slots(): one for each way of calls, most bytes first."""
        root = self.layout.root
        live = slots[slots["state"] == root.constant("guarded_state_live")]
        if not len(live):
            return ()
        files = sorted(self.source.mapped_files(), key=attrgetter("start"))
        stacks = _stacks(live["allocated"])
        areas = {each: _area_at(files, each) for each in set().union(*stacks)}
        inner = {each for each, area in areas.items() if self._is_own(area)}
        found: dict[Addresses, list[int]] = {}
        for stack, size in zip(stacks, live["bytes"].tolist(), strict=True):
            # Without the calls at the inner end that lie within hakmem.
            calls = tuple(dropwhile(inner.__contains__, stack))
            found.setdefault(calls, []).append(size)
        frames = {
            address: self._frame(address, areas[address], files)
            for address in {address for calls in found for address in calls}
        }
        sites = [
            GuardedSite(len(sizes), sum(sizes), tuple(frames[address] for address in calls))
            for calls, sizes in found.items()
        ]
        return tuple(sorted(sites, key=lambda site: -site.bytes))

    def _is_own(self, area: Area) -> bool:
        """Whether it is hakmem's file; none is where that is the program's, whose calls cannot be
        told from those within hakmem."""
        return area.is_file and area.path == self.layout.root.area.path != self._program

    def _frame(self, address: int, area: Area, files: Sequence[Area]) -> Frame:
        if not area.is_file:
            return Frame(address, "", 0, "")
        if area not in self._modules:
            first = _first_mapping(area, files)
            self._modules[area] = (
                0 if self._is_fixed(first) else first.start - first.offset,
                facts.read_build_id(self.source, first, first.start),
            )
        origin, build_id = self._modules[area]
        return Frame(address, area.path, address - origin, build_id)

    def _is_fixed(self, first: Area) -> bool:
        if first.path != self._program:
            return False
        try:
            header = self.source.read_in(first, first.start, TYPE_PLACE + 2)
        except InspectError:
            # A snapshot, which has no more than hakmem's own.
            return first.start < FIXED_END
        return header[TYPE_PLACE] == TYPE_FIXED


def _stacks(stacks: npt.NDArray[Any]) -> list[Addresses]:
    frames = stacks["frames"].reshape(len(stacks), -1).tolist()
    # What was written while it was read may have any count.
    return [tuple(row[:count]) for row, count in zip(frames, stacks["count"].tolist(), strict=True)]


def _area_at(files: Sequence[Area], address: int) -> Area:
    """Of those sorted by their start."""
    before = bisect_right(files, address, key=attrgetter("start"))
    return area_at(files[max(0, before - 1) : before], address)


def _first_mapping(area: Area, files: Sequence[Area]) -> Area:
    """The mapping of the file's first byte that lies nearest before another one of it."""
    starts = [
        each
        for each in files
        if each.offset == 0 and each.path == area.path and each.start <= area.start
    ]
    return max(starts, key=lambda each: each.start, default=area)
