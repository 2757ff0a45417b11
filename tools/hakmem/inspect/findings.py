"""What stands out in a snapshot, in plain words with its numbers, and what can be done about it.

Each finding is made by a pure function of the snapshot; `findings` calls them all. Shares are of
the resident memory where it is known, otherwise of what the heap holds (a core has no residency).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from hakmem.inspect.model import FULLNESS, PAGE_BYTES, ClassTotals, Origin, Snapshot
from hakmem.render import size

# Less than this, and less than this share of all, is not worth a sentence.
WORTH_BYTES = 1 << 20
WORTH_SHARE = 0.03
# A slab with so few live blocks pins memory for them.
SPARSE_SHARE = 0.25
# Rows of one kind at most; the rest is summed up in the tables.
EACH_MOST = 3
DOMINANT_SHARE = 0.4
FOREIGN_SHARE = 0.5
SLACK_SHARE = 0.12
UNEXPLAINED_SHARE = 0.01
# A heap of ended threads, or whose thread caches nothing.
UNUSED = "unused"
# What of the resident memory is no part of the heap.
FOREIGN = ("library", "program", "libraries", "stacks", "other")


class Severity(StrEnum):
    WARN = "warn"
    NOTE = "note"
    GOOD = "good"


@dataclass(frozen=True)
class Finding:
    """`text` is what is so, `advice` what can be done (may be empty); `bytes` what it is about.
    `kind` does not change: programs choose by it, and docs/OBSERVING.md lists them."""

    kind: str
    severity: Severity
    text: str
    advice: str
    bytes: int = 0


Finder = Callable[[Snapshot], Iterator[Finding]]


def findings(snapshot: Snapshot) -> tuple[Finding, ...]:
    """Everything that stands out: what wants attention first, then the largest first."""
    order = list(Severity)
    found = [finding for finder in FINDERS for finding in finder(snapshot)]
    found.sort(key=lambda finding: (order.index(finding.severity), -finding.bytes))
    return tuple(found)


def share_text(part: int, whole: int) -> str:
    """Per cent, with a decimal where it is small."""
    percent = 100 * part / whole if whole else 0.0
    return f"{percent:.1f} %" if 0 < percent < 10 else f"{percent:.0f} %"


def _held_bytes(snapshot: Snapshot) -> int:
    """What shares are of."""
    if snapshot.waterfall is not None:
        return snapshot.waterfall.rss_bytes
    slabs = sum(row.slab_bytes for row in snapshot.classes)
    gauges = snapshot.gauges
    return slabs + gauges.get("large_bytes", 0) + gauges.get("huge_bytes", 0)


def _row(snapshot: Snapshot, name: str) -> int:
    """Bytes of a row of the waterfall; 0 where there is none."""
    rows = snapshot.waterfall.rows if snapshot.waterfall is not None else ()
    return sum(row.bytes for row in rows if row.name == name)


def _resident(snapshot: Snapshot, name: str, counted_bytes: int) -> int:
    """A row of the waterfall, or where there is none what the blocks add up to: of them, memory
    that was never touched or was given back is not resident."""
    return counted_bytes if snapshot.waterfall is None else _row(snapshot, name)


def _is_worth(snapshot: Snapshot, count: int) -> bool:
    return count >= max(WORTH_BYTES, int(WORTH_SHARE * _held_bytes(snapshot)))


def _setting(snapshot: Snapshot, name: str) -> str:
    """An option as the environment would set it, with its present value."""
    option = next((option for option in snapshot.options if option.name == name), None)
    if option is None:
        return f"HAKMEM_{name.upper()}"
    is_size = name.endswith("_bytes") and isinstance(option.value, int)
    return f"HAKMEM_{name.upper()} (now {size(int(option.value)) if is_size else option.text})"


def _plural(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _class(row: ClassTotals) -> str:
    return f"Class {row.block_bytes:,} B"


# ---- The heap's own memory


def sparse_slabs(snapshot: Snapshot) -> Iterator[Finding]:
    """Classes whose slabs are held by a few live blocks each."""
    slabs = snapshot.slabs
    live, blocks = slabs["live"].astype(np.int64), slabs["block_count"].astype(np.int64)
    chosen = slabs[(live > 0) & (live <= SPARSE_SHARE * blocks)]
    found = []
    for row in snapshot.classes:
        own = chosen[chosen["class_index"] == row.index]
        if not len(own):
            continue
        held = own["resident_bytes"] if snapshot.residency else own["pages"] * np.int64(PAGE_BYTES)
        live_count, block_count = int(own["live"].sum()), int(own["block_count"].sum())
        pinned = int(held.sum()) - live_count * row.block_bytes
        if _is_worth(snapshot, pinned):
            found.append((pinned, len(own), live_count, block_count, row))
    found.sort(key=lambda each: -each[0])
    for pinned, count, live_count, block_count, row in found[:EACH_MOST]:
        yield Finding(
            "sparse_slabs",
            Severity.WARN,
            f"{_class(row)}: {_plural(count, 'slab')} at most a quarter full hold "
            f"{share_text(live_count, block_count)} live blocks and pin {size(pinned)}.",
            "Blocks of this size that live long lie scattered among short-lived ones. Allocate the "
            "long-lived ones together, at start or from a thread of their own, and whole slabs "
            f"become free; {_setting(snapshot, 'slab_purge_delay_ms')} says when free pages inside "
            "slabs are given back. A page with one live block stays, whatever is set.",
            pinned,
        )


def empty_slabs(snapshot: Snapshot) -> Iterator[Finding]:
    """Slabs without a live block that wait for the next burst."""
    if snapshot.residency and len(snapshot.slabs):
        chosen = snapshot.slabs[snapshot.slabs["live"] == 0]
        count, held = len(chosen), int(chosen["resident_bytes"].sum())
    else:
        empty = FULLNESS.index("empty")
        rows = [row for row in snapshot.classes if row.slabs]
        count = sum(row.fullness[empty] for row in rows)
        held = sum(row.fullness[empty] * row.slab_bytes // row.slabs for row in rows)
    if _is_worth(snapshot, held):
        yield Finding(
            "empty_slabs",
            Severity.NOTE,
            f"{_plural(count, 'slab')} without a live block hold {size(held)}.",
            f"Each heap keeps some for its next burst: {_setting(snapshot, 'retain_slabs')}. Those "
            "with cached blocks become free when their thread's cache shrinks.",
            held,
        )


def thread_caches(snapshot: Snapshot) -> Iterator[Finding]:
    """Free blocks that threads hold ready."""
    held = _resident(snapshot, "cached", sum(row.cached_bytes for row in snapshot.classes))
    holders = [heap for heap in snapshot.heaps if heap.cached_blocks]
    if not _is_worth(snapshot, held):
        return
    largest = max(holders, key=lambda heap: heap.cached_bytes, default=None)
    most = (
        f"; of {len(holders):,} the largest has blocks of {size(largest.cached_bytes)} "
        f"({largest.thread_name or 'no thread'})"
        if largest is not None
        else ""
    )
    yield Finding(
        "thread_caches",
        Severity.NOTE,
        f"Thread caches hold {size(held)} ready, {share_text(held, _held_bytes(snapshot))} of all"
        f"{most}.",
        f"{_setting(snapshot, 'cache_heap_bytes')} and {_setting(snapshot, 'cache_total_bytes')} "
        "bound them; HAKMEM_MODE=lean sets both low.",
        held,
    )


def remote_frees(snapshot: Snapshot) -> Iterator[Finding]:
    """Blocks that other threads freed and that have not come back."""
    counted = sum(row.remote_blocks * row.block_bytes for row in snapshot.classes)
    held = _resident(snapshot, "remote", counted)
    if not _is_worth(snapshot, held):
        return
    owner = max(snapshot.heaps, key=lambda heap: heap.remote_blocks, default=None)
    who = f", most of them from {owner.thread_name or f'heap {owner.id}'}" if owner else ""
    yield Finding(
        "remote_frees",
        Severity.WARN,
        f"{size(held)} were freed by other threads and have not come back to their slabs{who}.",
        "They come back when their owner allocates again, or when another thread cleans up an idle "
        "heap. A thread that allocates much and then sleeps holds them longest.",
        held,
    )


def ended_threads(snapshot: Snapshot) -> Iterator[Finding]:
    """Heaps without a thread that still hold free memory between their live blocks."""
    heaps = [heap for heap in snapshot.heaps if heap.state == UNUSED and heap.slabs]
    live = sum(heap.live_bytes for heap in heaps)
    held = sum(heap.slab_bytes for heap in heaps)
    if snapshot.residency and len(snapshot.slabs):
        own = np.isin(snapshot.slabs["heap_id"], [heap.id for heap in heaps])
        held = int(snapshot.slabs["resident_bytes"][own].sum())
    free = held - live
    if _is_worth(snapshot, free):
        yield Finding(
            "ended_threads",
            Severity.NOTE,
            f"Heaps of ended threads ({len(heaps):,}) still hold {size(live)} of live blocks, "
            f"with {size(free)} free between them.",
            "The next threads take these heaps over, and others take slabs of theirs. If none "
            "does, what outlives its thread is better allocated by a thread that stays.",
            free,
        )


def dirty_pages(snapshot: Snapshot) -> Iterator[Finding]:
    """Free pages that are still resident."""
    dirty = _row(snapshot, "dirty")
    if _is_worth(snapshot, dirty):
        yield Finding(
            "dirty_pages",
            Severity.NOTE,
            f"{size(dirty)} of free pages wait to be used again or given back, "
            f"{share_text(dirty, _held_bytes(snapshot))} of all.",
            f"They are given back after {_setting(snapshot, 'purge_delay_ms')}, by whichever "
            "thread next takes a slow path: a process that is wholly idle keeps them. malloc_trim "
            "gives them back at once.",
            dirty,
        )
    kept = _row(snapshot, "huge_kept")
    if _is_worth(snapshot, kept):
        yield Finding(
            "huge_kept",
            Severity.NOTE,
            f"{size(kept)} of freed huge blocks are kept for reuse.",
            f"{_setting(snapshot, 'huge_cache_bytes')} bounds them; 0 keeps none.",
            kept,
        )


def quarantine(snapshot: Snapshot) -> Iterator[Finding]:
    """Freed blocks that hardened mode holds back."""
    counted = sum(row.quarantined_blocks * row.block_bytes for row in snapshot.classes)
    held = _resident(snapshot, "quarantined", counted)
    if _is_worth(snapshot, held):
        yield Finding(
            "quarantine",
            Severity.NOTE,
            f"{size(held)} of freed blocks are held back from reuse.",
            f"{_setting(snapshot, 'quarantine_blocks')} says how many for each heap.",
            held,
        )


def metadata(snapshot: Snapshot) -> Iterator[Finding]:
    """hakmem's own structures, when they are a large part."""
    held = _row(snapshot, "metadata")
    if _is_worth(snapshot, held):
        yield Finding(
            "metadata",
            Severity.NOTE,
            f"hakmem's own structures take {size(held)}, "
            f"{share_text(held, _held_bytes(snapshot))} of all.",
            "They are the page map, what describes superslabs and slabs, and a thread cache for "
            f"each heap; of these there are {len(snapshot.heaps):,}.",
            held,
        )


