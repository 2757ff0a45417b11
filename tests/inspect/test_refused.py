"""What cannot be read is said in one sentence, with status 2: no traceback, no hang."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hakmem.diagnosis import process as diagnosis
from hakmem.errors import UsageError
from hakmem.inspect import snapshotfile
from hakmem.inspect.errors import GoneError, InspectError, NoHakmemError
from hakmem.inspect.model import Origin, Snapshot
from hakmem.inspect.process import ProcessSource
from hakmem.inspect.reading import Session
from hakmem.inspect.root import MAGIC
from hakmem.inspect.root import ROOT as ROOT_TYPE
from hakmem.inspect.targets import open_source, take
from hakmem.project import find_project
from hakmem.report import series
from tests.cli.support import clean_environment, library
from tests.inspect.support.corewriter import NT_PRPSINFO, PT_NOTE, write_core
from tests.inspect.support.targets import (
    await_line,
    compile_program,
    hakmem,
    inspect,
    require_refusal,
    running,
)
from tests.patience import HANG_SECONDS

NO_PROCESS = (1 << 22) + 1  # above the highest number that the kernel gives
# Segments of the library that have a file are no larger; what has none is.
LIBRARY_DATA_MAX = 1 << 16
JEMALLOC = Path("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("many.c", tmp_path_factory.mktemp("programs") / "many")


@pytest.fixture
def process(many: Path) -> Iterator[subprocess.Popen[bytes]]:
    with running([many, "1000", "64", "1"]) as started:
        await_line(started, "ready")
        yield started


@pytest.fixture
def core(process: subprocess.Popen[bytes], tmp_path: Path) -> Path:
    path = tmp_path / "core"
    write_core(process.pid, path)
    return path


def test_targets_that_are_none(tmp_path: Path) -> None:
    require_refusal(inspect(NO_PROCESS), "no process")
    require_refusal(inspect(tmp_path / "missing"), "No such file")
    require_refusal(inspect(tmp_path), "Is a directory")
    require_refusal(inspect(__file__), "neither a core file nor a snapshot")
    require_refusal(inspect(library()), "not a core file")
    empty = tmp_path / "empty"
    empty.touch()
    require_refusal(inspect(empty), "neither")
    packed = tmp_path / "core.zst"
    packed.write_bytes(b"\x28\xb5\x2f\xfd" + bytes(60))
    require_refusal(inspect(packed), f"{packed}: is compressed: unpack it first")
    (tmp_path / "bad.json").write_text("{", encoding="ascii")
    require_refusal(inspect(tmp_path / "bad.json"), "not JSON")
    (tmp_path / "other.json").write_text('{"schema": "dream/1"}', encoding="ascii")
    require_refusal(inspect(tmp_path / "other.json"), "dream/1")
    (tmp_path / "deep.json").write_text("{" + '"a":[' * 100_000, encoding="ascii")
    require_refusal(inspect(tmp_path / "deep.json"), "not JSON")
    require_refusal(inspect("--freeze", tmp_path / "other.json"), "only a living process")


def test_process_that_proc_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with hidepid=2 those of other users: that they are there signals tell alone."""
    asked = []

    def refused(pid: int, number: int) -> None:
        asked.append((pid, number))
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refused)
    said = f"process {NO_PROCESS} is another user's, and /proc hides it"
    with pytest.raises(InspectError, match=said):
        ProcessSource(NO_PROCESS)
    with pytest.raises(UsageError, match=said):
        diagnosis.examine(NO_PROCESS, find_project(), lambda pid: take(str(pid)))
    assert asked == [(NO_PROCESS, 0)] * 2


