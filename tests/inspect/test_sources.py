"""Every place a heap may be read from says the same: the process itself, its core, its snapshot."""

from __future__ import annotations

import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

from hakmem.inspect import jsonform, snapshotfile
from hakmem.inspect.errors import DamagedError, NoHakmemError
from hakmem.inspect.model import Origin, Snapshot
from hakmem.inspect.process import ProcessSource
from hakmem.inspect.reading import Session
from hakmem.inspect.root import find
from hakmem.inspect.targets import find_processes, take
from hakmem.report.growth import is_same_process
from tests.cli.support import clean_environment, library
from tests.inspect.support.corewriter import write_core
from tests.inspect.support.targets import (
    archive,
    await_line,
    await_message,
    await_ready,
    compile_program,
    go_on,
    inspect,
    is_permitted,
    live_blocks,
    make_core,
    pid_of_child,
    preloaded,
    read_truth,
    running,
)
from tests.patience import HANG_SECONDS

CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--mount-proc"]


def require_same(first: Snapshot, second: Snapshot) -> None:
    assert live_blocks(first) == live_blocks(second)
    assert len(live_blocks(first)) > 1000
    for name in ("version", "build_id", "mode", "name", "exe", "size_classes", "notes"):
        assert getattr(first, name) == getattr(second, name), name
    assert [row.live_blocks for row in first.classes] == [row.live_blocks for row in second.classes]
    assert [option for option in first.options if option.value != ""] == [
        option for option in second.options if option.value != ""
    ]
    assert first.counters == second.counters
    assert [heap.held_blocks for heap in first.heaps] == [heap.held_blocks for heap in second.heaps]


def resident_parts(snapshot: Snapshot) -> dict[str, int]:
    """Resident bytes by the names of the waterfall's rows."""
    assert snapshot.waterfall is not None
    return {row.name: row.bytes for row in snapshot.waterfall.rows}


@pytest.mark.parametrize("how", ["own writer", "gcore", "own writer, static and stripped"])
def test_core_of_a_living_process(tmp_path: Path, how: str) -> None:
    extra: list[str | Path] = ["-static", "-s", archive()] if "static" in how else []
    program = compile_program("truth.c", tmp_path / "truth", *extra)
    with running([program, "4", "3000", tmp_path / "blocks"]) as process:
        await_ready(process)
        alive = take(str(process.pid), freeze=True)
        core = make_core(how, process.pid, tmp_path)
    # What is only reserved is left out: the page map alone is gigabytes.
    assert core.stat().st_size < 1 << 30
    dead = take(str(core))
    require_same(alive, dead)
    assert dead.origin == Origin.CORE
    assert dead.pid == alive.pid
    assert dead.waterfall is None
    assert dead.unsettled_share == 0


def test_core_of_a_crash(truth: Path, tmp_path: Path) -> None:
    """As the kernel writes it, where it does not hand cores to some program instead."""
    pattern = CORE_PATTERN.read_text(encoding="ascii").strip()
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limits[1], limits[1]))
    try:
        with running([truth, "4", "3000", tmp_path / "blocks"], cwd=tmp_path) as process:
            await_ready(process)
            alive = take(str(process.pid), freeze=True)
            writes_file = "/" not in pattern and "|" not in pattern and "%" not in pattern
            if not writes_file or limits[1] == 0:
                write_core(process.pid, tmp_path / "core")
            process.send_signal(signal.SIGQUIT)
            process.wait(timeout=HANG_SECONDS)
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, limits)
    cores = [path for path in tmp_path.iterdir() if path.name.startswith("core")]
    assert len(cores) == 1, pattern
    require_same(alive, take(str(cores[0])))


