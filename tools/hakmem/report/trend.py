"""What a series shows that a single snapshot cannot: memory that grows all along."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from hakmem.inspect.findings import Finding, Severity
from hakmem.render import size
from hakmem.report.series import Series

# The series is looked at in this many parts; the median of each must be above the one before.
PARTS = 4
POINTS_LEAST = 2 * PARTS
# Growth below this, and below this share of what is resident, is not worth a sentence.
WORTH_BYTES = 256 << 10
WORTH_SHARE = 0.01
CLASSES_MOST = 3


def grows_all_along(values: Sequence[int]) -> bool:
    """Whether each part of the values lies above the one before, in its median."""
    if len(values) < POINTS_LEAST:
        return False
    ends = [len(values) * part // PARTS for part in range(PARTS + 1)]
    medians = [median(values[low:high]) for low, high in pairwise(ends)]
    return all(before < after for before, after in pairwise(medians))


def _per_minute(values: Sequence[int], seconds: float) -> str:
    return f"{size(round((values[-1] - values[0]) * 60 / max(seconds, 1e-3)))} a minute"


def findings(series: Series | None) -> tuple[Finding, ...]:
    """Size classes, large and huge blocks that grew all along, the fastest first."""
    if series is None or len(series.points) < POINTS_LEAST:
        return ()
    return tuple(sorted(_growing(series), key=lambda finding: -finding.bytes)[: CLASSES_MOST + 2])


def _growing(series: Series) -> Iterator[Finding]:
    points = series.points
    seconds = (points[-1].taken_ns - points[0].taken_ns) / 1e9
    worth = max(WORTH_BYTES, int(WORTH_SHARE * points[-1].rss_bytes))
    columns = {
        f"Live blocks of class {block_bytes:,} B": [
            point.live_bytes.get(block_bytes, 0) for point in points
        ]
        for block_bytes in points[-1].live_bytes
    }
    for row, words in (("large", "Resident large blocks"), ("huge", "Resident huge blocks")):
        columns[words] = [point.rows.get(row, 0) for point in points]
    for words, values in columns.items():
        grown = values[-1] - values[0]
        if grown >= worth and grows_all_along(values):
            yield Finding(
                "growing",
                Severity.WARN,
                f"{words} grew all along: from {size(values[0])} to {size(values[-1])} in "
                f"{seconds:,.0f} s, {_per_minute(values, seconds)}.",
                "What is never freed looks like this, and so does what is still filling. "
                "HAKMEM_LEAKS=1 lists what is live at exit; hakmem diff compares two moments.",
                grown,
            )