def test_targets_that_are_not_regular_files(tmp_path: Path) -> None:
    """A pipe is read by nobody: it would be empty at the second look."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    said = f"hakmem: {fifo}: is not a regular file: save it first"
    require_refusal(inspect(fifo), said)
    require_refusal(hakmem("diff", fifo, NO_PROCESS), said)
    with pytest.raises(InspectError, match="save it first"):
        series.read(fifo)


def test_a_series_is_for_other_verbs(tmp_path: Path) -> None:
    file = tmp_path / "series.jsonl"
    for lines in (1, 2):
        file.write_text(f"{json.dumps(series.header(1, 1.0))}\n" * lines, encoding="ascii")
        require_refusal(inspect(file), f"{file}: is a series: `hakmem report`", "`hakmem diff`")


@pytest.mark.parametrize("words", [["inspect", ""], ["report", ""], ["diff", "", "1"]])
def test_an_empty_name(words: list[str]) -> None:
    done = hakmem(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "an empty name is no process and no file" in done.stderr


def test_core_that_is_cut_short_while_it_is_read(core: Path) -> None:
    with Session(open_source(str(core))) as session:
        session.take()
        os.truncate(core, 1 << 16)
        with pytest.raises(InspectError, match=f"{core}: was cut short while it was read"):
            session.take()


def test_snapshot_that_is_cut_short_while_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "cut.snapshot"
    file.write_bytes(bytes(1 << 20))
    piece = snapshotfile._Piece(snapshotfile.MEMORY, "metadata", 0x10000, 1 << 19, 1 << 19)
    with file.open("rb") as opened:
        snapshotfile._regions(file, opened, [piece])
        os.truncate(file, 1 << 16)
        with pytest.raises(InspectError, match=f"{file}: was cut short while it was read"):
            snapshotfile._regions(file, opened, [piece])


@pytest.mark.parametrize(
    ("reach", "said"),
    [
        (0, "(many) does not use hakmem, or the file lacks the memory"),
        # The library's own data is there, as private memory of a file; no other is.
        (1 << 20, "are not in the file, which lacks memory of the process (/proc/PID/coredump"),
    ],
)
def test_core_without_what_could_be_written(core: Path, reach: int, said: str) -> None:
    """As the kernel writes one by a coredump_filter without private memory."""
    data = bytearray(core.read_bytes())
    (rows,) = struct.unpack_from("<H", data, 56)
    places = range(64, 64 + rows * 56, 56)
    headers = {at: struct.unpack_from("<IIQQQQ", data, at) for at in places}
    root = next(
        address
        for kind, flags, offset, address, _, size in headers.values()
        if kind != PT_NOTE and flags & 2 and MAGIC in data[offset : offset + size]
    )
    for at, (kind, flags, _, address, _, size) in headers.items():
        is_kept = size <= LIBRARY_DATA_MAX and abs(address - root) < reach
        if kind != PT_NOTE and flags & 2 and not is_kept:
            struct.pack_into("<Q", data, at + 32, 0)
    core.write_bytes(data)
    require_refusal(inspect(core), said)


@pytest.mark.parametrize("preload", [None, JEMALLOC])
def test_process_of_another_allocator(many: Path, preload: Path | None) -> None:
    environment = clean_environment(**({"LD_PRELOAD": str(preload)} if preload else {}))
    assert preload is None or preload.exists()
    with running([many, "100000", "64", "1"], environment) as process:
        await_line(process, "ready")
        require_refusal(inspect(process.pid), f"process {process.pid} (many) does not use hakmem")


def test_kernel_thread_and_zombie(many: Path) -> None:
    with running([many, "1", "64", "1"]) as process:
        await_line(process, "ready")
        process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        for verb in ("inspect", "doctor"):
            require_refusal(hakmem(verb, process.pid), f"process {process.pid} ", "has ended")
    kthreadd = Path("/proc/2/comm")
    if kthreadd.exists() and kthreadd.read_text(encoding="ascii") == "kthreadd\n":
        for verb in ("inspect", "doctor") if os.geteuid() == 0 else ():
            require_refusal(hakmem(verb, 2), "(kthreadd) has no memory")


def test_process_of_another_user(process: subprocess.Popen[bytes]) -> None:
    """As a user who may not: root's own processes are looked at by nobody, others by themselves."""
    if os.geteuid() != 0:
        with pytest.raises(InspectError, match="not permitted"):
            ProcessSource(1)
        return
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        said = "it was permitted"
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            ProcessSource(process.pid)
        except InspectError as error:
            said = str(error)
        finally:
            os.write(write_end, said.encode())
            os._exit(0)
    os.close(write_end)
    os.waitpid(child, 0)
    said = os.read(read_end, 4096).decode()
    os.close(read_end)
    assert f"reading process {process.pid} (many), which runs as user 0, is not permitted" in said


