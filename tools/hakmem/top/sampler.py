"""Looks at processes again and again: the latest snapshot of each, rates between two looks, and the
history of its resident memory. A process that ends keeps its last picture."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hakmem.errors import HakmemError
from hakmem.inspect.errors import GoneError
from hakmem.inspect.model import Snapshot
from hakmem.watch import is_alive, resident_bytes

HISTORY_LOOKS_MAX = 512
# Processes come and go; and those that are only a line of the list are looked at as rarely.
OTHERS_INTERVAL_S = 1.0
# To look for processes takes a while on a large machine: at most this share of the time.
FIND_SHARE = 0.05
# How long a process that was found, and not asked for, is remembered after its end.
ENDED_KEPT_S = 60.0


class Session(Protocol):
    """What the sampler needs of hakmem.inspect.reading.Session."""

    def take(self, *, freeze: bool, residency: bool) -> Snapshot: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class View:
    """What is known of one process. `problem`: why the last look failed. `rates`: counter to events
    per second, empty before the second look and after one that failed. `rss_bytes`: resident
    memory, oldest first."""

    pid: int
    ended: bool
    problem: str | None
    snapshot: Snapshot | None
    rates: Mapping[str, float]
    rss_bytes: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.snapshot.name if self.snapshot is not None else "?"

    @property
    def state(self) -> str:
        if self.ended:
            return "ended"
        return "unreadable" if self.snapshot is None else "live"


def counter_rates(
    before: Mapping[str, int], after: Mapping[str, int], elapsed_s: float
) -> dict[str, float]:
    """Growth per second of every counter; one that shrank (another program by exec) has no rate."""
    if elapsed_s <= 0:
        return {}
    return {
        name: (value - before[name]) / elapsed_s
        for name, value in after.items()
        if value >= before.get(name, value + 1)
    }


@dataclass
class _Watched:
    pid: int
    session: Session | None = None
    ended: bool = False
    problem: str | None = None
    snapshot: Snapshot | None = None
    looked_s: float = float("-inf")
    pictured_s: float = float("-inf")  # when `snapshot` was taken; a later look may have failed
    rates: dict[str, float] = field(default_factory=dict)
    rss_bytes: deque[int] = field(default_factory=lambda: deque(maxlen=HISTORY_LOOKS_MAX))

    def view(self) -> View:
        return View(
            self.pid, self.ended, self.problem, self.snapshot, self.rates, tuple(self.rss_bytes)
        )


class Sampler:
    """Use it from one thread at a time. Without pids it watches whatever `find` returns; of more
    than `most` those with most resident memory.

    `residency`: also ask the kernel what is resident, which takes long for a large heap."""

    def __init__(
        self,
        pids: Sequence[int],
        *,
        opener: Callable[[int], Session],
        find: Callable[[], Sequence[int]],
        residency: bool = False,
        most: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        resident: Callable[[int], int] = resident_bytes,
        alive: Callable[[int], bool] = is_alive,
    ) -> None:
        self._open = opener
        self._find = None if pids else find
        self._residency = residency
        self._most = most
        self._clock = clock
        self._resident = resident
        self._alive = alive
        self._find_due_s = float("-inf")
        self._watched = {pid: _Watched(pid) for pid in pids}

    def look(self, selected: int | None = None, *, freeze: bool = False) -> tuple[View, ...]:
        """One look at `selected`, and at every other process whose last look is long ago. `freeze`
        stops the selected process meanwhile, for an exact picture."""
        now = self._clock()
        if self._find is not None and now >= self._find_due_s:
            self._forget(now)
            found = self._find()
            self._leave_others(found)
            for pid in self._chosen(found):
                if pid not in self._watched or self._watched[pid].ended:
                    # Of one that ended, another process has the number by now.
                    self._watched[pid] = _Watched(pid)
            took_s = self._clock() - now
            self._find_due_s = now + max(OTHERS_INTERVAL_S, took_s / FIND_SHARE)
        for watched in self._watched.values():
            is_selected = selected in (None, watched.pid)
            if is_selected or now - watched.looked_s >= OTHERS_INTERVAL_S:
                self._look_at(watched, freeze=freeze and is_selected)
        if self._find is not None:
            # Those that ended before their first look, which nobody asked for: of them is nothing.
            for watched in list(self._watched.values()):
                if watched.ended and watched.snapshot is None:
                    del self._watched[watched.pid]
        return tuple(watched.view() for watched in self._watched.values())

    def _leave_others(self, found: Sequence[int]) -> None:
        """A process that lives, but runs another program by now (exec), which has no hakmem."""
        gone = [
            pid
            for pid, watched in self._watched.items()
            if watched.problem is not None and not watched.ended
        ]
        for pid in set(gone).difference(found):
            del self._watched[pid]

    def _chosen(self, found: Sequence[int]) -> Sequence[int]:
        """Lets go of those that are not among the largest any more."""
        if self._most is None or len(found) <= self._most:
            return found
        chosen = sorted(found, key=self._resident, reverse=True)[: self._most]
        for pid in found:
            if pid in self._watched and pid not in chosen:
                self._close(self._watched.pop(pid))
        return chosen

    def _forget(self, now: float) -> None:
        old = [
            pid
            for pid, watched in self._watched.items()
            if watched.ended and now - watched.looked_s > ENDED_KEPT_S
        ]
        for pid in old:
            del self._watched[pid]

    def _look_at(self, watched: _Watched, *, freeze: bool) -> None:
        if watched.ended:
            return
        try:
            if watched.session is None:
                watched.session = self._open(watched.pid)
            snapshot = watched.session.take(freeze=freeze, residency=self._residency)
        except (HakmemError, OSError) as error:
            watched.problem = str(error)
            watched.rates = {}
            self._close(watched)
            if isinstance(error, GoneError):
                # Another program (exec) counts from its own beginning: no time has passed for it.
                watched.pictured_s = float("inf")
            watched.ended = not self._alive(watched.pid)
            watched.looked_s = self._clock()
            return
        now = self._clock()
        watched.problem = None
        if watched.snapshot is not None:
            watched.rates = counter_rates(
                watched.snapshot.counters, snapshot.counters, now - watched.pictured_s
            )
        watched.snapshot, watched.looked_s, watched.pictured_s = snapshot, now, now
        watched.rss_bytes.append(self._resident(watched.pid))

    @staticmethod
    def _close(watched: _Watched) -> None:
        if watched.session is not None:
            watched.session.close()
            watched.session = None

    def close(self) -> None:
        for watched in self._watched.values():
            self._close(watched)
