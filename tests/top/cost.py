"""What it costs a process that `hakmem top` looks at it ten times a second: cost.py --library FILE.

One process replaces blocks all the time, while the real `hakmem top` in a terminal is paused and
not paused in turn. Each pair of phases, in changing order, gives the ratio of their times for an
operation; the table has the median and its exact interval. Two controls belong to it:
pairs of which both are paused (what noise alone looks like), and looks that stop the process.
Times are by the clock, and by the processor time of the process, from which the load of the machine
is missing. The process has the first processors, what looks at it the last one, and both come
before the rest of the machine (SCHED_RR) where that is permitted.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools"), str(ROOT / "bench")]

from hakmem.top.session import ProcessSession  # noqa: E402
from harness.figures import Ratio, paired_ratio  # noqa: E402
from tests.top.terminal import Terminal  # noqa: E402

PROGRAM = Path(__file__).resolve().parent / "programs" / "churn.c"
INTERVAL_S = 0.1
COUNT_SPACING = 64
WARM_UP_S = 3.0
PRIORITY = 1


@dataclass(frozen=True)
class Moment:
    wall_s: float
    processor_s: float
    operations: int


@dataclass(frozen=True)
class Cost:
    """Nanoseconds for an operation of one thread, by the clock and by processor time."""

    wall_ns: float
    processor_ns: float


class Target:
    """The process that works; its counts lie in a file that both map."""

    def __init__(self, folder: Path, library: Path, threads: int, blocks: int) -> None:
        program, counts = folder / "churn", folder / "counts"
        subprocess.run(
            ["gcc", "-O2", "-fno-builtin", "-pthread", "-o", program, PROGRAM], check=True
        )
        counts.write_bytes(bytes(threads * COUNT_SPACING))
        self.threads = threads
        self.counts = np.memmap(counts, np.uint64, "r").reshape(threads, -1)
        processors = sorted(os.sched_getaffinity(0))
        if len(processors) <= threads:
            raise SystemExit(f"cost: {threads} threads and a reader need {threads + 1} processors")
        # Whatever is started inherits it: the target, and then the terminal and top in it.
        os.sched_setaffinity(0, processors[:threads])
        self.process = subprocess.Popen(
            [program, str(threads), str(blocks), counts],
            env={**os.environ, "LD_PRELOAD": str(library)},
        )
        os.sched_setaffinity(0, processors[-1:])

    def now(self) -> Moment:
        processor_ns = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            processor_ns += int((task / "schedstat").read_text(encoding="ascii").split()[0])
        operations = int(self.counts[:, 0].sum())
        return Moment(time.monotonic(), processor_ns / 1e9, operations)

    def measure(self, seconds: float) -> Cost:
        before = self.now()
        time.sleep(seconds)
        after = self.now()
        operations = after.operations - before.operations
        return Cost(
            (after.wall_s - before.wall_s) * self.threads * 1e9 / operations,
            (after.processor_s - before.processor_s) * 1e9 / operations,
        )


Switch = Callable[[bool], None]


@contextmanager
def looks_of_top(pid: int) -> Iterator[Switch]:
    """The screen itself; the switch presses its key of pause."""
    words = ["--interval", f"{INTERVAL_S}s", str(pid)]
    command = [sys.executable, str(ROOT / "hakmem"), "top", *words]
    with Terminal(command) as terminal:
        terminal.until_shown(f"{pid} churn, hakmem")
        running = True

        def switch(on: bool) -> None:
            nonlocal running
            if on != running:
                terminal.press("p")
                terminal.until(lambda screen: ("PAUSED" in screen) != on, "the pause")
                running = on

        yield switch


@contextmanager
def looks_that_stop(pid: int) -> Iterator[Switch]:
    """A control: the process stands still during each look."""
    session = ProcessSession(pid)
    wanted, ended = threading.Event(), threading.Event()

    def look() -> None:
        while not ended.is_set():
            if wanted.is_set():
                session.take(freeze=True, residency=False)
            time.sleep(INTERVAL_S)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield lambda on: wanted.set() if on else wanted.clear()
    finally:
        ended.set()
        thread.join()
        session.close()


@contextmanager
def no_looks(_: int) -> Iterator[Switch]:
    """A control: nothing differs."""
    yield lambda on: None


ARMS = {
    "nothing in either phase": no_looks,
    "`hakmem top`, 10 looks a second": looks_of_top,
    "10 looks a second that stop it": looks_that_stop,
}


def measure_arm(
    target: Target, switch: Switch, pairs: int, seconds: float
) -> tuple[list[Cost], list[Cost]]:
    """Costs with and without looks, pair by pair."""
    costs: dict[bool, list[Cost]] = {True: [], False: []}
    for pair in range(pairs):
        for on in (True, False) if pair % 2 else (False, True):
            switch(on)
            costs[on].append(target.measure(seconds))
    switch(False)
    return costs[True], costs[False]


def row(name: str, looked: Sequence[Cost], alone: Sequence[Cost]) -> str:
    def percent(ratio: Ratio) -> str:
        low, high = (100 * (value - 1) for value in (ratio.low, ratio.high))
        return f"{100 * (ratio.median - 1):+.2f} % ({low:+.2f} to {high:+.2f})"

    wall = paired_ratio([cost.wall_ns for cost in looked], [cost.wall_ns for cost in alone])
    processor = paired_ratio(
        [cost.processor_ns for cost in looked], [cost.processor_ns for cost in alone]
    )
    median = np.median([cost.wall_ns for cost in alone])
    return f"| {name} | {len(alone)} | {median:.1f} ns | {percent(wall)} | {percent(processor)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", required=True, type=Path)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=1.0, help="of one phase")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=100_000, help="that each thread holds")
    options = parser.parse_args()
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(PRIORITY))
    with tempfile.TemporaryDirectory(prefix="hakmem-cost-") as name:
        folder = Path(name)
        library = options.library.resolve()
        target = Target(folder, library, options.threads, options.blocks)
        try:
            time.sleep(WARM_UP_S)
            print("| looks | pairs | an operation | by the clock | by processor time |")
            print("|---|---|---|---|---|")
            for arm, looks in ARMS.items():
                with looks(target.process.pid) as switch:
                    looked, alone = measure_arm(target, switch, options.pairs, options.seconds)
                print(row(arm, looked, alone), flush=True)
        finally:
            target.process.kill()
            target.process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
