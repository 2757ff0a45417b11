"""The screen of `hakmem top`."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from pathlib import Path
from types import FrameType

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import ScrollableContainer
from textual.events import Resize
from textual.widgets import ContentSwitcher, DataTable, Footer, Static
from textual.worker import get_current_worker

from hakmem.inspect import jsonform
from hakmem.inspect.model import Snapshot
from hakmem.output import write_new
from hakmem.top import drawing, frame, tables
from hakmem.top.sampler import Sampler, View

# In fewer lines the list of processes and the keys make room for the process itself.
SMALL_HEIGHT = 16
LOOK_PAUSE_MAX_S = 5.0
END_PATIENCE_S = 5
PAGES = ("classes", "heaps", "rates", "map")
# Rows at most: the thread that draws them also serves the keys. The superslabs are 4 GiB.
HEAPS_MOST = 1000
SUPERSLABS_MOST = 1024


class Grid(DataTable[Text]):
    """A table that shows a tables.Table, and changes only the cells that changed."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name, zebra_stripes=False)
        self.sort_column: int | None = None
        self.reverse = False
        self.shown: tables.Table | None = None

    def show(self, table: tables.Table) -> None:
        """Sorted as the user wants it, or as the table comes."""
        if self.sort_column is None:
            self.sort_column = table.sort
        table = table.sorted_by(self.sort_column, reverse=self.reverse)
        before, self.shown = self.shown, table
        if not self.columns:
            for title in table.columns:
                self.add_column(title + " ", key=title)
        if before is None or len(before.rows) != len(table.rows):
            self._fill(table)
        else:
            self._change(before, table)
        for index, title in enumerate(table.columns):
            mark = ("^" if self.reverse else "v") if index == table.sort else " "
            label = Text(title + mark)
            column = self.ordered_columns[index]
            if column.label != label:
                column.label = label
                self.refresh()

    def _fill(self, table: tables.Table) -> None:
        place = self.scroll_offset
        self.clear()
        for row in table.rows:
            self.add_row(*(_text(cell) for cell in row.cells))
        self.scroll_to(place.x, place.y, animate=False)

    def _change(self, before: tables.Table, after: tables.Table) -> None:
        widest: dict[int, tuple[int, int]] = {}  # of each column, the new cell and its row
        for index, (old, new) in enumerate(zip(before.rows, after.rows, strict=True)):
            for column, (was, cell) in enumerate(zip(old.cells, new.cells, strict=True)):
                if was.text != cell.text:
                    shown = _text(cell)
                    self.update_cell_at((index, column), shown)  # type: ignore[arg-type]
                    widest[column] = max(widest.get(column, (0, 0)), (shown.cell_len, index))
        # For each cell that is narrower than its column textual would measure the whole column.
        for column, (cells, index) in widest.items():
            if cells > self.ordered_columns[column].content_width:
                shown = _text(after.rows[index].cells[column])
                self.update_cell_at((index, column), shown, update_width=True)  # type: ignore[arg-type]


def _text(cell: tables.Cell) -> Text:
    return Text(cell.text, justify="left" if isinstance(cell.value, str) else "right")


