"""What thread caches hold: the blocks in magazines and depots.

A cache belongs to its thread, which pops and pushes without a lock. Its tops are read before and
after the nodes they point into; what moved meanwhile is said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hakmem.inspect import facts
from hakmem.inspect.errors import DamagedError
from hakmem.inspect.layout import Layout, offset_of
from hakmem.inspect.memory import Addresses, MemorySource

# 16 million blocks in all depots together: more needs as much metadata, or is damaged.
DEPOT_NODES_MAX = 1 << 18
Caches = npt.NDArray[Any]


@dataclass
class Held:
    """`pointers` are the blocks in magazines and depots, `owners` whose: the row of each in the
    table of caches."""

    pointers: Addresses
    owners: npt.NDArray[np.int64]
    node_count: npt.NDArray[np.int64]  # of each cache
    moved_blocks: int  # that came or went while this was read


def _tops(layout: Layout, caches: Caches) -> Addresses:
    tops: Addresses = np.where(
        caches["diverted"][:, None] != 0, caches["shadow_top"], caches["top"]
    )
    return tops[:, layout.class_tops]


def _read_tops(
    layout: Layout, source: MemorySource, places: Addresses, caches: Caches
) -> Addresses:
    """The tops as they are now; a row that cannot be read stays as it was."""
    before = _tops(layout, caches)
    if len(places) == 0:
        return before
    first = layout.class_tops.start * 8
    offsets = [offset_of(layout.cache, name) + first for name in ("top", "shadow_top")]
    diverted = caches["diverted"] != 0
    addresses = places + np.where(diverted, np.uint64(offsets[1]), np.uint64(offsets[0]))
    data, readable = source.gather(addresses, before.shape[1] * 8)
    now = data.reshape(-1).view("<u8").reshape(before.shape)
    return np.where(readable[:, None], now, before)


def empty_nodes(caches: Caches) -> npt.NDArray[np.int64]:
    """Nodes that each cache has beside those in use. An older library has up to one a class."""
    if "empty_node_count" in (caches.dtype.names or ()):
        return np.array(caches["empty_node_count"], np.int64)
    spare: npt.NDArray[np.bool_] = caches["magazines"]["spare"] != 0
    return np.asarray(spare.sum(axis=1), np.int64)


def read_held(layout: Layout, source: MemorySource, places: Addresses, caches: Caches) -> Held:
    """`caches` are the rows read from `places`; only those in use, and those whose thread left its
    blocks behind, hold something."""
    filled = np.flatnonzero(np.isin(caches["state"], layout.filled_states))
    chosen = caches[filled]
    magazines = chosen["magazines"]
    tops = _tops(layout, chosen)
    slots = layout.node_slots
    # A magazine's blocks lie in slots floor + 1 up to the one below top.
    has_node = magazines["node"] != 0
    fill = (tops.astype(np.int64) - magazines["node"].astype(np.int64)) // 8
    fill = np.where(has_node & (fill >= 0) & (fill <= slots), fill, 0)
    rows, classes = np.nonzero(has_node)
    data, readable = source.gather(magazines["node"][rows, classes], layout.node_bytes)
    nodes = data.reshape(-1).view("<u8").reshape(-1, slots)
    slot = np.arange(slots)
    low = magazines["floor"][rows, classes].astype(np.int64)[:, None]
    inside = (slot > low) & (slot < fill[rows, classes][:, None]) & readable[:, None]
    parts = [nodes[inside]]
    owners = [np.repeat(filled[rows], inside.sum(axis=1))]
    room = facts.metadata_bytes(source, layout) // layout.node_bytes
    most = max(DEPOT_NODES_MAX, room)
    depot_pointers, depot_owners = _read_depots(layout, source, magazines, filled, most)
    node_count = np.zeros(len(caches), np.int64)
    node_count[filled] = (
        has_node.sum(axis=1)
        + empty_nodes(chosen)
        + magazines["depot_count"].astype(np.int64).sum(axis=1)
    )
    after = _read_tops(layout, source, places[filled], chosen)
    changed = np.abs((after.astype(np.int64) - tops.astype(np.int64)) // 8)
    moved = int(np.minimum(changed[has_node], slots).sum())
    return Held(
        pointers=np.concatenate([*parts, depot_pointers]).astype(np.uint64),
        owners=np.concatenate([*owners, depot_owners]),
        node_count=node_count,
        moved_blocks=moved,
    )


def _read_depots(
    layout: Layout,
    source: MemorySource,
    magazines: npt.NDArray[Any],
    filled: npt.NDArray[np.int64],
    most: int,
) -> tuple[Addresses, npt.NDArray[np.int64]]:
    """All depots level by level: the first node of each, then what those are linked to. `most`:
    nodes that there can be."""
    rows, classes = np.nonzero(magazines["depot_count"])
    links = magazines["depot"][rows, classes].astype(np.uint64)
    left = magazines["depot_count"][rows, classes].astype(np.int64)
    pointers: list[Addresses] = [np.empty(0, np.uint64)]
    owners: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)]
    read = 0
    while True:
        going = (left > 0) & (links != 0)
        rows, links, left = rows[going], links[going], left[going]
        if len(rows) == 0:
            break
        read += len(rows)
        if read > most:
            raise DamagedError("the depots of the target's thread caches have no end")
        data, readable = source.gather(links, layout.node_bytes)
        rows, left = rows[readable], left[readable] - 1
        nodes = data[readable].reshape(-1).view("<u8").reshape(-1, layout.node_slots)
        pointers.append(nodes[:, 1:].reshape(-1).astype(np.uint64))
        owners.append(np.repeat(filled[rows], layout.node_slots - 1))
        links = nodes[:, 0].astype(np.uint64)
    return np.concatenate(pointers), np.concatenate(owners)
