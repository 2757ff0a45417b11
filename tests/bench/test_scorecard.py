"""The targets of the scorecard, each met and each missed by made-up results."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import made_up
import pytest

from harness import report  # noqa: F401 - the package is loaded before its modules
from harness.errors import BenchError
from harness.report import results, scorecard, targets

MIB = 2**20


def outcome(folder: Path, **target: Any) -> targets.Outcome:
    """The verdict on one line."""
    return targets.judge(targets.gather(results.load(folder)), target)


def folder_of(
    tmp_path: Path,
    cases: Mapping[str, Mapping[str, float]],
    memory: Mapping[str, Mapping[str, float]] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Path:
    """Times in ms and sizes in MiB, by case and allocator; two blocks of each."""
    rows = [
        made_up.row(case, name, block, 1e6 * time, (memory or {}).get(case, {}).get(name, 8) * MIB,
                    **(more or {}))
        for case, times in cases.items()
        for name, time in times.items()
        for block in range(2)
    ]  # fmt: skip
    return made_up.write(tmp_path / "full", rows)


@pytest.mark.parametrize(
    ("own", "state"),
    [((0.9, 1.0, 1.04), "PASS"), ((0.9, 0.9, 1.06), "FAIL"), ((0.9, 1.02, 1.02), "FAIL")],
)
def test_rows(tmp_path: Path, own: Sequence[float], state: str) -> None:
    folder = folder_of(
        tmp_path,
        {f"case_{at}": {"hakmem": time, "glibc": 1.0} for at, time in enumerate(own)},
    )
    found = outcome(folder, kind="rows", figure="time", usual=1.0, most=1.05)
    assert found.state == state, found


def test_rows_fail_where_one_of_the_subject_is_missing(tmp_path: Path) -> None:
    """A row that it failed is not left out of "every row"."""
    cases = {"one": {"hakmem": 1.0, "glibc": 2.0}, "two": {"hakmem": 1.0, "glibc": 2.0},
             "three": {"glibc": 2.0}}  # fmt: skip
    found = outcome(folder_of(tmp_path, cases), kind="rows", figure="time", usual=1.0, most=1.05)
    assert found.state == "FAIL"
    assert found.measured.startswith("2 of 3 rows at most 1.00x; 0 above 1.05x")
    assert found.measured.endswith("no figures of hakmem: three")


def test_mean_is_against_the_best_single_peer(tmp_path: Path) -> None:
    """mimalloc is the best single peer, though another one is best in each row alone."""
    cases = {"redis_set": {"hakmem": 1.0, "mimalloc2": 1.2, "glibc": 1.0, "jemalloc": 3.0},
             "gcc": {"hakmem": 1.0, "mimalloc2": 1.2, "glibc": 3.0, "jemalloc": 1.0}}  # fmt: skip
    line = {"kind": "mean", "figure": "time", "group": "real", "against": "best single peer"}
    folder = folder_of(tmp_path, cases)
    found = outcome(folder, **line, most=0.84)
    assert found.state == "PASS"
    assert found.measured.startswith("0.833x against mimalloc2, 2 of 2 rows")
    assert outcome(folder, **line, most=0.83).state == "FAIL"


def test_mean_fails_when_a_row_of_the_subject_is_missing(tmp_path: Path) -> None:
    cases = {"redis_set": {"hakmem": 1.0, "glibc": 2.0}, "gcc": {"glibc": 1.0}}
    found = outcome(folder_of(tmp_path, cases), kind="mean", figure="time", group="real",
                    against="glibc", most=1.0)  # fmt: skip
    assert found.state == "FAIL"
    assert "1 of 2 rows" in found.measured


@pytest.mark.parametrize(
    ("own", "state"), [((9, 8.4), "PASS"), ((9, 9.8), "FAIL"), ((4, 8.9), "FAIL")]
)
def test_memory_has_a_limit_for_the_mean_and_for_each_row(
    tmp_path: Path, own: tuple[float, float], state: str
) -> None:
    times = {"hakmem": 1.0, "glibc": 1.0}
    memory = {"redis_set": {"hakmem": own[0], "glibc": 10},
              "gcc": {"hakmem": own[1], "glibc": 8}}  # fmt: skip
    folder = folder_of(tmp_path, {"redis_set": times, "gcc": times}, memory)
    found = outcome(folder, kind="mean", figure="memory", group="real", against="best of row",
                    most=1.0, row_most=1.10)  # fmt: skip
    assert found.state == state, found


def test_a_part_of_the_suite_passes_no_line_about_all_of_it(tmp_path: Path) -> None:
    """One program of two, or no mimalloc, makes "every row" and "the best peer" easier."""
    from harness import cases

    known = {case.name: case for case in cases.known()}
    folder = folder_of(tmp_path, {"gcc": {"hakmem": 1.0, "glibc": 2.0}})
    loaded = results.load(folder)
    lines: list[dict[str, Any]] = [
        {"kind": "rows", "figure": "time", "usual": 1.0, "most": 1.05},
        {"kind": "mean", "figure": "time", "group": "real", "against": "best single peer",
         "most": 1.0},
        {"kind": "mean", "figure": "time", "group": "real", "against": "glibc", "most": 1.0},
    ]  # fmt: skip

    def states(names: Sequence[str], peers: Sequence[str]) -> list[str]:
        suite = targets.Suite([known[name] for name in names], peers)
        return [targets.judge(targets.gather(loaded, suite), line).state for line in lines]

    assert states(["gcc"], ["glibc"]) == ["PASS"] * 3
    assert states(["gcc", "git"], ["glibc"]) == ["NOT MEASURED"] * 3
    assert states(["gcc"], ["glibc", "mimalloc2"]) == ["NOT MEASURED"] * 2 + ["PASS"]
    assert states(["gcc", "tiny_lifo"], ["glibc"]) == ["NOT MEASURED"] + ["PASS"] * 2
    # A newer folder of one row on fewer peers makes that row easier.
    newer = folder_of(tmp_path / "newer", {"git": {"hakmem": 1.0, "glibc": 2.0}})
    both = folder_of(
        tmp_path / "both",
        {name: {"hakmem": 1.0, "glibc": 2.0, "mimalloc2": 1.5} for name in ("gcc", "git")},
    )
    loaded = results.load(both)
    assert states(["gcc", "git"], ["glibc", "mimalloc2"]) == ["PASS"] * 3
    loaded = results.load(both, newer=[newer])
    assert states(["gcc", "git"], ["glibc", "mimalloc2"]) == ["NOT MEASURED"] * 2 + ["PASS"]
    loaded = results.load(folder)
    lines = [line | {"most": 0.4} for line in lines]
    assert states(["gcc", "git"], ["glibc"]) == ["FAIL"] * 3
    whole = scorecard.whole_suite()
    assert len(whole.cases) == len(known) and {"glibc", "mimalloc2"} <= set(whole.peers)
    assert not [peer for peer in whole.peers if peer.startswith(("hakmem", "floor"))]


def test_the_lowest_of_some_peers_is_not_the_lowest_of_all(tmp_path: Path) -> None:
    from harness import cases

    known = {case.name: case for case in cases.known()}
    times = {"phase_change": {"hakmem": 1.0, "glibc": 2.0}}
    memory = {"phase_change": {"hakmem": 8.0, "glibc": 9.0}}
    loaded = results.load(folder_of(tmp_path, times, memory))
    line = {"kind": "lowest", "cases": ["phase_change"], "figure": "memory"}

    def state(names: Sequence[str], peers: Sequence[str]) -> str:
        suite = targets.Suite([known[name] for name in names], peers)
        return targets.judge(targets.gather(loaded, suite), line).state

    assert state(["phase_change", "git"], ["glibc"]) == "PASS"
    assert state(["phase_change"], ["glibc", "jemalloc"]) == "NOT MEASURED"


@pytest.mark.parametrize(("own", "state"), [(1.0, "PASS"), (1.2, "FAIL")])
def test_throughput_is_against_the_fastest_of_the_named(
    tmp_path: Path, own: float, state: str
) -> None:
    cases = {"burst": {"hakmem": own, "mimalloc2": 1.3, "mimalloc3": 2.0, "glibc": 0.5}}
    found = outcome(folder_of(tmp_path, cases), kind="throughput", cases=["burst"],
                    against="mimalloc*", least=1.2)  # fmt: skip
    assert found.state == state
    assert "(mimalloc2)" in found.measured


@pytest.mark.parametrize(
    ("idle", "spike", "state"),
    [(160, 1024, "PASS"), (170, 1024, "FAIL"), (160, 1023, "NOT MEASURED"), (170, 500, "FAIL")],
)
def test_idle(tmp_path: Path, idle: float, spike: float, state: str) -> None:
    """A smaller spike than the line speaks of may fail it, and cannot pass it."""
    extra = {"idle_rss_bytes": idle * MIB, "live_bytes": 100 * MIB, "frame_bytes": MIB,
             "spike_bytes": spike * MIB}  # fmt: skip
    folder = folder_of(tmp_path, {"spike_idle": {"hakmem": 1.0}}, more={"extra": extra})
    found = outcome(folder, kind="idle", cases=["spike_idle"], spike_least_mib=1024, most_mib=64)
    assert found.state == state, found


@pytest.mark.parametrize(("own", "state"), [(8.0, "PASS"), (8.5, "FAIL")])
def test_lowest(tmp_path: Path, own: float, state: str) -> None:
    memory = {"phase_change": {"hakmem": own, "glibc": 8.1, "jemalloc": 12}}
    folder = folder_of(tmp_path, {"phase_change": dict.fromkeys(memory["phase_change"], 1.0)},
                       memory)  # fmt: skip
    found = outcome(folder, kind="lowest", cases=["phase_change"], figure="memory")
    assert found.state == state, found


@pytest.mark.parametrize(("own", "state"), [(90.0, "PASS"), (110.0, "FAIL")])
def test_latency(tmp_path: Path, own: float, state: str) -> None:
    rows = [
        made_up.row("latency_small", name, 0, 1e6,
                    latency={"malloc": {"p99_99": value}, "free": {"p99_99": 1.0}})
        for name, value in (("hakmem", own), ("glibc", 100.0), ("floor", 1.0))
    ]  # fmt: skip
    found = outcome(made_up.write(tmp_path / "full", rows), kind="latency",
                    cases=["latency_small"], point="p99_99")  # fmt: skip
    assert found.state == state, found


@pytest.mark.parametrize("whose", ["hakmem", "glibc"])
def test_latency_is_not_passed_where_calls_have_none(tmp_path: Path, whose: str) -> None:
    """Of one of the cases, and of free alone."""
    both = {"malloc": {"p99_99": 1.0}, "free": {"p99_99": 1.0}}
    rows = [made_up.row(case, name, 0, 1e6, latency=both)
            for case in ("latency_small", "latency_remote")
            for name in ("hakmem", "glibc")]  # fmt: skip
    line: dict[str, Any] = {"kind": "latency", "point": "p99_99",
                            "cases": ["latency_small", "latency_remote"]}  # fmt: skip
    assert outcome(made_up.write(tmp_path / "full", rows), **line).state == "PASS"
    for row in rows:
        if (row["case"], row["allocator"]) == ("latency_remote", whose):
            row["latency"] = {"malloc": both["malloc"]}
    found = outcome(made_up.write(tmp_path / "full", rows), **line)
    assert found.state == "NOT MEASURED"
    assert found.measured == "no latencies of free in latency_remote, or no peer's"


@pytest.mark.parametrize(("own", "state"), [(3, "PASS"), (5, "FAIL")])
def test_metadata(tmp_path: Path, own: float, state: str) -> None:
    extra = {"metadata_bytes": own * 1000, "heap_bytes": 1_000_000}
    folder = folder_of(tmp_path, {"a": {"hakmem": 1.0}}, more={"extra": extra})
    found = outcome(folder, kind="metadata", cases=["*"], most_percent=0.4)
    assert found.state == state, found


@pytest.mark.parametrize("kind", ["metadata", "throughput", "lowest"])
def test_a_row_of_a_pattern_that_the_subject_has_not_is_not_passed(
    tmp_path: Path, kind: str
) -> None:
    folder = folder_of(tmp_path, {"a_1": {"hakmem": 1.0, "glibc": 2.0}, "a_2": {"glibc": 2.0}},
                       more={"extra": {"metadata_bytes": 1, "heap_bytes": 1_000_000}})  # fmt: skip
    found = outcome(folder, kind=kind, cases=["a_*"], against="*", figure="memory",
                    most_percent=0.4, most=1, least=1)  # fmt: skip
    assert found.state == "NOT MEASURED"
    assert found.measured == "no row a_2"


@pytest.mark.parametrize(("live", "state"), [(5, "PASS"), (3, "FAIL")])
def test_bounded(tmp_path: Path, live: float, state: str) -> None:
    extra = {"live_bytes": live * MIB}
    folder = folder_of(tmp_path, {"idle_owner": {"hakmem": 1.0}}, more={"extra": extra})
    found = outcome(folder, kind="bounded", cases=["idle_owner"], most=2.0)
    assert found.state == state, found


@pytest.mark.parametrize(
    ("ops", "calls", "state"),
    [(200_000_000, 1, "PASS"), (200_000_000, 2, "FAIL"), (1_000_000, 0, "NOT MEASURED")],
)
def test_os_calls(tmp_path: Path, ops: int, calls: int, state: str) -> None:
    folder = folder_of(tmp_path, {"a": {"hakmem": 1.0}})
    counts = [{"case": "long", "allocator": name, "ops": ops, "calls_total": count,
               "syscalls": {"madvise": 0}, "other_syscalls": {"clock_gettime": count}}
              for name, count in (("hakmem", calls), ("glibc", 7))]  # fmt: skip
    made_up.write(tmp_path / "syscalls", [], counts, kind="syscalls")
    found = outcome(folder, kind="os_calls", ops_least=200_000_000, below=1e-8)
    assert found.state == state, found
    assert (f"(clock_gettime {calls})" in found.measured) == (calls > 0)


def test_calls_are_not_of_an_older_run_than_one_that_was_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"a": {"hakmem": 1.0}})
    counts = [{"case": "long", "allocator": name, "ops": 10, "calls_total": 0}
              for name in ("hakmem", "glibc")]  # fmt: skip
    made_up.write(tmp_path / "older", [], counts, kind="syscalls", at="2026-01-01")
    line: dict[str, Any] = {"kind": "os_calls", "ops_least": 1, "below": 1}
    refused = [{"allocator": "glibc", "why": "another matter"}]
    made_up.write(tmp_path / "newer", [], counts[1:], refused, kind="syscalls", at="2026-01-02")
    assert outcome(folder, **line).state == "PASS"
    refused.append({"allocator": "hakmem", "why": "its counter stood still"})
    made_up.write(tmp_path / "newer", [], counts[1:], refused, kind="syscalls", at="2026-01-02")
    found = outcome(folder, **line)
    assert found.state == "NOT MEASURED"
    assert found.measured.startswith("the run was refused: its counter stood still")


@pytest.mark.parametrize(("own", "state"), [(1100, "PASS"), (1200, "FAIL")])
def test_startup(tmp_path: Path, own: int, state: str) -> None:
    folder = folder_of(tmp_path, {"a": {"hakmem": 1.0}})
    rows = [{"program": "true", "kind": "memory", "allocator": name, "rss_bytes": size * 1024}
            for name, size in (("hakmem", own), ("glibc", 1000))]  # fmt: skip
    rows.append({**rows[0], "program": "python", "rss_bytes": 10**9})
    made_up.write(tmp_path / "startup", rows, kind="startup")
    found = outcome(folder, kind="startup", figure="rss_bytes", rows="memory", most=153_600)
    assert found.state == state, found


def soak_folder(folder: Path, state: str, at: str, **facts: Any) -> None:
    own = ("allocators", "commit", "kernel")
    beside = {key: facts.pop(key) for key in own if key in facts}
    soak = {"allocator": "hakmem", "minutes": 60.0,
            "verdicts": [{"name": "RSS drift", "state": state, "text": "+0.1 %"}]}  # fmt: skip
    made_up.write(folder, [], kind="soak", at=at, controls=facts.pop("controls", {}),
                  soak={**soak, **facts}, **beside)  # fmt: skip


@pytest.mark.parametrize(
    ("state", "expected"),
    [("PASS", "PASS"), ("FAIL", "FAIL"), ("INCONCLUSIVE", "NOT MEASURED")],
)
def test_soak_takes_the_newest_of_the_subject_without_controls(
    tmp_path: Path, state: str, expected: str
) -> None:
    other = "FAIL" if state == "PASS" else "PASS"
    folder = folder_of(tmp_path, {"a": {"hakmem": 1.0}})
    line = {"kind": "soak", "minutes_least": 60}
    assert outcome(folder, **line).state == "NOT MEASURED"
    soak_folder(tmp_path / "1", "PASS", "2026-01-01", minutes=3.0)
    assert "3 minutes only" in outcome(folder, **line).measured
    soak_folder(tmp_path / "2", "PASS", "2026-01-02", threads=1)
    assert outcome(folder, **line) == targets.Outcome(
        "NOT MEASURED", "the newest soak had one thread"
    )
    soak_folder(tmp_path / "3", "PASS", "2026-01-03")
    soak_folder(tmp_path / "4", state, "2026-01-04", threads=2)
    soak_folder(tmp_path / "5", other, "2026-01-05", controls={"leak": 1})
    soak_folder(tmp_path / "6", other, "2026-01-06", allocator="jemalloc")
    soak_folder(tmp_path / "7", other, "2026-01-07", minutes=3.0)
    assert outcome(folder, **line).state == expected


def test_a_soak_that_failed_is_not_made_good_by_another(tmp_path: Path) -> None:
    """Of the same library; that of another one counts only where the matrix's has none."""
    line = {"kind": "soak", "minutes_least": 60}
    builds: dict[str, dict[str, Any]] = {
        name: {"allocators": {"hakmem": {"build_id": name}}} for name in ("11", "22")
    }
    folder = made_up.write(tmp_path / "full", [made_up.row("a", "hakmem", 0, 1e6)], **builds["11"])
    soak_folder(tmp_path / "1", "PASS", "2026-01-01", **builds["22"])
    found = outcome(folder, **line)
    assert (found.state, found.beside) == ("NOT MEASURED", tmp_path / "1")
    soak_folder(tmp_path / "2", "PASS", "2026-01-02", **builds["11"])
    soak_folder(tmp_path / "3", "FAIL", "2026-01-03", **builds["22"])
    assert outcome(folder, **line).state == "PASS"
    soak_folder(tmp_path / "4", "FAIL", "2026-01-04", **builds["11"])
    soak_folder(tmp_path / "5", "PASS", "2026-01-05", **builds["11"])
    found = outcome(folder, **line)
    assert (found.state, found.beside) == ("FAIL", tmp_path / "4")
    assert found.measured.endswith("(of 3 soaks of this library: 2 PASS, 1 FAIL)")


