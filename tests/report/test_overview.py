"""The figures of a page's first screen."""

from __future__ import annotations

from dataclasses import replace

from hakmem.inspect.model import GuardedBlock
from hakmem.report.overview import header
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
