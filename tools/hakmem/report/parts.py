"""What sections of a page are made of. Every text that comes from a snapshot is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from hakmem.inspect.errors import plain
from hakmem.inspect.model import Waterfall
from hakmem.render import size

# The width of drawings that stretch with the page, in their own units.
DRAWN_WIDTH = 1000

# The rows of a waterfall as people call them, and the colour each has everywhere on the page.
ROWS = {
    "live": ("Live small blocks", "live"),
    "slack": ("Size-class slack of them", "slack"),
    "large": ("Large blocks", "large"),
    "huge": ("Huge blocks", "huge"),
    "guarded": ("Guarded blocks", "guarded"),
    "cached": ("Thread caches", "cached"),
    "remote": ("Freed by other threads, on their way", "remote"),
    "quarantined": ("Quarantined", "quarantined"),
    "slab_free": ("Free inside slabs", "free"),
    "dirty": ("Free pages, still resident", "dirty"),
    "huge_kept": ("Huge mappings kept for reuse", "dirty"),
    "metadata": ("hakmem's own structures", "metadata"),
    "library": ("The file of the library", "other"),
    "program": ("The program's file", "other"),
    "libraries": ("Other files", "other"),
    "stacks": ("Stacks", "other"),
    "other": ("Other mappings", "other"),
    "unexplained": ("Unexplained", "unexplained"),
}
# The same rows in three parts.
USED = ("live", "slack", "large", "huge", "guarded")
OVERHEAD = ("cached", "remote", "quarantined", "slab_free", "dirty", "huge_kept", "metadata")
FOREIGN = ("library", "program", "libraries", "stacks", "other")


def of_waterfall(waterfall: Waterfall, names: Iterable[str]) -> int:
    """Bytes of the named rows together."""
    chosen = set(names)
    return sum(row.bytes for row in waterfall.rows if row.name in chosen)


def row_words(name: str) -> tuple[str, str]:
    """Title and colour of a row; a name that this page does not know is shown as it is."""
    return ROWS.get(name, (name, "other"))


def safe(words: str) -> str:
    """Text for markup and attributes; what would end or turn a line is a question mark."""
    return escape(plain(words))


@dataclass(frozen=True)
class Cell:
    """One field of a table. `markup` is HTML that is safe already; `value` sorts."""

    markup: str
    value: float | None = None
    kind: str = ""


def text(words: object, kind: str = "text") -> Cell:
    return Cell(safe(str(words)), kind=kind)


def count(number: int) -> Cell:
    return Cell(f"{number:,}", number, "" if number else "zero")


def bytes_cell(number: int | None) -> Cell:
    """A size with its exact bytes at hand; "-" where it is not known."""
    if number is None:
        return Cell("-")
    if number == 0:
        return Cell("0", 0, "zero")
    return Cell(f'<span title="{number:,} bytes">{size(number)}</span>', number)


def percent(share: float) -> Cell:
    return Cell(f"{100 * share:.1f} %", share)


def address(number: int) -> Cell:
    return Cell(f'<span class="mono">{number:#x}</span>', number, "text")


def bar(shares: Sequence[tuple[str, float]], label: str, *, kind: str = "bar") -> str:
    """Coloured pieces in a row; shares are of the whole and add up to at most 1."""
    pieces, at = [], 0.0
    for colour, share in shares:
        if share > 0:
            pieces.append(
                f'<rect class="{colour}" x="{at * 100:.2f}" width="{share * 100:.2f}" height="10"/>'
            )
            at += share
    return (
        f'<svg class="{kind}" viewBox="0 0 100 10" preserveAspectRatio="none" role="img" '
        f'aria-label="{safe(label)}"><title>{safe(label)}</title>{"".join(pieces)}</svg>'
    )


@dataclass(frozen=True)
class Column:
    """`kind` is "text", "name" (cut when long) or "" for figures."""

    title: str
    kind: str = ""
    hint: str = ""
    sortable: bool = True


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[Cell]],
    *,
    caption: str,
    total: Sequence[Cell] = (),
    anchor: str = "",
    is_tall: bool = False,
) -> str:
    """A table in a panel that scrolls sideways when it must."""
    head = "".join(
        f'<th scope="col"{attribute("class", column.kind)}{attribute("title", column.hint)}'
        f"{' data-sort' if column.sortable else ''}>{safe(column.title)}</th>"
        for column in columns
    )
    body = "\n".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows)
    foot = f"<tfoot><tr>{''.join(_cell(cell) for cell in total)}</tr></tfoot>" if total else ""
    kind = "panel scroll tall" if is_tall else "panel scroll"
    return (
        f'<div class="{kind}" tabindex="0" role="region"{attribute("aria-label", caption)}>'
        f"<table{attribute('id', anchor)}><caption>{safe(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>{foot}</table></div>"
    )


def attribute(name: str, value: str) -> str:
    """An attribute with the space before it; nothing when it has no value."""
    return f' {name}="{safe(value)}"' if value else ""


def _cell(cell: Cell) -> str:
    value = f' data-value="{cell.value:.12g}"' if cell.value is not None else ""
    return f"<td{attribute('class', cell.kind)}{value}>{cell.markup}</td>"


def section(anchor: str, title: str, body: str, note: str = "") -> str:
    """A part of the page with its heading; empty when there is nothing in it."""
    if not body:
        return ""
    words = f'<p class="soft">{safe(note)}</p>' if note else ""
    return (
        f'<section aria-labelledby="{anchor}"><h2 id="{anchor}">{safe(title)}</h2>'
        f"{words}{body}</section>"
    )


def details(title: str, body: str) -> str:
    return f"<details><summary>{safe(title)}</summary>{body}</details>" if body else ""


def legend(entries: Iterable[tuple[str, str]], name: str = "", *, is_hidden: bool = False) -> str:
    """Colours with their meaning: (colour, words)."""
    items = "".join(f'<li><i class="{colour}"></i>{safe(words)}</li>' for colour, words in entries)
    hidden = " hidden" if is_hidden else ""
    return f'<ul class="legend"{attribute("data-legend", name)}{hidden}>{items}</ul>'
