"""Whole tunings, as a user calls them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import time
from pathlib import Path

import pytest

from hakmem.commands.tune import EXIT_NOT_BETTER, EXIT_WORSE
from hakmem.folders import whole_of
from hakmem.options import read_options
from hakmem.project import find_project
from hakmem.tune.format import read_format
from hakmem.tune.profile_file import read
from hakmem.tune.recorder import build_id
from hakmem.watch import is_alive
from tests.cli.support import HAKMEM, Outcome, call, clean_environment, library, named_json
from tests.inspect.support.targets import preloaded
from tests.patience import HANG_SECONDS

OPTIONS = read_options(find_project().options_table)
FORMAT = read_format(find_project())
SIZE = 8464  # a size that the default table rounds up by a fifth
MIB = 1 << 20


def tune(*words: str | int | Path, cwd: Path) -> Outcome:
    chosen = ["--library", library()] if "--pid" not in words else []
    return call([*HAKMEM, "tune", *map(str, chosen), *map(str, words)], cwd=cwd)


def demand(program: Path, blocks: int, size: int, mapped: int) -> list[str | int | Path]:
    """Runs that are measured are short; the one that is recorded lasts so long that a busy machine
    looks at it."""
    return ["--", program, blocks, size, mapped, 60, 5000]


def require_documented(*objects: dict[str, object]) -> None:
    """docs/PROFILES.md names every key of what --json prints."""
    text = (find_project().root / "docs" / "PROFILES.md").read_text(encoding="utf-8")
    told = text.partition("### What --json prints")[2].partition("\n#")[0]
    assert [key for each in objects for key in each if f"`{key}`" not in told] == []


def test_a_better_table_is_found(demand_program: Path, tmp_path: Path) -> None:
    """Memory repeats to the page. Time does not on a busy machine, where it may speak against a
    change or the profile: what follows from figures is for test_trial.py and test_written.py."""
    command = demand(demand_program, 3000, SIZE, 0)
    done = tune(
        "--goal", "memory", "--runs", 5, "-o", "a.profile", "--json", *command, cwd=tmp_path
    )
    assert done.status in (0, EXIT_NOT_BETTER), done.stderr
    facts = named_json(done.stdout)
    assert facts["schema"] == "hakmem.tune/1"
    recording = facts["recording"]
    assert recording["exact_sizes"] is True
    assert recording["requests"][str(SIZE)] >= 2900
    assert recording["looks"] == len(recording["demand"])
    fullest = max(recording["demand"], key=lambda moment: int(moment["requested_bytes"]))
    assert fullest["requests"] == recording["requests"]
    tables = [each["size_classes"] for each in facts["proposed"] if each["size_classes"]]
    assert any(SIZE in table for table in tables)
    saving = [each for each in facts["screened"] if each["rss"] < 0.95]
    assert saving
    require_documented(facts, recording, fullest, facts["proposed"][0], facts["screened"][0])
    assert facts["better"] is (done.status == 0)
    if facts["measured"] is not None:
        require_documented(facts["measured"], facts["measured"]["rss"],
                           facts["measured"]["profile_runs"][0])  # fmt: skip
        if any(each["kept"] for each in saving):
            assert facts["measured"]["rss"]["high"] < 0.95
    if facts["better"]:
        profile = read(tmp_path / "a.profile", OPTIONS, FORMAT)
        assert SIZE in [size for size, _ in profile.size_classes]
        assert profile.version == find_project().version
        assert profile.build_id
        assert facts["output"] == "a.profile"
        assert facts["profile"] == (tmp_path / "a.profile").read_text()
        assert str(demand_program) in facts["profile"]
    else:
        assert facts["profile"] is facts["output"] is None
        assert not list(tmp_path.iterdir())


def test_a_profile_is_checked_on_other_input(demand_program: Path, tmp_path: Path) -> None:
    (tmp_path / "good.profile").write_text(f"size_class=16\nsize_class={SIZE}\nsize_class=65536\n")
    (tmp_path / "bad.profile").write_text("size_class=16\nsize_class=16384\nsize_class=65536\n")
    other = demand(demand_program, 2000, SIZE, 0)
    good = tune(
        "--check", "good.profile", "--goal", "memory", "--runs", 5, "--json", *other, cwd=tmp_path
    )
    # That it takes longer may seem so on a busy machine.
    assert good.status in (0, EXIT_WORSE, EXIT_NOT_BETTER), good.stderr
    facts = json.loads(good.stdout)
    assert facts["measured"]["rss"]["high"] < 0.95
    assert (facts["better"], facts["worse"]) == (good.status == 0, good.status == EXIT_WORSE)
    bad = tune("--check", "bad.profile", "--runs", 5, "--json", *other, cwd=tmp_path)
    assert bad.status == EXIT_WORSE, bad.stderr
    assert json.loads(bad.stdout)["measured"]["rss"]["low"] > 1.1


def test_the_program_that_a_profile_is_for_is_judged(demand_program: Path, tmp_path: Path) -> None:
    """A server, and beside it what loads it and is larger by far."""
    (tmp_path / "server.profile").write_text(
        f"program_build_id={build_id(str(demand_program))}\n"
        f"size_class=16\nsize_class={SIZE}\nsize_class=65536\n"
    )
    script = f"'{demand_program}' 2000 {SIZE} 0 60 && perl -e 'my $text = \"x\" x 200_000_000'"
    done = tune("--check", "server.profile", "--goal", "memory", "--runs", 5, "--json",
                "--", "sh", "-c", script, cwd=tmp_path)  # fmt: skip
    assert done.status in (0, EXIT_WORSE, EXIT_NOT_BETTER), done.stderr
    measured = json.loads(done.stdout)["measured"]
    assert measured["rss"]["high"] < 0.95
    assert all(run["peak_rss_bytes"] < 100 * MIB for run in measured["default_runs"])


def test_a_profile_that_is_refused_is_not_measured(tmp_path: Path) -> None:
    """Settings alone: nothing in the size classes shows whether they were taken."""
    (tmp_path / "other.profile").write_text("hakmem_version=9.9.9\nretain_slabs=3\n")
    done = tune("--check", "other.profile", "--runs", 5, "--", "true", cwd=tmp_path)
    assert done.status == 2, done.stderr
    # What was refused is a copy of its own, of which nobody needs to know.
    assert "true did not take the profile: hakmem_version '9.9.9' is not" in done.stderr
    assert "/tmp/" not in done.stderr and "default is used" not in done.stderr
    (tmp_path / "own.profile").write_text("retain_slabs=3\n")
    done = tune("--check", "own.profile", "--runs", 5, "--", "true", cwd=tmp_path)
    assert done.status in (0, 1, 3), done.stderr


def test_time_may_be_that_from_start_to_end(demand_program: Path, tmp_path: Path) -> None:
    """A program that sleeps, so that the two times differ."""
    (tmp_path / "own.profile").write_text("retain_slabs=3\n")
    check = ["--check", "own.profile", "--runs", "5", "--json", "--metric", "wall"]
    sleeping = [str(demand_program), "10", "64", "0", "200"]
    done = tune(*check, "--", *sleeping, cwd=tmp_path)
    assert done.status in (0, EXIT_WORSE, EXIT_NOT_BETTER), done.stderr
    facts = json.loads(done.stdout)
    assert facts["metric"] == "wall"
    measured = facts["measured"]
    runs = [measured["profile_runs"], measured["default_runs"]]
    assert all(run["wall_s"] >= 0.2 for each in runs for run in each)
    ratios = [ours["wall_s"] / base["wall_s"] for ours, base in zip(*runs, strict=True)]
    assert min(ratios) <= measured["time"]["median"] <= max(ratios)
    assert measured["time"]["median"] == pytest.approx(statistics.median(ratios))


def test_where_nothing_helps_nothing_is_written(demand_program: Path, tmp_path: Path) -> None:
    command = demand(demand_program, 10, 64, 64 * MIB)
    done = tune("--goal", "memory", "--runs", 5, "-o", "a.profile", *command, cwd=tmp_path)
    assert done.status == 3, done.stderr
    assert "no profile is written" in done.stderr
    assert done.stdout == b""
    assert not list(tmp_path.iterdir())


def test_a_running_process_gets_a_proposal(demand_program: Path, tmp_path: Path) -> None:
    words = [str(demand_program), "3000", str(SIZE), "0", "60000"]
    process = subprocess.Popen(words, env=preloaded(HAKMEM_RESEARCH="1"))
    try:
        done = tune(
            "--pid",
            process.pid,
            "--for",
            "300ms",
            "--any-build",
            "-o",
            "a.profile",
            "--json",
            cwd=tmp_path,
        )
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()
    assert done.status == 0, done.stderr
    assert "NOT measured" in done.stderr
    assert "NOT measured" in (tmp_path / "a.profile").read_text()
    profile = read(tmp_path / "a.profile", OPTIONS, FORMAT)
    assert SIZE in [size for size, _ in profile.size_classes]
    assert profile.build_id == ""
    facts = json.loads(done.stdout)
    assert facts["better"] is facts["measured"] is None
    assert facts["profile"] == (tmp_path / "a.profile").read_text()
    require_documented(facts)


def test_a_profile_that_finds_no_room_is_not_lost(demand_program: Path, tmp_path: Path) -> None:
    words = [str(demand_program), "3000", str(SIZE), "0", "60000"]
    process = subprocess.Popen(words, env=preloaded(HAKMEM_RESEARCH="1"))
    try:
        done = tune("--pid", process.pid, "--for", "300ms", "-o", "/dev/full", cwd=tmp_path)
    finally:
        process.kill()
        process.wait()
    assert done.status == 2, done.stderr
    assert "/dev/full: No space left on device; the profile is on standard output" in done.stderr
    (tmp_path / "a.profile").write_bytes(done.stdout)
    profile = read(tmp_path / "a.profile", OPTIONS, FORMAT)
    assert SIZE in [size for size, _ in profile.size_classes]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    """Sent twice, as timeout(1) does. The program has a session of its own, and a child."""
    said, folder = tmp_path / "said", tmp_path / "temporary"
    folder.mkdir()
    script = 'sleep 1000 & echo "$$ $! $HAKMEM_REPORT" > "$0.new"; mv "$0.new" "$0"; wait'
    words = [*HAKMEM, "tune", "--library", str(library()), "--", "sh", "-c", script, str(said)]
    environment = clean_environment(TMPDIR=str(folder))
    tuning = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + HANG_SECONDS
    while not said.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    for _ in range(1 if number is signal.SIGINT else 2):
        tuning.send_signal(number)
    _, errors = tuning.communicate(timeout=HANG_SECONDS)
    shell, child, reports = said.read_text().split()
    assert not is_alive(int(shell)) and not is_alive(int(child))
    assert not Path(reports).exists() and list(folder.iterdir()) == []
    assert (tuning.returncode, errors) == (2, "hakmem: interrupted; nothing was written\n")


def test_a_killed_tune_leaves_no_program(tmp_path: Path) -> None:
    """Nor what the program started: one that tells nothing of its run, one in another group."""
    said = tmp_path / "said"
    script = (
        "env -i sleep 1000 & bare=$!; setsid sleep 1000 & "
        'echo "$$ $bare $! $HAKMEM_REPORT" > "$0.new"; mv "$0.new" "$0"; wait'
    )
    words = [*HAKMEM, "tune", "--library", str(library()), "--", "sh", "-c", script, str(said)]
    environment = clean_environment(TMPDIR=str(tmp_path))
    tuning = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE)
    deadline = time.monotonic() + HANG_SECONDS
    while not said.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    *pids, reports = said.read_text().split()
    # Root's has a name that nobody else may learn; an argument everybody can read.
    secret = os.fsencode(Path(reports).name)
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            assert os.geteuid() != 0 or secret not in line.read_bytes()
    tuning.kill()
    tuning.communicate(timeout=HANG_SECONDS)
    try:
        while any(is_alive(int(pid)) for pid in pids) or whole_of(Path(reports)).exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    except AssertionError:
        for pid in filter(is_alive, map(int, pids)):
            os.kill(pid, signal.SIGKILL)
        raise


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "name a program to run, or a process with --pid"),
        (["--pid", "1", "--", "true"], "not both"),
        (["--pid", "abc"], "'abc' is no process"),
        (["--pid", "99999999"], "99999999"),
        (["--runs", "4", "--", "true"], "'4' is no number of pairs from 5 to 1000"),
        (["--for", "soon", "--pid", "1"], "'soon' is no duration"),
        (["-o", "/nowhere/a.profile", "--", "true"], "there is no directory /nowhere"),
        (["-o", ".", "--", "true"], "is a directory"),
        (["-o", "/proc/a.profile", "--", "true"], "hakmem: /proc/a.profile: "),
        (["--check", "none.profile", "--", "true"], "none.profile"),
        (["--library", "/nowhere/lib.so", "--", "true"], "there is no library /nowhere/lib.so"),
        (["--check", "x", "-o", "y", "--", "true"], "takes no --pid and no --output"),
        (["--", "no-such-program"], "no such program in PATH"),
        (["--", "false"], "the program ended with status 1"),
        (["--", "sh", "-c", "echo lost >&2; kill -9 $$"], "signal 9; its last words: lost"),
        (
            ["--", "sh", "-c", "echo \"hakmem: profile 'x' is no\" >&2; echo lost >&2; exit 3"],
            "status 3; its last words: lost",
        ),
        (["--timeout", "200ms", "--", "sleep", "60"], "still running after"),
    ],
)
def test_bad_input_is_one_sentence(words: list[str], complaint: str, tmp_path: Path) -> None:
    done = tune(*words, cwd=tmp_path)
    assert done.status == 2, done.stderr
    assert complaint in done.stderr
    assert done.stdout == b""
    assert "Traceback" not in done.stderr
