"""The report as one page that needs nothing but itself: tables, plots, provenance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from hakmem.page import sort_script

from . import facts, markdown, plots, sections, standing
from .cells import Cell, Table
from .results import FLOOR, GROUPS, Results

HERE = Path(__file__).parent
# Ratios are shaded from white at 1 to the deepest tone at this multiple.
DEEPEST = 4.0
# Tables with more columns than this are set closer.
WIDE_COLUMNS = 12
# Longer texts are broken into lines.
PROSE_LENGTH = 40
BEST_TONE = (207, 231, 245)
WORST_TONE = (240, 138, 75)


def shade(ratio: float) -> str:
    """The background of a ratio: blue for the first, then from white to orange."""
    if ratio <= 1.0:
        return f"rgb{BEST_TONE}"
    depth = min(1.0, math.log(ratio) / math.log(DEEPEST))
    tone = tuple(round(255 + (worst - 255) * depth) for worst in WORST_TONE)
    return f"rgb{tone}"


def _cell(cell: Cell, *, text: bool, own: bool) -> str:
    classes = [name for name, on in (("text", text), ("first", cell.first), ("own", own)) if on]
    if text and len(cell.text) > PROSE_LENGTH:
        classes.append("prose")
    attributes = f' class="{" ".join(classes)}"' if classes else ""
    if cell.ratio is not None:
        attributes += f' style="background:{shade(cell.ratio)}" data-value="{cell.ratio:.6g}"'
    if cell.hint:
        attributes += f' title="{escape(cell.hint)}"'
    return f"<td{attributes}>{escape(cell.text)}</td>"


def table(of: Table, subject: str, level: int = 2) -> str:
    """A table with its heading and note."""
    parts = [f'<h{level} id="{escape(of.anchor)}">{escape(of.title)}</h{level}>']
    if of.note:
        parts.append(f'<p class="note">{escape(of.note)}</p>')
    if not of.rows:
        return "".join([*parts, "<p>None.</p>"])
    head = "".join(
        f'<th class="{"text" if at < of.text_columns else ""}{" own" if name == subject else ""}"'
        f' data-sort="">{escape(name).replace("_", "_<wbr>")}</th>'
        for at, name in enumerate(of.header)
    )
    body = "".join(
        "<tr>"
        + "".join(
            _cell(cell, text=at < of.text_columns, own=at == 0 and cell.text == subject)
            for at, cell in enumerate(row)
        )
        + "</tr>\n"
        for row in of.rows
    )
    wide = ' class="wide"' if len(of.header) > WIDE_COLUMNS else ""
    return "".join(
        [*parts, f'<div class="scroll"><table{wide}><thead><tr>{head}</tr></thead>',
         f"<tbody>{body}</tbody></table></div>"]
    )  # fmt: skip


def _figure(title: str, anchor: str, note: str, drawing: str | None) -> str:
    if drawing is None:
        return ""
    return (
        f'<h2 id="{anchor}">{escape(title)}</h2><p class="note">{escape(note)}</p>'
        f"<figure>{drawing}</figure>"
    )


def _card(figure: str, words: str) -> str:
    return f'<div class="card"><b>{escape(figure)}</b><span>{escape(words)}</span></div>'


def _cards(results: Results) -> str:
    """The subject's result in a few figures, good and bad ones alike."""
    cards = []
    for what in standing.WHAT:
        ranked = standing.standings(results, what)
        behind = standing.losses(results, what)
        if not ranked:
            continue
        cards.append(_card(f"{len(ranked) - len(behind)} of {len(ranked)}",
                           f"rows first in {what}"))  # fmt: skip
        worst = max(ranked, key=lambda each: each.factor)
        words = "widest gap" if behind else "narrowest lead"
        cards.append(_card(f"{worst.factor:.2f}x", f"{words} in {what}: {worst.case.name}"))
    for group in standing.groups(results):
        for what in standing.WHAT:
            mean = standing.mean(results, results.subject, what, group)
            if mean is not None:
                words = f"mean {what}, {GROUPS.get(group, group)}, x best of row"
                cards.append(_card(f"{mean.value:.2f}x", words))
    return f'<div class="cards">{"".join(cards)}</div>'


SCALE = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0)


def _scale() -> str:
    """What the shades mean."""
    steps = "".join(f'<i style="background:{shade(step)}">{step:g}</i>' for step in SCALE)
    return (
        '<p class="soft">Shades, as multiples of the best of a row: '
        f'<span class="legend">{steps}</span> and deeper no more. Click a column to sort by it; '
        "hover over a figure for its time or size.</p>"
    )


