"""What tables are made of, before they become Markdown or HTML."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ..figures import Ratio

KIB = 1024
MIB = 1024 * 1024


@dataclass(frozen=True)
class Cell:
    """One field. `ratio` (1 is the best of the row) shades it; `first` marks the winner."""

    text: str
    ratio: float | None = None
    first: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Table:
    """A titled table whose first `text_columns` columns are text and whose others are figures."""

    title: str
    note: str
    header: Sequence[str]
    rows: list[list[Cell]] = field(default_factory=list)
    text_columns: int = 1
    anchor: str = ""


def cells(*texts: str) -> list[Cell]:
    """A row without any shading."""
    return [Cell(text) for text in texts]


def ratio_text(ratio: Ratio) -> str:
    """The ratio and its interval; a single pair has none."""
    if not math.isfinite(ratio.high):
        return f"{ratio.median:.2f} [one run]"
    return f"{ratio.median:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def factor_text(factor: float) -> str:
    """A multiple of the best; one that would read 1.00 though it is more has a third decimal."""
    return f"{factor:.3f}" if 1 < factor < 1.005 else f"{factor:.2f}"


def seconds_text(nanoseconds: float) -> str:
    """A time with the unit that suits it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        # 999.9 of a unit would be rounded to 1e+03.
        if nanoseconds >= 0.9995 * size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def bytes_text(count: float) -> str:
    """A size in KiB or MiB."""
    if abs(count) >= 10 * MIB:
        return f"{count / MIB:,.0f} MiB"
    return f"{count / MIB:.1f} MiB" if abs(count) >= MIB else f"{count / KIB:,.0f} KiB"


def value_text(what: str, value: float) -> str:
    """A median of time or memory."""
    return seconds_text(value) if what == "time" else bytes_text(value)
