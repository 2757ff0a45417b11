"""The model: counts that agree with the blocks, and JSON that comes back as it was."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from hakmem.inspect import held, jsonform
from hakmem.inspect.model import BlockState, RunKind, Snapshot
from tests.inspect.support.synthetic import make_snapshot


def test_each_block_of_a_slab_is_counted_once() -> None:
    snapshot = make_snapshot()
    assert len(snapshot.slabs) > 100
    for slab in snapshot.slabs:
        states = snapshot.blocks(slab)
        found = np.bincount(states, minlength=len(BlockState))
        counted = [slab[state.name.lower()] for state in BlockState]
        assert found.tolist() == counted
        assert sum(counted) == slab["block_count"]


def test_sums_over_classes_and_heaps_agree() -> None:
    snapshot = make_snapshot(seed=11, superslab_count=5)
    live = int(snapshot.slabs["live"].sum())
    assert live > 0
    assert sum(row.live_blocks for row in snapshot.classes) == live
    assert sum(heap.live_blocks for heap in snapshot.heaps) == live
    assert int(snapshot.heap_classes["live"].sum()) == live
    for row in snapshot.classes:
        assert sum(row.fullness) == row.slabs


def test_a_large_run_has_no_blocks() -> None:
    snapshot = make_snapshot()
    assert len(snapshot.large) > 0
    with pytest.raises(ValueError, match="only a slab"):
        snapshot.blocks(snapshot.large[0])


def _same(first: Snapshot, second: Snapshot) -> bool:
    return jsonform.encode(first, "blocks") == jsonform.encode(second, "blocks")


def test_json_comes_back_as_it_was() -> None:
    snapshot = make_snapshot()
    again = jsonform.decode(json.loads(json.dumps(jsonform.encode(snapshot, "blocks"))))
    assert _same(snapshot, again)
    assert not _same(snapshot, make_snapshot(seed=8))
    slab = again.slabs[0]
    assert slab["kind"] == RunKind.SLAB
    assert again.blocks(slab).tolist() == snapshot.blocks(snapshot.slabs[0]).tolist()


@pytest.mark.parametrize("detail", jsonform.DETAILS)
def test_less_detail_is_a_snapshot_too(detail: str) -> None:
    snapshot = make_snapshot()
    again = jsonform.decode(json.loads(json.dumps(jsonform.encode(snapshot, detail))))
    assert again.classes == snapshot.classes
    assert again.waterfall == snapshot.waterfall
    assert bool(again.planes) == (detail == "blocks")


def _damaged(**changes: object) -> dict[str, Any]:
    facts = json.loads(json.dumps(jsonform.encode(make_snapshot(), "blocks")))
    facts.update(changes)
    return dict(facts)


def _crowded() -> object:
    """Runs of which each has more blocks than a slab can."""
    runs = jsonform.encode(make_snapshot(superslab_count=1), "runs")["runs"]
    return {**runs, "block_count": [65535] * len(runs["block_count"])}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ([], "no schema"),
        ({"schema": "hakmem.run/1"}, "hakmem.run/1"),
        ({"schema": jsonform.SCHEMA}, "'detail' is missing|'origin' is missing"),
        (_damaged(pid="7"), "pid"),
        (_damaged(heaps=[{"id": 1}]), "missing"),
        (_damaged(runs={}), "missing"),
        (_damaged(planes={"free": {"words": 1, "zlib_base64": "!"}}), "no whole snapshot"),
        (_damaged(planes={"free": {"words": 1 << 60, "zlib_base64": ""}}), "too long"),
        (_damaged(planes={"free": jsonform._pack(np.zeros(1 << 16, np.uint64))}), "too long"),
        (_damaged(runs=_crowded()), "more blocks than fit"),
        (_damaged(superslabs={"start": []}), "missing"),
        (_damaged(origin="dream"), "dream"),
        (_damaged(taken_ns=10**30), "taken_ns is out of range"),
        (_damaged(taken_ns=1 << 63), "taken_ns is out of range"),
        (_damaged(taken_ns=-1), "taken_ns is out of range"),
    ],
)
def test_other_json_is_refused_in_a_sentence(facts: object, words: str) -> None:
    with pytest.raises(jsonform.SchemaError, match=words):
        jsonform.decode(facts)


def test_empty_nodes_of_a_cache_and_of_an_older_library() -> None:
    """A cache counts them; in an older library each class has up to one."""
    counted = np.zeros(2, [("empty_node_count", "<u4"), ("magazines", [("node", "<u8")], 3)])
    counted["empty_node_count"] = [0, 5]
    assert held.empty_nodes(counted).tolist() == [0, 5]
    older = np.zeros(2, [("magazines", [("spare", "<u8")], 3)])
    older["magazines"]["spare"][1] = [1 << 21, 0, 1 << 22]
    assert held.empty_nodes(older).tolist() == [0, 2]
