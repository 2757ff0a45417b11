"""Made-up processes for the tests of `hakmem top`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from hakmem.errors import HakmemError
from hakmem.inspect.model import Snapshot
from hakmem.top.sampler import Sampler
from tests.inspect.support.synthetic import make_snapshot

MIB = 1 << 20
REFILLS_PER_LOOK = 500


class MadeUpSession:
    """Each look at it sees 500 refills more. `looks_max`: how many it lives; then there is
    `error`."""

    def __init__(self, pid: int, looks_max: int = 1 << 30, error: Exception | None = None) -> None:
        self.pid = pid
        self.looks = 0
        self.looks_max = looks_max
        self.error = error or HakmemError(f"process {pid} has ended")
        self.freezes = 0
        self.closed = False

    def take(self, *, freeze: bool, residency: bool) -> Snapshot:
        if self.looks >= self.looks_max:
            raise self.error
        self.looks += 1
        self.freezes += freeze
        snapshot = make_snapshot(seed=self.pid, pid=self.pid, superslab_count=2, frozen=freeze)
        counters = {**snapshot.counters, "refills": REFILLS_PER_LOOK * self.looks}
        return replace(snapshot, name=f"server-{self.pid}", counters=counters)

    def close(self) -> None:
        self.closed = True


class Clock:
    """Stands still until it is set."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def made_up_sampler(
    sessions: dict[int, MadeUpSession],
    *,
    given: bool = True,
    most: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Sampler:
    """A sampler of these processes: given by their numbers, or found."""

    def is_alive(pid: int) -> bool:
        return sessions[pid].looks < sessions[pid].looks_max

    return Sampler(
        list(sessions) if given else [],
        opener=lambda pid: sessions[pid],
        find=lambda: list(sessions),
        resident=lambda pid: (pid + sessions[pid].looks % 8) * MIB,
        alive=is_alive,
        most=most,
        clock=clock,
    )
