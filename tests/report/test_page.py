"""The page in a browser: it is whole, says what the snapshot says, and can be used."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hakmem.inspect.findings import findings
from hakmem.inspect.model import BlockState, RunKind, Snapshot
from hakmem.report.occupancy import Bounds
from hakmem.report.page import render
from tests.inspect.support.synthetic import make_snapshot
from tests.report.support.browser import Browser, Page
from tests.report.support.pages import large_heap, open_page, wait_for, write

SCALE = "EXPLORER.view.scale"


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return make_snapshot(superslab_count=5, heap_count=4)


@pytest.fixture(scope="module")
def shared(browser: Browser, snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """One page that tests look at; they leave it as it was, but for the map's place."""
    return open_page(browser, write(tmp_path_factory.mktemp("page") / "heap.html", snapshot))


@pytest.fixture
def page(shared: Page) -> Iterator[Page]:
    yield shared
    shared.evaluate("EXPLORER.fit()")
    assert shared.console == []
    assert len(shared.requests) == 1, "a page needs nothing but itself"


def values(page: Page, selector: str) -> list[float]:
    """The data-value of every element found."""
    texts = page.evaluate(
        f"[...document.querySelectorAll({selector!r})].map((each) => each.dataset.value)"
    )
    return [float(text) for text in texts]


def column(page: Page, table: str, title: str) -> list[float]:
    """The values of a column, by its title."""
    titles = [text.strip() for text in page.texts(f"#{table} thead th")]
    at = titles.index(title) + 1
    return values(page, f"#{table} tbody td:nth-child({at})")


# ---- What it says


def test_waterfall_is_that_of_the_snapshot(page: Page, snapshot: Snapshot) -> None:
    assert snapshot.waterfall is not None
    rows = [row.bytes for row in snapshot.waterfall.rows if row.bytes]
    shown = column(page, "waterfall-rows", "resident")
    assert shown == rows
    assert values(page, "#waterfall-rows tfoot td[data-value]") == [sum(rows)]
    assert sum(rows) == snapshot.waterfall.rss_bytes


def test_classes_are_those_of_the_snapshot(page: Page, snapshot: Snapshot) -> None:
    rows = [row for row in snapshot.classes if row.slabs]
    for title, expected in (
        ("block", [row.block_bytes for row in rows]),
        ("slabs", [row.slabs for row in rows]),
        ("live blocks", [row.live_blocks for row in rows]),
        ("live", [row.live_bytes for row in rows]),
        ("cached", [row.cached_bytes for row in rows]),
        ("free in slabs", [row.free_bytes for row in rows]),
    ):
        assert column(page, "by-class", title) == expected, title
    shown = column(page, "by-class", "fragmentation")
    assert shown == pytest.approx([row.fragmentation for row in rows])


def test_heaps_are_those_of_the_snapshot(page: Page, snapshot: Snapshot) -> None:
    by_id = {heap.id: heap for heap in snapshot.heaps}
    ids = [int(number) for number in column(page, "by-heap", "heap")]
    assert sorted(ids) == sorted(by_id)
    assert column(page, "by-heap", "live") == [by_id[number].live_bytes for number in ids]
    names = page.texts("#by-heap tbody td.name")
    assert names == [by_id[number].thread_name for number in ids]


def test_findings_are_those_of_the_snapshot(page: Page, snapshot: Snapshot) -> None:
    found = findings(snapshot)
    assert found
    assert page.texts(".findings p:not(.advice)") == [each.text for each in found]
    assert page.texts(".findings .advice") == [each.advice for each in found if each.advice]


def test_large_and_huge_blocks_are_listed(page: Page, snapshot: Snapshot) -> None:
    addresses = set(page.texts("#by-block .mono"))
    assert addresses == {
        *(f"{int(run['start']):#x}" for run in snapshot.large),
        *(f"{block.start:#x}" for block in snapshot.huge),
        *(f"{block.start:#x}" for block in snapshot.guarded),
    }


def test_research_is_that_of_the_snapshot(page: Page, snapshot: Snapshot) -> None:
    research = snapshot.research
    assert research is not None and research.histograms
    total = sum(research.hits.values())
    assert column(page, "by-level", "mallocs") == list(research.hits.values())
    assert page.texts("#by-level tbody td:nth-child(3)")[0] == f"{100 * 9000 / total:.0f} %"
    (drawn,) = research.histograms
    bars = page.texts(".histogram rect title")
    assert [text.split(": ")[0] for text in bars] == ["below 32 ns", "below 64 ns", "below 128 ns"]
    assert [int(text.split(": ")[1].split()[0]) for text in bars] == list(drawn.counts)


# ---- The map


