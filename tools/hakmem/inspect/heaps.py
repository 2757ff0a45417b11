"""The heaps of a picture in words and sums: whose they are, and what they hold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from hakmem.inspect.facts import counter_names
from hakmem.inspect.layout import Layout
from hakmem.inspect.model import PAGE_BYTES, Heap, RunKind
from hakmem.inspect.picture import Picture

LATE = "late"


def describe_heaps(
    picture: Picture, layout: Layout, thread_names: Mapping[int, str]
) -> tuple[Heap, ...]:
    """Heaps in the order of their numbers; the late one only when it holds something."""
    count = len(picture.heaps)
    ids = picture.heaps["id"].astype(np.int64)
    slabs = picture.runs[picture.runs["kind"] == RunKind.SLAB]
    sizes = layout.block_bytes[slabs["class_index"]].astype(np.float64)
    owner_ids, owners = np.unique(slabs["heap_id"], return_inverse=True)

    def sums(values: npt.NDArray[np.float64]) -> dict[int, int]:
        totals = np.bincount(owners, values, len(owner_ids))
        return {int(key): int(total) for key, total in zip(owner_ids, totals, strict=True)}

    blocks = {
        name: sums(slabs[name].astype(np.float64))
        for name in ("live", "free", "cached", "remote", "quarantined")
    }
    sized = {name: sums(slabs[name] * sizes) for name in ("live", "free", "cached")}
    slab_bytes = sums(slabs["pages"].astype(np.float64) * PAGE_BYTES)
    slab_count = sums(np.ones(len(slabs)))
    names = counter_names(layout)
    states = {value: name.replace("_", " ") for value, name in layout.cache_states.items()}
    in_use = layout.root.constant("cache_state_in_use")
    heaps = []
    for row in np.argsort(ids, kind="stable"):
        number = int(ids[row])
        is_late = row == count - 1
        if is_late and number not in slab_count:
            continue
        cache = None if is_late else picture.caches[row]
        # Else it is that of the last thread, whose number may be another's by now.
        has_thread = cache is not None and int(cache["state"]) == in_use
        thread_id = int(cache["thread_id"]) if cache is not None and has_thread else 0
        counters = picture.heaps["counters"]["value"][row]
        heaps.append(
            Heap(
                id=number,
                state=LATE if cache is None else states.get(int(cache["state"]), "unknown"),
                thread_id=thread_id,
                thread_name=thread_names.get(thread_id, "") if thread_id else "",
                settled=int(picture.unsettled_blocks[row]) == 0,
                slabs=slab_count.get(number, 0),
                slab_bytes=slab_bytes.get(number, 0),
                live_blocks=blocks["live"].get(number, 0),
                live_bytes=sized["live"].get(number, 0),
                free_bytes=sized["free"].get(number, 0),
                cached_blocks=blocks["cached"].get(number, 0),
                cached_bytes=sized["cached"].get(number, 0),
                remote_blocks=blocks["remote"].get(number, 0),
                quarantined_blocks=blocks["quarantined"].get(number, 0),
                pending_blocks=0 if cache is None else int(picture.pending_blocks[row]),
                structure_bytes=0 if cache is None else _structure_bytes(picture, layout, int(row)),
                held_blocks=0 if cache is None else int(picture.held_blocks[row]),
                held_bytes=0 if cache is None else int(picture.held_bytes[row]),
                counters={
                    name: int(value)
                    for name, value in zip(names, counters, strict=False)
                    if int(value)
                },
            )
        )
    return tuple(heaps)


def _structure_bytes(picture: Picture, layout: Layout, row: int) -> int:
    nodes = int(picture.held.node_count[row]) if picture.held is not None else 0
    return layout.cache.itemsize + nodes * layout.node_bytes
