"""One run of one case on one allocator: a row, or the reason why there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import proof
from .cases import Case, RealProgram
from .environment import CLEAN_ENVIRONMENT, TIMEOUT_SECONDS, pinned, run_alone
from .errors import MeasureError
from .layout import INPUTS
from .peers import Allocator

Row = dict[str, Any]

# What each row has to hold; bench/harness/report explains them.
FIELDS = (
    "wall_ns", "user_ns", "system_ns", "cpu_ns", "peak_rss_bytes", "end_rss_bytes", "minor_faults",
    "major_faults", "voluntary_switches", "involuntary_switches", "ops", "unit", "checksum",
)  # fmt: skip


def command_line(program: Path, *arguments: Mapping[str, object]) -> list[str]:
    """The program with its options; later mappings win over earlier ones."""
    merged: dict[str, object] = {}
    for each in arguments:
        merged.update({key.replace("_", "-"): value for key, value in each.items()})
    pairs = [[f"--{key}", str(value)] for key, value in merged.items()]
    return [str(program), *(text for pair in pairs for text in pair)]


def scaled(arguments: Mapping[str, object], scale: float) -> dict[str, object]:
    """The workload's options with its operations multiplied."""
    result = dict(arguments)
    if "ops" in result:
        result["ops"] = max(1, int(float(str(result["ops"])) * scale))
    return result


def read_row(output: str) -> Row:
    """The result line of a workload: the last line it printed."""
    lines = output.splitlines()
    try:
        row = json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError) as error:
        raise MeasureError(f"its output is not a result line: {output[-200:]!r}") from error
    if not isinstance(row, dict):
        raise MeasureError(f"its output is not a result line: {output[-200:]!r}")
    return row


def _run_synthetic(case: Case, allocator: Allocator, folder: Path, scale: float) -> Row:
    command = command_line(
        folder / case.program, scaled(case.arguments, scale), allocator.arguments
    )
    output = run_alone(command, {**CLEAN_ENVIRONMENT, **allocator.settings()}, TIMEOUT_SECONDS)
    row = read_row(output)
    row["arguments"] = command[1:]
    return row


def run_real(
    program: RealProgram,
    allocator: Allocator,
    scale: float,
    *,
    count_calls: bool = False,
    idle_ms: int = 0,
) -> Row:
    """Runs a real program; its row is not yet verified."""
    environment = {**CLEAN_ENVIRONMENT, **allocator.settings()}
    work = INPUTS / program.name
    return program.run(environment, work, scale, count_calls=count_calls, idle_ms=idle_ms)


def prepare(case: Case, scale: float) -> None:
    """Makes the input of a real program, once; workloads need none."""
    if case.real is not None:
        work = INPUTS / case.real.name
        work.mkdir(parents=True, exist_ok=True)
        case.real.prepare(work, scale)


def run(
    case: Case, allocator: Allocator, folder: Path, *, cpu: int | None, scale: float = 1.0
) -> Row:
    """Runs the case once; a row comes back only when it is whole and its proof holds.

    `cpu` pins a case of one thread.
    """
    cpu = cpu if case.threads == 1 else None
    with pinned(cpu):
        if case.real is None:
            row = _run_synthetic(case, allocator, folder, scale)
        else:
            row = run_real(case.real, allocator, scale)
    row["cpu"] = cpu
    verify(row, allocator)
    absent = [name for name in FIELDS if name not in row]
    if absent:
        raise MeasureError(f"its result line lacks {', '.join(absent)}")
    return row


def verify(row: Row, allocator: Allocator) -> None:
    """Refuses the row unless its proof holds."""
    proof.verify(row.get("proof"), allocator)
    row["proof"] = proof.shown(row["proof"])
