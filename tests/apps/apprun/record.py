"""Times and peak memory of every run, kept in one file for the report."""

import hashlib
import json
import os
import platform
from pathlib import Path
from typing import Any

SCHEMA = 1


def identity(library: Path) -> str:
    return hashlib.sha256(library.read_bytes()).hexdigest()


class Recorder:
    """Collects figures; a later session with the same library adds to an earlier one's file.

    Without a path they are not kept.
    """

    def __init__(self, path: Path | None, library: Path) -> None:
        self.path = path
        self.changed = False
        self.content: dict[str, Any] = {
            "schema": SCHEMA,
            "library": library.name,
            "library_sha256": identity(library),
            "machine": {"cpu_count": os.cpu_count(), "kernel": platform.release()},
            "programs": {},
        }
        if path is not None and path.exists():
            earlier = json.loads(path.read_text())
            same = ("schema", "library", "library_sha256", "machine")
            if all(earlier.get(key) == self.content[key] for key in same):
                self.content["programs"] = earlier["programs"]

    def begin(self, name: str, label: str, what: str) -> None:
        """New figures of one program on one malloc replace the earlier ones."""
        program = self.content["programs"].setdefault(name, {"what": what, "runs": {}})
        program["what"] = what
        program["runs"][label] = []

    def add(self, name: str, label: str, wall_s: float, cpu_s: float, peak_kib: int) -> None:
        run = {"wall_s": round(wall_s, 4), "cpu_s": round(cpu_s, 4), "peak_kib": peak_kib}
        self.content["programs"][name]["runs"][label].append(run)
        self.changed = True

    def save(self) -> None:
        if self.changed and self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            partial = self.path.with_suffix(".partial")
            partial.write_text(json.dumps(self.content, indent=1) + "\n")
            partial.replace(self.path)