def test_a_cv_that_the_noise_explains_is_not_passed(tmp_path: Path) -> None:
    """It was once, and is kept so in older results."""
    line = {"kind": "soak", "minutes_least": 60}
    folder = made_up.write(tmp_path / "full", [made_up.row("a", "hakmem", 0, 1e6)])
    for at, value in enumerate((2.0, 2.1)):
        verdict = {"name": "throughput CV", "state": "PASS", "text": f"{value} %", "value": value}
        soak_folder(tmp_path / str(at), "PASS", f"2026-01-0{at + 1}", verdicts=[verdict])
        assert outcome(folder, **line).state == ("PASS", "NOT MEASURED")[at]


def test_what_lies_beside_the_matrix_may_be_of_another_day(tmp_path: Path) -> None:
    """Of the same machine, set up in the same way."""
    rows = [made_up.row("a", "hakmem", 0, 1e6)]
    folder = made_up.write(tmp_path / "2026-01-01-one" / "full", rows, kernel="6.1")
    line = {"kind": "soak", "minutes_least": 60}
    soak_folder(tmp_path / "2026-01-02-another-one" / "soak", "PASS", "2026-01-02")
    soak_folder(tmp_path / "one" / "soak", "PASS", "2026-01-02")
    soak_folder(tmp_path / "2026-01-03-one" / "soak", "PASS", "2026-01-03", kernel="6.2")
    assert outcome(folder, **line).state == "NOT MEASURED"
    soak_folder(tmp_path / "2026-01-02-one" / "soak", "PASS", "2026-01-02")
    assert outcome(folder, **line).state == "PASS"


