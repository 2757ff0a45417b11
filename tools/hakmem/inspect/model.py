"""What was seen of one heap: the contract between the reader and everything that shows it.

A `Snapshot` is complete and immutable: it can be kept, compared and written as JSON without the
process. Counts are blocks, sizes are bytes, addresses are those of the process.

Tables with many rows are numpy structured arrays (`RUN`, `SUPERSLAB`, `HEAP_CLASS`): select and sum
columns instead of looping over rows. What every single block is lies in bit planes, 64 blocks to a
word: `Snapshot.blocks` unpacks those of one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from hakmem.inspect.units import PAGE_BYTES as PAGE_BYTES
from hakmem.inspect.units import REQUEST_STEP_BYTES as REQUEST_STEP_BYTES

Table = npt.NDArray[Any]
Words = npt.NDArray[np.uint64]

SUPERSLAB_PAGES = 64
SUPERSLAB_BYTES = PAGE_BYTES * SUPERSLAB_PAGES
SLAB_BLOCKS_MAX = SUPERSLAB_PAGES * 64


class RunKind(IntEnum):
    SLAB = 1
    LARGE = 2


class BlockState(IntEnum):
    """Where a block of a slab is."""

    LIVE = 0  # in the program's hands
    FREE = 1  # in its slab
    CACHED = 2  # in the magazine of its heap's thread
    REMOTE = 3  # freed by another thread, not yet back in its slab
    QUARANTINED = 4  # freed, held back before reuse (hardened mode)


class Origin(StrEnum):
    PROCESS = "process"
    CORE = "core"
    SNAPSHOT = "snapshot"


# A run in use. `superslab` is a row of Snapshot.superslabs; `word` is the run's first word in the
# planes (slabs only). Of a large run only the first row of columns and large_bytes (usable) count.
RUN = np.dtype(
    [
        ("start", "<u8"),
        ("superslab", "<u4"),
        ("pages", "u1"),
        ("kind", "u1"),  # RunKind
        ("class_index", "u1"),
        ("guarded", "u1"),  # 1: one more page behind, without access
        ("heap_id", "<u4"),
        ("large_bytes", "<u4"),
        ("word", "<u8"),
        ("block_count", "<u2"),
        ("live", "<u2"),
        ("free", "<u2"),
        ("cached", "<u2"),
        ("remote", "<u2"),
        ("quarantined", "<u2"),
        ("fresh_index", "<u2"),  # blocks from here on were never handed out
        ("settled", "u1"),  # 0: changed under the reader's hands each time it looked
        ("resident_bytes", "<u8"),  # 0 unless Snapshot.residency
    ]
)

# Bit i of a word is page i. A page is in a run, or free (then dirty_young, dirty_old or zero), or
# stuck, or purging; see src/space/superslab.h.
SUPERSLAB = np.dtype(
    [
        ("start", "<u8"),
        ("free", "<u8"),
        ("dirty_young", "<u8"),
        ("dirty_old", "<u8"),
        ("zero", "<u8"),
        ("stuck", "<u8"),
        ("purging", "<u8"),
        ("run_start", "<u8"),
        ("resident_bytes", "<u8"),
    ]
)

# One size class of one heap that has slabs of it. Blocks are counted with the heap they belong to.
HEAP_CLASS = np.dtype(
    [
        ("heap_id", "<u4"),
        ("class_index", "u1"),
        ("slabs", "<u4"),
        ("live", "<u8"),
        ("free", "<u8"),
        ("cached", "<u8"),
        ("remote", "<u8"),
        ("quarantined", "<u8"),
    ]
)


@dataclass(frozen=True)
class Option:
    """`value` is a number, or text for a STRING option; `text` is as options.def writes it."""

    name: str
    value: int | str
    text: str
    origin: str


@dataclass(frozen=True)
class SizeClass:
    index: int
    block_bytes: int
    slab_pages: int
    block_count: int  # blocks of one slab


# Slabs by the share of their blocks that are live: none, up to a quarter, a half, three quarters,
# less than all, all.
FULLNESS = ("empty", "to_25", "to_50", "to_75", "to_99", "full")


@dataclass(frozen=True)
class ClassTotals:
    """One size class over all heaps. `slack_bytes`: what blocks are larger than what was asked for,
    estimated from samples; None where nothing was sampled. `fullness`: slabs, in the order of
    FULLNESS. `resident_bytes` is 0 unless Snapshot.residency."""

    index: int
    block_bytes: int
    slab_bytes: int  # of all slabs
    slabs: int
    live_blocks: int
    free_blocks: int
    cached_blocks: int
    remote_blocks: int
    quarantined_blocks: int
    fullness: tuple[int, ...]
    resident_bytes: int = 0
    slack_bytes: int | None = None

    @property
    def live_bytes(self) -> int:
        return self.live_blocks * self.block_bytes

    @property
    def free_bytes(self) -> int:
        return self.free_blocks * self.block_bytes

    @property
    def freed_bytes(self) -> int:
        """Free in slabs, on their way there from another thread or in quarantine."""
        return (self.free_blocks + self.remote_blocks + self.quarantined_blocks) * self.block_bytes

    @property
    def cached_bytes(self) -> int:
        return self.cached_blocks * self.block_bytes

    @property
    def fragmentation(self) -> float:
        """Share of the slabs' bytes that no live block uses; 0 where there is no slab."""
        return 1 - self.live_bytes / self.slab_bytes if self.slab_bytes else 0.0


