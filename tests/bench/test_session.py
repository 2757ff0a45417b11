"""The session: order, warm-up, lost pairs, interruption, what makes a run unsound."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import (
    cases,
    counts,
    host_memory,
    identity,
    machine,
    measure,
    peers,
    session,
    store,
    strace,
)
from harness.cases import Case
from harness.environment import CLEAN_ENVIRONMENT, pinned, run_alone
from harness.errors import BenchError, MeasureError, RefusedError
from harness.layout import TOP
from harness.progress import Estimate
from harness.session import Plan, Session
from tests.patience import HANG_SECONDS

Bench = Callable[..., subprocess.CompletedProcess[str]]
Rows = Callable[..., list[dict[str, Any]]]

SHORT = ["tiny_lifo", "mixed_small"]


def plan(output: Path, **changes: Any) -> Plan:
    """A short session on what is always there."""
    settings: dict[str, Any] = {
        "workloads": SHORT, "allocators": ["glibc", "floor"], "scale": 0.0005, "blocks": 3,
        "counting": False, "output": output, **changes,
    }  # fmt: skip
    return Plan("part", "a test", **settings)


@pytest.fixture
def brought(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What is brought before each run, in bytes; none is, in fact."""
    sizes: list[int] = []

    def bring(size_bytes: int) -> bool:
        sizes.append(size_bytes)
        return True

    monkeypatch.setattr(host_memory, "bring", bring)
    return sizes


def test_every_run_finds_the_memory_that_its_row_needs(
    built: Path, tmp_path: Path, brought: list[int]
) -> None:
    made = Session(plan(tmp_path / "a", blocks=1))
    made.measure()
    assert len(brought) == 4
    assert min(brought) == 64 << 20
    # A peak of one allocator counts for all.
    made.peaks["tiny_lifo", "floor"] = 100 << 20
    tiny = next(case for case in made.cases if case.name == "tiny_lifo")
    assert made.attempt(tiny, peers.known()["glibc"], 1) is not None
    assert brought[4:] == [164 << 20]
    assert made.manifest("complete")["memory_brought"] is True


def test_a_run_that_took_more_than_it_found_is_run_again(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brought: list[int]
) -> None:
    """Who takes more than others would pay the host of the machine for it, in the first block of
    each session."""
    runs = iter([500 << 20, 510 << 20, 520 << 20])

    def run(*_: Any, **__: Any) -> dict[str, Any]:
        return {"peak_rss_bytes": next(runs), "checksum": None}

    monkeypatch.setattr(host_memory, "available_bytes", lambda: 8 << 30)
    monkeypatch.setattr(measure, "run", run)
    made = Session(plan(tmp_path, workloads=["tiny_lifo"]))
    (case,) = made.cases
    row = made.attempt(case, peers.known()["glibc"], 0)
    assert row is not None and row["peak_rss_bytes"] == 510 << 20
    assert brought == [64 << 20, 564 << 20]
    # As much as can be brought: it does not help to run again.
    monkeypatch.setattr(host_memory, "available_bytes", lambda: 256 << 20)
    assert made.attempt(case, peers.known()["glibc"], 1) is not None
    assert brought[2:] == [64 << 20]


