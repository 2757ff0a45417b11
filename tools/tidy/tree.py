"""The files of a tree that the rules look at, and what a rule reports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, order=True)
class Finding:
    """One place that breaks a rule; a warning is shown but does not fail the run."""

    path: str
    line: int
    rule: str
    message: str
    warning: bool = False

    def __str__(self) -> str:
        kind = "warning: " if self.warning else ""
        return f"{self.path}:{self.line}: {kind}{self.message} [{self.rule}]"


class Tree:
    """A source tree: what git tracks or would track, or every file when it is no repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._paths = sorted(self._list())
        self._text: dict[str, str] = {}

    def _list(self) -> Iterator[str]:
        if (self.root / ".git").exists():
            command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
            listed = subprocess.run(command, cwd=self.root, capture_output=True, text=True)
            if listed.returncode != 0:
                # As of a tree of another user's, with what to do about it.
                sys.exit(f"tidy: git lists no files of {self.root}: {listed.stderr.strip()}")
            names = [name for name in listed.stdout.split("\0") if name]
        else:
            names = [str(path.relative_to(self.root)) for path in self.root.rglob("*")]
        for name in names:
            path = self.root / name
            if path.is_file() and not path.is_symlink():
                yield name

    def files(self, *suffixes: str, under: tuple[str, ...] = ("",)) -> list[str]:
        """Paths that end in one of `suffixes` (any, when none is given) below one of `under`."""
        return [
            path
            for path in self._paths
            if (not suffixes or path.endswith(suffixes)) and path.startswith(under)
        ]

    def text(self, path: str) -> str:
        """The file's text; a file that is not text reads as empty."""
        if path not in self._text:
            try:
                self._text[path] = (self.root / path).read_text(encoding="utf-8")
            except UnicodeDecodeError:
                self._text[path] = ""
        return self._text[path]

    def lines(self, path: str) -> Iterator[tuple[int, str]]:
        """Numbered lines, from 1."""
        return enumerate(self.text(path).splitlines(), start=1)
