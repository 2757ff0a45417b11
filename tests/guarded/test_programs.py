"""Whole programs with sampling: they run as without, and without it nothing of it is there."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from tests.guarded.support import MODES, Run

PYTHON = str(Path(sys.executable).resolve())

# Threads, children and exceptions; prints one number that every run must agree on.
WORK = """
import os, sqlite3, threading, zlib
def work(seed, into):
    words = {str(i * seed % 9973): [i] * (i % 7) for i in range(4000)}
    text = "".join(sorted(words)) * 3
    into.append(zlib.crc32(zlib.compress(text.encode())))
found = []
threads = [threading.Thread(target=work, args=(i + 2, found)) for i in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
child = os.fork()
if child == 0:
    own = []
    work(2, own)
    os._exit(0 if own[0] in found else 1)
assert os.waitpid(child, 0)[1] == 0
base = sqlite3.connect(":memory:")
base.execute("create table t (n integer, s text)")
base.executemany("insert into t values (?, ?)", [(i, str(i) * 9) for i in range(3000)])
base.execute("create index i on t (s)")
print(sum(found), base.execute("select sum(n), max(s), count(distinct s) from t").fetchone())
"""


def counter(text: str, name: str) -> int:
    found = re.search(rf"^  {name} +(\d+) ", text, re.MULTILINE)
    return int(found[1]) if found else 0


@pytest.mark.parametrize("mode", MODES)
def test_python_and_sqlite_with_one_in_ten(
    run: Run, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("PYTHONMALLOC", "malloc")
    plain = run(PYTHON, "-c", WORK, preload=False)
    sampled = run(
        PYTHON, "-c", WORK, mode=mode, guard_sample=10, guard_slots=512, check=1, stats_at_exit=1
    )
    assert (sampled.status, sampled.out) == (0, plain.out)
    assert counter(sampled.err, "guarded_allocs") > 100
    assert counter(sampled.err, "misuses") == 0
    # Each due one became a guarded block, or all slots were live: one in ten where all are counted.
    if mode == "hardened":
        due = counter(sampled.err, "guarded_allocs") + counter(sampled.err, "guarded_full")
        refills = counter(sampled.err, "refills")
        assert 0.08 < due / (due + refills) < 0.12


STATUS = "print(open('/proc/self/status').read())"


def catches_faults(text: str) -> bool:
    found = re.search(r"SigCgt:\s+([0-9a-f]+)", text)
    assert found, text
    return bool(int(found[1], 16) >> (signal.SIGSEGV - 1) & 1)


@pytest.mark.parametrize(
    ("mode", "options", "expected"),
    [
        ("fast", {}, False),
        ("lean", {}, False),
        ("research", {}, False),
        ("hardened", {"guard_sample": 0}, False),
        ("hardened", {}, True),
        ("fast", {"guard_sample": 1000}, True),
    ],
)
def test_off_is_off(run: Run, mode: str, options: dict[str, object], expected: bool) -> None:
    """No handler, and not one call to the system more."""
    assert catches_faults(run(PYTHON, "-c", STATUS, mode=mode, **options).out) is expected
    calls = [
        {
            name: counter(run("leaks", mode=mode, stats_at_exit=1, **settings).err, f"os_{name}")
            for name in ("mmap", "munmap", "mprotect", "madvise")
        }
        for settings in (options, {"guard_sample": 0})
    ]
    if expected:
        assert calls[0]["mmap"] > calls[1]["mmap"]
    else:
        assert calls[0] == calls[1]


def test_without_room_for_the_pool_the_program_runs(run: Run) -> None:
    """4096 slots take 32 MiB of addresses, more than the 30 MB that the process may have."""
    options = {"guard_sample": 1, "guard_slots": 4096, "stats_at_exit": 1}
    command = ("/usr/bin/sort", "/etc/passwd")
    limited = run("/usr/bin/prlimit", "--as=30000000", *command, **options)
    assert limited.status == 0
    assert limited.out == run(*command, preload=False).out
    assert "guarded_allocs" not in limited.err
    assert counter(run(*command, **options).err, "guarded_allocs") > 0