def test_a_session_goes_on_without_what_the_system_refuses_to_bring(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(12, "refused")

    monkeypatch.setattr("mmap.mmap", refuse)
    assert Session(plan(tmp_path, blocks=1)).run()
    assert store.read_manifest(tmp_path)["memory_brought"] is False


def test_the_first_run_finds_the_memory_that_the_warm_up_needed(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, brought: list[int]
) -> None:
    """A case whose working set is made of its operations does all of them in the warm-up; the runs
    that only bring an allocator's file into the page cache are short in any case."""
    scales: list[tuple[str, str, float]] = []
    peaks = {"tiny_lifo": 5 << 20, "phase_change": 300 << 20}

    def run(case: Any, allocator: Any, *_: Any, scale: float, **__: Any) -> dict[str, Any]:
        scales.append((case.name, allocator.name, scale))
        return {"peak_rss_bytes": peaks[case.name], "checksum": None}

    monkeypatch.setattr(host_memory, "available_bytes", lambda: 8 << 30)
    monkeypatch.setattr(measure, "run", run)
    monkeypatch.setattr(measure, "prepare", lambda *_: None)
    made = Session(plan(tmp_path, workloads=["tiny_lifo", "phase_change"], scale=0.5))
    made.warm_up()
    assert made.peaks == {}
    assert scales == [("tiny_lifo", "glibc", 0.01), ("phase_change", "glibc", 1.0),
                      ("tiny_lifo", "floor", 0.01)]  # fmt: skip
    for case in made.cases:
        assert made.attempt(case, peers.known()["glibc"], 0) is not None
    assert brought == [68 << 20, 364 << 20]


def test_blocks_hold_every_pair_once_in_random_order(built: Path, tmp_path: Path) -> None:
    runs = list(Session(plan(tmp_path / "a", blocks=8)).order())
    names = [(block, case.name, allocator.name) for block, case, allocator in runs]
    assert set(Counter(names).values()) == {1}
    assert len(names) == 8 * 2 * 2
    assert [block for block, _, _ in names] == sorted(block for block, _, _ in names)
    orders = {tuple(names[at][1:] for at in range(i, i + 4)) for i in range(0, len(names), 4)}
    assert len(orders) > 2
    again = list(Session(plan(tmp_path / "b", blocks=8)).order())
    assert [(b, c.name, a.name) for b, c, a in again] == names
    other = list(Session(plan(tmp_path / "c", blocks=8, seed=2)).order())
    assert [(b, c.name, a.name) for b, c, a in other] != names


def test_rows_are_whole_and_pinned(built: Path, tmp_path: Path, rows: Rows) -> None:
    cpu = min(os.sched_getaffinity(0))
    done = Session(plan(tmp_path, workloads=["tiny_lifo", "queue"], cpu=cpu))
    assert done.run()
    kept = rows(tmp_path)
    assert len(kept) == 3 * 2 * 2
    for row in kept:
        assert set(measure.FIELDS) <= row.keys()
        assert row["cpu"] == (cpu if row["case"] == "tiny_lifo" else None)
        assert row["block"] >= 0 and row["wall_ns"] > 0
        assert row["cpu_ns"] >= max(row["user_ns"], row["system_ns"])
    manifest = store.read_manifest(tmp_path)
    assert manifest["state"] == "complete" and manifest["pinned_cpu"] == cpu
    assert [case["name"] for case in manifest["cases"]] == ["tiny_lifo", "queue"]
    assert list(manifest["allocators"]) == ["glibc", "floor"]


def test_counting_runs_are_kept_apart(built: Path, tmp_path: Path, rows: Rows) -> None:
    assert Session(plan(tmp_path, workloads=["mixed_small"], blocks=1, counting=True)).run()
    counted = rows(tmp_path, "counts.jsonl")
    assert {row["allocator"] for row in counted} == {"glibc", "floor"}
    for row in counted:
        assert row["calls_total"] >= sum(row["syscalls"].values()) > 0
        assert set(row["syscalls"]) == set(counts.MEMORY_CALLS)
        assert row["idle_rss_bytes"] > 0 and row["end_rss_bytes"] > 0
    assert len(rows(tmp_path)) == 2


def test_a_pair_that_fails_is_not_run_again(built: Path, tmp_path: Path, rows: Rows) -> None:
    """floor's blocks overlap: with the check on, its row fails, and glibc's goes on."""
    run = Session(plan(tmp_path, workloads=["mixed_small"]))
    glibc, floor = run.allocators
    run.allocators = [glibc, dataclasses.replace(floor, arguments={})]
    assert not run.run()
    assert Counter(row["allocator"] for row in rows(tmp_path)) == {"glibc": 3}
    (failed,) = rows(tmp_path, "refused.jsonl")
    assert (failed["allocator"], failed["kind"]) == ("floor", "FAILED")
    assert "lost its contents" in failed["why"]


def test_a_known_failure_is_told_and_is_no_surprise(
    built: Path, tmp_path: Path, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same floor, with its failure in the table; a refusal is never excused."""
    table = peers.known()
    why = dict.fromkeys(SHORT, "its blocks overlap")
    table["floor"] = dataclasses.replace(table["floor"], arguments={}, known_failures=why)
    monkeypatch.setattr(peers, "known", lambda: table)
    run = Session(plan(tmp_path / "a", workloads=["mixed_small"]))
    assert run.run()
    (failed,) = rows(tmp_path / "a", "refused.jsonl")
    assert failed["kind"] == "FAILED" and failed["why"].endswith("(known: its blocks overlap)")
    run = Session(plan(tmp_path / "b", workloads=["mixed_small"]))
    run.lose({"case": "mixed_small", "allocator": "floor"}, RefusedError("not proven"))
    assert not run.run()


def test_rows_that_are_made_of_their_operations_do_them_all(
    built: Path, tmp_path: Path, rows: Rows
) -> None:
    assert Session(plan(tmp_path, workloads=["tiny_lifo", "phase_change"], blocks=1)).run()
    shares = {
        row["case"]: row["ops"]
        / int(str(cases.choose([row["case"]], quick=False)[0].arguments["ops"]))
        for row in rows(tmp_path)
    }
    assert shares["tiny_lifo"] < 0.001 and 0.85 < shares["phase_change"] < 1.05


def test_different_checksums_are_unsound(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Session(plan(tmp_path))
    row = {"case": "tiny_lifo", "checksum": "1", "allocator": "glibc", "peak_rss_bytes": 1}
    run.keep(row)
    run.keep({**row, "allocator": "floor", "checksum": None})
    assert run.checksums_agree()
    run.keep({**row, "allocator": "floor", "checksum": "2"})
    assert not run.checksums_agree()
    assert "checksums differ: 1 (glibc), 2 (floor)" in capsys.readouterr().err


def test_library_built_anew_is_unsound(tmp_path: Path, compile_c: Callable[..., Path]) -> None:
    library = compile_c(tmp_path / "one.so", "int one;\n", "-shared")
    allocator = peers.Allocator("own", library)
    before = {"own": identity.identity(allocator)}
    assert identity.changed([allocator], before) == []
    compile_c(library, "int two[2];\n", "-shared")
    assert identity.changed([allocator], before) == ["own"]


def test_interruption_keeps_the_finished_rows(built: Path, tmp_path: Path, rows: Rows) -> None:
    line = [sys.executable, str(TOP / "hakmem"), "bench", "--output", str(tmp_path),
            "--workloads", ",".join(SHORT), "--allocators", "glibc,floor",
            "--reps", "1000", "--scale", "0.01"]  # fmt: skip
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        deadline = time.monotonic() + HANG_SECONDS
        while len(rows(tmp_path)) < 4:
            assert run.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        meanwhile = (tmp_path / store.MANIFEST).is_file() and store.read_manifest(tmp_path)
        run.send_signal(signal.SIGINT)
        output, errors = run.communicate(timeout=HANG_SECONDS)
    assert run.returncode == 1
    assert "interrupted: the finished rows are kept" in errors
    # What it says for good where it is killed.
    assert meanwhile and meanwhile["state"] == "running"
    assert store.read_manifest(tmp_path)["state"] == "interrupted"
    assert len(rows(tmp_path)) >= 4
    assert "tiny_lifo" in (tmp_path / "table.md").read_text()
    assert output != ""


def test_a_terminal_shows_what_runs_and_the_time_left(built: Path, tmp_path: Path) -> None:
    line = [sys.executable, str(TOP / "hakmem"), "bench", "--output", str(tmp_path),
            "--workloads", "tiny_lifo", "--allocators", "glibc,floor", "--no-counts",
            "--reps", "40", "--scale", "0.02"]  # fmt: skip
    terminal, end = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=end, env=environment) as run:
        os.close(end)
        shown = b""
        # Reading fails when nobody has the other end open any more.
        with contextlib.suppress(OSError):
            while text := os.read(terminal, 4096):
                shown += text
    os.close(terminal)
    assert run.returncode == 0, shown
    assert b"measuring: tiny_lifo" in shown and re.search(rb"\d+:\d\d left", shown)
    assert b"results: " in shown


def test_a_manifest_says_how_the_machine_was_at_the_start(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session itself loads it; and a commit during it is not what was measured."""
    state = {"load_average": 0.1, "commit": "before", "at": "now"}
    monkeypatch.setattr(machine, "describe", state.copy)
    made = Session(plan(tmp_path, blocks=1))
    state |= {"load_average": 2.0, "commit": "after", "at": "later"}
    assert made.run()
    kept = store.read_manifest(tmp_path)
    assert (kept["load_average"], kept["commit"], kept["at"]) == (0.1, "before", "now")
    assert kept["state"] == "complete"


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("HAKMEM_MDOE=lean", "hakmem: option HAKMEM_MDOE: unknown, ignored"),
        ("HAKMEM_MODE=laen", "hakmem: option HAKMEM_MODE: value 'laen'.*, kept fast"),
        ("HAKMEM_CONF=lean", "hakmem: option lean in HAKMEM_CONF: has no ':' and value, ignored"),
        ("HAKMEM_PROFILE=./own.profile", "hakmem: profile './own.profile' .* default is used"),
        ("HAKMEM_MODE=lean,HAKMEM_VERBOSE=1,HAKMEM_PROFILE=lean", None),
    ],
)
def test_a_setting_that_is_not_taken_names_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, complaint: str | None
) -> None:
    """Also a profile that only this directory has: real programs run in others."""
    library = peers.known()["hakmem"].library
    (tmp_path / "own.profile").write_text((TOP / "profiles/lean.profile").read_text())
    monkeypatch.chdir(tmp_path)
    asked = plan(tmp_path / "a", allocators=["glibc"], own=[f"mine={library},{setting}"])
    if complaint is None:
        assert [each.name for each in session.usable_allocators(asked)][-1] == "mine"
        return
    with pytest.raises(BenchError, match=f"^mine: {complaint}$"):
        session.usable_allocators(asked)


def test_results_are_never_written_over(built: Path, tmp_path: Path) -> None:
    Session(plan(tmp_path)).store.manifest({})
    with pytest.raises(BenchError, match="already holds results"):
        Session(plan(tmp_path))


def test_environment_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAKMEM_MODE", "lean")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    told = run_alone(["/usr/bin/env"], {**CLEAN_ENVIRONMENT, "LD_PRELOAD": ""}, HANG_SECONDS)
    assert sorted(told.split()) == ["LC_ALL=C", "LD_PRELOAD=", "PATH=/usr/bin:/bin"]


def test_pinning_reaches_the_process_and_ends_with_it() -> None:
    cpu = max(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    with pinned(cpu):
        told = run_alone(["/bin/cat", "/proc/self/status"], CLEAN_ENVIRONMENT, HANG_SECONDS)
    assert f"Cpus_allowed_list:\t{cpu}\n" in told
    assert os.sched_getaffinity(0) == before


def test_a_run_that_takes_too_long_ends_with_its_children(tmp_path: Path) -> None:
    file = tmp_path / "child"
    script = f"sleep 600 & echo $! > {file}; wait"
    with pytest.raises(MeasureError, match="still running after"):
        run_alone(["/bin/sh", "-c", script], CLEAN_ENVIRONMENT, 10)
    child = int(file.read_text())
    deadline = time.monotonic() + HANG_SECONDS
    while Path(f"/proc/{child}/cmdline").exists() and Path(f"/proc/{child}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("exit 3", "exit status 3"),
        ("echo nonsense", "not a result line"),
        ("echo '[1]'", "not a result line"),
        ("true", "not a result line"),
    ],
)
def test_a_workload_that_says_nothing_sensible_fails(
    tmp_path: Path, script: str, complaint: str
) -> None:
    program = tmp_path / "tiny"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    with pytest.raises(MeasureError, match=complaint):
        measure.run(Case("x", "x", "tiny"), peers.known()["glibc"], tmp_path, cpu=None)


