"""Where the files of hakmem lie."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hakmem.errors import HakmemError, UsageError


@dataclass(frozen=True)
class Project:
    """A source tree of hakmem, or what a wheel has of one (cmake/Wheel.cmake): the files that the
    command reads at the same places, the library and the version at others."""

    root: Path
    is_tree: bool = True

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
        folder = self.build / "release" if self.is_tree else self.root / "lib"
        return folder / "libhakmem.so"

    @property
    def version(self) -> str:
        if not self.is_tree:
            return (self.root / "version").read_text(encoding="ascii").strip()
        text = (self.root / "CMakeLists.txt").read_text(encoding="utf-8")
        found = re.search(r"project\s*\(\s*hakmem\s+VERSION\s+([0-9.]+)", text)
        if found is None:
            raise HakmemError("CMakeLists.txt names no version")
        return found[1]


def find_project() -> Project:
    package = Path(__file__).resolve().parent
    installed = package / "installed"
    if installed.is_dir():
        return Project(installed, is_tree=False)
    root = package.parents[1]
    if not (root / "CMakeLists.txt").is_file():
        raise HakmemError(f"{root} is not a source tree of hakmem: it has no CMakeLists.txt")
    return Project(root)


def require_tree(project: Project, verb: str) -> None:
    """Of a verb that goes by what no wheel has: workloads, their programs, other allocators."""
    if not project.is_tree:
        raise UsageError(
            f"{verb} runs from a source tree of hakmem alone, as ./hakmem {verb}: what it needs is "
            "not installed with the command"
        )
