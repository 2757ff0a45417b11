"""What is counted, not timed: OS calls, memory after the work and after idling, instructions.

These come from runs of their own. strace stops the process at every call, so nothing of such a run
enters a timed row.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import callgrind, machine, measure, strace
from .cases import Case
from .environment import CLEAN_ENVIRONMENT, end_all
from .errors import BenchError, MeasureError, RefusedError
from .measure import Row
from .peers import Allocator
from .workshop import build

# The calls by which an allocator gets, gives back and waits.
MEMORY_CALLS = ("mmap", "munmap", "madvise", "mremap", "brk", "futex", "mprotect")
# Made by the proof when it reads the allocator's data (bench/probes/counter.c), as many as there is
# data; no allocator makes them.
PROOF_CALLS = ("pread64", "mincore")
IDLE_MS = 2000
# Most of a counting run is waiting, so several run at once; nothing is timed.
AT_ONCE = 4
# Under callgrind, which is some fifty times slower: the most operations of a run, the share of them
# that the shorter of the two runs does, and the most warm-up.
INSTRUCTION_OPS_MAX = 70_000
SHORTER_SHARE = 0.3
WARM_OPS_MAX = 20_000


def count(
    case: Case,
    allocator: Allocator,
    *,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    arguments: Mapping[str, object] | None = None,
) -> dict[str, Any]:
    """OS calls of one proven run of a workload, start and end of the process included. `folder`:
    where the workloads were built, here and below; else they are."""
    return _count(case, allocator, strace.trace, folder, environment or {}, arguments or {})


def count_timed_part(case: Case, allocator: Allocator) -> dict[str, Any]:
    """OS calls of the timed part of one proven run of a workload, which has one thread."""
    return _count(case, allocator, strace.trace_timed_part, None, {}, {})


def _count(
    case: Case,
    allocator: Allocator,
    trace: Callable[[Sequence[str], Mapping[str, str]], tuple[str, dict[str, int]]],
    folder: Path | None,
    environment: Mapping[str, str],
    arguments: Mapping[str, object],
) -> dict[str, Any]:
    if case.real is not None:
        raise BenchError(f"{case.name}: OS calls are counted for workloads only")
    command = measure.command_line(
        (folder or build()) / case.program, case.arguments, arguments, allocator.arguments
    )
    output, calls = trace(command, {**CLEAN_ENVIRONMENT, **allocator.settings(), **environment})
    row = measure.read_row(output)
    measure.verify(row, allocator)
    return {**_calls(calls), "row": row}


def _calls(traced: Mapping[str, int]) -> dict[str, Any]:
    calls = {name: count for name, count in traced.items() if name not in PROOF_CALLS}
    return {
        "syscalls": {name: calls.get(name, 0) for name in MEMORY_CALLS},
        "other_syscalls": {name: calls[name] for name in sorted(calls.keys() - {*MEMORY_CALLS})},
        "calls_total": sum(calls.values()),
    }


def count_whole(case: Case, allocator: Allocator, scale: float, folder: Path | None = None) -> Row:
    """A line of counts.jsonl: OS calls, and resident memory at the end of the work and after the
    process has idled for two seconds without a call of malloc."""
    if case.real is None:
        arguments = {**measure.scaled(case.arguments, scale), "idle_ms": IDLE_MS}
        counted = count(case, allocator, folder=folder, arguments=arguments)
        row = counted.pop("row")
    else:
        row = measure.run_real(case.real, allocator, scale, count_calls=True, idle_ms=IDLE_MS)
        measure.verify(row, allocator)
        counted = _calls(row.pop("syscalls"))
    extra = row.get("extra", {})
    return {
        "case": case.name,
        "allocator": allocator.name,
        "ops": row["ops"],
        **counted,
        "end_rss_bytes": row["end_rss_bytes"],
        "freed_rss_bytes": extra.get("freed_rss_bytes"),
        "idle_rss_bytes": extra.get("idle_rss_bytes"),
        "frame_bytes": extra.get("frame_bytes"),
        "proof": row["proof"],
    }


def instructions_per_op(case: Case, allocator: Allocator, folder: Path | None = None) -> float:
    """Instructions of one more operation, everything of the process included, by callgrind: the
    difference of two runs, in which start-up and end cancel out."""
    arguments = {**case.arguments, **allocator.arguments}
    many = min(int(float(str(arguments.get("ops", INSTRUCTION_OPS_MAX)))), INSTRUCTION_OPS_MAX)
    few = max(1, int(many * SHORTER_SHARE))
    arguments["warm"] = min(int(str(arguments.get("warm", many))), WARM_OPS_MAX)
    counts = callgrind.per_operation(
        allocator, (folder or build()) / case.program, arguments, {}, few=few, many=many, inside=""
    )
    return round(counts.total / (many - few), 2)


class Budget:
    """Memory that several runs share; one that wants more than all of it runs alone."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self._free_bytes = total_bytes
        self._changed = threading.Condition()

    @contextmanager
    def share(self, wanted_bytes: int) -> Iterator[None]:
        """Waits until so much is free, and holds it for the body."""
        held = min(wanted_bytes, self.total_bytes)
        with self._changed:
            self._changed.wait_for(lambda: self._free_bytes >= held)
            self._free_bytes -= held
        try:
            yield
        finally:
            with self._changed:
                self._free_bytes += held
                self._changed.notify_all()


def count_all(
    pairs: Iterable[tuple[Case, Allocator]],
    one: Callable[[Case, Allocator], Row],
    peak_bytes: Callable[[Case, Allocator], int] = lambda _case, _allocator: 0,
) -> Iterator[tuple[Case, Allocator, Row | Exception]]:
    """Runs `one` for each pair, several at once; yields what came out, in the order of the pairs.

    No more run at once than half of the free memory holds, by what each pair is known to need.
    Leaving the iteration early ends the runs that are under way, and starts no more.
    """
    budget = Budget(machine.available_bytes() // 2)

    def attempt(pair: tuple[Case, Allocator]) -> Row | Exception:
        try:
            with budget.share(peak_bytes(*pair)):
                return one(*pair)
        except (RefusedError, MeasureError) as error:
            return error

    pool = ThreadPoolExecutor(max_workers=AT_ONCE)
    try:
        waiting = [(pair, pool.submit(attempt, pair)) for pair in pairs]
        for (case, allocator), future in waiting:
            yield case, allocator, future.result()
    except BaseException:
        end_all()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
