"""The figures of a page's first screen, and of its table of size classes."""

from __future__ import annotations

import re
from dataclasses import replace

from hakmem.inspect.model import GuardedBlock
from hakmem.report.overview import header
from hakmem.report.tables import classes
from tests.inspect.support.synthetic import make_snapshot

MIB = 1 << 20


def test_live_blocks_are_all_that_the_program_holds() -> None:
    made = make_snapshot()
    small = sum(row.live_bytes for row in made.classes)
    large, huge = int(made.large["large_bytes"].sum()), 6 * MIB
    guarded = (GuardedBlock(4096, 3000, "live"), GuardedBlock(16384, 4000, "freed"))
    snapshot = replace(made, guarded=guarded)
    live = small + large + huge + 3000
    assert snapshot.live_bytes == live
    assert f'data-value="{live}"' in header(snapshot)


def test_classes_and_their_sums() -> None:
    made = make_snapshot()
    rows = [row for row in made.classes if row.slabs]
    remote = [row.remote_blocks * row.block_bytes for row in rows]
    assert sum(remote) > max(remote) > 0
    drawn = re.findall(r'data-value="([0-9.]+)"', classes(made))
    for cached, blocks in zip((row.cached_bytes for row in rows), remote, strict=True):
        assert drawn[drawn.index(str(cached)) + 1] == str(blocks)
    assert str(sum(remote)) in drawn