# ---- What the program does with it


def slack(snapshot: Snapshot) -> Iterator[Finding]:
    """Classes whose blocks are much larger than what was asked for, where it was sampled."""
    rows = sorted(snapshot.classes, key=lambda row: -(row.slack_bytes or 0))
    for row in rows[:EACH_MOST]:
        lost = row.slack_bytes or 0
        if _is_worth(snapshot, lost) and lost > SLACK_SHARE * row.live_bytes:
            yield Finding(
                "slack",
                Severity.NOTE,
                f"{_class(row)}: about {size(lost)} of its {size(row.live_bytes)} were not asked "
                "for: the blocks are larger than the requests.",
                "Requests a few bytes above the class below lie here; a structure a little smaller "
                "would use the smaller class.",
                lost,
            )


def dominant(snapshot: Snapshot) -> Iterator[Finding]:
    """One size class, or one block, that is a large part of all that is live."""
    blocks = [(block.usable_bytes, block.start) for block in snapshot.huge if block.live]
    blocks += [(int(run["large_bytes"]), int(run["start"])) for run in snapshot.large]
    live = snapshot.live_bytes
    if live < 8 * WORTH_BYTES:
        return
    for row in snapshot.classes:
        if row.live_bytes > DOMINANT_SHARE * live:
            yield Finding(
                "dominant_class",
                Severity.NOTE,
                f"{_class(row)} is {share_text(row.live_bytes, live)} of all live bytes: "
                f"{_plural(row.live_blocks, 'block')}, {size(row.live_bytes)}.",
                "What makes the program smaller begins here.",
                row.live_bytes,
            )
    largest, start = max(blocks, default=(0, 0))
    if largest > DOMINANT_SHARE * live:
        yield Finding(
            "dominant_block",
            Severity.NOTE,
            f"One block is {share_text(largest, live)} of all live bytes: {size(largest)} at "
            f"{start:#x}.",
            "",
            largest,
        )


