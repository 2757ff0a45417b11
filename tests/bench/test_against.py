"""Two allocators of one session against each other, on made-up rows whose verdicts are known."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import made_up
import pytest

from hakmem.options import read_options
from hakmem.project import find_project
from harness import identity, peers
from harness.errors import BenchError
from harness.report import against, results
from tests.cli.support import named_json

EVEN = (0.0, 0.004, -0.004, 0.002, -0.002)
# Every block has a disturbance of its own, which both allocators feel.
BLOCKS = (1.0, 1.3, 0.9, 1.1, 1.5)


def folder_of(tmp_path: Path, cases: Mapping[str, tuple[float, float, Sequence[float]]]) -> Path:
    """A folder in which `hakmem` takes so many times the time and memory of `hakmem_other` in each
    case, with this noise in time."""
    rows = []
    for case, (time, memory, noise) in cases.items():
        for block, (disturbance, own) in enumerate(zip(BLOCKS, noise, strict=True)):
            base = 1e7 * disturbance
            rows.append(made_up.row(case, "hakmem_other", block, base, 1e8))
            rows.append(made_up.row(case, "hakmem", block, base * time * (1 + own), 1e8 * memory))
    return made_up.write(tmp_path, rows, allocator_order=["hakmem", "hakmem_other"])


@pytest.mark.parametrize("time", [0.8, 1.2])
def test_two_blocks_prove_nothing(tmp_path: Path, time: float) -> None:
    folder = folder_of(tmp_path, {"tiny_lifo": (time, 1.0, EVEN)})
    loaded = results.load(folder)
    (pair,) = against.judge(loaded, "hakmem", "hakmem_other").pairs
    assert pair.verdict == ("better" if time < 1 else "worse")
    rows = [row for rows in loaded.rows.values() for row in rows if row["block"] < 2]
    two = results.load(made_up.write(tmp_path / "two", rows))
    (pair,) = against.judge(two, "hakmem", "hakmem_other").pairs
    assert pair.verdict == "unclear"


@pytest.mark.parametrize(
    ("time", "memory", "noise", "verdict"),
    [
        (1.0, 1.0, EVEN, "equal"),
        (0.96, 1.0, EVEN, "better"),
        (0.98, 1.0, EVEN, "equal"),  # certain, but less than 3 %
        (1.0, 0.94, EVEN, "better"),
        (1.0, 0.96, EVEN, "equal"),  # certain, but less than 5 %
        (1.05, 1.0, EVEN, "worse"),
        (1.02, 1.0, EVEN, "equal"),
        (1.0, 1.05, EVEN, "worse"),
        (0.8, 1.05, EVEN, "worse"),  # faster, but larger
        (1.0, 1.0, (0.3, -0.2, 0.2, -0.3, 0.0), "unclear"),
        (1.0, 0.8, (0.3, -0.2, 0.2, -0.3, 0.0), "unclear"),  # leaner, perhaps slower
        (0.93, 1.0, (0.1, -0.1, 0.05, -0.05, 0.0), "equal"),  # faster, perhaps by chance
    ],
)
def test_a_row_has_the_verdict_that_its_blocks_prove(
    tmp_path: Path, time: float, memory: float, noise: Sequence[float], verdict: str
) -> None:
    folder = folder_of(tmp_path, {"tiny_lifo": (time, memory, noise)})
    (pair,) = against.judge(results.load(folder), "hakmem", "hakmem_other").pairs
    assert pair.verdict == verdict


def test_what_disturbs_a_block_cancels_out(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"tiny_lifo": (0.9, 1.0, (0.0,) * 5)})
    (pair,) = against.judge(results.load(folder), "hakmem", "hakmem_other").pairs
    ratio = pair.ratios["time"]
    assert (ratio.low, ratio.high) == pytest.approx((0.9, 0.9))


MIXED = {
    "tiny_lifo": (0.9, 1.0, EVEN),
    "burst": (1.0, 1.0, EVEN),
    "gcc": (1.0, 0.81, EVEN),
    "redis_set": (1.0, 1.0, EVEN),
}


def test_rows_are_counted_and_means_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(tmp_path, MIXED)
    assert against.main([folder], "hakmem", "hakmem_other", least_better=50) == 0
    text = capsys.readouterr().out
    assert "of 4 rows 2 better, 0 worse, 2 equal, 0 unclear; 50 % are better" in text
    assert "Geometric means of real programs: time 1.000x, memory 0.900x." in text
    assert "Geometric means of all rows: time 0.974x, memory 0.949x." in text
    assert against.main([folder], "hakmem", "hakmem_other", least_better=51) == 1
    assert against.main([folder], "hakmem_other", "hakmem") == 1


def test_noise_ends_with_3_and_a_worse_row_with_1(tmp_path: Path) -> None:
    noisy = {"tiny_lifo": (1.0, 1.0, (0.3, -0.2, 0.2, -0.3, 0.0))}
    assert against.main([folder_of(tmp_path / "a", noisy)], "hakmem", "hakmem_other") == 3
    worse = {**noisy, "burst": (1.2, 1.0, EVEN)}
    assert against.main([folder_of(tmp_path / "b", worse)], "hakmem", "hakmem_other") == 1


def test_a_later_folder_replaces_its_rows(tmp_path: Path) -> None:
    first = folder_of(tmp_path / "a", {**MIXED, "burst": (1.2, 1.0, EVEN)})
    later = folder_of(tmp_path / "b", {"burst": (1.0, 1.0, EVEN)})
    assert against.main([first], "hakmem", "hakmem_other") == 1
    assert against.main([first, later], "hakmem", "hakmem_other") == 0


def test_the_comparison_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [made_up.row("tiny_lifo", name, 0, 1e6) for name in ("hakmem", "glibc")]
    rows.append(made_up.row("burst", "glibc", 0, 1e6))
    folder = made_up.write(tmp_path, rows)
    against.main([folder], "hakmem", "glibc", as_json_text=True)
    found = named_json(capsys.readouterr().out)
    assert (found["schema"], found["of"], found["against"]) == (against.SCHEMA, "hakmem", "glibc")
    assert found["left_out"] == ["burst"]
    (row,) = found["rows"]
    # One block proves nothing.
    assert (row["case"], row["verdict"], row["time"]["high"]) == ("tiny_lifo", "unclear", None)


def test_a_row_that_the_first_failed_is_worse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the other failed is left out, and tells nothing of the first."""
    folder = folder_of(tmp_path, MIXED)
    lost = {"case": "burst", "block": 4, "kind": "FAILED", "why": "-11"}
    made_up.write(folder, [], refused=[{**lost, "allocator": "hakmem_other"}])
    assert against.main([folder], "hakmem", "hakmem_other") == 0
    assert "Left out, only one has them: burst." in capsys.readouterr().out
    made_up.write(folder, [], refused=[{**lost, "allocator": "hakmem"}])
    assert against.main([folder], "hakmem", "hakmem_other") == 1
    text = capsys.readouterr().out
    assert "of 3 rows" in text and "Worse: hakmem failed or was refused on burst." in text
    assert against.main([folder], "hakmem", "hakmem_other", as_json_text=True) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["failed"], found["left_out"]) == (["burst"], [])