def test_a_part_of_a_pattern_passes_no_line_about_it(tmp_path: Path) -> None:
    """Nor do some of the peers of a pattern, the fastest of whom may be another one."""
    from harness import cases

    known = {case.name: case for case in cases.known()}
    extra = {"metadata_bytes": 1, "heap_bytes": 1_000_000}
    times = {"larson_medium_1": {"hakmem": 1.0, "mimalloc2": 2.0}}
    loaded = results.load(folder_of(tmp_path, times, more={"extra": extra}))
    lines = (
        {"kind": "metadata", "cases": ["larson_medium_*"], "most_percent": 0.4},
        {"kind": "throughput", "cases": ["larson_medium_1"], "against": "mimalloc*", "least": 1.5},
    )

    def states(names: Sequence[str], peers: Sequence[str]) -> list[str]:
        suite = targets.Suite([known[name] for name in names], peers)
        return [targets.judge(targets.gather(loaded, suite), line).state for line in lines]

    one, both = ["larson_medium_1"], ["larson_medium_1", "larson_medium_2"]
    assert states(one, ["mimalloc2", "jemalloc"]) == ["PASS", "PASS"]
    assert states(both, ["mimalloc2"]) == ["NOT MEASURED", "PASS"]
    assert states(one, ["mimalloc2", "mimalloc3"]) == ["PASS", "NOT MEASURED"]


