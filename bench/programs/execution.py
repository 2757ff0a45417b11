"""One run of a real program: its processes, what they cost, and what the witness saw in them."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import strace
from harness.errors import MeasureError

from . import sampling, witness
from .layout import LAUNCHER, WITNESS
from .process import Account, Finished, Program, Running, Server, Usage, serving
from .stage import Stage, nobody

COMMAND_SECONDS_MAX = 300.0
SUMMARY_SECONDS_MAX = 300.0
# Of all processes together; the witness's own share is taken off.
COUNTS = ("minor_faults", "major_faults", "voluntary_switches", "involuntary_switches")
# Debian links some programs to an allocator of their choice; the C library, preloaded, goes first.
C_LIBRARY = "libc.so.6"


class Execution:
    """A fresh directory, an allocator, and all that was started with it."""

    def __init__(
        self,
        environment: Mapping[str, str],
        base: Path,
        *,
        count_calls: bool = False,
        idle_ms: int = 0,
    ) -> None:
        self.base = base
        self._copies: dict[str, str] = {}
        self._witness = self._reachable(str(WITNESS))
        self.stage = Stage(base, Path(self._reachable(str(LAUNCHER))))
        self.directory = self.stage.directory
        self.wall_ns = 0
        self._environment = dict(environment)
        self._preload = environment.get("LD_PRELOAD", C_LIBRARY)
        self._idle_ms = idle_ms
        self._usages: list[Usage] = []
        # From before the start of a command to after its end, by time.monotonic_ns().
        self._command_spans: list[tuple[int, int]] = []
        # Of the program started last on the allocator.
        self._series: sampling.Series = []
        # What runs on the allocator: process numbers, and the steps that started them.
        self._main_pids: list[int] = []
        self._main_steps: list[int] = []
        self._statements = base / "statements"
        self._count_calls = count_calls
        base.chmod(0o755)
        self._statements.touch()
        self._statements.chmod(0o666)

    # ---- starting programs

    def command(
        self,
        words: Sequence[str],
        *,
        stdin: bytes | None = None,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> Finished:
        """Runs a program under the allocator to its end; it is part of the timed work."""
        start_ns = time.monotonic_ns()
        running = self.stage.start(self._program(words, environment, directory, None), stdin)
        self._add_main(running.pid)
        with sampling.resident(running.pid) as self._series:
            done = self.stage.finish(running, timeout_s=COMMAND_SECONDS_MAX)
        self._command_spans.append((start_ns, time.monotonic_ns()))
        self._usages.append(done.usage)
        self.wall_ns += done.usage.wall_ns
        return done

    def tool(
        self,
        words: Sequence[str],
        *,
        stdin: bytes | None = None,
        account: Account | None = None,
        directory: Path | None = None,
    ) -> Finished:
        """Runs a client or a setting-up step on the system's own malloc; it is not measured."""
        variables = self._variables({}, preloaded=False)
        program = Program(words, directory or self.directory, variables, account)
        running = self.stage.start(program, stdin)
        return self.stage.finish(running, timeout_s=COMMAND_SECONDS_MAX)

    @contextlib.contextmanager
    def server(
        self,
        words: Callable[[int], Sequence[str]],
        *,
        stop_signal: signal.Signals = signal.SIGTERM,
        account: Account | None = None,
    ) -> Iterator[Server]:
        """A server under the allocator on a free loopback port; it is always stopped."""

        def start(port: int) -> Running:
            return self.stage.start(self._program(words(port), None, None, account))

        with serving(start, stop_signal) as server:
            self._add_main(server.pid)
            with sampling.resident(server.pid) as self._series:
                yield server
        if server.usage is not None:
            self._usages.append(server.usage)

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Adds the duration of the block, in which clients load a server, to the wall time."""
        start_ns = time.monotonic_ns()
        yield
        self.wall_ns += time.monotonic_ns() - start_ns

    def unprivileged(self) -> Account | None:
        """An account for programs that refuse to run as root; hands the directory to it."""
        account = nobody()
        if account is not None:
            for folder in (self.directory, *self.directory.rglob("*")):
                os.chown(folder, account.uid, account.gid)
            self._preload = ":".join(self._reachable(file) for file in self._preload.split(":"))
        return account

    # ---- results

    def row(self) -> dict[str, Any]:
        """The fields of a row that come from the processes.

        Times, faults and switches are those of all processes. Memory is that of the largest one,
        which is the main one unless the program works through children; only then is there no
        "rss_series".

        What the witness itself cost is taken off, since it depends on the allocator: processor time
        (first from the kernel's, where most of it is), faults and switches of every process; wall
        time of commands, whose processes wait for one another, as long as it worked in any of them.
        The wall time of servers is their clients': there it works beside it or after it.
        """
        statements = witness.read(self._statements)
        mains = [witness.main_of(statements, pid) for pid in self._main_pids]
        for main in mains:
            witness.check(statements, main)
        largest = max(statements, key=operator.attrgetter("peak_rss_bytes"))
        total = functools.reduce(_add, self._usages)
        own_wall_ns = sum(witness.own_wall_ns(statements, *span) for span in self._command_spans)
        own_cpu_ns = sum(each.own_cpu_ns for each in statements)
        cpu_ns = max(0, (total.user_us + total.system_us) * 1000 - own_cpu_ns)
        system_ns = min(cpu_ns, max(0, total.system_us * 1000 - own_cpu_ns))
        row: dict[str, Any] = {
            "wall_ns": self.wall_ns - own_wall_ns,
            "user_ns": cpu_ns - system_ns,
            "system_ns": system_ns,
            "cpu_ns": cpu_ns,
            "peak_rss_bytes": largest.peak_rss_bytes,
            "end_rss_bytes": largest.end_rss_bytes,
            **{name: max(0, getattr(total, name) - _own(statements, name)) for name in COUNTS},
            "extra": {
                "processes": len(statements),
                "witness_wall_ns": own_wall_ns,
                "witness_cpu_ns": own_cpu_ns,
            },
            "proof": self._original(mains[0].proof),
        }
        if largest is mains[-1]:
            row["rss_series"] = [list(sample) for sample in self._series]
        if largest.idle_rss_bytes is not None:
            row["extra"]["idle_rss_bytes"] = largest.idle_rss_bytes
        if self._count_calls:
            row["syscalls"] = dict(self._counted_calls())
        return row

    # ---- inside

    def _add_main(self, pid: int) -> None:
        self._main_pids.append(pid)
        self._main_steps.append(self.stage.steps)

    def _variables(self, environment: Mapping[str, str], *, preloaded: bool) -> dict[str, str]:
        variables = {"TZ": "UTC", "HOME": str(self.directory), "TMPDIR": str(self.directory)}
        variables.update(self._environment)
        variables.pop("LD_PRELOAD", None)
        if preloaded:
            variables.update(environment)
            # The witness comes first, so that _exit is its own whatever else defines one.
            variables["LD_PRELOAD"] = f"{self._witness}:{self._preload}"
            variables["WITNESS_FILE"] = str(self._statements)
            variables["WITNESS_IDLE_MS"] = str(self._idle_ms)
        return variables

    def _program(
        self,
        words: Sequence[str],
        environment: Mapping[str, str] | None,
        directory: Path | None,
        account: Account | None,
    ) -> Program:
        variables = self._variables(environment or {}, preloaded=True)
        if self._count_calls:
            # With -DD the program keeps its parent; the tracer, itself not preloaded, stands aside,
            # in a group of its own: it writes when the program's has ended.
            preload = variables.pop("LD_PRELOAD")
            summary = self._summary(self.stage.steps + 1)
            summary.touch()
            summary.chmod(0o666)  # The tracer has the program's account.
            tracer = ["strace", "-DD", "-f", "-c", "-qq", "-o", str(summary)]
            words = [*tracer, "-E", f"LD_PRELOAD={preload}", *words]
        return Program(words, directory or self.directory, variables, account)

    def _reachable(self, file: str) -> str:
        """The file, or a copy of it when only root can come to where it lies."""
        if "/" not in file or _world_readable(Path(file)):
            return file
        copy = self.base / Path(file).name
        shutil.copy(file, copy)
        copy.chmod(0o755)
        self._copies[str(copy)] = file
        return str(copy)

    def _original(self, proof: Mapping[str, Any]) -> dict[str, Any]:
        """The proof with copies called by the names of what they are copies of."""
        return {
            name: {key: self._copies.get(file, file) for key, file in value.items()}
            if name in witness.FUNCTIONS
            else value
            for name, value in proof.items()
        }

    def _summary(self, step: int) -> Path:
        return self.base / f"calls{step}"

    def _counted_calls(self) -> Counter[str]:
        """The calls of all programs. The tracer writes its summary when the program has ended."""
        deadline = time.monotonic() + SUMMARY_SECONDS_MAX
        counted: Counter[str] = Counter()
        for step in self._main_steps:
            while not (text := _read(self._summary(step))).endswith(" total\n"):
                if time.monotonic() > deadline:
                    raise MeasureError("strace wrote no summary")
                time.sleep(0.01)
            counted.update(strace.parse_summary(text))
        return counted


def _add(one: Usage, other: Usage) -> Usage:
    """What two programs cost together."""
    pairs = zip(dataclasses.astuple(one), dataclasses.astuple(other), strict=True)
    return Usage(*(a + b for a, b in pairs))


def _own(statements: Sequence[witness.Statement], name: str) -> int:
    """How many of these the witness itself caused in all processes."""
    return sum(getattr(each, f"own_{name}") for each in statements)


def _read(file: Path) -> str:
    return file.read_text() if file.exists() else ""


def _world_readable(file: Path) -> bool:
    real = file.resolve()
    return bool(real.stat().st_mode & 0o004) and all(
        folder.stat().st_mode & 0o001 for folder in real.parents
    )
