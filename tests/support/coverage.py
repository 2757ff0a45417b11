#!/usr/bin/env python3
"""Lines and branches of src/ that the tests reached, per layer, from the counts that gcc's
instrumented objects left in a build tree."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
LAYERS = ("base", "config", "os", "space", "heap", "thread", "control", "api")


@dataclass
class File:
    lines: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    branches: dict[tuple[int, int], int] = field(default_factory=lambda: defaultdict(int))

    def missing(self) -> list[int]:
        return sorted(line for line, count in self.lines.items() if count == 0)


def read_counts(build: Path) -> dict[str, File]:
    """Per file below src/. An inline function of a header is counted in all that include it."""
    files: dict[str, File] = defaultdict(File)
    for counts in sorted((build / "CMakeFiles").rglob("*.gcno")):
        # Where a file was never entered there is a .gcno alone, and gcov says zero.
        done = subprocess.run(
            ["gcov", "--json-format", "--stdout", "--branch-probabilities", str(counts)],
            cwd=build,
            check=True,
            capture_output=True,
        )
        for line in done.stdout.splitlines():
            for source in json.loads(line)["files"]:
                path = (build / source["file"]).resolve()
                if not path.is_relative_to(TOP / "src"):
                    continue
                file = files[str(path.relative_to(TOP / "src"))]
                for entry in source["lines"]:
                    number = entry["line_number"]
                    file.lines[number] += entry["count"]
                    for i, branch in enumerate(entry["branches"]):
                        file.branches[number, i] += branch["count"]
    return files


def share(reached: int, total: int) -> str:
    return f"{reached} of {total} ({100 * reached / total:.1f} %)" if total else "-"


def row(name: str, files: list[File]) -> str:
    lines = [count for file in files for count in file.lines.values()]
    branches = [count for file in files for count in file.branches.values()]
    reached = [sum(count > 0 for count in counts) for counts in (lines, branches)]
    return f"| {name} | {share(reached[0], len(lines))} | {share(reached[1], len(branches))} |"


def table(files: dict[str, File]) -> str:
    rows = ["| layer | lines | branches |", "|---|---|---|"]
    for layer in LAYERS:
        own = [file for path, file in files.items() if path.startswith(f"{layer}/")]
        rows.append(row(f"`src/{layer}`", own))
    rows.append(row("all", list(files.values())))
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("--missing", action="store_true", help="list the lines not reached")
    arguments = parser.parse_args()
    files = read_counts(arguments.build.resolve())
    if not files:
        print("no counts: build and run the tests of the flavour `coverage` first", file=sys.stderr)
        return 1
    print(table(files))
    if arguments.missing:
        for path, file in sorted(files.items()):
            if missing := file.missing():
                print(f"{path}: {' '.join(map(str, missing))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
