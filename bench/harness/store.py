"""A result folder: the manifest, raw rows as they come, and what is derived from them."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from . import machine
from .layout import RESULTS

SCHEMA = "hakmem-bench/1"


class Store:
    """Rows are appended and flushed one by one, so an interrupted run keeps what it measured."""

    def __init__(self, folder: Path | None, kind: str) -> None:
        self.folder = folder if folder is not None else _fresh_folder(kind)
        self.folder.mkdir(parents=True, exist_ok=True)

    def manifest(self, manifest: dict[str, Any]) -> None:
        """Writes the manifest; called again at the end with what is known by then."""
        text = json.dumps({"schema": SCHEMA, **manifest}, indent=2, sort_keys=True)
        (self.folder / "manifest.json").write_text(text + "\n")

    def row(self, row: dict[str, Any], *, refused: bool = False) -> None:
        """Appends one raw row; refused ones are kept apart and never enter a table."""
        file = "refused.jsonl" if refused else "rows.jsonl"
        with (self.folder / file).open("a") as rows:
            rows.write(json.dumps(row, sort_keys=True) + "\n")

    def table(self, text: str) -> Path:
        """Writes the tables derived from the rows."""
        path = self.folder / "table.md"
        path.write_text(text)
        return path


def _fresh_folder(kind: str) -> Path:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    base = RESULTS / f"{today}-{machine.name()}" / kind
    folder, number = base, 1
    while folder.exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder
