"""A made-up snapshot, plausible in every figure, without a process: for tests of what shows one.

The same arguments give the same snapshot. Its counts are summed from its blocks by the functions
that the reader uses, so they agree with each other as those of a real one do.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from hakmem.inspect import totals
from hakmem.inspect.model import (
    PAGE_BYTES,
    RUN,
    SUPERSLAB,
    SUPERSLAB_BYTES,
    SUPERSLAB_PAGES,
    WATERFALL,
    BlockState,
    Event,
    Flow,
    GuardedBlock,
    Heap,
    Histogram,
    HugeBlock,
    Option,
    Origin,
    Research,
    RunKind,
    SizeClass,
    Snapshot,
    Table,
    Waterfall,
    WaterfallRow,
    Words,
)

FIRST_SUPERSLAB = 0x7F3A_4000_0000
BLOCK_BYTES = (16, 32, 48, 64, 80, 96, 112, 128, 256, 512, 1024, 4096, 16384)
TAKEN_NS = 1_790_000_000_000_000_000
ALL_PAGES = (1 << SUPERSLAB_PAGES) - 1


def size_classes() -> tuple[SizeClass, ...]:
    return tuple(
        SizeClass(index, size, 1, PAGE_BYTES // size) for index, size in enumerate(BLOCK_BYTES)
    )


def _runs(random: np.random.Generator, superslab_count: int, heap_count: int) -> Table:
    """Slabs of one page, and in each superslab one large block of 8 pages, at pages 40 to 47; every
    fifth page is free."""
    pages = [page for page in range(SUPERSLAB_PAGES) if page % 5 and not 40 < page < 48]
    runs = np.zeros(superslab_count * len(pages), RUN)
    runs["superslab"] = np.repeat(np.arange(superslab_count), len(pages))
    runs["start"] = FIRST_SUPERSLAB + runs["superslab"].astype(np.uint64) * SUPERSLAB_BYTES
    runs["start"] += (np.tile(pages, superslab_count) * PAGE_BYTES).astype(np.uint64)
    runs["kind"] = RunKind.SLAB
    runs["pages"] = 1
    runs["settled"] = 1
    runs["class_index"] = random.integers(0, len(BLOCK_BYTES), len(runs))
    runs["heap_id"] = random.integers(1, heap_count + 1, len(runs))
    runs["block_count"] = PAGE_BYTES // np.array(BLOCK_BYTES)[runs["class_index"]]
    runs["fresh_index"] = runs["block_count"]
    runs["resident_bytes"] = PAGE_BYTES
    large = runs["start"] % SUPERSLAB_BYTES == 48 * PAGE_BYTES
    for name in ("class_index", "heap_id", "block_count", "fresh_index"):
        runs[name][large] = 0
    runs["kind"][large] = RunKind.LARGE
    runs["pages"][large] = 2
    runs["large_bytes"][large] = 2 * PAGE_BYTES - 4096
    runs["resident_bytes"][large] = 2 * PAGE_BYTES
    # Page 49 belongs to the large block.
    kept: Table = runs[runs["start"] % SUPERSLAB_BYTES != 49 * PAGE_BYTES]
    words = np.where(kept["kind"] == RunKind.SLAB, (kept["block_count"] + 63) // 64, 0)
    kept["word"] = np.cumsum(words) - words
    return kept


def _planes(random: np.random.Generator, runs: Table) -> dict[BlockState, Words]:
    slabs = totals.select_slabs(runs)
    planes: dict[BlockState, list[Words]] = {
        state: [] for state in totals.COLUMNS if state != BlockState.QUARANTINED
    }
    for slab in slabs:
        count = int(slab["block_count"])
        share = random.choice([0.0, 0.1, 0.5, 1.0])
        chances = [share, (1 - share) * 0.9, (1 - share) * 0.07, (1 - share) * 0.03]
        states = random.choice(4, count, p=np.array(chances))
        for state, words in planes.items():
            words.append(_pack(states == state))
    return {state: np.concatenate(words) for state, words in planes.items()}


def _pack(bits: npt.NDArray[np.bool_]) -> Words:
    padded = np.zeros((len(bits) + 63) // 64 * 64, np.bool_)
    padded[: len(bits)] = bits
    return np.packbits(padded, bitorder="little").view("<u8").astype(np.uint64)


def _superslabs(superslab_count: int, runs: Table) -> Table:
    table = np.zeros(superslab_count, SUPERSLAB)
    table["start"] = FIRST_SUPERSLAB + np.arange(superslab_count) * SUPERSLAB_BYTES
    for row, superslab in enumerate(table):
        used = starts = 0
        for run in runs[runs["superslab"] == row]:
            page = (int(run["start"]) - int(superslab["start"])) // PAGE_BYTES
            starts |= 1 << page
            used |= ((1 << int(run["pages"])) - 1) << page
        free = ALL_PAGES & ~used
        dirty = free & 0x0000_FFFF_0000_FFFF
        superslab["free"], superslab["run_start"] = free, starts
        superslab["dirty_young"], superslab["zero"] = dirty, free & ~dirty
        superslab["resident_bytes"] = (used | dirty).bit_count() * PAGE_BYTES
    return table


def _heaps(heap_count: int, runs: Table) -> tuple[Heap, ...]:
    slabs = totals.select_slabs(runs)
    sizes = np.array(BLOCK_BYTES, np.int64)[slabs["class_index"]]
    heaps = []
    for number in range(1, heap_count + 1):
        own = slabs["heap_id"] == number
        heaps.append(
            Heap(
                id=number,
                state="in use" if number < heap_count or number == 1 else "unused",
                thread_id=4242 + number - 1,
                thread_name="server" if number == 1 else f"worker-{number - 1}",
                settled=True,
                slabs=int(own.sum()),
                slab_bytes=int(own.sum()) * PAGE_BYTES,
                live_blocks=int(slabs["live"][own].sum()),
                live_bytes=int((slabs["live"] * sizes)[own].sum()),
                free_bytes=int((slabs["free"] * sizes)[own].sum()),
                cached_blocks=int(slabs["cached"][own].sum()),
                cached_bytes=int((slabs["cached"] * sizes)[own].sum()),
                remote_blocks=int(slabs["remote"][own].sum()),
                quarantined_blocks=0,
                pending_blocks=number % 3,
                structure_bytes=20_480,
                counters={"refills": 100 * number, "flushes": 40 * number},
            )
        )
    return tuple(heaps)


def _waterfall(runs: Table, superslabs: Table) -> Waterfall:
    slabs = totals.select_slabs(runs)
    sizes = np.array(BLOCK_BYTES, np.int64)[slabs["class_index"]]
    live, cached, remote = (
        int((slabs[name] * sizes).sum()) for name in ("live", "cached", "remote")
    )
    slack = live // 12
    large = int(runs["resident_bytes"][runs["kind"] == RunKind.LARGE].sum())
    in_slabs = int(slabs["resident_bytes"].sum())
    dirty = int(np.bitwise_count(superslabs["dirty_young"]).sum()) * PAGE_BYTES
    sizes_by_name = {
        "live": live - slack,
        "slack": slack,
        "large": large,
        "huge": 6 << 20,
        "guarded": 4096,
        "cached": cached,
        "remote": remote,
        "quarantined": 0,
        "slab_free": in_slabs - live - cached - remote,
        "dirty": dirty,
        "huge_kept": 3 << 20,
        "metadata": 700 << 10,
        "library": 180 << 10,
        "program": 1 << 20,
        "libraries": 2 << 20,
        "stacks": 132 << 10,
        "other": 80 << 10,
        "unexplained": 12 << 10,
    }
    rows = tuple(WaterfallRow(name, sizes_by_name[name], "made up") for name in WATERFALL)
    return Waterfall(rows, sum(row.bytes for row in rows))


def make_snapshot(
    *,
    seed: int = 7,
    superslab_count: int = 3,
    heap_count: int = 4,
    pid: int = 4242,
    taken_ns: int = TAKEN_NS,
    frozen: bool = False,
) -> Snapshot:
    random = np.random.default_rng(seed)
    runs = _runs(random, superslab_count, heap_count)
    planes = _planes(random, runs)
    is_slab = runs["kind"] == RunKind.SLAB
    slabs = runs[is_slab]
    totals.count_blocks(slabs, planes)
    runs[is_slab] = slabs
    superslabs = _superslabs(superslab_count, runs)
    classes = totals.sum_classes(size_classes(), slabs)
    heap_classes = totals.sum_heap_classes(slabs)
    waterfall = _waterfall(runs, superslabs)
    live_blocks = sum(row.live_blocks for row in classes)
    return Snapshot(
        origin=Origin.PROCESS,
        pid=pid,
        name="server",
        exe="/usr/bin/server",
        version="2.0.0",
        build_id="0123456789abcdef0123456789abcdef01234567",
        mode="fast",
        taken_ns=taken_ns,
        frozen=frozen,
        unsettled_share=0.0,
        options=(
            Option("mode", 0, "fast", "default"),
            Option("purge_delay_ms", 500, "500", "default"),
            Option("retain_slabs", 2, "2", "environment"),
            Option("report", "", "", "default"),
        ),
        size_classes=size_classes(),
        heaps=_heaps(heap_count, runs),
        classes=classes,
        heap_classes=heap_classes,
        superslabs=superslabs,
        runs=runs,
        planes=planes,
        huge=(
            HugeBlock(0x7F3A_8000_0000, 6 << 20, 6 << 20, True, 6 << 20),
            HugeBlock(0x7F3A_8100_0000, 3 << 20, 3 << 20, False, 3 << 20),
        ),
        guarded=(GuardedBlock(0x7F3A_9000_1FC0, 64, "live"),),
        counters={"refills": 100_000 + seed, "flushes": 40_000, "os_mmap": superslab_count},
        gauges={
            "live_blocks": live_blocks,
            "live_bytes": sum(row.live_bytes for row in classes),
            "cached_bytes": sum(row.cached_bytes for row in classes),
            "mapped_bytes": superslab_count * SUPERSLAB_BYTES,
            "metadata_bytes": 700 << 10,
            "heaps": heap_count,
        },
        events=(
            Event(1_000_000, 17_000_000_000, pid, "superslab", {"start": FIRST_SUPERSLAB}),
            Event(2_500_000, 17_000_500_000, pid + 1, "purge", {"bytes": 3 * PAGE_BYTES}),
        ),
        events_lost=3,
        research=Research(
            enabled=True,
            operations={
                "mallocs": tuple(range(len(BLOCK_BYTES))),
                "frees": (0,) * len(BLOCK_BYTES),
            },
            histograms=(Histogram("malloc", "ns", (16, 32, 64), (900, 90, 10)),),
            flows=(Flow(1, 2, 17),),
            hits={"magazine": 9_000, "depot": 900, "slab": 100},
        ),
        residency=True,
        waterfall=waterfall,
    )
