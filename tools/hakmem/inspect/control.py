"""What may be changed in a living process: its LIVE options, and wishes. Nothing else of a target's
memory is ever written."""

from __future__ import annotations

import os
import time

from hakmem.inspect.errors import InspectError
from hakmem.inspect.layout import Layout, offset_of
from hakmem.inspect.process import ProcessSource

WISH_BYTES, OPTION_BYTES, OUTPUT_BYTES = 4, 8, 8
POLL_SECONDS = 0.01
# These make it tell something at its end.
TELLING = ("leaks", "stats_at_exit")
OUTPUT = ("output_device", "output_number", "output_special_device")


class Control:
    """The options and wishes of one process; InspectError when it is not this user's. Threads
    follow when they next take a slow path."""

    def __init__(self, source: ProcessSource, layout: Layout) -> None:
        self.source = source
        self.layout = layout
        root = layout.root
        if root.find_global("control") is None:
            raise InspectError(
                f"process {source.pid} uses hakmem {root.version}, in which nothing can be set"
            )
        self.address = root.global_object("control").address
        self.structure = root.structure("control")
        owner = source.owner()
        if owner != os.geteuid():
            raise InspectError(
                f"process {source.pid} runs as user {owner}: only that user may set anything in it"
            )

    def place_of(self, name: str) -> tuple[int, int]:
        """The number of a LIVE option's row, and where its value is; InspectError when the target
        has no such one."""
        root = self.layout.root
        for index, row in enumerate(root.rows["options"]):
            if row["name"] == name.encode():
                if not int(row["live"]):
                    raise InspectError(f"{name} is only read when a program starts")
                return index, root.global_object("options").address + int(row["offset"])
        raise InspectError(f"process {self.source.pid} uses a hakmem that has no option {name}")

    def set_option(self, name: str, value: int) -> None:
        """A number of a LIVE option, in its range; InspectError when the target has no such one."""
        index, place = self.place_of(name)
        root = self.layout.root
        self.source.write(place, value.to_bytes(OPTION_BYTES, "little"))
        origin = root.constant("option_origin_runtime").to_bytes(1, "little")
        self.source.write(root.global_object("option_origins").address + index, origin)

    def tells_elsewhere(self) -> bool:
        """Whether what it tells at its end goes to what was standard error when it started: it was
        asked for then."""
        root = self.layout.root
        origins = root.read_global(self.source, "option_origins")
        runtime = root.constant("option_origin_runtime")
        place = root.global_object("options").address
        return any(
            row["name"].decode() in TELLING
            and origins[index] != runtime
            and any(self.source.read(place + int(row["offset"]), OPTION_BYTES))
            for index, row in enumerate(root.rows["options"])
        )

    def tell_output(self) -> str | None:
        """Tells it which file its standard error is by now: where that is another one at its end,
        it writes nothing there. The name of the file, None where it is closed. Before a TELLING
        option is turned on."""
        found = self.source.error_output()
        numbers = (found[1].st_dev, found[1].st_ino, found[1].st_rdev) if found else (0, 0, 0)
        # A library that has none of these writes to whatever has the number then.
        if OUTPUT[0] in (self.structure.names or ()):
            for name, number in zip(OUTPUT, numbers, strict=True):
                self._write(name, number, OUTPUT_BYTES)
        return found[0] if found else None

    def ask_events(self, is_on: bool) -> None:
        """Whether kinds of events are recorded that are not always."""
        self._wish("events", int(is_on))

    def purge(self, wait_seconds: float) -> bool:
        """Asks for what hakmem_trim does, and waits for it. False when no thread has done it by
        then: the next one that takes a slow path will."""
        row = self.source.read_array(self.address, self.structure)[0]
        self._wish("purge_wanted", (int(row["purge_done"]) + 1) % (1 << 8 * WISH_BYTES))
        deadline = time.monotonic() + wait_seconds
        while self._is_purging():
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
        return True

    def _is_purging(self) -> bool:
        row = self.source.read_array(self.address, self.structure)[0]
        return int(row["purge_wanted"]) != int(row["purge_done"])

    def _wish(self, name: str, value: int) -> None:
        self._write(name, value, WISH_BYTES)

    def _write(self, name: str, value: int, count: int) -> None:
        address = self.address + offset_of(self.structure, name)
        self.source.write(address, value.to_bytes(count, "little"))
