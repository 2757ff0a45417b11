"""Where the resident memory of a process is: rows that add up to /proc/PID/smaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hakmem.inspect.memory import Area
from hakmem.inspect.model import WATERFALL, BlockState, Waterfall, WaterfallRow
from hakmem.inspect.residency import Residency
from hakmem.render import size

NOTES = {
    "live": "small blocks the program holds",
    "slack": "what those are larger than what was asked for",
    "large": "blocks above 64 KiB",
    "huge": "blocks above 2 MiB",
    "guarded": "sampled blocks between guard pages",
    "cached": "free blocks ready in thread caches",
    "remote": "freed by other threads, on their way back",
    "quarantined": "freed, held back before reuse",
    "slab_free": "free inside slabs",
    "dirty": "free pages not yet given back",
    "huge_kept": "freed huge mappings kept for reuse",
    "metadata": "hakmem's own structures and page map",
    "library": "the library that holds hakmem",
    "program": "the program's file",
    "libraries": "other files",
    "stacks": "",
    "other": "",
    "unexplained": "what changed while it was looked at",
}
UNEXPLAINED_FROZEN = "where smaps and pagemap do not agree"
GROUPS_SHOWN = 4


@dataclass(frozen=True)
class Target:
    """What tells a target's own files, as they were mapped: the program, and the file that holds
    hakmem."""

    exe: str
    library: str


def compose(
    areas: Sequence[Area],
    found: Residency,
    states: Mapping[BlockState, int],
    slab_bytes: int,
    large_bytes: int,
    slack_bytes: int,
    stacks: Sequence[int],
    target: Target,
    *,
    frozen: bool = False,
) -> Waterfall:
    """`slab_bytes` and `large_bytes` are the resident bytes of runs, `stacks` addresses in them."""
    rows = dict.fromkeys(WATERFALL, 0)
    rows["slack"] = min(slack_bytes, states[BlockState.LIVE])
    rows["live"] = states[BlockState.LIVE] - rows["slack"]
    rows["cached"] = states[BlockState.CACHED]
    rows["remote"] = states[BlockState.REMOTE]
    rows["quarantined"] = states[BlockState.QUARANTINED]
    used = sum(states[state] for state in BlockState if state != BlockState.FREE)
    rows["slab_free"] = slab_bytes - used
    rows["large"] = large_bytes
    rows["dirty"] = found.kinds.get("superslab", 0) - slab_bytes - large_bytes
    for name in ("huge", "huge_kept", "guarded", "metadata"):
        rows[name] = found.kinds.get(name, 0)
    others: dict[str, int] = {}
    for area, group, label in _group(areas, stacks, target):
        rest = found.rest.get(area.start, area.rss_bytes or 0)
        rows[group] += rest
        if group == "other" and rest:
            others[label] = others.get(label, 0) + rest
    total = sum(area.rss_bytes or 0 for area in areas)
    rows["unexplained"] = total - sum(rows.values())
    notes = {**NOTES, "other": _list(others)}
    if frozen:
        notes["unexplained"] = UNEXPLAINED_FROZEN
    return Waterfall(
        tuple(WaterfallRow(name, rows[name], notes[name]) for name in WATERFALL), total
    )


def _group(
    areas: Sequence[Area], stacks: Sequence[int], target: Target
) -> list[tuple[Area, str, str]]:
    """The row that each area belongs to, and a word for it. Memory right behind a file's data is
    that file's too: it is what the file has no bytes for."""
    groups: list[tuple[Area, str, str]] = []
    behind: Area | None = None
    ordered = sorted(stacks)
    at = 0
    for area in areas:
        while at < len(ordered) and ordered[at] < area.start:
            at += 1
        has_stack = at < len(ordered) and ordered[at] < area.end
        name = area.path
        if not name and behind is not None and behind.end == area.start and area.writable:
            name = behind.path
        group, label = _name(name, has_stack, target)
        groups.append((area, group, label))
        behind = area if area.is_file else None
    return groups


def _name(name: str, has_stack: bool, target: Target) -> tuple[str, str]:
    if name.startswith("/") and name == target.library != target.exe:
        return "library", name
    if name and name == target.exe:
        return "program", name
    if has_stack or name.startswith("[stack"):
        return "stacks", "stacks"
    if name.startswith(("/dev/zero", "/memfd:", "/SYSV", "/dev/shm")):
        return "other", "shared memory"
    if name.startswith("/"):
        return "libraries", name
    return "other", name or "anonymous"


def _list(groups: Mapping[str, int]) -> str:
    largest = sorted(groups.items(), key=lambda item: -item[1])
    words = [f"{name} {size(count)}" for name, count in largest[:GROUPS_SHOWN]]
    rest = sum(count for _, count in largest[GROUPS_SHOWN:])
    return ", ".join([*words, *([f"more {size(rest)}"] if rest else [])])