def test_a_row_without_metadata_is_not_left_out_of_their_sum(tmp_path: Path) -> None:
    extra = {"metadata_bytes": 1, "heap_bytes": 1_000_000}
    rows = [made_up.row("a", "hakmem", 0, 1e6, extra=extra), made_up.row("b", "hakmem", 0, 1e6),
            made_up.row("redis_set", "hakmem", 0, 1e6)]  # fmt: skip
    line = {"kind": "metadata", "cases": ["*"], "group": "synthetic", "most_percent": 0.4}
    found = outcome(made_up.write(tmp_path / "full", rows), **line)
    assert (found.state, found.measured) == (
        "NOT MEASURED",
        "0.000 % over 1 rows; without it: b",
    )
    line["most_percent"] = 0.00001
    assert outcome(tmp_path / "full", **line).state == "FAIL"
    line["most_percent"] = 0.4
    rows[1]["extra"] = extra
    assert outcome(made_up.write(tmp_path / "full", rows), **line).state == "PASS"


@pytest.mark.parametrize(
    ("later", "says"),
    [
        ({"at": "2026-01-01"}, "is older than .* of which it would replace burst: name sessions"),
        ({"at": "2026-01-03", "kernel": "6.2"}, "on another machine .*: kernel"),
        ({"at": "2026-01-03", "huge_pages": "always"}, "set up in another way: huge_pages"),
    ],
)
def test_sessions_that_do_not_belong_together_are_refused(
    tmp_path: Path, later: Mapping[str, str], says: str
) -> None:
    facts: dict[str, Any] = {"kernel": "6.1", "huge_pages": "madvise"}
    rows = [made_up.row(case, "hakmem", 0, 1e6) for case in ("burst", "gcc")]
    first = made_up.write(tmp_path / "first", rows, at="2026-01-02", **facts)
    second = made_up.write(tmp_path / "second", rows[:1], **{**facts, **later})
    with pytest.raises(BenchError, match=says):
        results.load(first, newer=[second])
    # Older, but of rows that nobody else has.
    other = made_up.write(tmp_path / "other", [made_up.row("git", "hakmem", 0, 1e6)],
                          at="2026-01-01", **facts)  # fmt: skip
    assert len(results.load(first, newer=[other]).cases) == 3


