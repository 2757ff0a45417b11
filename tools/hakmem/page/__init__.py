"""What the HTML pages of hakmem have in common: pages of benchmarks and of heaps."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent


def sort_script() -> str:
    """JavaScript: every column whose head has data-sort sorts its table, by mouse and by keyboard.

    A cell's data-value, where it has one, is compared instead of its text."""
    return (HERE / "sort.js").read_text(encoding="utf-8")
