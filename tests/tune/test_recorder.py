"""What is recorded of a run: every program that a process runs, one after the other."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from hakmem.commands.tune import EXIT_NOT_BETTER
from hakmem.errors import UsageError
from hakmem.inspect.control import Control
from hakmem.inspect.errors import InspectError
from hakmem.inspect.layout import read_option
from hakmem.inspect.process import ProcessSource
from hakmem.inspect.reading import Session
from hakmem.inspect.targets import take
from hakmem.tune.execution import prepare, run
from hakmem.tune.recorder import FAILURES_MOST, SETTINGS, Recorder, build_id, record_process
from hakmem.tune.recording import MOMENTS_KEPT, MOMENTS_MOST, Moment, Recording, remember, thinned
from tests.cli.support import HAKMEM, clean_environment, library
from tests.inspect.support.targets import running
from tests.patience import HANG_SECONDS

LOOKS_LEAST = 3
PERL_BYTES = 5000 * 1000
# Each waits for a file that says how it was looked at.
SEEN = 'until [ -e "$0/sh" ]; do sleep 0.05; done; sleep 0.2; exec perl -e "$1" "$0/perl"'
UNSEEN = 'until [ -e "$0/unseen" ]; do sleep 0.05; done; LD_PRELOAD=$2 exec perl -e "$1" "$0/perl"'
PERL = """my @held = map { "x" x 1000 } 1 .. 5000;
select(undef, undef, undef, 0.05) until -e $ARGV[0]"""


class Signal(Recorder):
    """Makes a file in `folder` for every program that was looked at a few times, and one when it
    has failed to look at one for so long that it looks at it seldom."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def look(self, pids: frozenset[int]) -> float:
        pause_s = super().look(pids)
        for subject in self.subjects.values():
            if subject.last is None or len(subject.moments) < LOOKS_LEAST:
                continue
            # Perl ends as soon as it is told, which is not before all of its list was seen.
            is_whole = subject.moments[-1].requested_bytes > PERL_BYTES
            if subject.last.name != "perl" or is_whole:
                (self.folder / subject.last.name).touch()
        if any(count > FAILURES_MOST for count in self.failures.values()):
            (self.folder / "unseen").touch()
        return pause_s


def recorded(folder: Path, *words: str) -> Recording:
    recorder = Signal(folder)
    try:
        run(prepare(words, library()), SETTINGS, HANG_SECONDS, recorder)
        return recorder.largest()
    finally:
        recorder.close()


def require_perl(recording: Recording) -> None:
    assert recording.program == "perl"
    assert Path(recording.exe).name.startswith("perl")
    assert recording.peak.requested_bytes > PERL_BYTES
    assert len(recording.moments) >= LOOKS_LEAST


def test_a_wrapper_that_ends_in_exec_does_not_hide_the_program(tmp_path: Path) -> None:
    require_perl(recorded(tmp_path, "sh", "-c", SEEN, str(tmp_path), PERL))


def test_a_wrapper_without_hakmem_does_not_hide_the_program(tmp_path: Path) -> None:
    shell = ("sh", "-c", UNSEEN, str(tmp_path), PERL, str(library()))
    require_perl(recorded(tmp_path, "env", "-u", "LD_PRELOAD", *shell))


def test_why_nothing_could_be_seen_is_told() -> None:
    recorder = Recorder()
    with pytest.raises(UsageError, match=r"tenths of a second$"):
        recorder.largest()
    recorder.look(frozenset({os.getpid()}))
    with pytest.raises(UsageError, match=f"; the latest look: .*{os.getpid()}.* hakmem"):
        recorder.largest()