def foreign_memory(snapshot: Snapshot) -> Iterator[Finding]:
    """Resident memory that did not come from malloc."""
    parts = {name: _row(snapshot, name) for name in FOREIGN}
    held, total = sum(parts.values()), _held_bytes(snapshot)
    if snapshot.waterfall is not None and held > FOREIGN_SHARE * total and held >= WORTH_BYTES:
        words = {
            "library": "the library's file",
            "program": "the program's file",
            "libraries": "files of libraries and others",
            "other": "other mappings",
        }
        largest = max(parts, key=lambda name: parts[name])
        yield Finding(
            "foreign_memory",
            Severity.NOTE,
            f"{share_text(held, total)} of the resident memory, {size(held)}, is not malloc's; "
            f"most of it, {size(parts[largest])}, is {words.get(largest, largest)}.",
            "No allocator can make this smaller. Programs with an allocator of their own (a Java "
            "heap, Python's arenas) map it themselves.",
            held,
        )


# ---- What went wrong


def failures(snapshot: Snapshot) -> Iterator[Finding]:
    """Requests that failed, system calls that failed, misuse that was reported."""
    rows = (
        ("failures", "Requests that ended in NULL for want of memory",
         "A limit of the process, of its control group or of the machine was reached."),
        ("misuses", "Misuses of malloc that were reported, and the process went on",
         "Each is a bug of the program: HAKMEM_MODE=hardened finds it where it happens."),
        ("os_failures", "System calls of hakmem that failed",
         "hakmem did without. A sandbox, a limit of mappings or of address space may be the "
         "reason; hakmem doctor looks for them."),
    )  # fmt: skip
    for name, words, advice in rows:
        count = snapshot.counters.get(name, 0)
        if count:
            yield Finding(name, Severity.WARN, f"{words}: {count:,}.", advice)