def test_a_card_of_two_builds_says_so_and_is_not_passed(tmp_path: Path) -> None:
    builds: list[dict[str, Any]] = [
        {"allocators": {"hakmem": {"build_id": each * 20}}} for each in ("11", "22")
    ]
    names = ("burst", "gcc")
    folders = [made_up.write(tmp_path / name, [made_up.row(name, "hakmem", 0, 1e6)], **build)
               for name, build in zip(names, builds, strict=True)]  # fmt: skip
    file = tmp_path / "targets.toml"
    file.write_text("target = []\n")
    assert scorecard.text(results.load(folders[0]), file)[1]
    text, passed = scorecard.text(results.load(folders[0], newer=folders[1:]), file)
    assert not passed
    assert "Its rows are of 2 builds of hakmem: 111111111111, 222222222222." in text
    # A session without hakmem has none.
    peer = made_up.write(tmp_path / "peer", [made_up.row("git", "glibc", 0, 1e6)])
    assert results.load(folders[0], newer=[peer]).builds == ["11" * 20]


@pytest.mark.parametrize("build", ["11" * 20, "22" * 20])
def test_results_beside_the_matrix_are_named_with_their_build(tmp_path: Path, build: str) -> None:
    """A start, calls or a soak of another library are said to be so, and pass nothing."""
    matrix = {"hakmem": {"build_id": "11" * 20}}
    own: dict[str, Any] = {
        "allocators": {"hakmem": {"build_id": build}},
        "commit": "c" * 40,
    }
    rows = [made_up.row("a", "hakmem", 0, 1e6)]
    folder = made_up.write(tmp_path / "full", rows, allocators=matrix)
    starts = [{"program": "true", "kind": "memory", "allocator": name, "rss_bytes": 1024}
              for name in ("hakmem", "glibc")]  # fmt: skip
    counts = [{"allocator": "hakmem", "ops": 10**9, "calls_total": 0}]
    made_up.write(tmp_path / "startup", starts, kind="startup", **own)
    made_up.write(tmp_path / "syscalls", [], counts, kind="syscalls", **own)
    soak_folder(tmp_path / "soak", "PASS", "2026-01-01", **own)
    file = tmp_path / "targets.toml"
    lines = (
        'kind = "startup"\nfigure = "rss_bytes"\nrows = "memory"\nmost = 1',
        'kind = "os_calls"\nops_least = 1\nbelow = 1',
        'kind = "soak"\nminutes_least = 60',
    )
    file.write_text("".join(f'[[target]]\nwhat = "w"\ntarget = "t"\n{line}\n' for line in lines))
    text, passed = scorecard.text(results.load(folder), file)
    assert passed is (build == "11" * 20)
    differs = f"(library {build[:12]}, not the matrix's)"
    assert text.count(differs) == (3 if build != "11" * 20 else 0)
    for name, command in (("startup", "bench startup"), ("syscalls", "bench syscalls"),
                          ("soak", "soak")):  # fmt: skip
        assert (
            f"/{name} | `hakmem {command}` | - | - | 0.0 | - | cccccccccccc | {build[:12]}" in text
        )