def await_demand(pid: int, blocks: int) -> None:
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        with contextlib.suppress(InspectError):
            if take(str(pid), residency=False).gauges["live_blocks"] >= blocks:
                return
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_program_is_told_by_its_file_and_not_by_its_name(
    demand_program: Path, tmp_path: Path
) -> None:
    """The name is no UTF-8, and leads nowhere when the file was replaced."""
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    shutil.copy(demand_program, odd)
    environment = clean_environment(LD_PRELOAD=str(library()))
    recorder = Recorder()
    with running([odd, "3000", "8464", "0", "600000"], environment) as process:
        await_demand(process.pid, 3000)
        odd.unlink()
        recorder.look(frozenset({process.pid}))
        recording = recorder.largest()
    recorder.close()
    assert recording.build_id == build_id(str(demand_program)) != ""


def test_what_was_seen_of_a_process_that_ended_counts(demand_program: Path) -> None:
    environment = clean_environment(LD_PRELOAD=str(library()), HAKMEM_RESEARCH="1")
    looks = 0
    with running([demand_program, "3000", "8464", "0", "600000"], environment) as process:
        await_demand(process.pid, 3000)

        def end_after_some(_: float) -> bool:
            nonlocal looks
            looks += 1
            if looks == LOOKS_LEAST:
                process.kill()
                process.wait()
            return False

        recording = record_process(process.pid, 10 * HANG_SECONDS, end_after_some)
    assert len(recording.moments) == looks == LOOKS_LEAST
    assert recording.program == "demand"
    assert recording.seconds < HANG_SECONDS


def test_looks_of_many_hours_are_not_all_kept() -> None:
    moments: list[Moment] = []
    for place in range(20_000):
        blocks = 7_000_000 if place == 9_999 else place % 7
        remember(moments, Moment(place / 10, np.array([0, blocks]), {}, 1))
        assert len(moments) <= MOMENTS_KEPT
    found = thinned(moments)
    assert len(found) <= MOMENTS_MOST
    assert (found[0].at_s, found[-1].at_s) == (0.0, 1999.9)
    assert max(moment.requested_bytes for moment in found) == 16 * 7_000_000
    assert 0.3 < sum(moment.at_s < 1000 for moment in found) / len(found) < 0.7


def test_research_is_off_again_though_a_thread_never_followed(demand_program: Path) -> None:
    """It sleeps since research was switched off: by what its cache says it is still on."""
    environment = clean_environment(LD_PRELOAD=str(library()), HAKMEM_RESEARCH="1")
    with running([demand_program, "3000", "8464", "0", "600000"], environment) as process:
        await_demand(process.pid, 3000)
        source = ProcessSource(process.pid)
        with Session(source) as session:
            Control(source, session.layout).set_option("research", 0)
            record_process(process.pid, HANG_SECONDS, lambda _: True)
            assert read_option(source, session.layout, "research") == 0


def test_programs_that_ended_cost_no_descriptor(demand_program: Path) -> None:
    """A shell script may run thousands, one after the other."""
    environment = clean_environment(LD_PRELOAD=str(library()))
    recorder = Recorder()
    before = sorted(Path("/proc/self/fd").iterdir())
    for count in (1, 2, 3):
        with running([demand_program, "3000", "8464", "0", "600000"], environment) as process:
            await_demand(process.pid, 3000)
            recorder.look(frozenset({process.pid}))
        assert len(recorder.subjects) == count
    recorder.look(frozenset())
    assert sorted(Path("/proc/self/fd").iterdir()) == before
    assert recorder.largest().program == "demand"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_research_is_off_again_though_a_signal_ends_it(
    demand_program: Path, number: signal.Signals
) -> None:
    environment = clean_environment(LD_PRELOAD=str(library()))
    with running([demand_program, "3000", "8464", "0", "600000"], environment) as process:
        await_demand(process.pid, 3000)
        source = ProcessSource(process.pid)
        with Session(source) as session:
            words = [*HAKMEM, "tune", "--pid", str(process.pid), "--for", "1h"]
            tuning = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            deadline = time.monotonic() + HANG_SECONDS
            while read_option(source, session.layout, "research") == 0:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            tuning.send_signal(number)
            _, said = tuning.communicate(timeout=HANG_SECONDS)
            assert read_option(source, session.layout, "research") == 0
    assert tuning.returncode in (0, EXIT_NOT_BETTER), said
