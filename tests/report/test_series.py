"""hakmem record: what is written, how it ends, and what reads it."""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from hakmem.commands import record
from hakmem.inspect import jsonform
from hakmem.inspect.errors import GoneError
from hakmem.inspect.model import Snapshot
from hakmem.inspect.reading import Session
from hakmem.report import durations, series, timeline
from tests.cli.support import HAKMEM, call, clean_environment
from tests.inspect.support.synthetic import make_snapshot
from tests.patience import HANG_SECONDS
from tests.report.support.browser import Browser
from tests.report.support.grower import Grower
from tests.report.support.pages import open_page, write


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def made_up(file: Path, count: int, *, seconds: int = 1) -> Path:
    """A series of a heap that grows by a superslab with each snapshot, up to nine."""
    with file.open("w") as out:
        out.write(json.dumps(series.header(4242, seconds)) + "\n")
        for index in range(count):
            snapshot = make_snapshot(
                superslab_count=1 + min(index, 8), taken_ns=10**18 + index * seconds * 10**9
            )
            is_last = index == count - 1
            detail = "blocks" if is_last else "totals"
            out.write(json.dumps(jsonform.encode(snapshot, detail)) + "\n")
    return file


def start(*words: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*HAKMEM, "record", *(str(word) for word in words)],
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )


def await_lines(file: Path, count: int) -> None:
    """Waits until so many lines are written."""
    end = time.monotonic() + HANG_SECONDS
    while not file.exists() or file.read_bytes().count(b"\n") < count:
        assert time.monotonic() < end, "no series is being written"
        time.sleep(0.05)


# ---- Recording


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_series_of_a_growing_process(
    grower: Grower, tmp_path: Path, number: signal.Signals
) -> None:
    file = tmp_path / "series.jsonl"
    recording = start(grower.pid, "--every", "50ms", "-o", file)
    await_lines(file, 3)
    grower.grow(5000, 100)
    await_lines(file, file.read_bytes().count(b"\n") + 3)
    recording.send_signal(number)
    _, said = recording.communicate(timeout=HANG_SECONDS)
    assert recording.returncode == 0
    assert f"snapshots; {number.name}".encode() in said
    first, *rows = lines(file)
    assert first["schema"] == "hakmem.series/1" and str(first["pid"]) == grower.pid
    assert [row["detail"] for row in rows] == ["totals"] * (len(rows) - 1) + ["blocks"]
    told = series.read(file)
    assert told.count == len(rows) == len(told.points)
    live = [point.live_bytes[112] for point in told.points]
    assert live[-1] - live[0] == 5000 * 112
    taken = [point.taken_ns for point in told.points]
    assert taken == sorted(taken)
    outcome = call([*HAKMEM, "diff", file, "--fail-above", "500K"])
    assert outcome.status == 1 and b"GREW" in outcome.stdout


def test_record_for_a_time(grower: Grower, tmp_path: Path) -> None:
    file = tmp_path / "series.jsonl"
    outcome = call([*HAKMEM, "record", grower.pid, "--every", "200ms", "--for", "1s", "-o", file])
    assert outcome.status == 0
    assert "the time was up" in outcome.stderr
    # At 0, 200, ... 1000 ms; a busy machine may miss some.
    assert 2 <= len(lines(file)) - 1 <= 6
    assert lines(file)[-1]["detail"] == "blocks"


def test_record_for_less_than_its_step(grower: Grower, tmp_path: Path) -> None:
    """It takes as long as it should, and has an end to compare with."""
    file = tmp_path / "series.jsonl"
    outcome = call([*HAKMEM, "record", grower.pid, "--every", "1h", "--for", "500ms", "-o", file])
    assert outcome.status == 0, outcome.stderr
    _, first, last = lines(file)
    assert last["taken_ns"] - first["taken_ns"] > 200_000_000


def test_record_ends_with_its_process(grower: Grower, tmp_path: Path) -> None:
    file = tmp_path / "series.jsonl"
    recording = start(grower.pid, "--every", "50ms", "-o", file)
    await_lines(file, 3)
    grower.end()
    _, said = recording.communicate(timeout=HANG_SECONDS)
    assert recording.returncode == 0, said
    assert f"process {grower.pid} ended" in said.decode()
    assert len(lines(file)) >= 3


def test_a_series_that_nobody_reads_to_its_end(grower: Grower) -> None:
    words = [*HAKMEM, "record", grower.pid, "--every", "20ms"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment()
    ) as recording:
        assert recording.stdout is not None and recording.stderr is not None
        assert json.loads(recording.stdout.readline())["schema"] == series.SCHEMA
        recording.stdout.close()
        said = recording.stderr.read().decode()
        assert recording.wait(timeout=HANG_SECONDS) == 0, said
    assert "hakmem: standard output: " in said and "; nobody reads it any more\n" in said


