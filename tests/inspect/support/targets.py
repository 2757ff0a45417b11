"""Programs to be looked at: the library under test, and processes that always end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from hakmem.inspect.model import BlockState, Snapshot
from hakmem.watch import has_ended
from tests.cli.support import clean_environment, library
from tests.inspect.support.corewriter import write_core
from tests.patience import HANG_SECONDS

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = ROOT / "tests" / "inspect" / "programs"
HAKMEM = (sys.executable, str(ROOT / "hakmem"))
BLOCK = np.dtype([("start", "<u8"), ("bytes", "<u8")])

Addresses = npt.NDArray[np.uint64]


def archive() -> Path:
    return library().with_name("libhakmem.a")


def compile_program(source: str, result: Path, *flags: str | Path) -> Path:
    command = ["gcc", "-O1", "-fno-builtin", "-pthread", "-o", result, PROGRAMS / source, *flags]
    subprocess.run([str(word) for word in command], check=True, timeout=HANG_SECONDS)
    return result


def preloaded(**more: str) -> dict[str, str]:
    return clean_environment(LD_PRELOAD=str(library()), **more)


@contextmanager
def running(
    command: Sequence[str | Path], environment: Mapping[str, str] | None = None, **more: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with pipes at its standard streams, ended and reaped in any case."""
    process = subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment) if environment is not None else preloaded(),
        **more,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=HANG_SECONDS)


def await_line(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdout is not None
    said = process.stdout.readline().decode()
    assert said == f"{line}\n", f"the program said {said!r} and not {line!r}"


def await_message(process: subprocess.Popen[bytes]) -> str:
    """The next line of standard error."""
    assert process.stderr is not None
    return process.stderr.readline().decode()


def go_on(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"\n")
    process.stdin.flush()


def await_ready(process: subprocess.Popen[bytes]) -> None:
    """Of a program that has started, waits for a word, and says when all is allocated."""
    await_line(process, "started")
    go_on(process)
    await_line(process, "ready")


def await_end_of_main(pid: int) -> None:
    """A thread can be joined a moment before it is gone."""
    deadline = time.monotonic() + HANG_SECONDS
    while not has_ended(Path(f"/proc/{pid}")):
        assert time.monotonic() < deadline


def read_truth(path: Path) -> npt.NDArray[np.void]:
    truth: npt.NDArray[np.void] = np.fromfile(path, BLOCK)
    return truth


def live_blocks(snapshot: Snapshot) -> dict[int, int]:
    """Address and size of every live block that the reader found, one by one."""
    sizes = {row.index: row.block_bytes for row in snapshot.size_classes}
    found: dict[int, int] = {}
    for slab in snapshot.slabs:
        size = sizes[int(slab["class_index"])]
        states = snapshot.blocks(slab)
        for index in np.flatnonzero(states == BlockState.LIVE):
            found[int(slab["start"]) + int(index) * size] = size
    for run in snapshot.large:
        found[int(run["start"])] = int(run["large_bytes"])
    for block in snapshot.huge:
        if block.live:
            found[block.start] = block.usable_bytes
    return found


def hakmem(*words: str | int | Path) -> subprocess.CompletedProcess[str]:
    """A verb of the command line, as a user calls it."""
    return subprocess.run(
        [*HAKMEM, *(str(word) for word in words)],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        env=clean_environment(),
    )


def inspect(*words: str | int | Path) -> subprocess.CompletedProcess[str]:
    return hakmem("inspect", *words)


def require_refusal(done: subprocess.CompletedProcess[str], *words: str) -> None:
    """One sentence on standard error, status 2, nothing else."""
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("hakmem: ")
    for word in words:
        assert word in lines[0], done.stderr


def make_core(how: str, pid: int, folder: Path) -> Path:
    """Of a process that goes on: by gdb ("gcore"), or by this project's own writer."""
    core = folder / f"core.{pid}"
    if how == "gcore":
        words = ["gcore", "-o", str(folder / "core"), str(pid)]
        subprocess.run(words, check=True, capture_output=True, timeout=HANG_SECONDS)
    else:
        write_core(pid, core)
    return core


def pid_of_child(pid: int) -> int:
    """The one child of a process."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    assert len(children) == 1, children
    return int(children[0])


def is_permitted(command: Sequence[str]) -> bool:
    done = subprocess.run(command, capture_output=True, timeout=HANG_SECONDS, env=os.environ)
    return done.returncode == 0
