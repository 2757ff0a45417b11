"""What one run cost: of all its processes."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path

import pytest

from hakmem.tune.execution import RunFailedError, prepare, run
from hakmem.watch import is_alive
from tests.cli.support import library
from tests.patience import HANG_SECONDS

BUSY_S = 0.3
# Says its number when it has worked for so long, and goes on.
SERVER = f"""1 while (times)[0] + (times)[1] < {BUSY_S};
open my $file, ">", "$ARGV[0].new"; print $file $$; close $file; rename "$ARGV[0].new", $ARGV[0];
sleep 1000"""
READY = 'until [ -e "$1" ]; do sleep 0.05; done'


def children() -> str:
    return Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()


@pytest.mark.parametrize(
    "script",
    [
        f'perl -e "$0" "$1" & {READY}; kill $!; wait $!; true',
        f'perl -e "$0" "$1" & {READY}; kill $!',
        f'perl -e "$0" "$1" & {READY}',
        f'(perl -e "$0" "$1" &); {READY}',
        f'setsid perl -e "$0" "$1" & {READY}',
        f'(setsid perl -e "$0" "$1" &); {READY}',
    ],
    ids=[
        "waited for",
        "killed",
        "left running",
        "of a parent that ended",
        "in another session",
        "a daemon",
    ],
)
def test_a_server_in_the_background_counts_and_is_ended(script: str, tmp_path: Path) -> None:
    said = tmp_path / "server"
    done = run(prepare(["sh", "-c", script, SERVER, str(said)], library()), {}, HANG_SECONDS)
    assert done.cpu_s >= BUSY_S
    assert not is_alive(int(said.read_text()))
    assert "perl" in {re.sub(r"[\d.]+$", "", Path(report.exe).name) for report in done.reports}
    # Nothing is left to wait for.
    assert not re.search(rf"\b{int(said.read_text())}\b", children())


def test_a_program_whose_files_are_limited_is_told_so() -> None:
    """It ran on hakmem, which could not write its report."""
    command = prepare(["true"], library())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(RunFailedError, match="its files are limited"):
            run(command, {}, HANG_SECONDS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_runs_leave_no_descriptor() -> None:
    """A tuning makes hundreds of them, and a process may have some thousand files open."""
    command = prepare(["true"], library())
    run(command, {}, HANG_SECONDS)
    before = sorted(Path("/proc/self/fd").iterdir())
    for _ in range(3):
        run(command, {}, HANG_SECONDS)
    assert sorted(Path("/proc/self/fd").iterdir()) == before


def test_who_loads_a_server_is_not_what_is_tuned() -> None:
    script = "perl -e 'my $text = \"x\" x 200_000_000'; true"
    command = prepare(["sh", "-c", script], library())
    largest = run(command, {}, HANG_SECONDS)
    assert largest.peak_rss_bytes > 150_000_000
    shell = next(each.exe for each in largest.reports if "perl" not in Path(each.exe).name)
    judged = run(command, {}, HANG_SECONDS, exe=shell)
    assert judged.peak_rss_bytes < 50_000_000
    assert {each.exe for each in judged.reports} == {shell}
    # As that of a program that is copied to a new place for each run.
    unknown = run(command, {}, HANG_SECONDS, exe="/usr/sbin/server")
    assert unknown.peak_rss_bytes > 150_000_000
