"""hakmem run: exit statuses, streams, signals, environment, and what the summary says."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from hakmem import elf, folders
from tests.cli.support import (
    HAKMEM,
    PROGRAMS,
    ROOT,
    Compile,
    Run,
    Summarise,
    call,
    clean_environment,
    library,
)
from tests.patience import HANG_SECONDS


@pytest.mark.parametrize("status", [0, 1, 3, 124, 125, 255])
def test_exit_status_of_the_program_is_passed_through(run: Run, status: int) -> None:
    outcome = run("sh", "-c", f"exit {status}")
    assert outcome.status == status
    assert f"exit status {status} after" in outcome.stderr


@pytest.mark.parametrize("name", ["KILL", "TERM", "SEGV", "ABRT", "INT"])
def test_death_by_signal_is_128_plus_its_number(run: Run, name: str) -> None:
    outcome = run("sh", "-c", f"kill -{name} $$")
    assert outcome.status == 128 + signal.Signals[f"SIG{name}"]
    assert f"SIG{name} after" in outcome.stderr


def test_program_that_does_not_exist_is_127(run: Run) -> None:
    for name in ("no-such-program-here", "/no/such/file"):
        outcome = run(name)
        assert outcome.status == 127
        assert re.fullmatch(rf"hakmem: {name}: no such .*\n", outcome.stderr)


def test_program_that_cannot_be_executed_is_126(run: Run, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("echo no\n", encoding="ascii")
    assert run(plain).status == 126
    assert run(tmp_path).status == 126
    plain.write_bytes(b"\x7fELF and then nothing of the kind")
    plain.chmod(0o755)
    outcome = run(plain)
    assert outcome.status == 126
    assert outcome.stderr == f"hakmem: {plain}: is a damaged ELF file\n"


def test_wrong_use_is_125_and_never_looks_like_the_program() -> None:
    for words in (["run"], ["run", "--no-such-option", "true"], ["run", "--set", "x", "true"]):
        outcome = call([*HAKMEM, *words])
        assert outcome.status == 125, words
        assert outcome.stdout == b""
        assert "hakmem: " in outcome.stderr


def test_arguments_after_the_program_are_the_programs(run: Run) -> None:
    outcome = run("printf", "%s|", "--", "-q", "--json", "", "a b")
    assert outcome.stdout == b"--|-q|--json||a b|"
    without_dashes = call([*HAKMEM, "run", "--library", library(), "printf", "%s|", "--", "-q"])
    assert without_dashes.stdout == b"--|-q|"


def test_streams_pass_untouched(run: Run) -> None:
    data = bytes(range(256)) * 4096
    outcome = run("sh", "-c", "cat; echo only this >&2", stdin=data, options=["--quiet"])
    assert outcome.stdout == data
    assert outcome.stderr == "only this\n"
    assert outcome.status == 0


def test_summary_is_on_standard_error_only(run: Run) -> None:
    outcome = run("echo", "hello")
    assert outcome.stdout == b"hello\n"
    lines = outcome.stderr.splitlines()
    assert lines[0] == (
        f"hakmem: active: every malloc symbol of every loaded module resolves to {library()}"
    )
    labels = [line.split()[0] for line in lines[1:]]
    assert labels == ["program", "processes", "books", "memory", "classes", "OS", "next"]
    assert re.search(r"peak RSS \d+\.\d MiB \(echo, pid \d+\)", outcome.stderr)
    assert re.search(r"OS calls +.*mmap \d+", outcome.stderr)


def test_program_sees_the_same_descriptors_signals_and_environment(run: Run) -> None:
    # posix_spawn leaves glibc's own signals 32 and 33 ignored; no program can tell through libc.
    ignored = "echo $((0x$(sed -n 's/^SigIgn:.//p' /proc/self/status) & ~0x180000000))"
    probe = (
        f"ls /proc/self/fd; grep -E '^(SigBlk|SigCgt):' /proc/self/status; {ignored}; env | sort"
    )
    with_hakmem = run("bash", "-c", probe, options=["--quiet"]).stdout.decode().splitlines()
    without = call(["bash", "-c", probe]).stdout.decode().splitlines()
    assert with_hakmem, "the probe said nothing"
    added = [line for line in with_hakmem if line not in without]
    assert sorted(line.partition("=")[0] for line in added) == ["HAKMEM_REPORT", "LD_PRELOAD"]
    assert [line for line in with_hakmem if line not in added] == without


def test_python_itself_leaves_no_trace_in_the_environment(run: Run) -> None:
    """In the C locale Python sets LC_CTYPE, which would change what the program prints."""
    bare = {"PATH": os.environ["PATH"]}
    outcome = run("sh", "-c", "env", options=["--quiet"], environment=bare)
    names = {line.partition("=")[0] for line in outcome.stdout.decode().splitlines()}
    assert names == {"PATH", "PWD", "HAKMEM_REPORT", "LD_PRELOAD"}


def test_directory_of_the_reports_is_gone_afterwards(run: Run) -> None:
    outcome = run("sh", "-c", "echo $HAKMEM_REPORT; ls -ld $HAKMEM_REPORT >&2", options=["-q"])
    directory = outcome.stdout.decode().strip()
    mode = "drwx-wx-wt" if os.geteuid() == 0 else "drwx------"
    assert outcome.stderr.startswith(mode)
    assert directory and not Path(directory).exists()


def test_existing_preload_is_kept_in_front(run: Run, build_program: Compile) -> None:
    other = build_program("plain.c", "-shared", "-fPIC", "-Wl,-soname,other.so")
    outcome = run(
        "sh", "-c", "echo $LD_PRELOAD", environment=clean_environment(LD_PRELOAD=str(other))
    )
    assert outcome.stdout.decode().strip() == f"{other}:{library()}"
    assert outcome.stderr.startswith("hakmem: active")


def test_library_below_a_path_with_spaces(tmp_path: Path, run: Run) -> None:
    directory = tmp_path / "a directory: with marks"
    directory.mkdir()
    (directory / "libhakmem.so").symlink_to(library())
    link = directory / "libhakmem.so"
    outcome = call([*HAKMEM, "run", "--library", str(link), "--", "echo", "x"])
    assert outcome.status == 0
    assert outcome.stderr.startswith("hakmem: active")


def test_mode_and_options_reach_the_library(summarise: Summarise) -> None:
    summary = summarise(
        "sh",
        "-c",
        "env | grep ^HAKMEM_ | sort",
        options=["--mode", "lean", "--set", "purge_delay_ms=7", "--set", "cache_heap_bytes=1M"],
    )
    settings = summary.stdout.decode().splitlines()
    assert settings[:2] == ["HAKMEM_CACHE_HEAP_BYTES=1M", "HAKMEM_MODE=lean"]
    assert "HAKMEM_PURGE_DELAY_MS=7" in settings
    assert {process["mode"] for process in summary.facts["processes"]} == {"lean"}


def test_what_is_set_wins_over_its_other_name(run: Run) -> None:
    """Of several variables the library takes the first."""
    outcome = run(
        "true",
        options=["--set", "refill_blocks=7", "--set", "verbose=1"],
        environment=clean_environment(
            HAKMEM_POOL_REFILL_BATCH="9", HAKMEM_PREWARM_BLOCKS="5", HAKMEM_RETAIN_SLABS="3"
        ),
    )
    shown = [line.split()[1:] for line in outcome.stderr.splitlines()]
    assert ["refill_blocks", "7", "(environment)"] in shown
    assert ["prewarm", "5", "(environment)"] in shown
    assert ["retain_slabs", "3", "(environment)"] in shown


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("purge_delay_ms=12x", "is not a number of milliseconds (0..3600000)"),
        ("purge_delay_ms=3600001", "is not a number of milliseconds (0..3600000)"),
        ("purge_delay_ms=٣", "is not a number of milliseconds (0..3600000)"),
        ("excess_bytes=٣K", "is not a size (0..68719476736), with K, M or G if you like"),
        ("mode=swift", "is not one of fast, lean, hardened, research"),
        ("no_such=1", "there is no option 'no_such'"),
        ("report=/tmp", "there is no option 'report' to set"),
    ],
)
def test_setting_that_the_library_would_ignore_is_refused(
    run: Run, setting: str, message: str
) -> None:
    outcome = run("true", options=["--set", setting])
    assert outcome.status == 125
    assert message in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_quiet_says_nothing_when_all_is_well(run: Run) -> None:
    outcome = run("true", options=["--quiet"])
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, b"", "")


def test_json_on_standard_error(run: Run, build_program: Compile) -> None:
    outcome = run(build_program("plain.c"), "6", options=["--json"])
    facts = json.loads(outcome.stderr)
    assert outcome.stdout == b""
    assert facts["schema"] == "hakmem.run/1"
    assert facts["command"][1:] == ["6"]
    assert facts["exit_status"] == facts["child_status"] == outcome.status == 6
    assert facts["child_signal"] is None
    assert facts["verdict"] == "active" and facts["active"] is True
    assert facts["library"] == str(library())
    assert facts["absent"] == []
    (process,) = facts["processes"]
    assert process["pid"] == facts["pid"]
    assert process["ending"] == process["proved_at"] == "exit"
    assert process["strays"] == []
    assert process["books_moved"] is True
    assert process["modules"] >= 2 and process["symbols"] >= 4
    assert process["build_id"] == elf.read_build_id(library()) != ""
    assert process["books"]["refills"] >= 1
    assert facts["os_calls"]["mmap"] >= 1
    assert process["peak_rss_bytes"] > 500_000
    assert facts["peak_rss_bytes"] == process["peak_rss_bytes"]
    for row in process["classes"]:
        assert all(type(value) is int for value in row.values())
        assert row["live_bytes"] == row["block_bytes"] * row["live_blocks"]
        held = row["live_blocks"] + row["cached_blocks"] + row["free_blocks"]
        assert row["block_bytes"] * held <= row["slab_bytes"]


def test_run_of_too_many_programs_says_what_it_did_not_read(tmp_path: Path) -> None:
    file = tmp_path / "summary.json"
    start = f"import sys; sys.path.insert(0, {str(ROOT / 'tools')!r})"
    few = "from hakmem import cli, schema; schema.REPORTS_MAX = 1; sys.exit(cli.main(sys.argv[1:]))"
    command = [sys.executable, "-c", f"{start}; {few}", "run", "--library", str(library())]
    command += ["--json", "--summary-file", str(file), "--", "sh", "-c", "ls /; exit 3"]
    outcome = call(command)
    assert outcome.status == 3
    facts = json.loads(file.read_text(encoding="utf-8"))
    assert (facts["process_count"], len(facts["processes"]), facts["unread_reports"]) == (2, 1, 1)
    assert (facts["verdict"], facts["absent"], facts["unwritten"]) == ("unproved", [], [])
    assert outcome.stderr.startswith("hakmem: not proved")


def test_summary_file(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "summary.txt"
    outcome = run("true", options=["--summary-file", file])
    assert outcome.stderr == ""
    assert file.read_text(encoding="utf-8").startswith("hakmem: active: every malloc symbol")
    elsewhere = run("sh", "-c", "exit 5", options=["--summary-file", tmp_path / "no" / "file"])
    assert elsewhere.status == 5
    assert "cannot write" in elsewhere.stderr and "hakmem: active" in elsewhere.stderr


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"NO_COLOR": "1"}, False),
    ],
)
def test_colours(run: Run, environment: dict[str, str], coloured: bool) -> None:
    outcome = run("true", environment=clean_environment(**environment))
    assert ("\x1b[" in outcome.stderr) is coloured


def test_peak_memory_is_the_programs_own(summarise: Summarise) -> None:
    small = summarise("true").facts["peak_rss_bytes"]
    large = summarise("perl", "-e", "my $x = 'x' x 50_000_000; exit 0").facts["peak_rss_bytes"]
    # The command itself, a Python process of more than 15 MB, must not show in it.
    assert 500_000 < small < 8_000_000
    assert 50_000_000 < large < 200_000_000


def test_peak_memory_of_a_program_that_is_killed(run: Run, summarise: Summarise) -> None:
    """It has memory for a moment between two looks, and writes no report of it."""
    program = "select(undef, undef, undef, 0.5); my $x = 'x' x 60_000_000; kill 9, $$"
    (process,) = summarise("perl", "-e", program).facts["processes"]
    assert process["ending"] == "no exit" and process["peak_rss_exact"] is True
    assert 60_000_000 < process["peak_rss_bytes"] < 200_000_000
    # What it ran before shows in the kernel's figure: it is not taken.
    outcome = run("sh", "-c", 'exec perl -e "kill 9, $$"')
    assert "peak RSS at least" in outcome.stderr
    assert "ended by a signal, _exit or exec" in outcome.stderr


# ---- Signals


def _wait_for(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def test_signals_to_the_command_reach_the_program(tmp_path: Path) -> None:
    count = tmp_path / "count"
    program = [sys.executable, str(PROGRAMS / "signals.py"), str(count)]
    with subprocess.Popen(
        [*HAKMEM, "run", "--library", str(library()), "--quiet", "--", *program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    ) as command:
        assert command.stdout is not None
        assert command.stdout.readline() == b"ready\n"
        command.send_signal(signal.SIGINT)
        _wait_for(count.exists)
        command.send_signal(signal.SIGTERM)
        assert command.wait(HANG_SECONDS) == 7
    assert count.read_text(encoding="ascii") == "1"


@pytest.mark.parametrize(
    "number", [signal.SIGWINCH, signal.SIGABRT, signal.SIGPWR, signal.SIGRTMIN, signal.SIGRTMAX]
)
def test_seldom_signals_reach_it_too(number: signal.Signals) -> None:
    """As nginx and containers are told to end; the command outlives its program."""
    program = (
        f"import signal, sys; signal.signal({int(number)}, lambda *_: sys.exit(9));"
        f"signal.alarm({int(HANG_SECONDS)}); print('ready', flush=True); signal.pause()"
    )
    words = [*HAKMEM, "run", "--library", str(library()), "--", sys.executable, "-c", program]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment()
    ) as command:
        assert command.stdout is not None and command.stderr is not None
        assert command.stdout.readline() == b"ready\n"
        command.send_signal(number)
        try:
            assert command.wait(HANG_SECONDS) == 9
        finally:
            command.kill()
        assert command.stderr.read().startswith(b"hakmem: active")


class Terminal:
    """A terminal of its own, with a command that leads its session."""

    def __init__(self, *program: str | Path) -> None:
        command = [*HAKMEM, "run", "--library", str(library()), "--", *map(str, program)]
        self.output = b""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execve(command[0], command, clean_environment(TERM="xterm"))

    def said(self, text: bytes) -> bool:
        ready, _, _ = select.select([self.terminal], [], [], 0.05)
        if ready:
            try:
                self.output += os.read(self.terminal, 4096)
            except OSError:
                time.sleep(0.01)
        return text in self.output

    def exit_status(self) -> int:
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def test_terminal_belongs_to_the_program(tmp_path: Path) -> None:
    """Control-C reaches it once, from the terminal itself, and the command outlives it."""
    count = tmp_path / "count"
    screen = Terminal(sys.executable, PROGRAMS / "signals.py", count)
    _wait_for(lambda: screen.said(b"ready"))
    os.write(screen.terminal, b"\x03")
    _wait_for(count.exists)
    time.sleep(0.2)
    assert count.read_text(encoding="ascii") == "1"
    os.kill(screen.pid, signal.SIGTERM)
    _wait_for(lambda: screen.said(b"next"))
    assert screen.exit_status() == 7
    os.close(screen.terminal)
    assert b"\x1b[1;32mactive" in screen.output


def test_terminal_that_hangs_up_ends_the_program() -> None:
    """The kernel tells the leader of the session alone, as of `ssh -t` and `xterm -e`."""
    program = (
        f"import signal; signal.alarm({int(HANG_SECONDS)}); print('ready', flush=True);"
        "signal.pause()"
    )
    screen = Terminal(sys.executable, "-c", program)
    # All of it: what is not written by then cannot be.
    _wait_for(lambda: screen.said(b"ready\r\n"))
    os.close(screen.terminal)
    assert screen.exit_status() == 128 + signal.SIGHUP


def test_timer_of_the_caller_ends_the_program() -> None:
    """It goes on through exec, and the kernel tells the command alone."""
    start = "import os, signal, sys; signal.alarm(3); os.execv(sys.argv[1], sys.argv[1:])"
    command = [*HAKMEM, "run", "--library", str(library()), "--", "sleep", "120"]
    outcome = call([sys.executable, "-c", start, *command])
    # The former when it comes before the program has started.
    assert outcome.status in (-signal.SIGALRM, 128 + signal.SIGALRM)


@pytest.mark.parametrize(("less", "in_memory"), [(0, True), (1, False)])
def test_reports_are_in_memory_where_there_is_room(
    less: int, in_memory: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    free = folders.IN_MEMORY_BYTES_MIN - less
    monkeypatch.setattr(folders, "IN_MEMORY", tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    with folders.report_folder("hakmem-test-") as folder:
        assert (tmp_path in folder.parents) is in_memory


@pytest.mark.parametrize("user", [0, 1000])
def test_nobody_else_finds_the_folder_of_reports(
    user: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of root's programs others may write into it, who know its name."""
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with folders.report_folder("hakmem-test-") as folder:
        outer = folder if folder.name.startswith("hakmem-test-") else folder.parent
        assert outer.stat().st_mode & 0o7777 == (0o711 if user == 0 else 0o700)
        if user == 0:
            assert folder.stat().st_mode & 0o7777 == 0o1733
            assert re.fullmatch("[0-9a-f]{32}", folder.name)
        else:
            assert folder == outer
        (folder / "1.1").touch()
    assert not outer.exists()
