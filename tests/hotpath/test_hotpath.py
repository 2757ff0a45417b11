"""Both hot paths of the built library, instruction by instruction, against the committed table."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness import callgrind, disassembly, gate

TABLE = Path(__file__).parent / "table.json"
# Too few addresses for the reservation, and enough for callgrind.
FEW_ADDRESSES_BYTES = 14 << 30


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    return gate.load(TABLE)


@pytest.fixture(scope="module")
def code(library: Path) -> disassembly.Disassembly:
    return disassembly.read(library)


@pytest.fixture(scope="module")
def known(library: Path, table: dict[str, Any]) -> dict[str, Any] | None:
    """The rows of this library's compiler; None when the table has none, and limits must do."""
    compiler = gate.compiler_of(library)
    rows: dict[str, Any] | None = table["compilers"].get(compiler)
    if rows is None:
        print(f"the table has no row for '{compiler}': held to the limits only")
    return rows


@pytest.fixture(scope="module")
def single(library: Path) -> tuple[callgrind.Counts, int]:
    return gate.count_pattern(library, "single")


def test_paths_keep_the_limits(code: disassembly.Disassembly, table: dict[str, Any]) -> None:
    paths = gate.paths(code)
    assert set(paths) == {*gate.ALLOCATING, *gate.FREEING}
    problems = [
        problem
        for name, path in paths.items()
        for problem in gate.path_problems(path, table["limits"][name])
    ]
    assert not problems, "\n".join(problems)


def test_nothing_is_chosen_at_load_time(library: Path) -> None:
    assert gate.load_time_choices(library) == []


def test_bits_are_counted_in_line(library: Path) -> None:
    """Without -mpopcnt GCC calls its library, once for each word that a flush gives back."""
    done = subprocess.run(["nm", str(library)], capture_output=True, text=True, check=True)
    names = {line.split()[-1] for line in done.stdout.splitlines()}
    assert "heap_put" in names
    assert "__popcountdi2" not in names


def test_paths_equal_the_table(code: disassembly.Disassembly, known: dict[str, Any] | None) -> None:
    found = {name: gate.path_figures(path) for name, path in gate.paths(code).items()}
    assert all(figures["instructions"] > 1 for figures in found.values())
    if known is not None:
        problems = gate.differences(known["paths"], found, 0)
        assert not problems, "\n".join([*problems, "if this is meant: tests/hotpath/update"])


def test_counted_run_takes_the_static_paths(
    library: Path, code: disassembly.Disassembly, single: tuple[callgrind.Counts, int]
) -> None:
    counts, pairs = single
    problems = gate.unconfirmed(library, counts, pairs, code)
    assert not problems, "\n".join(problems)


def test_pair_costs_what_the_table_says(
    library: Path,
    single: tuple[callgrind.Counts, int],
    table: dict[str, Any],
    known: dict[str, Any] | None,
) -> None:
    found = gate.pair_figures(library, *single)
    limits = table["limits"]
    most = limits["malloc"]["instructions"] + limits["free"]["instructions"]
    assert found["library"] <= most
    if known is not None:
        assert gate.differences(known["pairs"]["single"], found, 0) == []


def test_slow_halves_cost_what_the_table_says(
    library: Path, table: dict[str, Any], known: dict[str, Any] | None
) -> None:
    """Amortised costs: the clock is read on these paths, so they repeat to within a tolerance."""
    found: dict[str, Any] = {"pairs": {}}
    for name in ("hundred", "storm", "watched", "asked", "resized", "hardened"):
        counts, pairs = gate.count_pattern(library, name)
        found["pairs"][name] = gate.pair_figures(library, counts, pairs)
        if name == "storm":
            found["slow"] = gate.slow_figures(counts)
    limits = table["limits"]["pairs"]
    for name, limit in limits.items():
        assert found["pairs"][name]["library"] <= limit, name
    if known is not None:
        expected = {
            "pairs": {name: known["pairs"][name] for name in found["pairs"]},
            "slow": known["slow"],
        }
        problems = gate.differences(expected, found, table["tolerance_percent"])
        assert not problems, "\n".join([*problems, "if this is meant: tests/hotpath/update"])


@contextmanager
def few_addresses() -> Iterator[None]:
    """Processes that are started meanwhile may have no more."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (FEW_ADDRESSES_BYTES, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def test_frees_without_the_flat_map_are_nearly_hits(library: Path, table: dict[str, Any]) -> None:
    """Where addresses are limited each free looks its page up, and then takes the same magazine."""
    with few_addresses():
        counts, pairs = gate.count_pattern(library, "single")
    found = gate.pair_figures(library, counts, pairs)
    limits = table["limits"]
    hits = limits["malloc"]["instructions"] + limits["free"]["instructions"]
    assert hits < found["library"] <= limits["without_flat_map"]["instructions"]


def test_naming_the_default_mode_changes_nothing(
    library: Path, single: tuple[callgrind.Counts, int]
) -> None:
    named, _ = gate.count_pattern(library, "single", {"HAKMEM_MODE": "fast"})
    assert callgrind.in_file(named, library) == callgrind.in_file(single[0], library)


def test_research_mode_is_the_same_binary(
    library: Path, code: disassembly.Disassembly, single: tuple[callgrind.Counts, int]
) -> None:
    """Research mode enters malloc and free at the same addresses of the same file (the run's own
    proof names it) and leaves both hit paths before they end: nothing on them asks for a mode."""
    counts, pairs = gate.count_pattern(library, "single", {"HAKMEM_MODE": "research"})
    research = callgrind.in_file(counts, library)
    fast = callgrind.in_file(single[0], library)
    proofs = [dict(run.row["proof"]) for run in (counts, single[0])]
    for proof in proofs:
        proof.pop("moved")  # by the work of the run, which differs
    assert proofs[0] == proofs[1]
    for name, block in (("malloc", "result"), ("free", "argument")):
        path = code.hit_path(name, block)
        assert research[path.addresses[0]] == fast[path.addresses[0]] == pairs
        assert research.get(path.addresses[-1], 0) == 0, f"{name} was not diverted"
    assert sum(research.values()) > 2 * sum(fast.values())
