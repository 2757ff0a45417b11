"""The soak's verdicts on made-up samples, and on real runs with a leak and a slowdown planted."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from harness import identity, peers, soak, soaking, workshop
from harness.errors import BenchError, MeasureError, RefusedError
from harness.figures import Drift
from tests.cli.support import named_json
from tests.patience import HANG_SECONDS

TOP = Path(__file__).resolve().parents[2]
MIB = 2**20


def samples(
    rss: Callable[[float], float] = lambda share: 50 * MIB,
    speed: Callable[[float], float] = lambda share: 1e6,
    mappings: Callable[[float], float] = lambda share: 40,
    noise: float = 0.005,
    count: int = 400,
) -> list[soak.Sample]:
    """A run of `count` seconds; each curve is a function of how much of the run is over."""
    source = random.Random(11)
    found: list[soak.Sample] = []
    for number in range(1, count + 1):
        share = number / count
        per_second = speed(share) * (1 + source.gauss(0, noise))
        found.append(
            soak.Sample(
                ms=1000 * number,
                ops=(found[-1].ops if found else 0) + round(per_second),
                rss_bytes=round(rss(share) * (1 + source.gauss(0, 0.002))),
                mappings=round(mappings(share)),
                ops_per_second=per_second,
            )
        )
    return found


def noise_of(cv_percent: float, loss_percent: float, off: float = 0.5) -> soak.Noise:
    """Of a floor that lost so much, give or take `off`."""
    loss = Drift(loss_percent, loss_percent - off, loss_percent + off)
    return soak.Noise(cv_percent, loss)


def states(run: list[soak.Sample], floor: soak.Noise | None = None) -> dict[str, str]:
    return {verdict.name: verdict.state for verdict in soak.judge(run, floor)}


def test_a_steady_run_passes() -> None:
    assert set(states(samples()).values()) == {soak.PASS}


def test_growth_at_the_start_is_no_drift() -> None:
    run = samples(rss=lambda share: 50 * MIB * min(1.0, 0.5 + 2 * share))
    assert set(states(run).values()) == {soak.PASS}


@pytest.mark.parametrize(
    ("run", "fails"),
    [
        (samples(rss=lambda share: 50 * MIB * (1 + 0.06 * share)), "RSS drift"),
        (samples(speed=lambda share: 1e6 * (1 - 0.06 * share)), "throughput loss"),
        (samples(noise=0.06), "throughput CV"),
        (samples(mappings=lambda share: 40 + 100 * share), "mappings"),
    ],
)
def test_what_is_planted_fails_and_nothing_else(run: list[soak.Sample], fails: str) -> None:
    found = states(run)
    assert found[fails] == soak.FAIL
    assert soak.FAIL not in {state for name, state in found.items() if name != fails}


def test_falling_memory_and_rising_speed_are_no_faults() -> None:
    run = samples(rss=lambda share: 50 * MIB * (1 - 0.1 * share),
                  speed=lambda share: 1e6 * (1 + 0.02 * share))  # fmt: skip
    assert set(states(run).values()) == {soak.PASS}


def test_nobody_is_held_to_less_noise_than_the_machine_has() -> None:
    run = samples(noise=0.06)
    assert states(run, noise_of(1.0, 0.0))["throughput CV"] == soak.FAIL
    assert states(run, noise_of(5.0, 0.0))["throughput CV"] == soak.INCONCLUSIVE


def turns_of(speed: Callable[[float], float], count: int = 400) -> list[list[soak.Sample]]:
    """Of the floor: two intervals each in every 20 of so many seconds."""
    found = samples(speed=speed, noise=0.001, count=count)
    return [found[start : start + 2] for start in range(0, len(found), 20)]


def test_states_of_the_machine_are_nobodys_noise() -> None:
    """A machine that is as fast as usual in one of two stretches of 100 seconds, and half in the
    other: the floor tells when it changes."""

    def states_of(share: float) -> float:
        return 1e6 * (0.5 + 0.5 * (int(share * 400) // 100 % 2))

    floor = soak.noise_of(turns_of(states_of))
    assert floor.cv_percent > 20 and 15 <= len(floor.steady) <= 17
    found = {each.name: each for each in soak.judge(samples(speed=states_of, noise=0.01), floor)}
    assert found["throughput CV"].state == soak.PASS
    assert found["throughput CV"].value < 1.5 and "; of all " in found["throughput CV"].text
    # An unsteadiness of its own remains.
    own = samples(speed=states_of, noise=0.04)
    assert states(own, floor)["throughput CV"] == soak.FAIL
    # Of a machine that is never steady for long there is nothing else to tell.
    restless = soak.noise_of(turns_of(lambda share: 1e6 * (1 + int(share * 20) % 2)))
    assert not restless.steady
    assert states(own, restless)["throughput CV"] == soak.INCONCLUSIVE


@pytest.mark.parametrize(
    ("lost", "floor_lost", "rss", "throughput"),
    [
        (0.0, 0.0, soak.PASS, soak.PASS),
        (0.06, 0.0, soak.FAIL, soak.FAIL),
        # The floor loses as much, bit by bit: nobody's fault, but memory is.
        (0.06, 0.06, soak.FAIL, soak.INCONCLUSIVE),
        (-0.06, 0.0, soak.PASS, soak.PASS),
    ],
)
def test_a_drift_is_found_between_states_of_the_machine(
    lost: float, floor_lost: float, rss: str, throughput: str
) -> None:
    """Seven states of 200 seconds in the half, three of them twice as fast in the workload and a
    third faster in the floor, with a twentieth more memory: along the half the states hide what
    there is."""

    def is_fast(share: float) -> bool:
        return int(share * 2800) // 200 % 3 == 1

    def own(share: float) -> float:
        return (2e6 if is_fast(share) else 1e6) * (1 - lost * share)

    def of_floor(share: float) -> float:
        return (4e6 if is_fast(share) else 3e6) * (1 - floor_lost * share)

    def memory(share: float) -> float:
        return 50 * MIB * (1.05 if is_fast(share) else 1.0) * (1 + lost * share)

    run = samples(rss=memory, speed=own, noise=0.01, count=2800)
    noise = soak.noise_of(turns_of(of_floor, count=2800))
    found = {each.name: each for each in soak.judge(run, noise)}
    assert found["RSS drift"].state == rss, found["RSS drift"].text
    assert found["throughput loss"].state == throughput, found["throughput loss"].text
    alone = {each.name: each for each in soak.judge(run, None)}
    for name in ("RSS drift", "throughput loss"):
        assert " among " in found[name].text
        assert "stretches" not in alone[name].text
    assert alone["throughput loss"].state == soak.INCONCLUSIVE


def test_stretches_that_lie_together_say_nothing_of_the_half() -> None:
    """A machine that was steady for a tenth of the half: what drifts is found along all of it."""

    def of_floor(share: float) -> float:
        return 1e6 if 0.5 <= share < 0.6 else 1e6 * (1 + int(share * 180) % 2)

    run = samples(rss=lambda share: 50 * MIB * (1 + 0.06 * share),
                  speed=lambda share: 1e6 * (1 - 0.06 * share), count=3600)  # fmt: skip
    noise = soak.noise_of(turns_of(of_floor, count=3600))
    assert len(noise.steady) >= soak.EQUAL_LEAST
    found = {each.name: each for each in soak.judge(run, noise)}
    assert found["RSS drift"].state == soak.FAIL
    assert found["RSS drift"].value == pytest.approx(3.0, abs=0.5)
    assert "stretches" not in found["RSS drift"].text + found["throughput loss"].text


def test_stretches_without_equals_say_nothing() -> None:
    """A floor that is faster from stretch to stretch: the trend is that of the half."""

    def rising(share: float) -> float:
        return 1e6 * 4**share

    run = samples(speed=rising, count=800)
    noise = soak.noise_of(turns_of(lambda share: 1e6 * 1.5 ** int(share * 10), count=800))
    assert len(noise.steady) >= soak.EQUAL_LEAST
    found = {each.name: each for each in soak.judge(run, noise)}["throughput loss"]
    assert "stretches" not in found.text


def test_a_loss_that_the_machine_may_explain_is_inconclusive() -> None:
    run = samples(speed=lambda share: 1e6 * (1 - 0.06 * share))
    assert states(run, noise_of(1.0, 0.5))["throughput loss"] == soak.FAIL
    assert states(run, noise_of(1.0, 5.0))["throughput loss"] == soak.INCONCLUSIVE
    # One whose own loss is hardly known explains all that it may be.
    assert states(run, noise_of(1.0, -2.0, off=8.0))["throughput loss"] == soak.INCONCLUSIVE
    # A machine that became faster explains nothing.
    assert states(run, noise_of(1.0, -5.0))["throughput loss"] == soak.FAIL


def test_noise_is_that_of_the_floors_second_half() -> None:
    found = soak.noise_of([samples(speed=lambda share: 1e6 * (1 - 0.2 * share), noise=0.01)])
    assert found.loss.percent == pytest.approx(11.8, abs=1)
    assert 3 < found.cv_percent < 6
    assert abs(soak.noise_of([samples(noise=0.001)]).loss.percent) < 0.2
    found = soak.noise_of([samples(speed=lambda share: 1e6 * (1 + 0.2 * share))])
    assert found.loss.percent < -5


def test_an_interval_in_which_the_floor_ran_is_not_judged() -> None:
    run = [replace(each, whole=False, ops_per_second=1.0) if number % 7 == 0 else each
           for number, each in enumerate(samples())]  # fmt: skip
    assert set(states(run).values()) == {soak.PASS}


def test_the_floor_has_its_turns_all_along() -> None:
    """Of an hour by seconds, of ten minutes, and of the shortest soak that can be judged."""
    assert soak.stretch_intervals(3600, 1000) == 27
    assert soak.stretch_intervals(600, 1000) == 22
    assert soak.stretch_intervals(100, 1000) == 6
    assert soak.stretch_intervals(6, 100) == 20


def test_a_soak_is_long_enough_for_the_floor_or_refused() -> None:
    assert soak.seconds_least(1000) == 72
    assert soak.seconds_least(100) == 6
    for interval_ms in (20, 100, 700, 1000, 60_000):
        seconds = soak.seconds_least(interval_ms)
        turn = soak.turn_intervals(interval_ms)
        cycle = soak.stretch_intervals(seconds, interval_ms) + turn
        turns = int(seconds * 1000 / interval_ms / cycle)
        assert (turn - 1) * turns / 2 >= soak.SAMPLES_LEAST


def test_a_turn_of_the_floor_is_long_enough_for_late_lines() -> None:
    assert [soak.turn_intervals(ms) for ms in (20, 100, 300, 1000, 60_000)] == [50, 10, 4, 3, 3]


def test_intervals_in_which_the_floor_ran_are_not_counted_as_enough() -> None:
    run = [replace(each, whole=False) if number % 12 else each
           for number, each in enumerate(samples(count=120))]  # fmt: skip
    with pytest.raises(MeasureError, match="only 5 intervals to judge"):
        soak.judge(run, None)


def test_a_turn_of_the_floor_counts_without_its_start() -> None:
    turn = soak.Run(samples(count=3), {})
    assert [each.ms for each in soak.beside_at(60_000, turn)] == [62_000, 63_000]
    assert soak.beside_at(60_000, turn)[0].ops == turn.samples[1].ops


def test_a_drift_that_noise_may_hide_is_inconclusive() -> None:
    wandering = samples(speed=lambda share: 1e6 * (1 + 0.2 * math.sin(30 * share)))
    verdicts = soak.judge(wandering, noise_of(20.0, 0.0))
    assert {each.name: each.state for each in verdicts}["throughput loss"] == soak.INCONCLUSIVE
    assert soak.overall(verdicts) == soak.INCONCLUSIVE


def test_mappings_that_nobody_could_count_are_inconclusive() -> None:
    assert states(samples(mappings=lambda share: 0))["mappings"] == soak.INCONCLUSIVE


def test_one_failure_is_the_result() -> None:
    noisy = samples(noise=0.2, rss=lambda share: 50 * MIB * (1 + share))
    assert soak.overall(soak.judge(noisy, noise_of(20.0, 0.0))) == soak.FAIL


def test_too_short_a_run_is_not_judged() -> None:
    with pytest.raises(MeasureError, match="run it for longer"):
        soak.judge(samples(count=10), None)


def test_a_real_run_is_sampled_and_proven(built: Path) -> None:
    del built
    found = soak.run(peers.known()["glibc"], seconds=2, interval_ms=100)
    assert len(found.samples) >= 5
    assert all(sample.rss_bytes > MIB for sample in found.samples)
    # Lines that are read late, on a busy machine, are those of a process that has ended.
    assert found.samples[0].mappings > 5
    assert all(sample.mappings > 5 or sample.mappings == 0 for sample in found.samples)
    assert [each.ops for each in found.samples] == sorted(each.ops for each in found.samples)
    assert found.samples[-1].ops > 0
    assert "libc" in found.row["proof"]["malloc"]["loader"]


def test_the_workload_is_held_while_another_has_its_turn(built: Path) -> None:
    del built
    states: list[str] = []

    def beside(ms: int) -> None:
        assert ms > 0
        # The last hold may come when the workload has just ended.
        found = [state_of(pid) for pid in children_of(os.getpid())]
        states.extend(state for state in found if state not in "ZX")
        time.sleep(0.4)

    pauses = soak.Pauses(5, beside)
    found = soak.run(peers.known()["glibc"], seconds=4, interval_ms=100, pauses=pauses)
    assert states and set(states) == {"T"}
    held = [sample for sample in found.samples if sample.held_ms >= soak.HELD_MS_LEAST]
    assert not any(sample.whole for sample in held)
    # A line that came late divides a hold, and the run may end with one.
    assert len(held) >= 2
    told = sum(end - start for start, end in pauses.holds)
    assert 0.5 * told <= sum(sample.held_ms for sample in held) <= told
    assert found.samples[-1].ms >= 4000


def test_what_is_left_of_an_interval_after_a_hold_does_not_count(tmp_path: Path) -> None:
    """Its rate is another one: of 50 ms, with all lines cold."""
    lines = tmp_path / "lines"
    lines.write_text(
        "".join(
            json.dumps({"at_ms": 5000 + ms, "ms": ms, "ops": 10 * ms, "rss_bytes": 1}) + "\n"
            for ms in (100, 200, 650, 700, 800, 950)
        )
    )
    pauses = soak.Pauses(99, lambda ms: None, holds=[(5250, 5640)])
    with subprocess.Popen(["cat", str(lines)], stdout=subprocess.PIPE) as process:
        found, _ = soak._collect(process, 100, None, pauses)
    assert [sample.whole for sample in found] == [True, True, False, False, True, True]
    assert [sample.held_ms for sample in found] == [0, 0, 390, 0, 0, 0]


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def state_of(pid: int) -> str:
    """The letter of /proc/PID/stat: T is stopped."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def state_or_gone(pid: int) -> str:
    """The same; X when there is no such process."""
    try:
        return state_of(pid)
    except OSError:
        return "X"