def test_full_disk_leaves_whole_lines(grower: Grower, tmp_path: Path) -> None:
    """A limit of the file's size stands for a full disk: the write fails in its middle."""
    file = tmp_path / "series.jsonl"
    most = 100_000
    done = subprocess.run(
        [*HAKMEM, "record", grower.pid, "--every", "20ms", "-o", str(file)],
        capture_output=True,
        timeout=HANG_SECONDS,
        env=clean_environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    assert done.returncode == 125
    assert done.stderr.decode() == f"hakmem: {file}: File too large\n"
    assert 0 < file.stat().st_size <= most
    assert len(lines(file)) >= 2
    # Behind what was there before: that stays.
    before = b'{"of": "another"}\n' * 3000
    file.write_bytes(before)
    with file.open("ab") as output:
        done = subprocess.run(
            [*HAKMEM, "record", grower.pid, "--every", "20ms"],
            stdout=output,
            stderr=subprocess.PIPE,
            timeout=HANG_SECONDS,
            env=clean_environment(),
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
        )
    assert done.returncode == 125
    assert file.read_bytes().startswith(before)
    assert len(lines(file)) >= 3002
    full = call([*HAKMEM, "record", grower.pid, "-o", "/dev/full"])
    assert full.status == 125
    assert full.stderr == "hakmem: /dev/full: No space left on device\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nobody"], "is no process"),
        (["999999999"], "no process 999999999"),
        (["1", "--every", "soon"], "no duration"),
        (["1", "--every", "1ms"], "at least 20ms"),
        (["1", "--for", "-1s"], "--for"),
    ],
)
def test_wrong_use_is_one_sentence_and_2(words: list[str], said: str) -> None:
    outcome = call([*HAKMEM, "record", *words])
    assert (outcome.status, outcome.stdout) == (2, b"")
    assert said in outcome.stderr and "Traceback" not in outcome.stderr


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("1", 1), ("1.5s", 1.5), ("2m", 120), ("2 min", 120), ("1h", 3600),
     ("1D", 86_400), ("366d", 31_622_400)],
)  # fmt: skip
def test_durations(text: str, seconds: float) -> None:
    assert durations.seconds(text) == seconds