class TopApp(App[None]):
    """Looks in a thread of its own, so that a slow look never stops the keys."""

    AUTO_FOCUS = "#classes"
    ENABLE_COMMAND_PALETTE = False
    TITLE = "hakmem top"
    CSS = """
    #title { height: 1; text-style: reverse; }
    #processes { height: auto; max-height: 30%; }
    #summary { height: auto; max-height: 3; }
    #pages { height: 1fr; }
    #page { height: 1; }
    #map-text { width: auto; }
    #classes, #heaps, #rates, #map { height: 100%; }
    .small #processes, .small Footer { display: none; }
    .small #summary { max-height: 2; }
    """
    BINDINGS = [  # noqa: RUF012 - the type is textual's
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", show=False, priority=True),
        Binding("p,space", "pause", "pause"),
        Binding("f", "freeze", "freeze"),
        Binding("s", "sort", "sort"),
        Binding("r", "reverse", "reverse"),
        Binding("w", "save", "save"),
        Binding("n", "next_process", "next process"),
        *(
            Binding(str(number), f"page('{name}')", name, show=False)
            for number, name in enumerate(PAGES, 1)
        ),
        Binding("v", "next_page", "view"),
    ]

    def __init__(
        self,
        sampler: Sampler,
        interval_s: float,
        folder: Path,
        charset: drawing.Charset = drawing.UNICODE,
    ) -> None:
        super().__init__()
        self._sampler = sampler
        self._interval_s = interval_s
        self._folder = folder
        # Held while the sampler is used: by the thread of a look, and at the end to close it.
        self._looking = threading.Lock()
        self._views: tuple[View, ...] = ()
        self._selected: int | None = None
        self._paused = False
        self._freeze_wanted = False
        self._message = ""
        self._event_loop: asyncio.AbstractEventLoop | None = None
        self._looks = 0
        self._due_s = 0.0
        self._charset = charset

    def compose(self) -> ComposeResult:
        yield Static("hakmem top", id="title", markup=False)
        processes = Grid("processes")
        processes.cursor_type = "row"
        yield processes
        yield Static("looking ...", id="summary", markup=False)
        yield Static(id="page", markup=False)
        with ContentSwitcher(id="pages", initial=PAGES[0]):
            for name in PAGES:
                if name == "map":
                    with ScrollableContainer(id="map"):
                        yield Static(drawing.legend(self._charset), markup=False)
                        yield Static(id="map-text", markup=False)
                else:
                    grid = Grid(name)
                    grid.cursor_type = "none"
                    yield grid
        yield Footer()

    def on_mount(self) -> None:
        self._event_loop = asyncio.get_running_loop()
        self.set_interval(self._interval_s, self._tick)
        self._tick()

    def end_soon(self) -> None:
        """From a handler of a signal."""
        if self._event_loop is not None and not self._event_loop.is_closed():
            self._event_loop.call_soon_threadsafe(self.exit)

    def on_resize(self, event: Resize) -> None:
        self.screen.set_class(event.size.height < SMALL_HEIGHT, "small")

    # ---- Looking

    def _tick(self) -> None:
        if (self._paused and not self._freeze_wanted) or self._looking.locked():
            return
        if time.monotonic() < self._due_s:
            return
        freeze, self._freeze_wanted = self._freeze_wanted, False
        selected = self._selected

        def look() -> None:
            worker = get_current_worker()
            with self._looking:
                if worker.is_cancelled:
                    return
                began_s = time.monotonic()
                views = self._sampler.look(selected, freeze=freeze)
                ended_s = time.monotonic()
                # A look at a large heap takes long: no more than half the time goes into looks.
                self._due_s = ended_s + min(ended_s - began_s, LOOK_PAUSE_MAX_S)
            if not worker.is_cancelled:
                self.call_from_thread(self._take, views)

        self.run_worker(look, thread=True, exit_on_error=True)

    def close(self) -> None:
        """After run(): waits for a look that is under way."""
        with self._looking:
            self._sampler.close()

    def _take(self, views: tuple[View, ...]) -> None:
        self._views = views
        self._looks += 1
        self._show()

    @property
    def _view(self) -> View | None:
        return next((view for view in self._views if view.pid == self._selected), None)

    # ---- Showing

    def _show(self) -> None:
        processes = self._grid("processes")
        processes.show(tables.processes(self._views))
        assert processes.shown is not None
        order = [int(row.key) for row in processes.shown.rows]
        if self._selected not in order:
            self._selected = order[0] if order else None
        if self._selected is not None:
            processes.move_cursor(row=order.index(self._selected))
        self._show_title()
        self._show_process(self._view)

    def _show_title(self) -> None:
        live = sum(not view.ended for view in self._views)
        words = [f"hakmem top, {time.strftime('%H:%M:%S')}, every {self._interval_s:g} s"]
        words.append(f"{live} of {len(self._views)} processes live")
        if self._paused:
            words.append("PAUSED")
        if self._message:
            words.append(self._message)
        self.query_one("#title", Static).update(", ".join(words))

    def _show_process(self, view: View | None) -> None:
        pages = [f"[{name}]" if name == self._page else f" {name} " for name in PAGES]
        pages.append(self._bounds(view.snapshot) if view is not None else "")
        self.query_one("#page", Static).update(" ".join(pages).rstrip())
        summary = self.query_one("#summary", Static)
        if view is None:
            summary.update("no process here uses hakmem, or none that you may look into")
            return
        width = max(8, self.size.width // 4)
        summary.update("\n".join(frame.summary(view, self._charset, width)))
        if view.snapshot is None:
            return
        match self._page:
            case "classes":
                self._grid("classes").show(tables.classes(view.snapshot))
            case "heaps":
                self._grid("heaps").show(tables.heaps(view.snapshot, HEAPS_MOST))
            case "rates":
                self._grid("rates").show(tables.rates(view))
            case "map":
                lines = drawing.occupancy_map(view.snapshot, self._charset, SUPERSLABS_MOST)
                self.query_one("#map-text", Static).update("\n".join(lines))

    def _bounds(self, snapshot: Snapshot | None) -> str:
        """How much of a very large heap this page shows; empty when it is all."""
        if snapshot is None:
            return ""
        heaps, superslabs = len(snapshot.heaps), len(snapshot.superslabs)
        if self._page == "heaps" and heaps > HEAPS_MOST:
            return f" the {HEAPS_MOST:,} largest of {heaps:,} heaps"
        if self._page == "map" and superslabs > SUPERSLABS_MOST:
            return f" the first {SUPERSLABS_MOST:,} of {superslabs:,} superslabs"
        return ""

    @property
    def _page(self) -> str:
        return self.query_one("#pages", ContentSwitcher).current or PAGES[0]

    def _grid(self, name: str) -> Grid:
        return self.query_one(f"#{name}", Grid)

    def _sorted_grid(self) -> Grid | None:
        """The list of processes while it has the focus, else the table of the page."""
        if isinstance(self.focused, Grid) and self.focused.id == "processes":
            return self.focused
        return None if self._page == "map" else self._grid(self._page)

    # ---- Keys

    def action_pause(self) -> None:
        self._paused = not self._paused
        self._say("")

    def action_freeze(self) -> None:
        """One exact picture, which stays until the pause ends."""
        self._paused = self._freeze_wanted = True
        self._say("")

    def action_sort(self) -> None:
        grid = self._sorted_grid()
        if grid is not None and grid.shown is not None:
            grid.sort_column = (grid.shown.sort + 1) % len(grid.shown.columns)
            self._show()

    def action_reverse(self) -> None:
        grid = self._sorted_grid()
        if grid is not None:
            grid.reverse = not grid.reverse
            self._show()

    def action_page(self, name: str) -> None:
        self.query_one("#pages", ContentSwitcher).current = name
        self.query_one(f"#{name}").focus()
        self._show_process(self._view)

    def action_next_page(self) -> None:
        self.action_page(PAGES[(PAGES.index(self._page) + 1) % len(PAGES)])

    def action_next_process(self) -> None:
        shown = self._grid("processes").shown
        order = [int(row.key) for row in shown.rows] if shown is not None else []
        if self._selected in order:
            self._selected = order[(order.index(self._selected) + 1) % len(order)]
            self._show()

    def action_save(self) -> None:
        view = self._view
        if view is None or view.snapshot is None:
            self._say("nothing to save yet")
            return
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(view.snapshot.taken_ns // 10**9))
        path = self._folder / f"hakmem-{view.pid}-{stamp}.json"
        text = json.dumps(jsonform.encode(view.snapshot, "blocks"))
        try:
            write_new(path, text.encode())
        except FileExistsError:
            self._say(f"{path} is there already")
        except OSError as error:
            self._say(f"{path}: {error.strerror}")
        else:
            self._say(f"saved {path}")

    def _say(self, message: str) -> None:
        self._message = message
        self._show_title()

    # ---- Mouse and tables

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        grid = event.data_table
        if isinstance(grid, Grid):
            grid.reverse = not grid.reverse if grid.sort_column == event.column_index else False
            grid.sort_column = event.column_index
            self._show()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """The cursor of the list of processes chooses the one that is shown."""
        grid = event.data_table
        if grid.id != "processes" or not isinstance(grid, Grid) or grid.shown is None:
            return
        if grid.has_focus and event.cursor_row < len(grid.shown.rows):
            self._selected = int(grid.shown.rows[event.cursor_row].key)
            self._show_process(self._view)


def run_screen(app: TopApp) -> None:
    """Until the user quits or a signal ends it. When the terminal has gone, what textual still
    writes to it may wait for ever: the kernel's alarm ends the process then."""

    def end(number: int, frame: FrameType | None) -> None:
        signal.alarm(END_PATIENCE_S)
        app.end_soon()

    handlers = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    try:
        app.run()
        app.close()
    finally:
        signal.alarm(0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