def test_later_options_win_however_they_are_spelt() -> None:
    line = measure.command_line(Path("x"), {"idle-ms": 1, "ops": 5}, {"idle_ms": 2})
    assert line == ["x", "--idle-ms", "2", "--ops", "5"]
    assert measure.scaled({"ops": 10, "slots": 3}, 0.25) == {"ops": 2, "slots": 3}
    assert measure.scaled({"slots": 3}, 0.25) == {"slots": 3}


def test_rows_cut_off_by_a_crash_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a": 2}\n{"a"')
    assert store.read_rows(tmp_path) == [{"a": 1}, {"a": 2}]
    (tmp_path / "rows.jsonl").write_text('{"a": 1}\n{"a"\n{"a": 2}\n')
    with pytest.raises(BenchError, match=r"rows\.jsonl:2"):
        store.read_rows(tmp_path)


def test_packed_rows_are_read_as_plain_ones(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl.gz").write_bytes(gzip.compress(b'{"a": 1}\n{"a": 2}\n'))
    assert store.read_rows(tmp_path) == [{"a": 1}, {"a": 2}]
    assert store.read_rows(tmp_path, store.COUNTS) == []


def test_time_left_knows_what_each_kind_costs() -> None:
    estimate = Estimate()
    assert estimate.left({"a": 5}) == 0
    estimate.add("a", 1.0)
    estimate.add("b", 3.0)
    assert estimate.left({"a": 2, "b": 1, "c": 2}) == pytest.approx(2 + 3 + 2 * 2)


def test_runs_at_once_share_the_memory() -> None:
    """Three runs of 60 out of 100 never overlap; one of 1000 runs alone instead of never; three of
    30 meet."""
    budget = counts.Budget(100)

    def together(*wanted: int, seconds: float) -> bool:
        """Whether all of them are inside at once; each waits so long for the others."""
        meeting = threading.Barrier(len(wanted))
        met = []

        def run(bytes_wanted: int) -> None:
            with budget.share(bytes_wanted), contextlib.suppress(threading.BrokenBarrierError):
                meeting.wait(seconds)
                met.append(bytes_wanted)

        threads = [threading.Thread(target=run, args=(each,)) for each in wanted]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(met) == len(wanted)

    assert not together(60, 60, seconds=0.1)
    assert not together(1000, 1000, seconds=0.1)
    assert together(30, 30, 30, seconds=60)


def test_strace_summary_is_read() -> None:
    text = """% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 60.00    0.000600          60        10           mmap
 40.00    0.000400          40        12         2 openat
------ ----------- ----------- --------- --------- ----------------
100.00    0.001000                    22         2 total
"""
    assert strace.parse_summary(text) == {"mmap": 10, "openat": 12}


def test_instructions_grow_with_the_work(built: Path) -> None:
    """The C library's pair costs more than the floor's, and a pair costs tens of instructions."""
    case = Case("x", "x", "tiny", {"slots": 100, "min": 16, "max": 16})
    table = peers.known()
    glibc, floor = (counts.instructions_per_op(case, table[name]) for name in ("glibc", "floor"))
    assert 3 < floor < glibc < 300


def test_left_out_programs_are_named(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Absent:
        name, about, packages, threads, quick = "absent", "x", ("absent-tools",), 1, False
        installed = False

    assert session.usable_cases([Case("absent", "x", real=Absent())]) == []  # type: ignore[arg-type]
    assert "left out: absent: Debian packages absent-tools" in capsys.readouterr().err


def test_json_goes_to_standard_output(bench: Bench, tmp_path: Path) -> None:
    done = bench("--output", tmp_path, "--workloads", "tiny_lifo", "--allocators", "glibc,floor",
                 "--reps", 1, "--scale", "0.001", "--no-counts", "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
