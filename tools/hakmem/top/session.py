"""A running process, looked at again and again."""

from __future__ import annotations

import resource
from contextlib import suppress

from hakmem.inspect.model import Snapshot
from hakmem.inspect.reading import Session
from hakmem.inspect.targets import open_source, take_frozen


class ProcessSession:
    """What the sampler opens for a process; HakmemError when it cannot be read."""

    def __init__(self, pid: int) -> None:
        self._session = Session(open_source(str(pid)))

    def take(self, *, freeze: bool, residency: bool) -> Snapshot:
        if freeze:
            return take_frozen(self._session, residency=residency)
        return self._session.take(residency=residency)

    def close(self) -> None:
        self._session.close()


def allow_many() -> None:
    """A process that is watched costs an open file or two: as many as this user may have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