def look_up(page: Page, address: int) -> str:
    """What the map says about an address, typed into its field."""
    page.evaluate(
        f"document.getElementById('address').value = '{address:#x}';"
        "document.getElementById('go').requestSubmit()"
    )
    wait_for(page, "!document.getElementById('where').textContent.includes('being unpacked')")
    return page.texts("#where")[0]


def test_map_knows_every_block(page: Page, snapshot: Snapshot) -> None:
    """Of some slabs the first blocks of every state: address, class, owner, state and colour."""
    owners = {heap.id: heap for heap in snapshot.heaps}
    seen: set[BlockState] = set()
    mixed = [run for run in snapshot.slabs if run["live"] and run["cached"] and run["remote"]]
    assert len(mixed) > 10
    for run in (mixed[0], mixed[len(mixed) // 2], mixed[-1]):
        size = snapshot.size_classes[run["class_index"]].block_bytes
        blocks = snapshot.blocks(run)
        for state in BlockState:
            found = [index for index, each in enumerate(blocks) if each == state][:1]
            for index in found:
                address = int(run["start"]) + index * size
                said = look_up(page, address)
                name = state.name.lower()
                assert said.startswith(f"{address:#x} · block {index} of class {size:,} B: {name}")
                heap = owners[int(run["heap_id"])]
                assert f"owner: heap {heap.id}, thread {heap.thread_id}" in said
                assert drawn_colour(page) == colour(page, name), (index, name)
                seen.add(state)
    assert seen == {BlockState.LIVE, BlockState.FREE, BlockState.CACHED, BlockState.REMOTE}


def drawn_colour(page: Page) -> list[int]:
    """The colour in the middle of the block that the cursor is on."""
    found: list[int] = page.evaluate(
        """(() => {
          EXPLORER.paint();
          const { run, block } = EXPLORER.painter.cursor;
          const at = EXPLORER.scene.blockCentre(run, block);
          const [x, y] = [EXPLORER.view.toX(at.x), EXPLORER.view.toY(at.y)];
          const dot = new OffscreenCanvas(1, 1).getContext("2d");
          const ratio = EXPLORER.canvas.width / EXPLORER.canvas.clientWidth;
          dot.drawImage(EXPLORER.canvas, x * ratio, y * ratio, 1, 1, 0, 0, 1, 1);
          return [...dot.getImageData(0, 0, 1, 1).data].slice(0, 3);
        })()"""
    )
    return found


def colour(page: Page, name: str) -> list[int]:
    found: list[int] = page.evaluate(
        f"[...EXPLORER.painter.palette.rgb(EXPLORER.painter.palette[{name!r}])].slice(0, 3)"
    )
    return found


def test_map_tells_blocks_that_were_never_handed_out(
    browser: Browser, snapshot: Snapshot, tmp_path: Path
) -> None:
    runs = snapshot.runs.copy()
    at = next(
        index
        for index, run in enumerate(runs)
        if run["kind"] == RunKind.SLAB and run["free"] == run["block_count"]
    )
    fresh = int(runs["block_count"][at]) // 2
    runs["fresh_index"][at] = fresh
    page = open_page(browser, write(tmp_path / "fresh.html", replace(snapshot, runs=runs)))
    size = snapshot.size_classes[runs["class_index"][at]].block_bytes
    start = int(runs["start"][at])
    used = look_up(page, start + (fresh - 1) * size)
    assert ": free" in used and "never" not in used
    assert drawn_colour(page) == colour(page, "free")
    assert ": free, never handed out" in look_up(page, start + fresh * size)
    assert drawn_colour(page) == colour(page, "fresh")


def test_map_tells_pages_without_a_run_apart(page: Page, snapshot: Snapshot) -> None:
    superslab = snapshot.superslabs[0]
    dirty = int(superslab["dirty_young"]) | int(superslab["dirty_old"])
    purged = int(superslab["free"]) & ~dirty
    for mask, words in ((dirty, "dirty"), (purged, "given back")):
        number = (mask & -mask).bit_length() - 1
        said = look_up(page, int(superslab["start"]) + number * 65536)
        assert "free page" in said and words in said
    large = snapshot.large[0]
    assert "large block of 124.0 KiB, 2 pages" in look_up(page, int(large["start"]))
    assert "not in a superslab" in look_up(page, 0x1234)


def test_zoom_by_wheel_keeps_the_place_under_the_pointer(page: Page) -> None:
    page.evaluate("document.getElementById('map').scrollIntoView({ block: 'center' })")
    page.evaluate("document.getElementById('map').focus()")
    left, top, width, height = page.evaluate(
        "(({ x, y, width, height }) => [x, y, width, height])"
        "(document.getElementById('map').getBoundingClientRect())"
    )
    x, y = left + width * 0.3, top + height * 0.5
    page.mouse("mouseMoved", x, y)
    before, scale = page.texts("#where")[0], page.evaluate(SCALE)
    for _ in range(4):
        page.mouse("mouseWheel", x, y, deltaX=0, deltaY=-400)
    assert page.evaluate(SCALE) > 8 * scale
    after = page.texts("#where")[0]
    run = re.compile(r"slab (?:of|0x)|free page|large block")
    assert run.search(before) and run.search(after)
    assert ("block " in after) or before == after
    page.key("0")
    assert page.evaluate(SCALE) == pytest.approx(scale)


def test_map_can_be_used_by_keyboard(page: Page, snapshot: Snapshot) -> None:
    page.evaluate("document.getElementById('map').focus()")
    scale = page.evaluate(SCALE)
    page.key("ArrowRight")
    first = page.texts("#where")[0]
    page.key("ArrowRight")
    second = page.texts("#where")[0]
    assert first.startswith("0x") and second.startswith("0x") and first != second
    run = next(run for run in snapshot.slabs if run["block_count"] > 9)
    look_up(page, int(run["start"]))
    page.evaluate("document.getElementById('map').focus()")
    page.key("Enter")
    assert page.evaluate(SCALE) > 5 * scale
    page.key("ArrowRight")
    size = snapshot.size_classes[run["class_index"]].block_bytes
    assert page.texts("#where")[0].startswith(f"{int(run['start']) + size:#x} · block 1 of ")
    page.key("Escape")
    assert page.evaluate("document.activeElement.id") != "map"


@pytest.mark.parametrize("mode", ["class", "owner"])
def test_map_colours_by_class_and_owner(page: Page, mode: str) -> None:
    def pick(name: str) -> None:
        page.evaluate(
            f"(() => {{ const list = document.getElementById('colour'); list.value = {name!r};"
            "list.dispatchEvent(new Event('change')); EXPLORER.paint(); })()"
        )

    picture = "EXPLORER.canvas.toDataURL()"
    pick("state")
    wait_for(page, "[...EXPLORER.blocks.strips.values()].every(Boolean)")
    pick("state")
    before = page.evaluate(picture)
    pick(mode)
    assert page.evaluate(picture) != before
    shown = "[...document.querySelectorAll('[data-legend]')].find((each) => !each.hidden)"
    assert page.evaluate(f"{shown}.dataset.legend") == mode
    pick("state")
    assert page.evaluate(picture) == before


# ---- Tables, colours, print


def test_tables_are_sorted_by_mouse_and_keyboard(page: Page) -> None:
    head = "[...document.querySelectorAll('#by-class thead button')].find((each) => " \
        "each.textContent === 'live blocks')"  # fmt: skip
    page.evaluate(f"{head}.click()")
    shown = column(page, "by-class", "live blocks")
    assert shown == sorted(shown)
    assert page.evaluate(f"{head}.parentNode.getAttribute('aria-sort')") == "ascending"
    page.evaluate(f"{head}.focus()")
    page.key("Enter", "\r")
    assert column(page, "by-class", "live blocks") == shown[::-1]
    first = "document.querySelector('#by-class thead button')"
    page.evaluate(f"{first}.click()")


def luminance(colour: list[int]) -> float:
    parts = [value / 255 for value in colour]
    linear = [part / 12.92 if part <= 0.04 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_both_colour_schemes_can_be_read(page: Page) -> None:
    backgrounds = {}
    for scheme in ("light", "dark"):
        page.media(scheme=scheme)
        page.evaluate("EXPLORER.recolour()")
        card = luminance(colour(page, "card"))
        backgrounds[scheme] = card
        for name in ("ink", "soft"):
            ink = luminance(colour(page, name))
            contrast = (max(ink, card) + 0.05) / (min(ink, card) + 0.05)
            assert contrast >= 4.5, (scheme, name, contrast)
    page.media()
    page.evaluate("EXPLORER.recolour()")
    assert backgrounds["light"] > 0.9 > 0.1 > backgrounds["dark"]


def test_page_can_be_printed(page: Page) -> None:
    page.media(kind="print")
    hidden = "getComputedStyle(document.querySelector({!r})).display"
    assert page.evaluate(hidden.format("nav")) == "none"
    assert page.evaluate(hidden.format(".tools")) == "none"
    pdf = page.pdf()
    page.media()
    assert pdf.startswith(b"%PDF") and len(re.findall(rb"/Type\s*/Page\b", pdf)) >= 2


# ---- Hostile, large, and incomplete heaps

HOSTILE = "</script><script>throw 1</script>\"'><img src=x onerror=alert(1)>&lt;\u202e\x00"


def hostile(snapshot: Snapshot) -> Snapshot:
    """Every text that a process chooses is markup."""
    return replace(
        snapshot,
        name=HOSTILE,
        exe=HOSTILE,
        mode=HOSTILE,
        version=HOSTILE,
        heaps=tuple(replace(heap, thread_name=HOSTILE) for heap in snapshot.heaps),
        options=tuple(
            replace(option, name=HOSTILE, text=HOSTILE, origin=HOSTILE)
            for option in snapshot.options
        ),
        counters={HOSTILE: 7},
        events=tuple(
            replace(event, kind=HOSTILE, arguments={HOSTILE: 1}) for event in snapshot.events
        ),
        notes=(HOSTILE,),
    )


def test_names_are_never_markup(browser: Browser, snapshot: Snapshot, tmp_path: Path) -> None:
    page = open_page(browser, write(tmp_path / "hostile.html", hostile(snapshot)))
    assert page.console == []
    assert len(page.requests) == 1
    assert page.evaluate("document.images.length") == 0
    # A page has two scripts: data and code. What would turn or end a line is a question mark.
    assert page.evaluate("document.scripts.length") == 2
    shown = HOSTILE.replace("\x00", "?").replace("\u202e", "?")
    assert page.texts("#by-heap tbody td.name")[0] == shown
    address = int(snapshot.slabs[0]["start"])
    assert "onerror" in look_up(page, address)


def test_policy_stops_what_would_slip_through(
    browser: Browser, snapshot: Snapshot, tmp_path: Path
) -> None:
    """The control: markup planted past the escaping is stopped, and seen by these tests."""
    file = tmp_path / "planted.html"
    planted = "<img src=http://192.0.2.1/x><script>document.title = 'ran'</script></main>"
    file.write_text(render(snapshot).replace("</main>", planted))
    page = open_page(browser, file)
    assert page.evaluate("document.title") != "ran"
    assert len([line for line in page.console if "Content Security Policy" in line]) >= 2


def test_ten_gibibytes_stay_small_and_usable(browser: Browser, tmp_path: Path) -> None:
    heap = large_heap(2560)
    file = write(tmp_path / "large.html", heap)
    assert file.stat().st_size < 12 << 20
    page = open_page(browser, file)
    assert page.console == []
    assert page.evaluate("EXPLORER.scene.strips") == 2560
    kept = page.evaluate("EXPLORER.scene.map.blocks.findIndex((each) => each !== null)")
    run = heap.runs_of(kept)[0]
    assert look_up(page, int(run["start"])).startswith(f"{int(run['start']):#x} · block 0 of")


def test_what_is_left_out_is_said(browser: Browser, tmp_path: Path) -> None:
    heap = large_heap(32)
    bounds = Bounds(superslabs=20, blocks_bytes=60_000)
    page = open_page(browser, write(tmp_path / "bounded.html", heap, bounds=bounds))
    (said,) = page.texts("#left-out")
    assert "the 12 fullest superslabs are not drawn" in said
    without = re.search(r"(\d+) superslabs are drawn without their single blocks", said)
    assert without is not None and 0 < int(without[1]) < 20
    assert page.evaluate("EXPLORER.scene.map.blocks.filter((each) => each === null).length") == int(
        without[1]
    )
    assert page.console == []


def test_snapshot_without_blocks_or_runs(
    browser: Browser, snapshot: Snapshot, tmp_path: Path
) -> None:
    counts = replace(snapshot, planes={})
    page = open_page(browser, write(tmp_path / "counts.html", counts))
    run = snapshot.slabs[0]
    said = look_up(page, int(run["start"]))
    assert f"{int(run['live'])} live" in said or not run["live"]
    assert page.console == []
    totals = replace(
        counts, runs=snapshot.runs[:0], superslabs=snapshot.superslabs[:0], waterfall=None,
        residency=False,
    )  # fmt: skip
    page = open_page(browser, write(tmp_path / "totals.html", totals))
    assert page.console == []
    assert page.texts("#map") == [] and page.texts("#waterfall-rows") == []
    assert column(page, "by-class", "live blocks") == [
        row.live_blocks for row in snapshot.classes if row.slabs
    ]


def test_heap_of_nothing(browser: Browser, tmp_path: Path) -> None:
    made = make_snapshot()
    nothing = replace(
        made, heaps=(), classes=(), runs=made.runs[:0], superslabs=made.superslabs[:0], huge=(),
        guarded=(), events=(), options=(), counters={}, gauges={}, planes={}, waterfall=None,
        size_classes=(), heap_classes=made.heap_classes[:0],
    )  # fmt: skip
    assert not (made.runs["kind"] != RunKind.SLAB).all()
    page = open_page(browser, write(tmp_path / "nothing.html", nothing))
    assert page.console == []
    assert "The program holds 0 B" in page.texts(".lead")[0]
