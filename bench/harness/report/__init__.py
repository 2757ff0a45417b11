"""Everything that is derived from result folders, and can be derived again.

Of several folders the later replace whole cases of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import derived, markdown, results


def write(
    folders: Sequence[Path],
    html: Path | None = None,
    metric: str = "wall",
    baseline: str | None = None,
) -> str:
    """Writes table.md and report.html (or `html`) into the first folder, finished or not; returns
    the Markdown text."""
    # The page draws, and what draws takes a second to load.
    from .page import page

    loaded = results.load(folders[0], metric, baseline, folders[1:])
    text = markdown.report(loaded)
    (loaded.folder / "table.md").write_text(text)
    (html or loaded.folder / "report.html").write_text(page(loaded))
    return text


def summary(folders: Sequence[Path], metric: str = "wall", baseline: str | None = None) -> str:
    """The end of a run, for the terminal."""
    return markdown.summary(results.load(folders[0], metric, baseline, folders[1:]))


def as_json(
    folders: Sequence[Path], metric: str = "wall", baseline: str | None = None
) -> dict[str, Any]:
    """Every derived figure, for programs."""
    return derived.figures(results.load(folders[0], metric, baseline, folders[1:]))