@pytest.mark.parametrize(
    "kind", ["throughput", "bounded", "idle", "lowest", "latency", "metadata", "os_calls",
             "startup", "soak"]
)  # fmt: skip
def test_what_was_not_measured_is_not_passed(tmp_path: Path, kind: str) -> None:
    folder = folder_of(tmp_path, {"a": {"hakmem": 1.0, "glibc": 2.0}})
    found = outcome(folder, kind=kind, cases=["nowhere"], against="*", figure="memory",
                    point="p99", rows="memory", most=1, least=1)  # fmt: skip
    assert found.state == "NOT MEASURED"


def test_an_unknown_kind_is_an_error(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"a": {"hakmem": 1.0}})
    with pytest.raises(BenchError, match="no kind 'moon'"):
        outcome(folder, kind="moon")


def test_every_line_of_the_file_can_be_judged(tmp_path: Path) -> None:
    """And every case it names by its full name is a row of the matrix."""
    from harness import cases

    folder = made_up.matrix(tmp_path / "full")
    output = tmp_path / "SCORECARD.md"
    assert scorecard.write([folder], output) is False
    text = output.read_text()
    lines = tomllib.loads(scorecard.TARGETS.read_text())["target"]
    assert len(lines) >= 15
    for line in lines:
        assert f"| {line['what']} | {line['target']} | **" in text
    named = {name for line in lines for name in line.get("cases", []) if "*" not in name}
    assert named <= {case.name for case in cases.synthetic()}


