"""What the learner decided over time: what caches may hold, what may stay free, huge pages."""

from __future__ import annotations

from hakmem.inspect.model import (
    KNOBS_OF_BYTES,
    KNOBS_OF_TIME,
    KNOBS_OF_WORDS,
    Decision,
    Snapshot,
)
from hakmem.inspect.text import decision_value
from hakmem.render import size
from hakmem.report.parts import Cell, Column, bytes_cell, count, legend, safe, table, text

DRAWN_WIDTH, LABEL_WIDTH = 1150, 150
ROW_HEIGHT, RADIUS = 18, 4
# A drawing of more rows shows nothing; the table has them all.
ROWS_MOST = 40


def _name(decision: Decision) -> str:
    if not decision.block_bytes:
        return decision.knob
    return f"{decision.knob} of {size(decision.block_bytes)}"


def _words(decision: Decision) -> str:
    before, after = (decision_value(decision, value) for value in (decision.before, decision.after))
    signal = decision.signal.replace("_", " ")
    what = f"heap {decision.heap}: {_name(decision)} {before} to {after}"
    return f"{what} by {signal} {decision.value:,}"


def _plot(decisions: tuple[Decision, ...]) -> str:
    """A row for each knob, a dot for each decision: blue may hold more, green less."""
    keys = [(decision.knob, decision.block_bytes) for decision in decisions]
    rows = sorted(set(keys), key=lambda key: (-keys.count(key), key))[:ROWS_MOST]
    rows.sort()
    first = min(decision.time_ns for decision in decisions)
    span = max(1, max(decision.time_ns for decision in decisions) - first)
    drawn = []
    for at, key in enumerate(rows):
        y = (at + 0.5) * ROW_HEIGHT
        members = [
            decision for decision in decisions if (decision.knob, decision.block_bytes) == key
        ]
        drawn.append(
            f'<text x="0" y="{y + 4:.1f}">{safe(_name(members[0]))}</text>'
            f'<line class="grid" x1="{LABEL_WIDTH}" x2="{DRAWN_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        for decision in members:
            share = (decision.time_ns - first) / span
            x = LABEL_WIDTH + RADIUS + (DRAWN_WIDTH - LABEL_WIDTH - 2 * RADIUS) * share
            colour = "live" if decision.after > decision.before else "cached"
            drawn.append(
                f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}">'
                f"<title>{safe(_words(decision))}</title></circle>"
            )
    height = len(rows) * ROW_HEIGHT
    label = f"{len(decisions)} decisions within {span / 1e9:.3f} s"
    return (
        f'<svg class="timeline" viewBox="0 0 {DRAWN_WIDTH} {height}" role="img" '
        f'aria-label="{safe(label)}">{"".join(drawn)}</svg>'
        + legend((("live", "may hold more"), ("cached", "may hold less")))
    )


def _value(decision: Decision, value: int) -> Cell:
    if decision.knob in KNOBS_OF_BYTES:
        return bytes_cell(value)
    if decision.knob in KNOBS_OF_TIME or decision.knob in KNOBS_OF_WORDS:
        return text(decision_value(decision, value))
    return count(value)


def drawing(snapshot: Snapshot) -> str:
    """The decisions as a drawing and as a table; empty where there were none."""
    decisions = snapshot.decisions
    if not decisions:
        return ""
    rows = [
        [
            count(decision.time_ns // 1_000_000),
            count(decision.heap),
            text(decision.knob),
            bytes_cell(decision.block_bytes),
            _value(decision, decision.before),
            _value(decision, decision.after),
            text(decision.signal.replace("_", " ")),
            count(decision.value),
        ]
        for decision in decisions
    ]
    columns = [Column("ms", hint="of the monotonic clock"), Column("heap"), Column("knob", "text")]
    columns += [Column("block"), Column("from"), Column("to"), Column("signal", "text")]
    columns.append(Column("its value"))
    lost = f", {snapshot.decisions_lost:,} earlier ones are lost" if snapshot.decisions_lost else ""
    caption = f"Decisions of the learner, the latest last{lost}"
    return _plot(decisions) + table(
        columns, rows, caption=caption, anchor="decisions", is_tall=len(rows) > 20
    )
