"""What becomes of the output does not change the exit status: nobody reads it, it is full, it is
closed, its encoding lacks a letter."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hakmem.inspect import jsonform
from hakmem.inspect.model import Snapshot
from tests.cli.support import HAKMEM, call, clean_environment, library
from tests.inspect.support.synthetic import make_snapshot
from tests.patience import HANG_SECONDS

BUFFERED = ["", "1"]  # PYTHONUNBUFFERED


@contextmanager
def unread_pipe() -> Iterator[int]:
    """The end to write to of a pipe that nobody will ever read."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        yield write_end
    finally:
        os.close(write_end)


def call_into(
    words: Sequence[str | Path], stdout: int | None, stderr: int = subprocess.PIPE, **more: str
) -> tuple[int, str]:
    """The exit status and standard error; without a stdout it is closed."""
    command = [*HAKMEM, *(str(word) for word in words)]
    if stdout is None:
        command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
    environment = clean_environment(**{"PYTHONUNBUFFERED": "", **more})
    done = subprocess.run(
        command, stdout=stdout, stderr=stderr, timeout=HANG_SECONDS, env=environment
    )
    return done.returncode, (done.stderr or b"").decode()


def written(file: Path, snapshot: Snapshot) -> Path:
    file.write_text(json.dumps(jsonform.encode(snapshot, "totals")))
    return file


@pytest.fixture
def grown(tmp_path: Path) -> list[str | Path]:
    """The words of a `hakmem diff` whose verdict is 1."""
    made = make_snapshot(superslab_count=1)
    first, *others = made.classes
    more = replace(first, live_blocks=first.live_blocks + 100_000)
    after = replace(made, classes=(more, *others))
    before = written(tmp_path / "a.json", made)
    return ["diff", before, written(tmp_path / "b.json", after), "--fail-above", "1K", "--all"]


@pytest.mark.parametrize("unbuffered", BUFFERED)
def test_a_verdict_that_nobody_reads_to_its_end(grown: list[str | Path], unbuffered: str) -> None:
    for more in ([], ["--json"]):
        with unread_pipe() as pipe:
            done = call_into([*grown, *more], pipe, PYTHONUNBUFFERED=unbuffered)
        assert done == (1, "")


def test_a_page_that_nobody_reads_to_its_end(grown: list[str | Path]) -> None:
    for more in ([], ["-o", "/dev/stdout"]):
        with unread_pipe() as pipe:
            assert call_into(["report", grown[1], *more], pipe) == (0, "")


@pytest.mark.parametrize("unbuffered", BUFFERED)
def test_output_that_is_full(grown: list[str | Path], unbuffered: str) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        for words in (grown, ["inspect", grown[1]], ["report", grown[1]], ["options"], ["--help"]):
            status, said = call_into(words, full, PYTHONUNBUFFERED=unbuffered)
            assert said == "hakmem: standard output: No space left on device\n", words
            assert status == 2, words
    finally:
        os.close(full)


def test_output_that_is_closed(grown: list[str | Path], tmp_path: Path) -> None:
    said = "hakmem: standard output: Bad file descriptor\n"
    assert call_into(grown, None) == (2, said)
    assert call_into(["inspect", grown[1]], None) == (2, said)
    # What writes nothing there needs none.
    page = tmp_path / "heap.html"
    status, told = call_into(["report", grown[1], "-o", page], None)
    assert status == 0 and "KiB" in told
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_input_that_is_closed() -> None:
    done = call(["sh", "-c", 'exec "$@" <&-', "sh", *HAKMEM, "top"])
    assert (done.status, done.stdout) == (2, b"")
    assert done.stderr == "hakmem: top needs a terminal; --once prints one frame without one\n"


def test_a_program_keeps_its_status_when_nobody_reads_the_summary() -> None:
    with unread_pipe() as pipe:
        words: list[str | Path] = ["run", "--library", library(), "--", "sh", "-c", "exit 7"]
        assert call_into(words, subprocess.DEVNULL, stderr=pipe) == (7, "")


def test_letters_that_the_encoding_lacks(tmp_path: Path) -> None:
    named = replace(make_snapshot(superslab_count=1), name="café", exe="/opt/café")
    saved = written(tmp_path / "heap.json", named)
    output = tmp_path / "output"
    # A page says of itself that it is UTF-8.
    for verb, expected in (("inspect", b"/opt/caf\\xe9"), ("report", "/opt/café".encode())):
        with output.open("wb") as file:
            done = call_into([verb, saved], file.fileno(), PYTHONIOENCODING="ascii")
        assert done == (0, "")
        assert expected in output.read_bytes()
