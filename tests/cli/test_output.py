"""What becomes of the output does not change the exit status: nobody reads it, it is full, it is
closed, its encoding lacks a letter. A file is written as a whole or stays as it was."""

from __future__ import annotations

import json
import os
import resource
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from hakmem.commands.run import _write_summary
from hakmem.inspect import jsonform
from hakmem.inspect.model import Snapshot
from tests.cli.support import HAKMEM, call, clean_environment, library
from tests.inspect.support.synthetic import make_snapshot
from tests.patience import HANG_SECONDS

BUFFERED = ["", "1"]  # PYTHONUNBUFFERED
DISK_BYTES = 4096


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


# ---- Files


def fill_disk() -> None:
    """A limit of the file's size stands for a full disk: the write fails in its middle."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (DISK_BYTES, DISK_BYTES))


def test_page_that_finds_no_room_leaves_the_old_one(
    grown: list[str | Path], tmp_path: Path
) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    page = folder / "heap.html"
    words = [*HAKMEM, "report", grown[1], "-o", page]
    said = f"hakmem: {page}: File too large\n"
    done = call(words, preexec_fn=fill_disk)
    assert (done.status, done.stderr) == (2, said)
    assert list(folder.iterdir()) == []
    page.write_text("yesterday's", encoding="utf-8")
    done = call(words, preexec_fn=fill_disk)
    assert (done.status, done.stderr) == (2, said)
    assert list(folder.iterdir()) == [page]
    assert page.read_text(encoding="utf-8") == "yesterday's"


def test_page_in_the_place_of_another(grown: list[str | Path], tmp_path: Path) -> None:
    """With its mode; a link, and a file of two names, stay what they are."""
    folder = tmp_path / "pages"
    folder.mkdir()
    page, link, other, second = (folder / name for name in ("page", "link", "other", "second"))
    for old in (page, other, folder / "third"):
        old.write_text("yesterday's", encoding="utf-8")
    page.chmod(0o640)
    link.symlink_to("other")
    second.hardlink_to(folder / "third")
    names = sorted(folder.iterdir())
    for output in (page, link, second):
        assert call([*HAKMEM, "report", grown[1], "-o", output]).status == 0
    assert sorted(folder.iterdir()) == names
    assert stat.S_IMODE(page.stat().st_mode) == 0o640
    assert link.is_symlink() and second.samefile(folder / "third")
    for file in (page, other, second):
        assert file.read_text(encoding="utf-8").endswith("</html>\n"), file


def test_page_in_a_folder_that_takes_no_second_file(
    grown: list[str | Path], tmp_path: Path
) -> None:
    """The longest name there is leaves no room for one beside it."""
    page = tmp_path / ("n" * 255)
    page.write_text("yesterday's", encoding="utf-8")
    assert call([*HAKMEM, "report", grown[1], "-o", page]).status == 0
    assert page.read_text(encoding="utf-8").endswith("</html>\n")


def test_summary_that_finds_no_room_leaves_the_old_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Called here: the reports of the processes need more room than it does."""
    summary = tmp_path / "summary.txt"
    summary.write_text("yesterday's", encoding="utf-8")
    text = "today's\n" * DISK_BYTES
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (DISK_BYTES, before[1]))
    try:
        _write_summary(text, summary)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert capsys.readouterr().err == f"hakmem: cannot write {summary}: File too large\n{text}"
    assert list(tmp_path.iterdir()) == [summary]
    assert summary.read_text(encoding="utf-8") == "yesterday's"