def test_the_document_passes_only_when_every_line_does(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"tiny_lifo": {"hakmem": 1.0, "glibc": 1.02}})
    file = tmp_path / "targets.toml"
    head = '[[target]]\nwhat = "w"\ntarget = "t"\nkind = "rows"\nfigure = "time"\nusual = 1.0\n'
    loaded = results.load(folder)
    file.write_text(f"{head}most = 1.0\n")
    text, passed = scorecard.text(loaded, file)
    assert passed and "1 PASS, 0 FAIL, 0 NOT MEASURED" in text
    unsound = made_up.write(folder, [], state="unsound")
    text, passed = scorecard.text(results.load(unsound), file)
    assert not passed and "unsound" in text
    file.write_text(f"{head}most = 0.9\n")
    text, passed = scorecard.text(loaded, file)
    assert not passed and "0 PASS, 1 FAIL" in text


def test_losses_stand_in_the_document_with_their_factor(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"tiny_lifo": {"hakmem": 1.3, "glibc": 1.0}})
    scorecard.write([folder], tmp_path / "SCORECARD.md")
    assert (
        "| tiny_lifo | synthetic workloads | glibc | 1.30 |"
        in (tmp_path / "SCORECARD.md").read_text()
    )
    assert json.loads((folder / "manifest.json").read_text())["kind"] == "full"