def test_snapshot_that_the_process_writes(truth: Path, tmp_path: Path) -> None:
    environment = preloaded(
        HAKMEM_SNAPSHOT_SIGNAL=str(int(signal.SIGUSR2)), HAKMEM_SNAPSHOT_DIRECTORY=str(tmp_path)
    )
    with running([truth, "4", "3000", tmp_path / "blocks"], environment) as process:
        await_ready(process)
        alive = take(str(process.pid), freeze=True)
        process.send_signal(signal.SIGUSR2)
        file = tmp_path / f"hakmem.{process.pid}.1.snapshot"
        assert await_message(process) == f"hakmem: snapshot: {file}\n"
        after = take(str(process.pid), freeze=True)
    written = take(str(file))
    require_same(alive, written)
    assert written.origin == Origin.SNAPSHOT
    assert written.pid == alive.pid
    assert written.unsettled_share == 0
    assert written.waterfall is not None
    assert written.waterfall.unexplained_bytes == 0
    # What has a mapping of its own is known, what shares one is estimated. The code that writes
    # a snapshot becomes resident with it, as much around it as this machine maps at a time.
    rows = resident_parts(written)
    least, most = (resident_parts(snapshot) for snapshot in (alive, after))
    for name in ("library", "program"):
        assert least[name] <= rows[name] <= most[name], (name, least, rows, most)
    assert sum(rows.values()) == written.waterfall.rss_bytes
    assert {int(row["start"]) for row in read_truth(tmp_path / "blocks")} <= live_blocks(
        written
    ).keys()


@pytest.mark.parametrize("how", ["own writer", "gcore", "snapshot"])
def test_program_that_is_not_called_as_its_file(tmp_path: Path, how: str) -> None:
    """As one that a link to it starts, what interprets a script, or one that renamed itself."""
    program = compile_program("truth.c", tmp_path / "truth")
    link = tmp_path / "called"
    link.symlink_to(program)
    environment = preloaded(
        HAKMEM_SNAPSHOT_SIGNAL=str(int(signal.SIGUSR2)), HAKMEM_SNAPSHOT_DIRECTORY=str(tmp_path)
    )
    with running([link, "2", "3000", tmp_path / "blocks"], environment) as process:
        await_ready(process)
        alive = take(str(process.pid), freeze=True)
        if how == "snapshot":
            process.send_signal(signal.SIGUSR2)
            file = tmp_path / f"hakmem.{process.pid}.1.snapshot"
            assert await_message(process) == f"hakmem: snapshot: {file}\n"
        else:
            file = make_core(how, process.pid, tmp_path)
    written = take(str(file))
    assert (alive.name, alive.exe) == ("called", str(program))
    require_same(alive, written)
    if written.waterfall is not None:
        assert next(row.bytes for row in written.waterfall.rows if row.name == "program") > 0


def test_saved_json(truth: Path, tmp_path: Path) -> None:
    with running([truth, "4", "3000", tmp_path / "blocks"]) as process:
        await_ready(process)
        alive = take(str(process.pid), freeze=True, events=True)
        done = inspect("--freeze", "--json", "--blocks", "--events", str(process.pid))
    assert done.returncode == 0, done.stderr
    file = tmp_path / "saved.json"
    file.write_text(done.stdout, encoding="ascii")
    again = take(str(file))
    require_same(alive, again)
    assert again.waterfall is not None
    assert len(again.events) > 10
    assert jsonform.encode(again, "blocks")["runs"] == jsonform.encode(alive, "blocks")["runs"]


def test_library_whose_file_is_gone(tmp_path: Path) -> None:
    """As in another mount namespace: nothing is read from the file."""
    program = compile_program("truth.c", tmp_path / "truth")
    copy = tmp_path / "libhakmem.so"
    shutil.copy(library(), copy)
    environment = clean_environment(LD_PRELOAD=str(copy))
    with running([program, "2", "1000", tmp_path / "blocks"], environment) as process:
        await_line(process, "started")
        copy.unlink()
        program.unlink()
        go_on(process)
        await_line(process, "ready")
        snapshot = take(str(process.pid), freeze=True)
        assert process.pid in find_processes()
    assert {int(row["start"]) for row in read_truth(tmp_path / "blocks")} <= live_blocks(
        snapshot
    ).keys()
    assert snapshot.build_id