@dataclass(frozen=True)
class Heap:
    """`state`: "in use" by a living thread, "unused" (waits for one), "kept" (the same, with what
    its last thread cached), "orphan" (its thread was left behind by fork) or "late" (the heap of
    calls without a thread cache). `thread_id` is the kernel's, in the process's own namespace; 0
    when there is none. Blocks are those of the heap's
    slabs, wherever those blocks are cached; `pending_blocks` are the blocks of other heaps that its
    thread freed and has in its magazines."""

    id: int
    state: str
    thread_id: int
    thread_name: str
    settled: bool
    slabs: int
    slab_bytes: int
    live_blocks: int
    live_bytes: int
    free_bytes: int
    cached_blocks: int
    cached_bytes: int
    remote_blocks: int
    quarantined_blocks: int
    pending_blocks: int
    structure_bytes: int  # of the thread cache and its nodes
    held_blocks: int = 0  # in the magazines of its thread, of slabs of any heap
    held_bytes: int = 0
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class HugeBlock:
    """A mapping of its own; `live` False: freed, and kept for reuse."""

    start: int
    usable_bytes: int
    mapped_bytes: int
    live: bool
    resident_bytes: int = 0


@dataclass(frozen=True)
class GuardedBlock:
    """A sampled block between inaccessible pages. `state`: "live" or "freed"."""

    start: int
    bytes: int
    state: str


@dataclass(frozen=True)
class Frame:
    """A place within a call. `offset`: from the beginning of the file `module`, as addr2line takes
    it; the file's `build_id` is empty where it could not be read, and all of them where the place
    is in no file."""

    address: int
    module: str
    offset: int
    build_id: str


@dataclass(frozen=True)
class GuardedSite:
    """The live guarded blocks that were allocated by the same calls, the innermost first, without
    those within hakmem."""

    blocks: int
    bytes: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class Event:
    """A slow-path event. `time_ns`: of the system's monotonic clock, None when the ticks could not
    be related to it. `thread_id` 0: of a thread that has ended, or never had a cache. `arguments`
    are named as docs/INSPECT_ABI.md says for the kind."""

    ticks: int
    time_ns: int | None
    thread_id: int
    kind: str
    arguments: Mapping[str, int]


# What 0 and 1 mean.
KNOBS_OF_WORDS = {
    "huge_pages": ("refused", "asked for"),
    "huge_block_pages": ("refused", "asked for"),
    "thread_blocks": ("go home", "stay"),
}
KNOBS_OF_BYTES = ("budget", "excess_bytes", "huge_cache_bytes")
KNOBS_OF_TIME = ("slab_purge_delay_ms", "purge_delay_ms")


@dataclass(frozen=True)
class Decision:
    """A decision of the learner: `knob` went from one value to another (of KNOBS_OF_BYTES bytes; of
    KNOBS_OF_WORDS 0 or 1; of KNOBS_OF_TIME milliseconds; else blocks), because `signal` had a
    value. `heap` 0: all; `block_bytes` 0: all classes."""

    number: int
    time_ns: int  # of the system's monotonic clock; of a cache as of its thread's last tick
    heap: int
    knob: str
    block_bytes: int
    before: int
    after: int
    signal: str
    value: int


@dataclass(frozen=True)
class Window:
    """What one size class of one heap did in one window of slow paths; docs/LEARNING.md."""

    heap: int
    window: int
    cpu_ns: int  # processor time of its thread; 0: nobody looked
    budget_bytes: int
    block_bytes: int
    refills: int
    flushes: int
    refilled_blocks: int
    flushed_blocks: int
    capacity: int
    limit: int
    used: int


@dataclass(frozen=True)
class Histogram:
    """`counts[i]` values are at most `upper[i]` and above the bound before it."""

    name: str
    unit: str
    upper: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Flow:
    """Blocks that a thread of one heap allocated and a thread of another freed."""

    from_heap: int
    to_heap: int
    blocks: int


@dataclass(frozen=True)
class Research:
    """What research mode counted, since it was first switched on. `enabled`: some thread counts
    now. `operations`: per name ("mallocs", "frees"), one count for each size class. `hits` and
    `free_hits`: allocations and frees by the level of the cache where they ended.
    `requested_bytes`: asked for in all, one sum for each size class; may be empty."""

    enabled: bool
    operations: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    histograms: tuple[Histogram, ...] = ()
    flows: tuple[Flow, ...] = ()
    hits: Mapping[str, int] = field(default_factory=dict)
    free_hits: Mapping[str, int] = field(default_factory=dict)
    requested_bytes: tuple[int, ...] = ()


@dataclass(frozen=True)
class WaterfallRow:
    """`name` is one of WATERFALL's, `note` explains it to people."""

    name: str
    bytes: int
    note: str