METHOD = (
    "Each repetition is a block: every row once on every allocator, in random order. A ratio is "
    "formed within a block, so that a slow minute of the machine cancels out; its interval "
    "is exact and holds the true median in 95 % of such runs at least (fewer than 6 blocks: the "
    "whole range, 93.8 % for 5, 87.5 % for 4, 75 % for 3). Verdicts: faster or slower when the "
    "whole interval lies on one side of 1, same when it lies within 3 %, inconclusive otherwise.",
    "A row counts only when the measured process proves, from inside, which file serves its "
    "malloc, free, realloc and calloc, that this file has the expected build id, and that its own "
    "counters moved. All others are listed under refused runs.",
    "Memory is the process's own high-water mark (VmHWM, or an exact count that was above it), "
    "less what the workload's frame says it maps for its own books.",
)


def _parts(results: Results) -> list[tuple[str, str, str]]:
    """The page in order: anchor, name in the navigation (or none), HTML."""
    own = results.subject

    def tables(of: Sequence[Table]) -> str:
        return "".join(table(each, own, level=3) for each in of)

    parts = [
        ("means", "means", table(sections.scoreboard(results), own) + _scale()),
        ("scatter", "time over memory",
         _figure("Time over memory", "scatter",
                 "Geometric means over the rows of a group. The cross is an allocator that is "
                 "first in every row.", plots.scatter(results))),
        ("losses-time", "losses", table(sections.losses(results, "time"), own)),
        ("losses-memory", "", table(sections.losses(results, "memory"), own)),
        ("relative-time", "time", table(sections.relative(results, "time"), own)),
        ("relative-memory", "memory", table(sections.relative(results, "memory"), own)),
        ("strips", "every row, drawn",
         _figure("Every row, drawn", "strips",
                 "Medians as multiples of the best of the row; the floor is grey and may lie left "
                 "of 1.", plots.strips(results))),
        ("rss", "RSS over time",
         _figure("RSS over time", "rss",
                 "Resident memory of one repetition, the first. A line that stays up after the "
                 "work has not given memory back.", plots.rss_over_time(results))),
    ]  # fmt: skip
    drawn = plots.latency(results)
    if drawn is not None:
        note = (
            "All repetitions added up. A point (x, y): a share y of the calls took longer than x."
        )
        figure = _figure("Latency of single calls", "latency", note, drawn)
        parts.append(("latency", "latency", figure + tables(facts.latency(results))))
    for found, name in (
        (facts.idle_memory(results), "at rest"),
        (facts.os_calls(results), "OS calls"),
        (facts.refused(results), "refused"),
    ):
        if found is not None:
            parts.append((found.anchor, name, table(found, own)))
    counted = tables(facts.counts(results))
    if counted:
        parts.append(("", "", f"<details><summary>OS calls by name</summary>{counted}</details>"))
    details = tables([sections.detail(results, case) for case in results.cases])
    opened = (
        '<h2 id="rows">All figures</h2><details><summary>Every row with spread, interval, verdict, '
        f"faults and switches</summary>{details}</details>"
    )
    parts.append(("rows", "all figures", opened))
    parts.append(("allocators", "allocators", table(facts.allocators(results), own)))
    method = "".join(f"<p>{escape(text)}</p>" for text in METHOD)
    parts.append(("machine", "machine", table(facts.machine(results), own)))
    sessions = facts.sessions(results)
    if sessions is not None:
        parts.append(("sessions", "sessions", table(sessions, own)))
    parts.append(("method", "method", f'<h2 id="method">Method</h2>{method}'))
    return [part for part in parts if part[2]]


def page(results: Results) -> str:
    """The whole page."""
    parts = _parts(results)
    manifest = results.manifest
    links = "".join(f'<a href="#{anchor}">{escape(name)}</a>' for anchor, name, _ in parts if name)
    shown = sum(name != FLOOR for name in results.allocators)
    where = ", ".join(
        str(manifest[key]) for key in ("cpu", "kernel", "libc", "at") if manifest.get(key)
    )
    warned = markdown.warning(results)
    warning = f'<p class="lead warning">{escape(warned)}</p>' if warned else ""
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Allocator benchmark: {escape(str(manifest.get('machine', '')))}</title>"
        f"<style>{(HERE / 'page.css').read_text()}</style></head>\n<body><header>"
        f"<h1>{shown} allocators on {len(results.cases)} workloads and programs</h1>"
        f'<div class="soft">{escape(where)}</div>'
        f'<p class="lead">{escape(markdown.headline(results))}</p>{warning}{_cards(results)}'
        f"</header><nav><div>{links}</div></nav>\n<main>"
        + "\n".join(html for _, _, html in parts)
        + "<footer>Derived from rows.jsonl, counts.jsonl and manifest.json; "
        f"<code>hakmem bench report {escape(results.folder.name)}</code> draws it anew.</footer>"
        f"</main><script>{sort_script()}</script></body></html>\n"
    )
