"""What research mode counted: histograms, cache levels, flows between heaps, operations."""

from __future__ import annotations

from collections.abc import Sequence

from hakmem.inspect.findings import share_text
from hakmem.inspect.model import Histogram, Research, SizeClass
from hakmem.inspect.text import quantiles
from hakmem.render import size
from hakmem.report.parts import Cell, Column, count, details, safe, table, text

FLOWS_MOST = 50
DRAWN_WIDTH, BINS_HEIGHT, LABELS_HEIGHT = 540, 110, 20
# Room for the last label, which begins at its bar.
LABEL_WIDTH = 40
LABELS_MOST = 6


def _octaves(histogram: Histogram) -> list[tuple[int, int]]:
    """(bound, count) by powers of two, from the first to the last that is not empty."""
    sums: dict[int, int] = {}
    for upper, number in zip(histogram.upper, histogram.counts, strict=True):
        power = upper.bit_length()
        sums[power] = sums.get(power, 0) + number
    used = [power for power, number in sums.items() if number]
    if not used:
        return []
    return [(1 << power, sums.get(power, 0)) for power in range(min(used), max(used) + 1)]


def bound_text(value: int, unit: str) -> str:
    """A bound in a unit that suits it."""
    if unit == "bytes":
        return size(value)
    if unit == "ns":
        for name, nanoseconds in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
            if value >= nanoseconds:
                return f"{value / nanoseconds:.3g} {name}"
    return f"{value:,} {unit}"


def _histogram(histogram: Histogram) -> str:
    """Bars, one for each power of two, with the count and share of each under the pointer."""
    octaves = _octaves(histogram)
    if not octaves:
        return ""
    total, most = sum(histogram.counts), max(number for _, number in octaves)
    step = DRAWN_WIDTH / max(len(octaves), LABELS_MOST)
    every = -(-len(octaves) // LABELS_MOST)
    bars = []
    for at, (bound, number) in enumerate(octaves):
        height = max(BINS_HEIGHT * number / most, 0.8 if number else 0)
        limit = bound_text(bound, histogram.unit)
        words = f"below {limit}: {number:,} ({share_text(number, total)})"
        bars.append(
            f'<rect class="live" x="{at * step:.1f}" y="{BINS_HEIGHT - height:.1f}" '
            f'width="{max(step - 2, 1):.1f}" height="{height:.1f}">'
            f"<title>{safe(words)}</title></rect>"
        )
        if at % every == 0:
            bars.append(
                f'<text class="soft" x="{at * step:.1f}" y="{BINS_HEIGHT + LABELS_HEIGHT - 5}">'
                f"{safe(limit)}</text>"
            )
    summary = quantiles(histogram.upper, histogram.counts)
    return (
        f'<figure class="panel histogram"><figcaption><b>{safe(histogram.name)}</b>, '
        f"{safe(histogram.unit)}: {total:,}; {safe(summary)}</figcaption>"
        f'<svg viewBox="0 0 {DRAWN_WIDTH + LABEL_WIDTH} {BINS_HEIGHT + LABELS_HEIGHT}" role="img" '
        f'aria-label="{safe(histogram.name)}: {safe(summary)}">{"".join(bars)}</svg></figure>'
    )


def _levels(research: Research) -> str:
    """Where allocations and frees ended."""
    names = [name for name in dict.fromkeys([*research.hits, *research.free_hits])
             if research.hits.get(name) or research.free_hits.get(name)]  # fmt: skip
    if not names:
        return ""
    mallocs, frees = sum(research.hits.values()), sum(research.free_hits.values())
    rows = []
    for name in names:
        taken, given = research.hits.get(name, 0), research.free_hits.get(name, 0)
        rows.append(
            [text(name.replace("_", " ")), count(taken), Cell(share_text(taken, mallocs), taken),
             count(given), Cell(share_text(given, frees), given)]
        )  # fmt: skip
    return table(
        [Column("ended in", "text"), Column("mallocs"), Column("of all"), Column("frees"),
         Column("of all")],
        rows,
        caption="Where allocations and frees ended",
        anchor="by-level",
    )  # fmt: skip


def _flows(research: Research) -> str:
    flows = sorted(research.flows, key=lambda flow: -flow.blocks)[:FLOWS_MOST]
    if not flows:
        return ""
    return table(
        [Column("allocated in heap"), Column("freed by heap"), Column("blocks")],
        [[count(flow.from_heap), count(flow.to_heap), count(flow.blocks)] for flow in flows],
        caption="Blocks that a thread of one heap allocated and a thread of another freed",
        anchor="flows",
        is_tall=len(flows) > 20,
    )


def _operations(research: Research, size_classes: Sequence[SizeClass]) -> str:
    rows = []
    for row in size_classes:
        counts = [
            each[row.index] if row.index < len(each) else 0 for each in research.operations.values()
        ]
        if any(counts):
            rows.append([count(row.block_bytes), *(count(number) for number in counts)])
    if not rows:
        return ""
    return table(
        [Column("block"), *(Column(name) for name in research.operations)],
        rows,
        caption="Operations by size class",
        anchor="operations",
        is_tall=len(rows) > 20,
    )


def drawing(research: Research | None, size_classes: Sequence[SizeClass]) -> str:
    """Everything that was counted; empty where nothing was."""
    if research is None:
        return ""
    histograms = "".join(_histogram(histogram) for histogram in research.histograms)
    return (
        (f'<div class="histograms">{histograms}</div>' if histograms else "")
        + _levels(research)
        + _flows(research)
        + details("Operations by size class", _operations(research, size_classes))
    )
