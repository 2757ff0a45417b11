"""From a recording to what is worth a try: changes of knobs and tables, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from hakmem.inspect.model import PAGE_BYTES
from hakmem.render import size
from hakmem.tune.classes import Fitted, demand_of, learn
from hakmem.tune.profile_file import Profile, Setting
from hakmem.tune.recording import Recording

# A learned table that the model gives less than this share of resident memory is not worth a run.
TABLE_SHARE_LEAST = 0.002
# Without a measurement only what stands out is proposed: parts above this share of what is
# resident.
SHARE_TO_PROPOSE = 0.05
# A small slab has the fewest pages (a power of two) that hold so many blocks.
SMALL_SLAB_BLOCKS = 8
SMALL_SLAB_PAGES_MOST = 8
PREWARM_CLASSES_MOST = 16
PREWARM_BLOCKS_MOST = 256
PREWARM_BLOCKS_LEAST = 32
# A profile with more of them to have ready counts for nothing (PROFILE_PREWARM_BYTES_MAX).
PREWARM_BYTES_MOST = 4 << 20


class Goal(StrEnum):
    TIME = "time"
    MEMORY = "memory"
    BALANCED = "balanced"


@dataclass(frozen=True)
class Change:
    """One thing that may be better for this program: settings, a table, or what to make ready. With
    `small_slabs` whatever table holds gets slabs of few blocks; `table` is then the default one,
    for when no other was chosen."""

    name: str
    reason: str
    settings: Mapping[str, str] = field(default_factory=dict)
    table: tuple[int, ...] = ()
    prewarm: tuple[tuple[int, int], ...] = ()
    small_slabs: bool = False


LITTLE_FREE = Change(
    "little free memory",
    "what is free beyond a megabyte goes back at once, and no empty slab or mapping waits for the "
    "next burst; caches stay as they are",
    {"excess_bytes": "1M", "retain_slabs": "0", "huge_cache_bytes": "0"},
)
LEAN = Change("lean mode", "small caches, early purge, nothing kept for later", {"mode": "lean"})
PURGE_SOON = Change(
    "purge soon",
    "free pages go back while the program still runs, and serve another size meanwhile",
    {"purge_delay_ms": "10", "slab_purge_delay_ms": "20", "decay_interval_ms": "20"},
)
PURGE_AT_ONCE = Change("purge at once", "empty runs go back at once", {"purge_delay_ms": "0"})
PURGE_LATE = Change(
    "purge late",
    "pages that the program frees for a while are not faulted in again",
    {"purge_delay_ms": "5000", "slab_purge_delay_ms": "10000"},
)
HUGE_PAGES = Change("huge pages", "fewer page faults and TLB misses", {"huge_pages": "always"})
LARGE_CACHES = Change(
    "large caches",
    "fewer operations reach the slabs",
    {"cache_start_bytes": "64K", "cache_class_bytes": "1M", "cache_heap_bytes": "16M"},
)
RETAIN = Change(
    "keep empty slabs", "bursts find their slabs as they left them", {"retain_slabs": "16"}
)
# What costs least time comes first: what it has saved already speaks no more for the others.
FOR_MEMORY = (LITTLE_FREE, PURGE_SOON, LEAN, PURGE_AT_ONCE)
FOR_TIME = (HUGE_PAGES, PURGE_LATE, LARGE_CACHES, RETAIN)


def table_change(recording: Recording) -> tuple[Change | None, Fitted]:
    """The learned table, unless the model sees next to nothing in it."""
    default = [row.block_bytes for row in recording.size_classes]
    fitted = learn(demand_of(recording), default)
    resident = max(moment.rss_bytes for moment in recording.moments)
    # With a profile's classes the places behind the last one repeat it.
    is_same = fitted.table == tuple(dict.fromkeys(default))
    if fitted.saved_bytes < TABLE_SHARE_LEAST * max(resident, 1) or is_same:
        return None, fitted
    reason = (
        f"{len(fitted.table)} size classes for the sizes that were asked for: blocks, slack and "
        f"partly used slabs take {size(int(fitted.bytes))} at their peaks instead of "
        f"{size(int(fitted.default_bytes))}, by the model"
    )
    return Change("size classes", reason, table=fitted.table), fitted


def small_slab_pages(block_bytes: int) -> int:
    """Pages of the smallest slab of a few blocks."""
    return min(SMALL_SLAB_PAGES_MOST, -(-SMALL_SLAB_BLOCKS * block_bytes // PAGE_BYTES))


def small_slabs_change(recording: Recording) -> Change:
    """Slabs of few blocks are empty sooner, and their pages then serve other sizes."""
    return Change(
        "small slabs",
        "slabs of few blocks are empty sooner, and their pages serve other sizes",
        table=tuple(row.block_bytes for row in recording.size_classes),
        small_slabs=True,
    )


def prewarm_change(recording: Recording, table: Sequence[int] = ()) -> Change | None:
    """What a thread has in use soon after its start, in the classes with most blocks."""
    first = recording.moments[0].requests
    sizes = list(table) or [row.block_bytes for row in recording.size_classes]
    below, wanted = 0, []
    for block_bytes in sizes:
        top = block_bytes // 16
        blocks = int(first[below + 1 : top + 1].sum()) // max(1, recording.threads)
        below = top
        if blocks >= PREWARM_BLOCKS_LEAST:
            wanted.append((block_bytes, min(blocks, PREWARM_BLOCKS_MOST)))
    wanted.sort(key=lambda pair: pair[1], reverse=True)
    chosen = sorted(wanted[:PREWARM_CLASSES_MOST])
    if not chosen:
        return None
    return Change(
        "prewarm",
        "what a thread has in use soon after its start, in one batch",
        prewarm=tuple(chosen),
    )


def changes(recording: Recording, goal: Goal) -> list[Change]:
    """What to try for a goal, in the order in which it is tried."""
    table, _ = table_change(recording)
    found = [table] if table is not None else []
    if goal in (Goal.MEMORY, Goal.BALANCED):
        found += [small_slabs_change(recording), *FOR_MEMORY]
    if goal in (Goal.TIME, Goal.BALANCED):
        found += FOR_TIME
        prewarm = prewarm_change(recording)
        found += [prewarm] if prewarm is not None else []
    return found


def unmeasured(recording: Recording, goal: Goal) -> list[Change]:
    """What a recording alone speaks for."""
    table, _ = table_change(recording)
    found = [table] if table is not None else []
    peak = recording.peak
    resident = max(peak.rss_bytes, 1)
    if goal is not Goal.TIME:
        cached = peak.parts.get("cached_bytes", 0) + peak.parts.get("cache_structure_bytes", 0)
        if cached > SHARE_TO_PROPOSE * resident:
            found.append(LEAN)
        unused = peak.parts.get("dirty_bytes", 0) + peak.parts.get("slab_free_bytes", 0)
        if unused > SHARE_TO_PROPOSE * resident:
            found.append(PURGE_SOON)
    if goal is not Goal.MEMORY and resident > 256 << 20:
        found.append(HUGE_PAGES)
    return found


def _made_ready(
    prewarm: Sequence[tuple[int, int]], table: Sequence[int]
) -> tuple[tuple[int, int], ...]:
    """The same by the classes of a table (empty: of the one they were made for): each class once,
    the small ones first, and no more than a profile may have."""
    wanted: dict[int, int] = {}
    for request_bytes, count in prewarm:
        block_bytes = next((each for each in table if each >= request_bytes), request_bytes)
        wanted[block_bytes] = max(count, wanted.get(block_bytes, 0))
    ready: list[tuple[int, int]] = []
    left = PREWARM_BYTES_MOST
    for block_bytes, count in sorted(wanted.items()):
        blocks = min(count, left // block_bytes)
        if blocks:
            ready.append((block_bytes, blocks))
            left -= blocks * block_bytes
    return tuple(ready)


def compose(
    chosen: Sequence[Change],
    reasons: Mapping[str, str] | None = None,
    *,
    build_id: str = "",
    version: str = "",
) -> Profile:
    """The profile that all these changes make; of two values of an option the later holds.
    `reasons` are by a change's name and replace its own."""
    told = reasons or {}
    holds = {name: change for change in chosen for name in change.settings}
    settings: list[Setting] = []
    table: tuple[int, ...] = ()
    prewarm: tuple[tuple[int, int], ...] = ()
    classes_reason = prewarm_reason = ""
    small = False
    for change in chosen:
        reason = told.get(change.name, change.reason)
        own = [name for name in change.settings if holds[name] is change]
        settings += [
            Setting(name, change.settings[name], "" if place else reason)
            for place, name in enumerate(own)
        ]
        if change.small_slabs:
            small = True
            classes_reason = f"{classes_reason} {reason}".strip()
            table = table or change.table
        elif change.table:
            table, classes_reason = change.table, f"{reason} {classes_reason}".strip()
        if change.prewarm:
            prewarm, prewarm_reason = change.prewarm, reason
    return Profile(
        settings=tuple(settings),
        size_classes=tuple(
            (block_bytes, small_slab_pages(block_bytes) if small else None) for block_bytes in table
        ),
        prewarm=_made_ready(prewarm, table),
        build_id=build_id,
        version=version,
        classes_reason=classes_reason,
        prewarm_reason=prewarm_reason,
    )
