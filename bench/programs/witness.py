"""What the witness inside each process stated (bench/probes/witness.c), and whether it holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import RefusedError

FUNCTIONS = ("malloc", "free", "realloc", "calloc")


@dataclass(frozen=True)
class Statement:
    """One process that ended in order."""

    pid: int
    exe: str
    peak_rss_bytes: int
    end_rss_bytes: int
    idle_rss_bytes: int | None
    strays: Sequence[str]
    importers: int
    proof: Mapping[str, Any]
    # What the witness itself cost this process, and from when to when (CLOCK_MONOTONIC) it worked.
    own_spans_ns: Sequence[Sequence[int]]
    own_cpu_ns: int
    own_minor_faults: int
    own_major_faults: int
    own_voluntary_switches: int
    own_involuntary_switches: int

    @property
    def served_by(self) -> tuple[str, ...]:
        """The files behind malloc and its kin by both witnesses, and the build id of malloc's."""
        files = [self.proof[name][witness] for name in FUNCTIONS for witness in ("loader", "map")]
        return (*files, self.proof["build_id"])

    @property
    def moved(self) -> bool:
        """Whether the allocator's counter moved while the program ran."""
        counter = self.proof["moved"]
        return bool(counter["before"] != counter["after"])


def read(file: Path) -> list[Statement]:
    """All statements of a run, in the order in which the processes ended."""
    statements = []
    for line in file.read_text().splitlines():
        fields = json.loads(line)
        kept = {name: fields.get(name) for name in Statement.__dataclass_fields__}
        statements.append(Statement(**kept))
    return statements


def own_wall_ns(statements: Sequence[Statement], start_ns: int, end_ns: int) -> int:
    """How long, between two moments, the witness was at work in any of the processes."""
    total_ns = 0
    spans = sorted((span[0], span[1]) for each in statements for span in each.own_spans_ns)
    for first_ns, last_ns in spans:
        from_ns, to_ns = max(first_ns, start_ns), min(last_ns, end_ns)
        if to_ns > from_ns:
            total_ns += to_ns - from_ns
            start_ns = to_ns
    return total_ns


def main_of(statements: Sequence[Statement], pid: int) -> Statement:
    """The statement of a program that was started as `pid`."""
    for statement in statements:
        if statement.pid == pid:
            return statement
    raise RefusedError(
        f"process {pid} made no statement: is the program linked statically, or did it drop "
        "LD_PRELOAD, or end by a signal?"
    )


def check(statements: Sequence[Statement], main: Statement) -> None:
    """Refuses a run in which not all processes were served by one and the same allocator."""
    for statement in statements:
        who = f"{statement.exe} (process {statement.pid})"
        if statement.strays:
            raise RefusedError(f"{who}: some calls go elsewhere: {'; '.join(statement.strays)}")
        if statement.importers == 0:
            raise RefusedError(f"{who}: no part of it calls the malloc that others see")
        if statement.served_by != main.served_by:
            raise RefusedError(
                f"{who} is served by {statement.proof['malloc']['map']}, "
                f"{main.exe} by {main.proof['malloc']['map']}"
            )
    if not main.moved:
        raise RefusedError(f"{main.exe}: {main.proof['moved']['counter']} stood still")
