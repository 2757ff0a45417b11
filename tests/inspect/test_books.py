"""What the process says of its own heap, and what is seen from outside, is the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hakmem.inspect.targets import take
from hakmem.metrics.families import Look, families, metric_name
from hakmem.options import read_counters
from tests.inspect.support.targets import ROOT, await_line, compile_program, preloaded, running

# What telling them moves: looks at the clock, and the calls that made the file.
MOVING = {"os_clock", "ticks"}
# Of the block that comes and goes.
PEAK_BYTES = 256 << 20
# Another table of size classes than the library's own.
ODD_PROFILE = ROOT / "tests/model/odd.profile"


@pytest.mark.parametrize("mode", ["fast", "lean", "hardened", "profile"])
def test_stats_json_and_inspect_agree(tmp_path: Path, mode: str) -> None:
    settings = {"HAKMEM_MODE": mode}
    if mode == "profile":
        settings = {"HAKMEM_PROFILE": str(ODD_PROFILE)}
    program = compile_program("books.c", tmp_path / "books", f"-I{ROOT / 'include'}")
    file = tmp_path / "books.json"
    environment = preloaded(**settings, HAKMEM_GUARD_SAMPLE="100")
    with running([program, file], environment) as process:
        await_line(process, "ready")
        snapshot = take(str(process.pid), freeze=True)
    told = json.loads(file.read_text(encoding="utf-8"))
    assert snapshot.notes == ()
    # Blocks on their way back, and held back, are free to the books: the program has freed them.
    between = {row.index: row.remote_blocks + row.quarantined_blocks for row in snapshot.classes}
    assert sum(between.values()) > 0
    gauges = told["gauges"]
    assert snapshot.gauges == gauges
    assert gauges["mapped_bytes_max"] > gauges["mapped_bytes"] + PEAK_BYTES // 2
    assert gauges["large_blocks"] > 0
    assert gauges["huge_blocks"] > 0
    assert gauges["guarded_blocks"] > 0
    counters = {name: value for name, value in told["counters"].items() if name not in MOVING}
    assert counters == {name: snapshot.counters[name] for name in counters}
    assert set(told["counters"]) == set(snapshot.counters)
    rows = read_counters(ROOT / "src/config/counters.def")
    metrics = families([Look(snapshot.pid, snapshot)], rows)
    assert {metric_name(row) for row in rows} <= {each.name for each in metrics if each.samples}
    classes = {row["block_bytes"]: row for row in told["size_classes"]}
    if mode == "profile":
        assert list(classes) == [16, 48, 112, 1008, 3024, 20000, 40016, 65536]
    for row in snapshot.classes:
        if row.slabs:
            said = classes[row.block_bytes]
            assert said["live_blocks"] == row.live_blocks
            assert said["cached_blocks"] == row.cached_blocks
            assert said["free_blocks"] == row.free_blocks + between[row.index]
