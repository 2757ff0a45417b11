"""The screen without a terminal, by textual's pilot: what each key does."""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.render import measure
from textual.widgets import Static

from hakmem.inspect import jsonform
from hakmem.inspect.model import SUPERSLAB, SUPERSLAB_BYTES, Snapshot
from hakmem.top import tables
from hakmem.top.app import HEAPS_MOST, PAGES, SUPERSLABS_MOST, Grid, TopApp
from tests.patience import HANG_SECONDS
from tests.top.support import REFILLS_PER_LOOK, MadeUpSession, made_up_sampler

# Looks are asked for by the tests, not by the clock.
NEVER_S = 3600.0


class Screen:
    def __init__(self, folder: Path, sessions: dict[int, MadeUpSession] | None = None) -> None:
        self.sessions = sessions or {10: MadeUpSession(10), 11: MadeUpSession(11)}
        self.app = TopApp(made_up_sampler(self.sessions), NEVER_S, folder)
        self.pilot: Pilot[None]

    async def look(self) -> None:
        """One look more, unless the screen is paused."""
        before = self.looks

        def has_looked() -> bool:
            self.app._tick()
            return self.looks > before

        if self.app._paused:
            self.app._tick()
            await self.pilot.pause()
        else:
            await self.until(has_looked)

    @property
    def looks(self) -> int:
        return self.app._looks

    async def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + HANG_SECONDS
        while time.monotonic() < end:
            if condition():
                await self.pilot.pause()
                return
            await self.pilot.pause(0.02)
        raise AssertionError("it never came")

    def text(self, name: str) -> str:
        return str(self.app.query_one(f"#{name}", Static).render())

    def column(self, table: str, title: str) -> list[str]:
        grid = self.app.query_one(f"#{table}", Grid)
        index = [str(column.label)[:-1] for column in grid.ordered_columns].index(title)
        return [str(grid.get_row_at(row)[index]) for row in range(grid.row_count)]


def drive(
    screen: Screen, steps: Callable[[Screen], Awaitable[None]], size: tuple[int, int] = (110, 40)
) -> None:
    async def main() -> None:
        async with screen.app.run_test(size=size) as pilot:
            screen.pilot = pilot
            await screen.until(lambda: screen.looks > 0)
            await steps(screen)
        screen.app.close()

    asyncio.run(main())


