"""One HTML page about a heap that needs nothing but itself: no network, no other file.

A content security policy forbids everything but the page's own script and style, which it names by
their hashes: a text that came to be taken for markup could neither run nor load anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from hakmem.inspect.findings import findings
from hakmem.inspect.model import Snapshot
from hakmem.page import sort_script
from hakmem.report import learner, occupancy, overview, research, tables, timeline, trend
from hakmem.report.occupancy import BOUNDS, Bounds, LeftOut
from hakmem.report.parts import legend, safe, section
from hakmem.report.series import Series

HERE = Path(__file__).parent
DATA_SCHEMA = "hakmem.report/1"
SCRIPTS = ("decode.js", "scene.js", "map.js", "explore.js", "timeline.js")


def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _hash(content: str) -> str:
    digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode("ascii")
    return f"'sha256-{digest}'"


def _data(value: Any) -> str:
    """JSON that no text in it can leave."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=True)
    return text.replace("<", "\\u003c").replace("&", "\\u0026")


MAP_KEYS = (
    ("arrows", "move"), ("+ \N{MINUS SIGN}", "zoom"), ("Enter", "zoom to the slab"),
    ("0", "everything"), ("Esc", "leave"),
)  # fmt: skip


def _map(left_out: LeftOut) -> str:
    keys = ", ".join(f"<kbd>{safe(key)}</kbd> {safe(words)}" for key, words in MAP_KEYS)
    other = [("large", "large block"), ("dirty", "free page, may be resident"),
             ("purged", "free page, given back")]  # fmt: skip
    states = [(state, tables.STATE_WORDS[state]) for state in tables.STATES]
    states.append(("fresh", "free, never handed out"))
    kinds = [("live", "live"), ("purged", "free"), *other[:2]]
    said = left_out.sentence()
    return (
        '<div class="panel map-panel"><form class="tools" id="go">'
        '<button type="button" id="zoom-in" aria-label="zoom in">+</button>'
        '<button type="button" id="zoom-out" aria-label="zoom out">\N{MINUS SIGN}</button>'
        '<button type="button" id="zoom-fit">All</button>'
        '<label>Colour by <select id="colour"><option value="state">state</option>'
        '<option value="class">size class</option><option value="owner">owner heap</option>'
        '</select></label><span class="gap"></span>'
        '<label>Address <input id="address" placeholder="0x7f…" autocomplete="off" '
        'spellcheck="false"></label><button>Go</button></form>'
        '<div class="map"><canvas id="map" tabindex="0" role="application" '
        'aria-label="Map of all superslabs" aria-describedby="where map-keys"></canvas>'
        '<div id="tip" hidden></div></div>'
        '<p id="where" role="status" class="mono"></p>'
        + legend([*states, *other], "state")
        + legend(
            [("ramp", "small to large classes"), ("purged", "free"), *other[:2]],
            "class",
            is_hidden=True,
        )
        + legend([("owners", "a colour for each heap"), *kinds[1:]], "owner", is_hidden=True)
        + f'<p id="map-keys" class="soft keys">Wheel with Ctrl, or after a click, zooms; drag '
        f"moves; a double click opens a slab. Keys: {keys}.</p>"
        + (f'<p class="soft keys" id="left-out">{safe(said)}</p>' if said else "")
        + "</div>"
    )


def render(snapshot: Snapshot, series: Series | None = None, *, bounds: Bounds = BOUNDS) -> str:
    """The whole page about a snapshot; with a series, about how it came to be so too."""
    drawn, left_out = occupancy.describe(snapshot, bounds)
    map_note = (
        "Each strip is a superslab of 4 MiB, each cell of it a page of 64 KiB. A slab is filled "
        "with the shares of its blocks; zoom in to see each block."
    )
    parts = [
        ("findings", "Findings", section("findings", "Findings",
                                         overview.findings((*trend.findings(series),
                                                            *findings(snapshot))))),
        ("waterfall", "Memory", section("waterfall", "Resident memory",
                                        overview.waterfall_table(snapshot.waterfall))),
        ("timeline", "Timeline", section("timeline", "Timeline", timeline.drawing(series))),
        ("map-title", "Map", section("map-title", "Occupancy", _map(left_out) if drawn else "",
                                     map_note)),
        ("classes", "Classes", section("classes", "Size classes", tables.classes(snapshot))),
        ("fragmentation", "Fragmentation",
         section("fragmentation", "Fragmentation", tables.fullness(snapshot))),
        ("heaps", "Heaps", section("heaps", "Heaps", tables.heaps(snapshot))),
        ("blocks", "Blocks", section("blocks", "Large, huge and guarded blocks",
                                     tables.blocks(snapshot))),
        ("sites", "Allocated by",
         section("sites", "Who allocated guarded blocks", tables.sites(snapshot),
                 "By file and offset: addr2line -Cfe FILE OFFSET names function and line.")),
        ("learner", "Learner",
         section("learner", "What the learner decided", learner.drawing(snapshot),
                 "How much thread caches may hold; docs/LEARNING.md says what the signals mean.")),
        ("research", "Research",
         section("research", "Research", research.drawing(snapshot.research,
                                                          snapshot.size_classes),
                 "What research mode counted since it was first switched on.")),
        ("more", "More", section("more", "More", tables.rest(snapshot))),
    ]  # fmt: skip
    parts = [part for part in parts if part[2]]
    links = "".join(f'<li><a href="#{anchor}">{title}</a></li>' for anchor, title, _ in parts)
    style = _asset("page.css")
    script = "\n".join(['"use strict";', *(_asset(name) for name in SCRIPTS), sort_script()])
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    data = {"schema": DATA_SCHEMA, "map": drawn, "timeline": timeline.data(series)}
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>Heap of {safe(overview.title(snapshot))}</title><style>{style}</style></head>\n"
        '<body><a class="skip" href="#findings">To the findings</a>'
        f"<header>{overview.header(snapshot)}</header>"
        f'<nav aria-label="Parts of this page"><ul>{links}</ul></nav>\n<main>'
        + "\n".join(markup for _, _, markup in parts)
        + "</main>\n<footer>Made by <code>hakmem report</code> "
        f"{safe(snapshot.version)}; nothing on this page comes from elsewhere.</footer>"
        f'<script type="application/json" id="data">{_data(data)}</script>'
        f"<script>{script}</script></body></html>\n"
    )
