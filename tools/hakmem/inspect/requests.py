"""What the small blocks in use were asked for: the sizes that slabs keep beside their bitmaps while
the option request_sizes (with research) or slack_check is on."""

from __future__ import annotations

import numpy as np

from hakmem.inspect.layout import Layout, read_option
from hakmem.inspect.memory import MemorySource
from hakmem.inspect.model import PAGE_BYTES, REQUEST_STEP_BYTES, BlockState, RunKind
from hakmem.inspect.picture import Picture, chunks


def live_requests(source: MemorySource, layout: Layout, picture: Picture) -> tuple[int, ...] | None:
    """Live blocks of slabs by the size they were asked for: at place i those of up to i times 16
    bytes, and more than i - 1 times. A block whose size nobody noted counts with its own. None when
    the target keeps none."""
    if not any(read_option(source, layout, name) for name in ("request_sizes", "slack_check")):
        return None
    steps = PAGE_BYTES // REQUEST_STEP_BYTES + 1
    total = np.zeros(steps, np.int64)
    runs = picture.runs
    rows = np.flatnonzero(runs["kind"] == RunKind.SLAB)
    raw, readable = source.gather_rows(picture.run_places[rows], layout.run)
    # A slab that went meanwhile, and its pages into another one, is left out.
    same = readable & (raw["class_index"] == runs["class_index"][rows])
    rows, raw = rows[same], raw[same]
    for class_index in np.unique(runs["class_index"][rows]):
        size_class = layout.size_classes[class_index]
        chosen = np.flatnonzero(runs["class_index"][rows] == class_index)
        for chunk in chunks(runs, rows[chosen]):
            words = np.zeros(chunk.index.shape, np.uint64)
            for state in BlockState:
                if state in picture.planes:
                    words |= picture.planes[state][chunk.index]
            bits = np.unpackbits(words.view(np.uint8), axis=1, bitorder="little")
            live = bits[:, : size_class.block_count] == 0
            slabs = raw[chosen[chunk.rows]]
            # Behind both bitmaps, of which the second begins where the first one's place ends.
            places = slabs["remote_bits"] + (slabs["remote_bits"] - slabs["free_bits"])
            data, _ = source.gather(places, size_class.block_count * 2)
            asked = data.view("<u2")[live].astype(np.int64)
            asked = np.where(asked == 0, size_class.block_bytes, asked)
            asked = np.minimum(asked, size_class.block_bytes)
            total += np.bincount(-(-asked // REQUEST_STEP_BYTES), minlength=steps)
    return tuple(total.tolist())