@pytest.mark.parametrize(("user", "words"), [(0, "CAP_SYS_PTRACE"), (1000, "or as root it is")])
def test_who_may_is_said_to_whom_it_helps(
    monkeypatch: pytest.MonkeyPatch, process: subprocess.Popen[bytes], user: int, words: str
) -> None:
    """Root is not told to be root."""

    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as context:
        context.setattr(os, "open", refuse)
        context.setattr(os, "geteuid", lambda: user)
        with pytest.raises(InspectError, match="not permitted") as refused:
            ProcessSource(process.pid)
    said = str(refused.value)
    assert words in said
    assert ("as root it is," in said) == (user != 0)


def test_process_that_ends_meanwhile(process: subprocess.Popen[bytes]) -> None:
    with Session(ProcessSource(process.pid)) as session:
        session.take()
        process.kill()
        process.wait()
        with pytest.raises(GoneError, match="ended"):
            session.take()


def test_process_that_ends_before_its_pages_are_looked_up(
    process: subprocess.Popen[bytes],
) -> None:
    source = ProcessSource(process.pid)
    with Session(source):
        area = source.areas()[0]
        process.kill()
        process.wait()
        with pytest.raises(GoneError, match="ended"):
            source.resident_pages(area.start, area.end)


def take_when_loaded(pid: int) -> Snapshot:
    """Of a program that has just been started: its loader may still be at work."""
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        try:
            return take(str(pid))
        except NoHakmemError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_process_that_becomes_another_program(tmp_path: Path) -> None:
    """The memory that was opened is gone with the exec, though the number is alive."""
    with running(["sh", "-c", "echo ready; read line; exec sleep 600"]) as process:
        await_line(process, "ready")
        with Session(ProcessSource(process.pid)) as session:
            session.take()
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
            comm = Path(f"/proc/{process.pid}/comm")
            while comm.read_text(encoding="ascii") != "sleep\n":
                pass
            with pytest.raises(InspectError):
                session.take()
        assert take_when_loaded(process.pid).name == "sleep"


def core_tables(core: Path) -> tuple[bytearray, bytearray, int]:
    """The header of a core file, that of its segments, and where in this the notes' row is."""
    with core.open("rb") as file:
        header = bytearray(file.read(64))
        table = bytearray(file.read(56 * int.from_bytes(header[56:58], "little")))
    (row,) = (at for at in range(0, len(table), 56) if table[at] == PT_NOTE)
    return header, table, row


