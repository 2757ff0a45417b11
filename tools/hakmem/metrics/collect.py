"""Looks at processes when somebody asks for their metrics."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from hakmem.inspect.targets import find_processes
from hakmem.metrics.families import Look, families
from hakmem.options import Counter
from hakmem.top.sampler import Sampler, View
from hakmem.top.session import ProcessSession, allow_many

# More processes than this are no longer told apart on a dashboard; the largest are kept.
PROCESSES_MAX = 64


class HeapCollector(Collector):
    """One look for each collect(); scrapes at the same time take turns. `most`: so many processes
    are told of, those that can be read and the largest first."""

    def __init__(self, sampler: Sampler, rows: Sequence[Counter], most: int | None = None) -> None:
        self._sampler = sampler
        self._rows = rows
        self._most = most
        self._turn = threading.Lock()

    def look(self) -> tuple[View, ...]:
        with self._turn:
            views = self._sampler.look()
        order = sorted(views, key=lambda view: (view.problem is not None, -_rss(view)))
        return tuple(order[: self._most])

    def metrics(self, views: Iterable[View]) -> list[Metric]:
        """A process whose last look failed has no figures, rather than old ones."""
        looks = [
            Look(view.pid, None if view.problem is not None else view.snapshot) for view in views
        ]
        return families(looks, self._rows)

    def collect(self) -> Iterable[Metric]:
        return self.metrics(self.look())


@contextmanager
def collecting(pids: Sequence[int], rows: Sequence[Counter]) -> Iterator[HeapCollector]:
    """A collector of these processes, or of the largest that use hakmem; at the end it lets go of
    them."""
    allow_many()
    # Who names processes wants to hear of each.
    most = None if pids else PROCESSES_MAX
    sampler = Sampler(pids, opener=ProcessSession, find=find_processes, residency=True, most=most)
    try:
        yield HeapCollector(sampler, rows, most)
    finally:
        sampler.close()


def _rss(view: View) -> int:
    return view.rss_bytes[-1] if view.rss_bytes else 0