def test_other_namespaces(truth: Path, tmp_path: Path) -> None:
    """A process that has other numbers for its threads, and another view of the file system."""
    command = NAMESPACES
    if not is_permitted([*command, "true"]):
        command = ["unshare", "--user", "--map-root-user", *NAMESPACES[1:]]
    if not is_permitted([*command, "true"]):
        # Neither root nor allowed to make namespaces: the process of this one remains.
        command = ["sh", "-c", '"$@" & wait', "sh"]
    options = [f"LD_PRELOAD={library()}", f"HAKMEM_SNAPSHOT_DIRECTORY={tmp_path}"]
    options.append(f"HAKMEM_SNAPSHOT_SIGNAL={int(signal.SIGUSR2)}")
    inside: list[str | Path] = [*command, "env", *options]
    inside += [truth, "4", "1000", tmp_path / "blocks"]
    with running(inside, clean_environment()) as process:
        await_line(process, "started")
        pid = pid_of_child(process.pid)
        go_on(process)
        await_line(process, "ready")
        snapshot = take(str(pid), freeze=True)
        os.kill(pid, signal.SIGUSR2)
        file = await_message(process).removeprefix("hakmem: snapshot: ").rstrip("\n")
    own = take(file)
    assert is_same_process(own, snapshot)
    require_same(own, snapshot)
    assert {int(row["start"]) for row in read_truth(tmp_path / "blocks")} <= live_blocks(
        snapshot
    ).keys()
    assert snapshot.notes == ()
    in_use = [heap for heap in snapshot.heaps if heap.state == "in use"]
    assert len(in_use) >= 4
    assert {heap.thread_name for heap in in_use} == {"truth"}


def test_processes_are_found(truth: Path, tmp_path: Path) -> None:
    environment = clean_environment()
    static = compile_program("truth.c", tmp_path / "static", "-static", archive())
    with (
        running([truth, "1", "10", tmp_path / "a"]) as first,
        running([static, "1", "10", tmp_path / "b"], environment) as second,
        running([truth, "1", "10", tmp_path / "c"], environment) as other,
    ):
        for process in (first, second, other):
            await_line(process, "started")
        found = find_processes()
    assert first.pid in found
    assert second.pid in found
    assert other.pid not in found


def test_only_zeros_of_a_snapshot_are_bounded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(snapshotfile, "REGION_BYTES_MAX", 100)
    name = tmp_path / "large.snapshot"
    name.write_bytes(bytes(4096))
    piece = snapshotfile._Piece(snapshotfile.MEMORY, "metadata", 0x10000, 4096, 0)
    zeros = snapshotfile._Piece(snapshotfile.ZEROS, "metadata", 0x20000, 8192, 4096)
    with name.open("rb") as file:
        ((start, region),) = snapshotfile._regions(name, file, [piece])
        assert (start, len(region)) == (0x10000, 4096)
        with pytest.raises(DamagedError, match="more memory than it can"):
            snapshotfile._regions(name, file, [piece, zeros])


class Counting(ProcessSource):
    taken = 0

    def read(self, address: int, count: int) -> bytes:
        self.taken += count
        return super().read(address, count)


def test_of_a_process_without_hakmem_files_alone_are_searched() -> None:
    """Not what it holds, which may be swapped out."""
    words = ["/usr/bin/python3", "-c", "h = bytes(range(256)) * (1 << 19); print('ready'); input()"]
    with running([*words], clean_environment(PYTHONUNBUFFERED="1")) as process:
        await_line(process, "ready")
        source = Counting(process.pid)
        try:
            with pytest.raises(NoHakmemError):
                find(source)
            assert source.taken < 16 << 20
        finally:
            source.close()


def test_the_heap_itself_is_not_read(tmp_path: Path) -> None:
    """What a process holds may be many GiB, and what it never touched stays untouched."""
    program = compile_program("many.c", tmp_path / "many")

    with running([program, "1000000", "128", "1"]) as process:
        await_line(process, "ready")
        with Session(Counting(process.pid)) as session:
            assert session.take().gauges["live_bytes"] > 64 << 20
            assert isinstance(session.source, Counting)
            assert session.source.taken < 16 << 20
