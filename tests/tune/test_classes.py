"""The dynamic programme against brute force, and what every learned table has to be."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hakmem.tune.classes import ALIGNMENTS, SMALL_BYTES_MAX, Demand, Model, candidates, fit, learn

DEFAULT = [
    *range(16, 257, 16),
    *((4 + step) << shift for shift in range(6, 14) for step in range(1, 5)),
]
STEPS = SMALL_BYTES_MAX // 16 + 1


def demand(*moments: dict[int, int], heaps: float = 1.0) -> Demand:
    """Live blocks by bytes asked for, at each moment."""
    blocks = np.zeros((len(moments), STEPS), np.int64)
    for row, moment in enumerate(moments):
        for size, count in moment.items():
            blocks[row, -(-size // 16)] += count
    return Demand(blocks, heaps)


SIZES = st.integers(1, 40).map(lambda step: step * 16) | st.sampled_from([5008, 8208, 20000, 65536])
MOMENT = st.dictionaries(SIZES, st.integers(0, 5000), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(MOMENT, min_size=1, max_size=3), st.integers(2, 5), st.booleans())
def test_no_table_is_cheaper(moments: list[dict[int, int]], most: int, has_required: bool) -> None:
    model = Model(demand(*moments))
    asked = {-(-size // 16) for moment in moments for size in moment}
    places = sorted(asked | {8, SMALL_BYTES_MAX // 16})[-9:]
    required = [places[len(places) // 2]] if has_required else []
    found = fit(model, places, required, most, is_bounded=False)
    must = {16 * step for step in required}
    cheapest = min(
        model.table_bytes([*(16 * step for step in chosen), SMALL_BYTES_MAX])
        for count in range(most)
        for chosen in itertools.combinations(places[:-1], count)
        if must <= {*(16 * step for step in chosen), SMALL_BYTES_MAX}
    )
    assert model.table_bytes(found) == pytest.approx(cheapest)
    assert len(found) <= most
    assert must <= set(found)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(MOMENT, min_size=1, max_size=4), st.integers(1, 64))
def test_learned_tables_are_legal(moments: list[dict[int, int]], heaps: int) -> None:
    fitted = learn(demand(*moments, heaps=float(heaps)), DEFAULT)
    table = list(fitted.table)
    assert table == sorted(set(table))
    assert len(table) <= len(DEFAULT)
    assert table[-1] == SMALL_BYTES_MAX
    assert all(size % 16 == 0 for size in table)
    assert set(ALIGNMENTS) <= set(table)
    assert fitted.bytes <= fitted.default_bytes
    for below, size in itertools.pairwise([0, *table]):
        assert size - below <= max(32, below / 3)


def test_a_table_is_learned_where_a_profile_of_few_classes_is_in_force() -> None:
    """The places behind its last class repeat that one."""
    in_force = [64, 1024, *[SMALL_BYTES_MAX] * 70]
    fitted = learn(demand({24: 20000, 1040: 3000}), in_force)
    table = list(fitted.table)
    assert {32, 1040, SMALL_BYTES_MAX} <= set(table)
    assert table == sorted(set(table)) and len(table) <= len(in_force)
    for below, top in itertools.pairwise([0, *table]):
        assert top - below <= max(below / 3, 32)
    assert fitted.saved_bytes > 0


def test_a_size_that_is_asked_for_often_is_a_class() -> None:
    fitted = learn(demand({8208: 10_000, 100: 10}), DEFAULT)
    assert 8208 in fitted.table
    assert fitted.saved_bytes > 0.15 * fitted.default_bytes


def test_sizes_that_take_turns_share_a_class() -> None:
    """Slabs of one class serve the other size when its blocks are gone."""
    turns = learn(demand({1040: 5000}, {1056: 5000}), DEFAULT).table
    together = learn(demand({1040: 5000, 1056: 5000}), DEFAULT).table
    assert {1040, 1056} & set(turns) == {1056}
    assert {1040, 1056} <= set(together)


def test_few_blocks_are_not_worth_a_class() -> None:
    fitted = learn(demand({1040: 2, 1088: 5000}), DEFAULT)
    assert 1040 not in fitted.table
    assert 1088 in fitted.table


def test_untouched_pages_of_a_large_block_cost_nothing() -> None:
    model = Model(demand({20_000: 1000}), unseen_share=0.0)
    near, far = model.table_bytes([20_000, 65536]), model.table_bytes([65536])
    assert far - near == pytest.approx(1000 * 4096, rel=0.05)


def test_candidates_are_bounded() -> None:
    many = demand({16 * step: 4096 - step for step in range(1, 4096)})
    places = candidates(many, DEFAULT)
    assert len(places) <= 400
    assert {size // 16 for size in (*DEFAULT, *ALIGNMENTS)} <= set(places)


@pytest.mark.parametrize(("required", "most"), [([3], 9), ([2, 4, 8], 3)])
def test_impossible_limits_are_refused(required: list[int], most: int) -> None:
    with pytest.raises(ValueError, match="required sizes"):
        fit(Model(demand({100: 1})), [2, 4, 8, 4096], required, most, is_bounded=False)


def test_places_too_far_apart_are_refused() -> None:
    with pytest.raises(ValueError, match="too far apart"):
        fit(Model(demand({100: 1})), [2, 4, 4096], [], 9)