def test_a_newer_session_replaces_whole_rows_and_is_named(tmp_path: Path) -> None:
    """All allocators of the row at once: figures of two sessions are never compared. Refusals and
    counts of the row go as well."""
    times = {"hakmem": 3e6, "glibc": 1e6, "jemalloc": 0.5e6}
    old_rows = [made_up.row(case, name, 0, time)
                for case in ("tiny_lifo", "burst") for name, time in times.items()]  # fmt: skip
    refused = [{"case": "burst", "allocator": "floor", "kind": "FAILED", "why": "old"}]
    counts = [{"case": "burst", "allocator": "glibc", "ops": 1, "calls_total": 1}]
    facts = {"cases": [{"name": "tiny_lifo", "about": "a"}, {"name": "burst", "about": "old"}]}
    old = made_up.write(tmp_path / "old", old_rows, counts, refused, scale=0.35, **facts)
    new_rows = [made_up.row("burst", name, 0, time, load_average=7.25)
                for name, time in (("hakmem", 1e6), ("glibc", 4e6))]  # fmt: skip
    new = made_up.write(tmp_path / "new", new_rows, cases=[{"name": "burst", "about": "new"}],
                        kind="part")  # fmt: skip
    loaded = results.load(old, newer=[new])
    assert loaded.values("burst", "hakmem", "time") == [1e6]
    assert loaded.values("burst", "jemalloc", "time") == []
    assert loaded.values("tiny_lifo", "jemalloc", "time") == [0.5e6]
    assert loaded.refused == [] and loaded.counts == {}
    assert [case.about for case in loaded.cases] == ["a", "new"]
    text, _ = scorecard.text(loaded)
    assert "Measured at scale 0.35 (1 rows) and 1 (1 rows)" in text
    assert "/new | burst | 1 |" in text and "7.2, 7.2" in text
    assert "first in time on 1 of 2 rows" in text
    only, _ = scorecard.text(results.load(old))
    assert "Sessions" not in only and "Measured at scale 0.35:" in only
    unfinished = made_up.write(tmp_path / "new", new_rows, state="interrupted")
    assert "interrupted" in scorecard.text(results.load(old, newer=[unfinished]))[0]