def test_nothing_stays_stopped_when_the_harness_is_killed(built: Path, tmp_path: Path) -> None:
    del built
    folder = tmp_path / "results"
    line = [sys.executable, str(TOP / "hakmem"), "soak", "--minutes", "1", "--interval-ms", "100",
            "--allocator", "glibc", "--output", str(folder)]  # fmt: skip
    with subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as harness:
        try:
            stopped: list[int] = []
            deadline = time.monotonic() + HANG_SECONDS
            while not stopped:
                assert time.monotonic() < deadline and harness.poll() is None
                with contextlib.suppress(OSError):
                    stopped = [pid for pid in children_of(harness.pid) if state_of(pid) == "T"]
        finally:
            harness.kill()
    while any(state_or_gone(pid) not in "ZX" for pid in stopped):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def processors_of_threads(pid: int) -> list[frozenset[int]]:
    """Which processors each thread of a process may run on."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            found.append(frozenset(os.sched_getaffinity(int(task.name))))
    return found


def test_threads_that_work_stay_on_processors_of_their_own(built: Path) -> None:
    usable = frozenset(os.sched_getaffinity(0))
    wanted = min(2, len(usable))
    with subprocess.Popen([built / "soak", "--ms", "600000"], stdout=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + HANG_SECONDS
            pinned: set[frozenset[int]] = set()
            while len(pinned) < wanted and process.poll() is None:
                assert time.monotonic() < deadline
                threads = processors_of_threads(process.pid)
                pinned = {each for each in threads if len(each) == 1 and len(threads) == 4}
                time.sleep(0.01)
        finally:
            process.kill()
    assert len(pinned) == wanted
    assert frozenset().union(*pinned) <= usable


def test_a_run_on_something_else_is_refused(
    built: Path, tmp_path: Path, compile_c: Callable[..., Path]
) -> None:
    del built
    empty = compile_c(tmp_path / "nothing.so", "int nothing;\n", "-shared", "-fPIC")
    with pytest.raises(RefusedError, match="malloc"):
        soak.run(peers.Allocator("impostor", empty), seconds=0.5, interval_ms=100)


@pytest.mark.parametrize(
    ("control", "fails"),
    [({"leak": 30_000_000}, "RSS drift"), ({"slowdown": 99}, "throughput loss")],
)
def test_controls_fail(built: Path, control: dict[str, object], fails: str) -> None:
    del built
    states: list[str] = []
    # What a busy machine hides, or hides by growing idle, takes a longer run.
    for seconds in (4, 8, 16):
        found = soak.run(
            peers.known()["glibc"], seconds=seconds, interval_ms=100, arguments=control
        )
        try:
            verdicts = {verdict.name: verdict for verdict in soak.judge(found.samples, None)}
        except MeasureError as error:
            states.append(str(error))
            continue
        states.append(verdicts[fails].state)
        if states[-1] == soak.FAIL:
            break
    assert states[-1] == soak.FAIL, states


def test_a_workload_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pid_file = tmp_path / "pid"
    program = tmp_path / "soak"
    program.write_text(f"#!/bin/sh\necho $$ >{pid_file}\nsleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(workshop, "build", lambda: tmp_path)
    monkeypatch.setattr(soak, "SILENT_SECONDS", 4.0)
    monkeypatch.setattr(soak, "SILENT_INTERVALS", 1)
    with pytest.raises(MeasureError, match="silent for 4 s"):
        soak.run(peers.known()["glibc"], seconds=1, interval_ms=100)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_a_workload_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "soak"
    program.write_text("#!/bin/sh\necho 'lost its contents' >&2\nexit 3\n")
    program.chmod(0o755)
    monkeypatch.setattr(workshop, "build", lambda: tmp_path)
    with pytest.raises(MeasureError, match="status 3: lost its contents"):
        soak.run(peers.known()["glibc"], seconds=1, interval_ms=100)


def test_the_command_fails_on_a_leak_and_keeps_what_it_saw(built: Path, tmp_path: Path) -> None:
    del built
    folder = tmp_path / "results"
    line = [sys.executable, str(TOP / "hakmem"), "soak", "--minutes", "0.5", "--json",
            "--allocator", "glibc", "--interval-ms", "100", "--leak", "4000000",
            "--output", str(folder)]  # fmt: skip
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)
    assert done.returncode == 1, done.stderr
    facts = named_json(done.stdout)
    assert facts["result"] == soak.FAIL
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["kind"] == "soak" and manifest["soak"] == facts
    assert manifest["controls"] == {"leak": 4000000}
    assert facts["floor"]["cv_percent"] > 0
    assert (folder / "soak.svg").read_text().startswith("<svg")
    lines = [json.loads(text) for text in (folder / "samples.jsonl").read_text().splitlines()]
    assert {each["allocator"] for each in lines} == {"glibc", "floor"}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (["--minutes", "0.5"], "it takes --minutes 1.2 at least"),
        (["--minutes", "30", "--interval-ms", "60000"], "it takes --minutes 72 at least"),
        (["--interval-ms", "0"], "0 is not a positive number"),
        (["--threads", "-1"], "-1 is not a positive number"),
    ],
)
def test_what_cannot_be_judged_is_refused_at_once(
    wrong: list[str], said: str, tmp_path: Path
) -> None:
    line = [sys.executable, str(TOP / "hakmem"), "soak", "--allocator", "glibc",
            "--output", str(tmp_path / "results"), *wrong]  # fmt: skip
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert not (tmp_path / "results").exists()


def test_the_floor_is_built_before_it_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a soak on a fresh tree ends with a library that changed during the run."""
    noted: list[str] = []

    def build() -> Path:
        raise BenchError("as far as the build")

    monkeypatch.setattr(workshop, "build", build)
    monkeypatch.setattr(identity, "identity", lambda allocator: noted.append(allocator.name))
    options = argparse.Namespace(allocator="glibc", minutes=2, interval_ms=1000, leak=0, slowdown=0,
                                 seed=1, threads=2, output=tmp_path / "results")  # fmt: skip
    assert soaking.main(options, "") == 2
    assert noted == []


def test_nothing_is_built_while_the_workload_is_held(
    built: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> Path:
        raise BenchError("built")

    monkeypatch.setattr(workshop, "build", build)
    found = soak.run(peers.known()["glibc"], seconds=1, interval_ms=100, folder=built)
    assert found.row["ops"] > 0


def test_an_unknown_allocator_is_wrong_usage(tmp_path: Path) -> None:
    line = [sys.executable, str(TOP / "hakmem"), "soak", "--allocator", "nonesuch",
            "--output", str(tmp_path / "results")]  # fmt: skip
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)
    assert done.returncode == 2
    assert "no allocator 'nonesuch'" in done.stderr


def test_a_soak_in_a_log_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    progress = soaking.Progress("hakmem", 7200)
    for sample in samples(count=7200):
        progress.show(sample)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == soaking.LINES_MOST
    assert lines[0].startswith("hakmem: 120.0 min left, ")
    short = soaking.Progress("hakmem", 150)
    for sample in samples(count=150):
        short.show(sample)
    assert len(capsys.readouterr().err.splitlines()) == 3