# The rows of a waterfall, in order.
WATERFALL = (
    "live",  # small blocks the program holds, without their slack
    "slack",  # size-class slack of them, where it was sampled
    "large",  # large blocks
    "huge",
    "guarded",
    "cached",  # in thread caches
    "remote",  # freed by other threads, on their way back
    "quarantined",
    "slab_free",  # free blocks inside slabs, and what no block of a slab covers
    "dirty",  # free pages of superslabs that are still resident
    "huge_kept",  # freed huge mappings kept for reuse
    "metadata",  # hakmem's own structures: descriptors, thread caches, page map
    "library",  # the file libhakmem.so
    "program",  # the program's file
    "libraries",  # other files
    "stacks",
    "other",  # other anonymous and shared mappings
    "unexplained",
)


@dataclass(frozen=True)
class Waterfall:
    """Resident bytes by what they are for; the rows add up to `rss_bytes`."""

    rows: tuple[WaterfallRow, ...]
    rss_bytes: int

    @property
    def unexplained_bytes(self) -> int:
        return sum(row.bytes for row in self.rows if row.name == "unexplained")


@dataclass(frozen=True)
class Snapshot:
    """`unsettled_share`: the share of blocks that may have moved while they were looked at, at
    most; 0.0 when `frozen`. `unsettled_bytes`: what live bytes may be off by for that, at most;
    None in what an earlier version wrote, as fields behind it may be. `planes` maps
    FREE, CACHED, REMOTE and QUARANTINED to their words, all of one length; a state nobody is in may
    be missing, and no planes at all means that only the counts were kept. `counters` and
    `gauges` are named as in counters.def."""

    origin: Origin
    pid: int
    name: str  # of the program
    exe: str
    version: str
    build_id: str
    mode: str
    taken_ns: int  # since the epoch
    frozen: bool
    unsettled_share: float
    options: tuple[Option, ...]
    size_classes: tuple[SizeClass, ...]
    heaps: tuple[Heap, ...]
    classes: tuple[ClassTotals, ...]
    heap_classes: Table  # of HEAP_CLASS
    superslabs: Table  # of SUPERSLAB, by start
    runs: Table  # of RUN, by start
    planes: Mapping[BlockState, Words]
    huge: tuple[HugeBlock, ...]
    guarded: tuple[GuardedBlock, ...]
    counters: Mapping[str, int]
    gauges: Mapping[str, int]
    unsettled_bytes: int | None = None
    inner_pid: int | None = None  # in its own PID namespace, where that is known
    root_address: int | None = None  # of the inspect root: another one in each program's start
    has_profile: bool | None = None  # one is in force
    guarded_sites: tuple[GuardedSite, ...] = ()  # most bytes first
    events: tuple[Event, ...] = ()
    events_lost: int = 0
    decisions: tuple[Decision, ...] = ()
    decisions_lost: int = 0
    windows: tuple[Window, ...] = ()
    research: Research | None = None
    residency: bool = False  # resident_bytes are known
    waterfall: Waterfall | None = None  # None for a core: nobody knows what was resident
    requests: tuple[int, ...] | None = None  # by size (requests.py); None: nobody keeps them
    notes: tuple[str, ...] = ()  # what the reader could not read, in plain words

    @cached_property
    def slabs(self) -> Table:
        chosen: Table = self.runs[self.runs["kind"] == RunKind.SLAB]
        return chosen

    @cached_property
    def large(self) -> Table:
        chosen: Table = self.runs[self.runs["kind"] == RunKind.LARGE]
        return chosen

    @cached_property
    def large_totals(self) -> tuple[int, int]:
        """Large blocks and their bytes, also where the runs were not kept."""
        if len(self.runs):
            return len(self.large), int(self.large["large_bytes"].sum(dtype=np.int64))
        return self.gauges.get("large_blocks", 0), self.gauges.get("large_bytes", 0)

    @cached_property
    def live_bytes(self) -> int:
        """All that the program holds: small, large, huge and guarded blocks, rounding included."""
        huge = sum(block.usable_bytes for block in self.huge if block.live)
        guarded = sum(block.bytes for block in self.guarded if block.state == "live")
        small = sum(row.live_bytes for row in self.classes)
        return small + self.large_totals[1] + huge + guarded

    def runs_of(self, superslab: int) -> Table:
        """The runs of row `superslab` of superslabs."""
        chosen: Table = self.runs[self.runs["superslab"] == superslab]
        return chosen

    def blocks(self, run: np.void) -> npt.NDArray[np.uint8]:
        """The BlockState of each block of a slab (a row of `runs`), lowest address first.

        ValueError for a run that is no slab, and when the planes were not kept."""
        if run["kind"] != RunKind.SLAB:
            raise ValueError("only a slab has blocks")
        if BlockState.FREE not in self.planes:
            raise ValueError("this snapshot has counts only")
        count, first = int(run["block_count"]), int(run["word"])
        states = np.zeros(count, np.uint8)
        for state, words in self.planes.items():
            bits = np.unpackbits(
                words[first : first + (count + 63) // 64].astype("<u8").view(np.uint8),
                count=count,
                bitorder="little",
            )
            states[bits != 0] = state
        return states
