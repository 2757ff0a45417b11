"""Where the files of hakmem lie."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hakmem.errors import HakmemError


@dataclass(frozen=True)
class Project:
    """A source tree of hakmem."""

    root: Path

    @property
    def options_table(self) -> Path:
        return self.root / "src" / "config" / "options.def"

    @property
    def counters_table(self) -> Path:
        return self.root / "src" / "config" / "counters.def"

    @property
    def build(self) -> Path:
        return self.root / "build"

    @property
    def library(self) -> Path:
        return self.build / "release" / "libhakmem.so"

    @property
    def version(self) -> str:
        text = (self.root / "CMakeLists.txt").read_text(encoding="utf-8")
        found = re.search(r"project\s*\(\s*hakmem\s+VERSION\s+([0-9.]+)", text)
        if found is None:
            raise HakmemError("CMakeLists.txt names no version")
        return found[1]


def find_project() -> Project:
    root = Path(__file__).resolve().parents[2]
    if not (root / "CMakeLists.txt").is_file():
        raise HakmemError(f"{root} is not a source tree of hakmem: it has no CMakeLists.txt")
    return Project(root)
