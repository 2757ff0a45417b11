"""A result folder: the manifest, raw rows as they come, and what is derived from them."""

from __future__ import annotations

import datetime
import gzip
import json
from pathlib import Path
from typing import Any

from . import machine
from .errors import BenchError
from .layout import RESULTS

SCHEMA = "hakmem-bench/2"
ROWS = "rows.jsonl"
REFUSED = "refused.jsonl"
COUNTS = "counts.jsonl"
MANIFEST = "manifest.json"


class Store:
    """Rows are appended and flushed one by one, so an interrupted run keeps what it measured. With
    `begun`, a folder that holds results is gone on with."""

    def __init__(self, folder: Path | None, kind: str, *, begun: bool = False) -> None:
        self.folder = folder if folder is not None else fresh_folder(kind)
        if (self.folder / MANIFEST).exists() and not begun:
            raise BenchError(f"{self.folder} already holds results; name a new folder")
        self.folder.mkdir(parents=True, exist_ok=True)

    def manifest(self, manifest: dict[str, Any]) -> None:
        """Writes the manifest; called again at the end with what is known by then. Keys keep their
        order: that of the matrix."""
        write_manifest(self.folder, {"schema": SCHEMA, **manifest})

    def row(self, row: dict[str, Any], *, file: str = ROWS) -> None:
        """Appends one raw row; refused ones are kept apart and never enter a table."""
        with (self.folder / file).open("a") as rows:
            rows.write(json.dumps(row) + "\n")

    def text(self, name: str, text: str) -> Path:
        """Writes something derived from the rows."""
        path = self.folder / name
        path.write_text(text)
        return path


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Whole or not at all: the manifests of all folders are read together."""
    written = folder / f".{MANIFEST}"
    written.write_text(json.dumps(manifest, indent=2) + "\n")
    written.rename(folder / MANIFEST)


def fresh_folder(kind: str) -> Path:
    """bench/results/<date>-<machine>/<kind>, with a number when it is taken."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    base = RESULTS / f"{today}-{machine.name()}" / kind
    folder, number = base, 1
    while folder.exists():
        number += 1
        folder = base.with_name(f"{base.name}-{number}")
    return folder


def read_rows(folder: Path, file: str = ROWS) -> list[dict[str, Any]]:
    """The rows of a result folder, plain or packed by gzip; none when the file is not there.

    A last line that was cut off by a crash is passed over.
    """
    path, packed = folder / file, folder / f"{file}.gz"
    if path.is_file():
        text = path.read_text()
    elif packed.is_file():
        text = gzip.decompress(packed.read_bytes()).decode()
    else:
        return []
    lines = text.splitlines()
    rows = []
    for number, line in enumerate(lines):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number + 1 < len(lines):
                raise BenchError(f"{path}:{number + 1}: {error}") from error
    return rows


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a result folder."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise BenchError(f"{folder} is no result folder: {error}") from error
    return manifest


def newest(kind: str) -> Path:
    """The newest result folder of that kind."""
    found = [
        (manifest["at"], file.parent)
        for file in RESULTS.glob(f"*/*/{MANIFEST}")
        if (manifest := read_manifest(file.parent)).get("kind") == kind
    ]
    if not found:
        raise BenchError(f"no results of kind '{kind}' below {RESULTS}")
    return max(found)[1]
