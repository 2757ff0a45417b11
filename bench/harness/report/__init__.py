"""Everything that is derived from a result folder, and can be derived again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import derived, markdown, results


def write(
    folder: Path, html: Path | None = None, metric: str = "wall", baseline: str | None = None
) -> str:
    """Writes table.md and report.html (or `html`) of a folder, finished or not; returns the
    Markdown text."""
    # The page draws, and what draws takes a second to load.
    from .page import page

    loaded = results.load(folder, metric, baseline)
    text = markdown.report(loaded)
    (folder / "table.md").write_text(text)
    (html or folder / "report.html").write_text(page(loaded))
    return text


def summary(folder: Path, metric: str = "wall", baseline: str | None = None) -> str:
    """The end of a run, for the terminal."""
    return markdown.summary(results.load(folder, metric, baseline))


def as_json(folder: Path, metric: str = "wall", baseline: str | None = None) -> dict[str, Any]:
    """Every derived figure, for programs."""
    return derived.figures(results.load(folder, metric, baseline))