def test_first_screen(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        assert screen.column("processes", "PID") == ["11", "10"]
        assert "2 of 2 processes live" in screen.text("title")
        assert screen.text("summary").startswith("11 server-11, hakmem 2.0.0 fast")
        assert "112" in screen.column("classes", "CLASS")

    drive(Screen(tmp_path), steps)


class WithEveryGauge(MadeUpSession):
    """As of a real process: the line of figures is longer than a terminal of 80 columns."""

    def take(self, *, freeze: bool, residency: bool) -> Snapshot:
        snapshot = super().take(freeze=freeze, residency=residency)
        more = {"slab_free_bytes": 123 << 20, "dirty_bytes": 123 << 20}
        return replace(snapshot, gauges={**snapshot.gauges, **more})


def test_the_summary_is_whole_on_80_columns(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        summary = screen.app.query_one("#summary", Static)
        assert summary.size.width == 80
        lines = [
            "".join(part.text for part in summary.render_line(y))
            for y in range(summary.size.height)
        ]
        shown = " ".join(" ".join(lines).split())
        assert shown == " ".join(screen.text("summary").split())
        assert "dirty 123.0 MiB" in shown and "own structures" in shown

    drive(Screen(tmp_path, {11: WithEveryGauge(11)}), steps, size=(80, 24))


def test_every_look_brings_new_figures(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        await screen.pilot.press("3")
        first = screen.column("rates", "SO FAR")
        await screen.look()
        second = screen.column("rates", "SO FAR")
        refills = screen.column("rates", "COUNTER").index("refills")
        before, after = (int(column[refills].replace(",", "")) for column in (first, second))
        assert before == REFILLS_PER_LOOK
        assert after > before and after % REFILLS_PER_LOOK == 0

    drive(Screen(tmp_path), steps)


def test_views(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        for number, name in enumerate(PAGES, 1):
            await screen.pilot.press(str(number))
            assert screen.app._page == name
        assert "0x7f3a40000000" in screen.text("map-text")
        await screen.pilot.press("v")
        assert screen.app._page == PAGES[0]
        await screen.pilot.press("2")
        assert "worker-1" in screen.column("heaps", "NAME")

    drive(Screen(tmp_path), steps)


def test_sort_and_reverse(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        live = screen.column("classes", "BYTES")
        await screen.pilot.press("r")
        assert screen.column("classes", "BYTES") == live[::-1]
        await screen.pilot.press("r", "s")
        cached = [int(text.replace(",", "")) for text in screen.column("classes", "CACHED")]
        assert cached == sorted(cached, reverse=True)
        await screen.look()
        assert screen.column("classes", "CACHED")[0] == f"{cached[0]:,}"
        grid = screen.app.query_one("#classes", Grid)
        marks = [str(column.label) for column in grid.ordered_columns]
        assert "CACHEDv" in marks and "BYTES " in marks

    drive(Screen(tmp_path), steps)


def test_pause_stops_the_looks(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        await screen.pilot.press("p")
        looks = screen.sessions[11].looks
        await screen.look()
        assert screen.sessions[11].looks == looks
        assert "PAUSED" in screen.text("title")
        await screen.pilot.press("space")
        await screen.look()
        assert screen.sessions[11].looks > looks
        assert "PAUSED" not in screen.text("title")

    drive(Screen(tmp_path), steps)


def test_freeze_takes_one_exact_picture_and_pauses(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        await screen.pilot.press("f")

        def is_frozen() -> bool:
            screen.app._tick()
            return "frozen: exact" in screen.text("summary")

        await screen.until(is_frozen)
        await screen.look()
        assert "frozen: exact" in screen.text("summary")
        assert {pid: session.freezes for pid, session in screen.sessions.items()} == {10: 0, 11: 1}
        await screen.pilot.press("p")
        await screen.look()
        assert "frozen" not in screen.text("summary")

    drive(Screen(tmp_path), steps)


def test_saved_snapshot_can_be_read_again(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        await screen.pilot.press("w")
        (path,) = tmp_path.iterdir()
        assert path.name.startswith("hakmem-11-") and f"saved {path}" in screen.text("title")
        saved = jsonform.decode(json.loads(path.read_text(encoding="utf-8")))
        assert (saved.pid, saved.name) == (11, "server-11") and saved.planes
        await screen.pilot.press("w")
        assert "is there already" in screen.text("title")

    drive(Screen(tmp_path), steps)


def test_snapshot_that_cannot_be_saved_is_said(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        await screen.pilot.press("w")
        assert "No such file or directory" in screen.text("title")

    drive(Screen(tmp_path / "nowhere"), steps)


def test_half_a_snapshot_is_not_kept(tmp_path: Path) -> None:
    """A limit of the file's size stands for a full disk."""

    async def steps(screen: Screen) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, before[1]))
        try:
            await screen.pilot.press("w")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert "File too large" in screen.text("title")
        assert list(tmp_path.iterdir()) == []

    drive(Screen(tmp_path), steps)


def test_next_process(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        await screen.pilot.press("n")
        assert screen.text("summary").startswith("10 server-10")
        await screen.look()
        assert screen.text("summary").startswith("10 server-10")
        await screen.pilot.press("n")
        assert screen.text("summary").startswith("11 server-11")

    drive(Screen(tmp_path), steps)


def test_cursor_of_the_list_chooses(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        screen.app.query_one("#processes", Grid).focus()
        await screen.pilot.press("down")
        assert screen.text("summary").startswith("10 server-10")

    drive(Screen(tmp_path), steps)


def test_process_that_ends_stays_on_the_screen(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        await screen.look()
        await screen.look()
        assert "ENDED: its last picture" in screen.text("summary")
        assert "1 of 2 processes live" in screen.text("title")
        assert screen.column("classes", "CLASS")
        assert "ended" in screen.column("processes", "STATE")

    drive(Screen(tmp_path, {10: MadeUpSession(10), 11: MadeUpSession(11, looks_max=1)}), steps)


def test_no_process_at_all(tmp_path: Path) -> None:
    sessions: dict[int, MadeUpSession] = {}
    screen = Screen(tmp_path)
    screen.app = TopApp(made_up_sampler(sessions, given=False), NEVER_S, tmp_path)

    async def steps(screen: Screen) -> None:
        assert "no process here uses hakmem" in screen.text("summary")
        await screen.pilot.press("s", "r", "n", "w", "f", "v", "v")
        assert "nothing to save" in screen.text("title") or screen.app._paused

    drive(screen, steps)


def test_small_and_narrow_terminals(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        assert screen.text("summary").startswith("11 server-11")
        await screen.pilot.press("s", "v", "v", "v", "r", "n")
        await screen.look()
        await screen.pilot.resize_terminal(100, 50)
        assert screen.app.query_one("#processes").display
        await screen.pilot.resize_terminal(20, 5)
        assert not screen.app.query_one("#processes").display

    drive(Screen(tmp_path), steps, size=(20, 5))


# ---- Very large heaps


class GridApp(App[None]):
    def compose(self) -> ComposeResult:
        yield Grid("figures")


def figures(row_count: int, digits: Callable[[int], int]) -> tables.Table:
    """Two equal columns of numbers; `digits`: how many the number of a row has."""
    rows = []
    for index in range(row_count):
        cell = tables.Cell(row_count - index, "9" * digits(index))
        rows.append(tables.Row(str(index), (cell, cell)))
    return tables.Table("figures", ("ONE", "TWO"), tuple(rows), 0)


def test_changed_cells_do_not_measure_their_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the thread that serves the keys would do for each of them."""
    row_count, measured = 1000, 0

    def count_and_measure(*arguments: object) -> int:
        nonlocal measured
        measured += 1
        return measure(*arguments)  # type: ignore[arg-type]

    async def main() -> None:
        nonlocal measured
        app = GridApp()
        async with app.run_test() as pilot:
            grid = app.query_one(Grid)

            async def show(digits: Callable[[int], int]) -> list[int]:
                grid.show(figures(row_count, digits))
                await pilot.pause()
                return [column.content_width for column in grid.ordered_columns]

            # The head with its mark is wider.
            assert await show(lambda index: 1 + index % 2) == [4, 4]
            monkeypatch.setattr("textual.widgets._data_table.measure", count_and_measure)
            # All wider than before: within the column, and beyond it.
            assert await show(lambda index: 3 + index % 2) == [4, 4]
            assert await show(lambda index: 5 + index % 7) == [11, 11]
            assert await show(lambda index: 5 + (index + 1) % 7) == [11, 11]
            assert str(grid.get_row_at(0)[1]) == "9" * 6
            assert measured < row_count

    asyncio.run(main())


class VeryLarge(MadeUpSession):
    """64 GiB of superslabs, and 10,000 heaps, of which the last have the most memory."""

    def take(self, *, freeze: bool, residency: bool) -> Snapshot:
        snapshot = super().take(freeze=freeze, residency=residency)
        superslabs = np.zeros(16384, SUPERSLAB)
        superslabs["start"] = snapshot.superslabs["start"][0]
        superslabs["start"] += np.arange(16384, dtype=np.uint64) * np.uint64(SUPERSLAB_BYTES)
        heap = snapshot.heaps[0]
        heaps = tuple(replace(heap, id=number, slab_bytes=number) for number in range(1, 10_001))
        return replace(snapshot, superslabs=superslabs, heaps=heaps)


def test_a_very_large_heap_is_shown_in_part_and_says_so(tmp_path: Path) -> None:
    async def steps(screen: Screen) -> None:
        await screen.pilot.press("2")
        shown = {int(text.replace(",", "")) for text in screen.column("heaps", "HEAP")}
        assert shown == set(range(10_001 - HEAPS_MOST, 10_001))
        assert f"the {HEAPS_MOST:,} largest of 10,000 heaps" in screen.text("page")
        await screen.pilot.press("4")
        lines = screen.text("map-text").splitlines()
        assert len(lines) == SUPERSLABS_MOST + 1
        assert lines[0].startswith("0x7f3a40000000 ") and lines[-2].startswith("0x7f3b3fc00000 ")
        assert lines[-1] == f"and {16384 - SUPERSLABS_MOST:,} superslabs more"
        assert f"the first {SUPERSLABS_MOST:,} of 16,384 superslabs" in screen.text("page")
        await screen.pilot.press("3")
        assert screen.text("page").endswith("[rates]  map")

    drive(Screen(tmp_path, {11: VeryLarge(11)}), steps)