def test_core_that_is_cut_short(core: Path) -> None:
    """Also within its notes, its headers, and those of sections behind all else, as gdb's has."""
    header, table, row = core_tables(core)
    notes, notes_bytes = struct.unpack_from("<Q16xQ", table, row + 8)
    with core.open("r+b") as file:
        sections = file.seek(0, os.SEEK_END)
        file.write(bytes(64))
        struct.pack_into("<Q", header, 40, sections)
        struct.pack_into("<HH", header, 58, 64, 1)
        file.seek(0)
        file.write(header)
    assert take(str(core)).origin == Origin.CORE
    in_headers = (64 + len(table) - 1, 100, 63, 16)
    for kept in (sections + 63, sections, sections // 2, notes + notes_bytes // 2, *in_headers):
        os.truncate(core, kept)
        with pytest.raises(InspectError, match=r": the core file is cut short: .* \(a limit"):
            take(str(core))
    require_refusal(inspect(core), "cut short: it ends before its headers do")


def test_core_with_damaged_notes(core: Path) -> None:
    """What the parser says of them is not passed on."""
    _, table, row = core_tables(core)
    with core.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        file.write(struct.pack("<III8s", 5, 136, NT_PRPSINFO, b"CORE"))
        struct.pack_into("<Q16xQ", table, row + 8, end, 20)
        file.seek(64)
        file.write(table)
    with pytest.raises(InspectError, match=r"or no core file$"):
        take(str(core))


def test_foreign_core(core: Path, tmp_path: Path) -> None:
    data = bytearray(core.read_bytes())
    for place, value in ((4, 1), (5, 2)):  # 32 bits; the most significant byte first
        changed = tmp_path / f"core{place}"
        changed.write_bytes(data[:place] + bytes([value]) + data[place + 1 :])
        require_refusal(inspect(changed), "core")
    # One that stands still, its loader done.
    with running(["sh", "-c", "echo ready; read line"], clean_environment()) as process:
        await_line(process, "ready")
        write_core(process.pid, tmp_path / "other")
    require_refusal(inspect(tmp_path / "other"), "does not use hakmem")


def change_root(process: subprocess.Popen[bytes], field: str, value: bytes) -> None:
    source = ProcessSource(process.pid)
    with Session(source) as session:
        address = session.root.address
    places = ROOT_TYPE.fields
    assert places is not None
    ProcessSource(process.pid).write(address + places[field][1], value)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("major", struct.pack("<H", 2), "inspect ABI 2."),
        ("byte_order", struct.pack("<I", 0x04030201), "another order"),
        ("pointer_bytes", struct.pack("<I", 4), "size of words"),
        ("root_bytes", struct.pack("<I", 8), "cut short"),
        ("fields", struct.pack("<QII", 0, 7, 160), "does not use hakmem"),
        ("constants", struct.pack("<QII", 0, 1 << 30, 40), "cannot be right"),
        ("magic", b"dream", "does not use hakmem"),
    ],
)
def test_root_of_another_kind(
    process: subprocess.Popen[bytes], field: str, value: bytes, words: str
) -> None:
    change_root(process, field, value)
    require_refusal(inspect(process.pid), words)


def test_a_minor_version_with_more_is_read(process: subprocess.Popen[bytes]) -> None:
    change_root(process, "minor", struct.pack("<H", 99))
    assert inspect(process.pid).returncode == 0


def test_no_such_heap(process: subprocess.Popen[bytes]) -> None:
    require_refusal(inspect("--heap", "77", process.pid), "no heap 77")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--heap", "1", "--json"], ["--heap", "--json has every"]),
        (["--signals", "--json"], ["--signals", "--json"]),
        (["--all", "--json"], ["--all", "--json has every"]),
        (["--blocks"], ["--blocks", "--json"]),
        (["--blocks", "--signals"], ["--blocks", "--json"]),
    ],
)
def test_flags_that_do_not_go_together(flags: list[str], words: list[str]) -> None:
    """Before anything is looked at."""
    require_refusal(inspect(*flags, NO_PROCESS), *words)


def test_names_do_not_move_the_cursor(many: Path, tmp_path: Path) -> None:
    evil = tmp_path / "a\x1b[2Jb"
    shutil.copy(many, evil)
    with running([evil, "1000", "64", "1"]) as process:
        await_line(process, "ready")
        done = inspect(process.pid)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    other = tmp_path / "c\nd\x1b[2J"
    shutil.copy(many, other)
    with running([other, "1000", "64", "1"], clean_environment()) as process:
        await_line(process, "ready")
        require_refusal(inspect(process.pid), "(c?d?[2J) does not use hakmem")
    with pytest.raises(NoHakmemError):
        take(str(os.getpid()))
