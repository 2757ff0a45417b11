"""The matrix: synthetic workloads and real programs, in one list."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from .errors import BenchError
from .layout import BENCH, display

SYNTHETIC = "synthetic"
REAL = "real"


class RealProgram(Protocol):
    """What the harness needs of a program in bench/programs."""

    @property
    def name(self) -> str:
        """The row's name."""

    @property
    def about(self) -> str:
        """What it does, in a few words."""

    @property
    def packages(self) -> tuple[str, ...]:
        """The Debian packages that bring it."""

    @property
    def threads(self) -> int:
        """How many threads work at once."""

    @property
    def quick(self) -> bool:
        """Whether it is part of the quick mode."""

    @property
    def installed(self) -> bool:
        """Whether it can run here."""

    def prepare(self, work: Path, scale: float) -> None:
        """Makes the fixed input, once."""

    def run(
        self,
        environment: Mapping[str, str],
        work: Path,
        scale: float,
        *,
        count_calls: bool = False,
        idle_ms: int = 0,
    ) -> dict[str, Any]:
        """Runs it in that environment; returns a row's fields."""


@dataclass(frozen=True)
class Case:
    """One row of the matrix: a workload with its options, or a real program."""

    name: str
    about: str
    program: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)
    quick: bool = False
    # Its operations are what its working set is made of: fewer of them are another workload.
    unscaled: bool = False
    real: RealProgram | None = None

    def scale(self, asked: float) -> float:
        """How much of its work it does when a session does `asked` of everything."""
        return 1.0 if self.unscaled else asked

    @property
    def group(self) -> str:
        """Which of the two kinds it is."""
        return SYNTHETIC if self.real is None else REAL

    @property
    def threads(self) -> int:
        """How many threads work at once; a row of one is pinned to a CPU."""
        if self.real is not None:
            return self.real.threads
        return int(str(self.arguments.get("threads", 1)))


def synthetic(file: Path = BENCH / "workloads.toml") -> list[Case]:
    """The workloads of the table, in its order."""
    with file.open("rb") as table:
        rows = tomllib.load(table)["case"]
    try:
        return [Case(**row) for row in rows]
    except TypeError as error:
        raise BenchError(f"{display(file)}: {error}") from error


def real() -> list[Case]:
    """The real programs, in the order of their registry."""
    programs: Sequence[RealProgram] = importlib.import_module("programs").known()
    return [
        Case(name=each.name, about=each.about, quick=each.quick, real=each) for each in programs
    ]


def known() -> list[Case]:
    """The whole matrix, in its order."""
    cases = [*synthetic(), *real()]
    names = [case.name for case in cases]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise BenchError(f"two workloads are called {', '.join(twice)}")
    return cases


def choose(names: Sequence[str] | None, *, quick: bool) -> list[Case]:
    """The named cases, or the quick ones, or all. `synthetic` and `real` name a whole group."""
    cases = known()
    if names is None:
        return [case for case in cases if case.quick or not quick]
    chosen: list[Case] = []
    for name in names:
        found = [case for case in cases if name in (case.name, case.group)]
        if not found:
            known_names = ", ".join(case.name for case in cases)
            raise BenchError(f"no workload '{name}'; known: {SYNTHETIC}, {REAL}, {known_names}")
        chosen += found
    return list({case.name: case for case in chosen}.values())