@pytest.mark.parametrize("text", ["0s", "367d", "1w", "1e3", "-1s", "s"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is no duration"):
        durations.seconds(text)


def test_another_allocators_process_is_refused(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"], env=clean_environment()) as other:
        try:
            file = tmp_path / "series.jsonl"
            outcome = call([*HAKMEM, "record", str(other.pid), "-o", file])
            assert outcome.status == 2 and "Traceback" not in outcome.stderr
            assert not file.exists()
        finally:
            other.kill()


def test_a_series_of_what_cannot_be_read_leaves_the_older_one(
    grower: Grower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = made_up(tmp_path / "series.jsonl", 3)
    before = file.read_bytes()

    def take(_: Session, **__: object) -> Snapshot:
        raise GoneError("process 4242 has ended")

    monkeypatch.setattr(Session, "take", take)
    parser = argparse.ArgumentParser()
    record.add(parser.add_subparsers())
    options = parser.parse_args(["record", str(grower.pid), "--for", "1s", "-o", str(file)])
    with pytest.raises(GoneError):
        options.run(options)
    assert file.read_bytes() == before


def test_a_named_pipe_that_nobody_opened_can_be_left(grower: Grower, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    recording = start(grower.pid, "--every", "50ms", "-o", pipe)
    deadline = time.monotonic() + HANG_SECONDS
    memory = f"/proc/{grower.pid}/mem"
    while memory not in [
        str(each.readlink()) for each in Path(f"/proc/{recording.pid}/fd").iterdir()
    ]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    while recording.poll() is None:
        time.sleep(0.2)
        assert time.monotonic() < deadline
        recording.send_signal(signal.SIGINT)
    recording.communicate()
    assert recording.returncode != 0


# ---- Reading


def test_half_a_last_line_is_left_out(tmp_path: Path) -> None:
    file = made_up(tmp_path / "series.jsonl", 3)
    whole = series.read(file)
    with file.open("a") as out:
        out.write('{"schema": "hakmem.insp')
    assert series.read(file).points == whole.points
    with file.open("a") as out:
        out.write("\n")
    with pytest.raises(series.SeriesError, match="is not JSON"):
        series.read(file)


def test_a_series_behind_a_series_is_one_if_it_is_of_that_process(tmp_path: Path) -> None:
    """`hakmem record 4242 --for 1h >> FILE`, again and again."""
    file = made_up(tmp_path / "series.jsonl", 3)
    for pid in (4242, 4243):
        with file.open("a") as out:
            out.write(json.dumps(series.header(pid, 1), separators=(",", ":")) + "\n")
            out.writelines(made_up(tmp_path / "more.jsonl", 2).read_text().splitlines(True)[1:])
        if pid == 4242:
            assert series.read(file).count == 5
    with pytest.raises(series.SeriesError, match=r"of process 4243 .* follows that of"):
        series.read(file)


@pytest.mark.parametrize("taken_ns", ["-1", "9223372036854775808", "1e400"])
def test_a_moment_that_cannot_be(tmp_path: Path, taken_ns: str) -> None:
    """In the middle, where no whole snapshot is made of a line."""
    file = made_up(tmp_path / "series.jsonl", 3)
    rows = file.read_text().splitlines()
    rows[2] = re.sub(r'"taken_ns": \d+', f'"taken_ns": {taken_ns}', rows[2])
    file.write_text("\n".join(rows) + "\n")
    with pytest.raises(series.SeriesError, match="no snapshot of a series"):
        series.read(file)


def test_long_series_are_thinned_out_but_keep_their_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(series, "POINTS_MOST", 5)
    told = series.read(made_up(tmp_path / "series.jsonl", 14))
    assert told.count == 14 and len(told.points) <= 6
    taken = [(point.taken_ns - 10**18) // 10**9 for point in told.points]
    assert (taken[0], taken[-1]) == (0, 13)


def test_timeline_shows_the_figures_of_the_series(browser: Browser, tmp_path: Path) -> None:
    told = series.read(made_up(tmp_path / "series.jsonl", 6, seconds=10))
    page = open_page(browser, write(tmp_path / "series.html", told.last, told))
    assert page.console == []
    resident = [point.rss_bytes for point in told.points]
    shown = page.evaluate(
        "[...document.querySelectorAll('#timeline-rows tbody tr')]"
        ".map((row) => Number(row.cells[1].dataset.value))"
    )
    assert shown == resident
    line = page.evaluate("document.querySelector('#timeline-drawing .rss').getAttribute('points')")
    heights = [float(place.split(",")[1]) for place in line.split()]
    assert len(heights) == 6 and heights == sorted(heights, reverse=True)
    page.evaluate("document.getElementById('timeline').scrollIntoView()")
    left, top, width, height = page.evaluate(
        "(({ x, y, width, height }) => [x, y, width, height])"
        "(document.getElementById('timeline-drawing').getBoundingClientRect())"
    )
    page.mouse("mouseMoved", left + width - 2, top + height / 2)
    assert page.texts("#timeline-words")[0].startswith("50.0 s: ")
    assert page.evaluate("Boolean(document.getElementById('map'))") is True


def test_layers_add_up_to_what_is_resident(tmp_path: Path) -> None:
    told = series.read(made_up(tmp_path / "series.jsonl", 2))
    for point in told.points:
        assert sum(timeline.layer_bytes(point)) == point.rss_bytes


def test_a_series_of_another_process_is_no_timeline_of_this_one(
    grower: Grower, tmp_path: Path
) -> None:
    file = made_up(tmp_path / "series.jsonl", 3)
    page_file = tmp_path / "heap.html"
    outcome = call([*HAKMEM, "report", grower.pid, "--series", file, "-o", page_file])
    assert outcome.status == 2
    assert f"is not of {grower.pid}, but of process {series.read(file).last.pid}" in outcome.stderr
    assert not page_file.exists()


def test_report_of_a_real_series(grower: Grower, browser: Browser, tmp_path: Path) -> None:
    file, page_file = tmp_path / "series.jsonl", tmp_path / "heap.html"
    grower.grow(3000, 64)
    call([*HAKMEM, "record", grower.pid, "--every", "100ms", "--for", "300ms", "-o", file])
    outcome = call([*HAKMEM, "report", file, "-o", page_file])
    assert (outcome.status, outcome.stdout) == (0, b"")
    page = open_page(browser, page_file)
    assert page.console == []
    assert len(page.requests) == 1
    last = series.read(file).last
    shown = page.evaluate(
        "[...document.querySelectorAll('#by-class tbody tr')]"
        ".map((row) => [Number(row.cells[0].dataset.value), Number(row.cells[3].dataset.value)])"
    )
    assert shown == [[row.block_bytes, row.live_blocks] for row in last.classes if row.slabs]
    assert dict(map(tuple, shown))[64] >= 3000
