"""Pages of made-up snapshots, opened in the browser."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from hakmem.inspect.model import SUPERSLAB_BYTES, Snapshot
from hakmem.report.occupancy import BOUNDS, Bounds
from hakmem.report.page import render
from hakmem.report.series import Series
from tests.inspect.support.synthetic import make_snapshot
from tests.patience import HANG_SECONDS
from tests.report.support.browser import Browser, BrowserError, Page

WIDTH, HEIGHT = 1280, 900
# Between two looks at a page that is at work.
LOOK_S = 0.02


def write(
    file: Path, snapshot: Snapshot, series: Series | None = None, *, bounds: Bounds = BOUNDS
) -> Path:
    file.write_text(render(snapshot, series, bounds=bounds), encoding="utf-8")
    return file


def open_page(browser: Browser, file: Path) -> Page:
    """The page, loaded, in a window of one size, with its map drawn if it has one."""
    page = browser.page()
    page.size(WIDTH, HEIGHT)
    page.media()
    page.open(file)
    wait_for(
        page, "!document.getElementById('map') || document.documentElement.dataset.map === 'ready'"
    )
    page.evaluate("document.documentElement.style.scrollBehavior = 'auto'")
    return page


def wait_for(page: Page, expression: str) -> None:
    """Waits until a JavaScript expression holds."""
    end = time.monotonic() + HANG_SECONDS
    while not page.evaluate(expression):
        if time.monotonic() > end:
            raise BrowserError(f"waited {HANG_SECONDS:.0f} s for {expression}")
        time.sleep(LOOK_S)


def large_heap(superslab_count: int) -> Snapshot:
    """A heap of many superslabs, by repeating those of a small one."""
    made = make_snapshot(superslab_count=8)
    times = superslab_count // 8
    runs = np.tile(made.runs, times)
    turn = np.repeat(np.arange(times), len(made.runs))
    words = len(next(iter(made.planes.values())))
    runs["superslab"] += (turn * 8).astype(np.uint32)
    runs["start"] += (turn * 8 * SUPERSLAB_BYTES).astype(np.uint64)
    runs["word"] += (turn * words).astype(np.uint64)
    superslabs = np.tile(made.superslabs, times)
    superslabs["start"] += (
        np.repeat(np.arange(times), len(made.superslabs)) * 8 * SUPERSLAB_BYTES
    ).astype(np.uint64)
    planes = {state: np.tile(plane, times) for state, plane in made.planes.items()}
    return replace(made, runs=runs, superslabs=superslabs, planes=planes)
