"""Real programs: their heaps satisfy every invariant, frozen and in motion, and the rows of their
resident memory add up to what the kernel says."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from hakmem.inspect import jsonform
from hakmem.inspect.model import BlockState, Origin, Snapshot
from hakmem.inspect.targets import take
from tests.cli.support import clean_environment, library
from tests.inspect.support.targets import await_line, preloaded, running
from tests.patience import HANG_SECONDS

POSTGRES = Path("/usr/lib/postgresql/15/bin")
NOBODY = 65534
UNEXPLAINED_MAX = 0.01
PYTHON_WORK = """
import sys, threading
tables = [{} for _ in range(4)]
def work(table):
    for i in range(60_000):
        table[i] = [str(i) * (i % 7), (i, i + 1.5)]
        if i % 3 == 0:
            table.pop(i // 2, None)
threads = [threading.Thread(target=work, args=(table,)) for table in tables]
for thread in threads: thread.start()
for thread in threads: thread.join()
big = [bytearray(size) for size in range(70_000, 5_000_000, 333_333)]
print("ready", flush=True)
sys.stdin.read()
"""
QUERY = (
    "SELECT count(*), md5(string_agg(md5(i::text), ',')) FROM generate_series(1, 60000) AS i; "
    "CREATE TABLE word AS SELECT i, repeat(md5(i::text), i % 9) AS t "
    "FROM generate_series(1, 20000) AS i; SELECT max(t), count(DISTINCT t) FROM word\n"
)


def require_invariants(snapshot: Snapshot) -> None:
    """What must hold of any heap; the reader's own comparisons are its notes."""
    assert snapshot.notes == ()
    slabs = snapshot.slabs
    counted = np.sum([slabs[state.name.lower()] for state in BlockState], axis=0, dtype=int)
    assert (counted == slabs["block_count"]).all()
    for state in BlockState:
        in_slabs = int(slabs[state.name.lower()].sum())
        assert int(snapshot.heap_classes[state.name.lower()].sum()) == in_slabs
        by_class = sum(getattr(row, f"{state.name.lower()}_blocks") for row in snapshot.classes)
        assert by_class == in_slabs
    assert sum(heap.live_blocks for heap in snapshot.heaps) == int(slabs["live"].sum())
    assert (snapshot.runs["start"][1:] > snapshot.runs["start"][:-1]).all()
    gauges, counters = snapshot.gauges, snapshot.counters
    assert counters["large_allocs"] - counters["large_frees"] == gauges["large_blocks"]
    assert counters["huge_allocs"] - counters["huge_frees"] == gauges["huge_blocks"]
    assert counters["slabs_created"] - counters["slabs_released"] == len(slabs)
    assert gauges["live_bytes"] <= gauges["mapped_bytes"]
    assert gauges["live_blocks"] > 0
    waterfall = snapshot.waterfall
    assert waterfall is not None
    assert sum(row.bytes for row in waterfall.rows) == waterfall.rss_bytes
    assert abs(waterfall.unexplained_bytes) <= UNEXPLAINED_MAX * waterfall.rss_bytes
    assert all(row.bytes >= 0 for row in waterfall.rows if row.name != "unexplained")
    encoded = json.loads(json.dumps(jsonform.encode(snapshot, "blocks")))
    assert jsonform.encode(jsonform.decode(encoded), "blocks") == encoded


def resident_bytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return 1024 * int(next(line for line in lines if line.startswith("Rss:")).split()[1])


def look(pid: int) -> None:
    frozen = take(str(pid), freeze=True)
    assert frozen.frozen
    require_invariants(frozen)
    assert frozen.waterfall is not None
    # Nothing runs in it: nothing came or went since.
    now = resident_bytes(pid)
    assert abs(frozen.waterfall.rss_bytes - now) <= max(64 << 10, UNEXPLAINED_MAX * now)
    moving = take(str(pid))
    assert moving.origin == Origin.PROCESS
    assert moving.notes == ()
    assert moving.unsettled_share <= 0.5


@pytest.mark.parametrize("mode", ["fast", "lean", "hardened"])
def test_python(mode: str) -> None:
    environment = preloaded(HAKMEM_MODE=mode, PYTHONMALLOC="malloc")
    with running(["/usr/bin/python3", "-c", PYTHON_WORK], environment) as process:
        await_line(process, "ready")
        look(process.pid)
        snapshot = take(str(process.pid))
        assert snapshot.gauges["huge_blocks"] >= 5
        assert snapshot.gauges["large_blocks"] >= 5
        live = sum(row.live_bytes for row in snapshot.classes)
        assert live > 10 << 20


def _ask(connection: socket.socket, *words: str) -> bytes:
    parts = [f"${len(word)}\r\n{word}\r\n" for word in words]
    connection.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
    return connection.recv(65536)


def _connect(path: Path) -> socket.socket:
    deadline = time.monotonic() + HANG_SECONDS
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
            return connection
        except OSError:
            connection.close()
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_redis(tmp_path: Path) -> None:
    # Short: the address of a socket has room for 108 characters.
    place = Path("/tmp") / f"hakmem-{os.getpid()}.sock"
    options = {"port": "0", "unixsocket": str(place), "save": "", "appendonly": "no"}
    options |= {"dir": str(tmp_path), "logfile": "log"}
    words = [word for key, value in options.items() for word in (f"--{key}", value)]
    try:
        with running(["/usr/bin/redis-server", *words]) as process, _connect(place) as connection:
            for number in range(4000):
                value = "x" * (number * 37 % 3000)
                assert _ask(connection, "SET", f"key:{number}", value).startswith(b"+OK")
            for number in range(0, 4000, 3):
                assert _ask(connection, "DEL", f"key:{number}").startswith(b":1")
            look(process.pid)
            assert take(str(process.pid)).gauges["live_blocks"] > 5000
    finally:
        place.unlink(missing_ok=True)


@contextmanager
def _postgres(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A backend of its own, without a server; it refuses to run as root."""
    is_root = os.geteuid() == 0
    account: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
    account = account if is_root else {}
    copy = folder / "libhakmem.so"
    shutil.copy(library(), copy)
    if is_root:
        os.chown(folder, NOBODY, NOBODY)
    words: list[str | Path] = [
        POSTGRES / "initdb",
        "-D",
        folder / "data",
        "-A",
        "trust",
        "--no-sync",
        "--no-locale",
    ]
    subprocess.run(
        [str(word) for word in words],
        check=True,
        capture_output=True,
        timeout=HANG_SECONDS,
        cwd=folder,
        env=clean_environment(),
        **account,
    )
    backend: list[str | Path] = [
        POSTGRES / "postgres",
        "--single",
        "-D",
        folder / "data",
        "postgres",
    ]
    environment = clean_environment(LD_PRELOAD=str(copy))
    with running(backend, environment, cwd=folder, **account) as process:
        yield process


def test_postgres() -> None:
    # Not below a directory of pytest's: those are closed to the account that it runs as.
    with TemporaryDirectory(prefix="hakmem-postgres-") as name, _postgres(Path(name)) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for statement in QUERY.split("; "):
            process.stdin.write(statement.strip().encode() + b"\n")
        process.stdin.flush()
        seen = b""
        while b"count" not in seen.partition(b"max")[2]:
            part = os.read(process.stdout.fileno(), 65536)
            assert part, seen
            seen += part
        # The backend waits for the next statement.
        end = time.monotonic() + HANG_SECONDS
        stat = Path(f"/proc/{process.pid}/stat")
        while stat.read_text(encoding="ascii").rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < end
            time.sleep(0.01)
        look(process.pid)
