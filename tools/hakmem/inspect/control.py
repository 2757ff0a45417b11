"""What may be asked of a living process: the only place that is written in a target's memory."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import numpy as np

from hakmem.inspect.errors import InspectError
from hakmem.inspect.layout import Layout, offset_of
from hakmem.inspect.process import ProcessSource

WORD_BYTES = 4
POLL_SECONDS = 0.01
SWITCHES = ("research", "events")
PURGE = "purge"


@dataclass(frozen=True)
class State:
    """What is wanted of a target now. `purging`: a purge was asked for and is not done yet."""

    research: bool
    events: bool
    purging: bool


class Control:
    """The wishes of one process; InspectError when it is not this user's."""

    def __init__(self, source: ProcessSource, layout: Layout) -> None:
        self.source = source
        if layout.root.find_global("control") is None:
            raise InspectError(
                f"process {source.pid} uses hakmem {layout.root.version}, which takes no wishes"
            )
        self.layout = layout
        self.address = layout.root.global_object("control").address
        self.structure = layout.root.structure("control")
        owner = source.owner()
        if owner != os.geteuid():
            raise InspectError(
                f"process {source.pid} runs as user {owner}: only that user may set anything in it"
            )

    def state(self) -> State:
        row = self.source.read_array(self.address, self.structure)[0]
        return State(
            bool(row["research"]), bool(row["events"]), row["purge_wanted"] != row["purge_done"]
        )

    def switch(self, name: str, is_on: bool) -> None:
        """Sets one of SWITCHES; threads follow when they next take a slow path."""
        self._write(name, int(is_on))

    def purge(self, wait_seconds: float) -> bool:
        """Asks for what hakmem_trim does, and waits for it. False when no thread has done it by
        then: the next one that takes a slow path will."""
        row = self.source.read_array(self.address, self.structure)[0]
        wanted = (int(row["purge_done"]) + 1) % (1 << 8 * WORD_BYTES)
        self._write("purge_wanted", wanted)
        deadline = time.monotonic() + wait_seconds
        while self.state().purging:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _write(self, name: str, value: int) -> None:
        address = self.address + offset_of(self.structure, name)
        self.source.write(address, np.uint32(value).tobytes())
