"""The workloads of the table, and the build of their programs."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import BenchError
from .layout import BENCH, PROGRAMS


@dataclass(frozen=True)
class Case:
    """One workload with its options."""

    name: str
    about: str
    program: str
    arguments: Mapping[str, object]
    quick: bool = False

    @property
    def threads(self) -> int:
        """How many threads work at once."""
        return int(str(self.arguments.get("threads", 1)))


def known(file: Path = BENCH / "workloads.toml") -> list[Case]:
    """The whole matrix, in its order."""
    with file.open("rb") as table:
        return [Case(**row) for row in tomllib.load(table)["case"]]


def choose(names: list[str] | None, *, quick: bool) -> list[Case]:
    """The named cases, or the quick ones, or all."""
    cases = known()
    if names is None:
        return [case for case in cases if case.quick or not quick]
    by_name = {case.name: case for case in cases}
    for name in names:
        if name not in by_name:
            raise BenchError(f"no workload '{name}'; known: {', '.join(by_name)}")
    return [by_name[name] for name in dict.fromkeys(names)]


def build(folder: Path = PROGRAMS) -> Path:
    """Builds the workloads and the floor allocator when needed; returns their folder.

    Two commands that start at the same time wait for each other.
    """
    for tool, package in (("cmake", "cmake"), ("cc", "gcc")):
        if shutil.which(tool) is None:
            raise BenchError(f"{tool} is missing (Debian package {package})")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            ["cmake", "-S", str(BENCH), "-B", str(folder)],
            ["cmake", "--build", str(folder), "--parallel", "2"],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise BenchError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return folder
