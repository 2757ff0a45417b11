"""Damage planted into a living process's metadata: each kind is told, and costs no traceback."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from hakmem.inspect.errors import DamagedError
from hakmem.inspect.layout import offset_of
from hakmem.inspect.memory import Addresses
from hakmem.inspect.model import RunKind
from hakmem.inspect.process import ProcessSource
from hakmem.inspect.reading import Session
from hakmem.inspect.root import STRUCTURE, Root
from hakmem.inspect.targets import take
from tests.inspect.support.targets import (
    await_ready,
    compile_program,
    inspect,
    require_refusal,
    running,
)


class Victim:
    """A process that sleeps, and where its structures are."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.pid = process.pid
        self.source = ProcessSource(process.pid)
        self.session = Session(self.source)
        self.picture = self.session.walker.read()
        self.layout = self.session.layout

    def slab(self, *, large_blocks: bool) -> tuple[int, np.void]:
        """Address of a slab's descriptor, and its row: one word of blocks, or more."""
        runs = self.picture.runs
        wanted = (runs["kind"] == RunKind.SLAB) & (runs["free"] == 0)
        wanted &= (runs["block_count"] <= 64) == large_blocks
        row = int(np.flatnonzero(wanted)[0])
        return int(self.picture.run_places[row]), runs[row]

    def place(self, structure: np.dtype[Any], start: int, *path: str) -> int:
        return start + offset_of(structure, *path)

    def write(self, address: int, form: str, value: int) -> None:
        self.source.write(address, struct.pack(form, value))

    def notes(self) -> str:
        return "\n".join(take(str(self.pid), freeze=True).notes)


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[Victim]:
    program = compile_program("truth.c", tmp_path / "truth")
    with running([program, "3", "4000", tmp_path / "blocks"]) as process:
        await_ready(process)
        victim = Victim(process)
        assert victim.notes() == ""
        yield victim


def test_number_of_free_blocks(victim: Victim) -> None:
    place, _ = victim.slab(large_blocks=True)
    victim.write(victim.place(victim.layout.run, place, "free_count"), "<H", 60_000)
    assert "damaged: 1 slab is of another number of free blocks than it says" in victim.notes()


def test_owner(victim: Victim) -> None:
    place, _ = victim.slab(large_blocks=True)
    victim.write(victim.place(victim.layout.run, place, "heap"), "<Q", place)
    assert "is of no heap" in victim.notes()


def test_owner_that_came_while_a_snapshot_was_written(
    victim: Victim, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, row = victim.slab(large_blocks=True)
    victim.write(victim.place(victim.layout.run, place, "heap"), "<Q", place)
    walker = victim.session.walker
    root, held_still = victim.layout.root, walker.locks
    registry = victim.place(
        root.structure("registry"), root.global_object("registry").address, "lock"
    )

    def locks(places: Addresses, *, is_after: bool = False) -> npt.NDArray[Any]:
        rows = held_still(places, is_after=is_after).copy()
        rows["generation"] += (places == registry) & is_after
        return rows

    assert victim.session.take(frozen=True).notes != ()
    monkeypatch.setattr(walker, "locks", locks)
    snapshot = victim.session.take(frozen=True)
    assert snapshot.notes == ()
    # What that heap had cached is not known.
    slabs = int(snapshot.runs["block_count"].sum())
    large = int((snapshot.runs["kind"] == RunKind.LARGE).sum())
    assert snapshot.unsettled_share == int(row["block_count"]) / (slabs + large)


def test_bits_behind_the_last_block(victim: Victim) -> None:
    place, row = victim.slab(large_blocks=True)
    assert int(row["block_count"]) < 64
    name = victim.place(victim.layout.run, place, "one_word_remote")
    victim.write(name, "<Q", 1 << 63)
    assert "damaged: 1 pointer or bit names no block" in victim.notes()
    # Of one that was not brought out of hakmem's code before.
    unless_moved = "moved just then, or damaged: 1 pointer or bit names no block"
    assert unless_moved in take(str(victim.pid)).notes


def test_page_in_two_places(victim: Victim) -> None:
    _, row = victim.slab(large_blocks=True)
    places, headers = victim.session.walker._superslabs()
    order = [int(start) for start in headers["start"]]
    wanted = int(victim.picture.superslabs["start"][int(row["superslab"])])
    superslab = places[order.index(wanted)]
    victim.write(victim.place(victim.layout.superslab, superslab, "free"), "<Q", (1 << 64) - 1)
    assert "is not wholly runs and free pages" in victim.notes()


def test_run_that_is_made_or_given_back_is_no_damage(victim: Victim) -> None:
    """No lock is held there: a process that stands still in between is sound."""
    runs = victim.picture.runs
    row = int(np.flatnonzero(runs["kind"] == RunKind.LARGE)[0])
    place = int(victim.picture.run_places[row])
    kind = victim.place(victim.layout.run, place, "kind")
    width = "<B" if victim.layout.run["kind"].itemsize == 1 else "<I"
    victim.write(kind, width, victim.layout.run_free)
    assert victim.notes() == ""
    victim.write(kind, width, victim.layout.run_large + 9)
    assert "damaged: 1 superslab is not wholly runs and free pages" in victim.notes()


def test_circle_of_superslabs(victim: Victim) -> None:
    places, _ = victim.session.walker._superslabs()
    link = victim.place(victim.layout.superslab, places[-1], "all_link")
    victim.write(link, "<Q", link)
    # The ring ends where it meets itself: what was found before is shown.
    assert inspect(victim.pid).returncode in (0, 2)


def test_pointers_to_nowhere(victim: Victim) -> None:
    root = victim.layout.root
    registry = root.global_object("registry").address
    victim.write(victim.place(root.structure("registry"), registry, "all"), "<Q", 0x6666_0000_0000)
    require_refusal(inspect(victim.pid), "has no memory at 0x6666")


def test_magazine_of_rubbish(victim: Victim) -> None:
    cache = int(victim.picture.cache_places[0])
    node = victim.place(victim.layout.cache, cache, "magazines")
    victim.write(node, "<Q", 0x7777_0000_0000)
    assert inspect(victim.pid).returncode == 0


def test_structures_that_nest_without_end(victim: Victim) -> None:
    """A chain of thousands, each within the one before."""
    root = victim.session.root
    names = [f"s{number}".encode() for number in range(3000)]
    structures = np.zeros(len(names), root.rows["structures"].dtype)
    structures["name"], structures["bytes"] = names, 8
    fields = np.zeros(len(names) - 1, root.rows["fields"].dtype)
    fields["structure"], fields["name"], fields["target"] = names[:-1], b"within", names[1:]
    fields["bytes"], fields["count"], fields["kind"] = 8, 1, STRUCTURE
    rows = {**root.rows, "structures": structures, "fields": fields}
    damaged = Root(root.address, root.version, root.elf_header, rows, root.area)
    with pytest.raises(DamagedError):
        damaged.structure("s0")