# ---- How far the picture itself holds

WHILE_READ = {
    Origin.PROCESS: "It went on while it was read: at most {share} of its blocks may have moved.",
    Origin.CORE: "A lock was held when the core was written: at most {share} of the blocks may be "
    "counted wrong.",
    Origin.SNAPSHOT: "A lock was held or taken while the snapshot was written: at most {share} of "
    "the blocks may be counted wrong.",
}


def unsettled_text(snapshot: Snapshot) -> str:
    """How far the counts may be off, for a snapshot that is not wholly settled."""
    share = f"{max(0.01, 100 * snapshot.unsettled_share):.2f} %"
    return WHILE_READ[snapshot.origin].format(share=share)


def _why_unexplained(snapshot: Snapshot) -> str:
    if snapshot.frozen:
        return "The process stood still: smaps and pagemap, both the kernel's, do not agree."
    if snapshot.origin is Origin.PROCESS:
        return "The process changed while it was read; --freeze stops it for the moment."
    return "The process went on while it wrote the snapshot."


def accuracy(snapshot: Snapshot) -> Iterator[Finding]:
    """What the reader could not explain, settle or read."""
    is_process = snapshot.origin is Origin.PROCESS
    if snapshot.waterfall is not None:
        unexplained, total = snapshot.waterfall.unexplained_bytes, snapshot.waterfall.rss_bytes
        if abs(unexplained) > UNEXPLAINED_SHARE * total:
            yield Finding(
                "unexplained",
                Severity.WARN,
                f"{size(abs(unexplained))}, {share_text(abs(unexplained), total)} of the resident "
                f"memory, {'are not explained' if unexplained > 0 else 'were counted twice'}.",
                _why_unexplained(snapshot),
                abs(unexplained),
            )
    if snapshot.unsettled_share:
        yield Finding(
            "unsettled",
            Severity.NOTE,
            unsettled_text(snapshot),
            "--freeze stops the process for an exact picture." if is_process else "",
        )
    for note in snapshot.notes:
        yield Finding("incomplete", Severity.NOTE, note, "")


def efficiency(snapshot: Snapshot) -> Iterator[Finding]:
    """How much of the heap's resident memory the program uses."""
    used = sum(_row(snapshot, name) for name in ("live", "slack", "large", "huge", "guarded"))
    foreign = sum(_row(snapshot, name) for name in (*FOREIGN, "unexplained"))
    held = _held_bytes(snapshot) - foreign
    if snapshot.waterfall is not None and held > 0:
        is_good = used >= 0.8 * held
        yield Finding(
            "efficiency",
            Severity.GOOD if is_good else Severity.NOTE,
            f"Of {size(held)} that the heap keeps resident, the program uses "
            f"{share_text(used, held)}: {size(used)}.",
            "",
            0,
        )


FINDERS: tuple[Finder, ...] = (
    sparse_slabs,
    empty_slabs,
    thread_caches,
    remote_frees,
    ended_threads,
    dirty_pages,
    quarantine,
    metadata,
    slack,
    dominant,
    foreign_memory,
    failures,
    accuracy,
    efficiency,
)