def test_allocators_without_a_common_row_are_told(tmp_path: Path) -> None:
    rows = [made_up.row("a", "hakmem", 0, 1e6), made_up.row("b", "glibc", 0, 1e6)]
    loaded = results.load(made_up.write(tmp_path, rows))
    with pytest.raises(BenchError, match="share no row"):
        against.judge(loaded, "hakmem", "glibc")
    with pytest.raises(BenchError, match="no row of 'jemalloc'; it has those of"):
        against.judge(loaded, "hakmem", "jemalloc")


def test_settings_of_the_table_are_options_that_change_something() -> None:
    """The library warns of a wrong name on standard error, where no row would show it."""
    table = read_options(find_project().options_table)
    configured = [each for each in peers.known().values() if each.kind == "own"]
    assert {"hakmem_lean", "hakmem_nolearn"} <= {each.name for each in configured}
    for allocator in configured:
        for variable, value in allocator.environment.items():
            option = table.find(variable.removeprefix("HAKMEM_").lower())
            assert option is not None and option.environment == variable, allocator.name
            assert option.problem(value) is None, allocator.name
            assert option.number_of(value) != option.initial, allocator.name


def test_a_library_of_the_users_may_have_settings() -> None:
    allocator = peers.read_own("mine=/some/lib.so,HAKMEM_LEARN=0,OTHER=a=b")
    assert allocator.library == Path("/some/lib.so")
    expected = {"HAKMEM_LEARN": "0", "OTHER": "a=b"}
    assert allocator.environment == expected
    assert allocator.settings() == {**expected, "LD_PRELOAD": "/some/lib.so"}
    assert identity.identity(allocator)["environment"] == expected
    assert peers.read_own("mine=/some/lib.so").environment == {}


@pytest.mark.parametrize("entry", ["mine", "mine=", "m/e=x.so", "mine=x.so,", "mine=x.so,=1",
                                   "mine=x.so,A B=1", "mine=x.so,HAKMEM_LEARN"])  # fmt: skip
def test_a_wrong_entry_is_told(entry: str) -> None:
    with pytest.raises(BenchError, match="takes NAME=PATH"):
        peers.read_own(entry)
