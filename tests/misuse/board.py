#!/usr/bin/env python3
"""The misuse board: every program on every allocator. Without options, prints the totals.

--all     also the peers that are installed, and hakmem with HAKMEM_ABORT=0
--write   rewrites docs/MISUSE.md and tests/misuse/board.json; without --all, peers keep theirs
--gate    fails unless hakmem meets its targets and its columns are the committed ones; as a
          control, glibc must miss the targets
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
sys.path[:0] = [str(TOP / "bench"), str(TOP / "tools"), str(HERE)]

from judging import cases, columns, outcome, page  # noqa: E402
from judging.cases import Case  # noqa: E402
from judging.columns import Column  # noqa: E402

PAGE = TOP / "docs" / "MISUSE.md"
DATA = HERE / "board.json"
AT_LEAST = {"hakmem_fast": 45, "hakmem_hardened": 58}
# Where a magazine may hand a block out twice before its flush meets the bitmap: decision 0002.
# Everything else that corrupts fails the gate, and hardened has no exceptions.
KNOWN_LATE = (
    "double_free_after_many",
    *("warm_double_free_tiny", "warm_double_free_small", "warm_double_free_medium"),
    *("warm_double_free_after_reuse", "warm_free_interior_8", "warm_free_interior_16"),
    "warm_free_slab_tail",
)
NEVER = ("hakmem_hardened", "hakmem_hardened_no_abort")


def cell(column: Column, programs: Path, case: Case) -> str:
    """How a case ends."""
    run = column.run(programs, case)
    return outcome.ABSENT if run is None else outcome.judge(run, contract=case.contract)


def measure(
    wanted: Sequence[Column], programs: Path, rows: Sequence[Case]
) -> dict[str, dict[str, str]]:
    """Case, column, outcome. Two processes at a time."""
    pairs = [(case, column) for case in rows for column in wanted]
    with ThreadPoolExecutor(max_workers=2) as pool:
        cells = pool.map(lambda pair: cell(pair[1], programs, pair[0]), pairs)
        board: dict[str, dict[str, str]] = {case.name: {} for case in rows}
        for (case, column), found in zip(pairs, cells, strict=True):
            board[case.name][column.name] = found
    return board


def targets_missed(board: page.Board, names: Sequence[str]) -> list[str]:
    """What hakmem's columns promise and do not hold."""
    missed = []
    for name in names:
        noticed = page.total(board, name, (outcome.ABORT,))
        if noticed < AT_LEAST.get(name, 0):
            missed.append(f"{name} notices {noticed} mistakes, not {AT_LEAST[name]}")
        for word in (outcome.CORRUPT, outcome.TIMEOUT, outcome.BAD, outcome.BROKEN):
            wrong = {case for case, cells in board.items() if cells.get(name) == word}
            if word == outcome.CORRUPT and name not in NEVER:
                wrong -= set(KNOWN_LATE)
            if wrong:
                missed.append(f"{name} is {word} in {', '.join(sorted(wrong))}")
    return missed


def gate_failures(board: page.Board, names: Sequence[str]) -> list[str]:
    """Why the gate is closed. The same demands on glibc must close it, or they demand nothing."""
    as_hardened = {case: {"hakmem_hardened": cells["glibc"]} for case, cells in board.items()}
    control = targets_missed(as_hardened, ["hakmem_hardened"])
    own = [name for name in names if name in columns.OWN]
    failures = targets_missed(board, own) + unlike_kept(board, cases.read(DATA), own)
    return failures if control else [*failures, "control: glibc meets hakmem's targets"]


def unlike_kept(board: page.Board, kept: page.Board, names: Sequence[str]) -> list[str]:
    """Cells that are not those of the committed board."""
    if board.keys() != kept.keys():
        return [f"the committed board has other cases: {sorted(board.keys() ^ kept.keys())}"]
    return [
        f"{case}: {name} is {cells[name]}, committed is {kept[case].get(name, 'nothing')}"
        for case, cells in board.items()
        for name in names
        if cells[name] != kept[case].get(name)
    ]


def write(
    board: dict[str, dict[str, str]], rows: Sequence[Case], proven: dict[str, Any]
) -> list[str]:
    """Rewrites the committed board. Columns that were not measured keep what they had; returns the
    cases for which they have nothing."""
    kept = json.loads(DATA.read_text()) if DATA.is_file() else {"columns": {}, "outcomes": {}}
    lacking = []
    for name in kept["columns"]:
        if name not in proven:
            proven[name] = kept["columns"][name]
            for case, cells in board.items():
                if case in kept["outcomes"]:
                    cells[name] = kept["outcomes"][case][name]
                else:
                    lacking.append(f"{case}: {name} was not measured")
    PAGE.write_text(page.render(board, rows, list(proven), proven))
    # In the order of the columns: a later run without --all keeps it.
    lines = ",\n".join(f"  {json.dumps(case)}: {json.dumps(board[case])}" for case in board)
    proofs = json.dumps(proven, indent=1)
    DATA.write_text(f'{{\n "columns": {proofs},\n "outcomes": {{\n{lines}\n }}\n}}\n')
    return lacking


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", type=Path, required=True, help="libhakmem.so")
    parser.add_argument("--programs", type=Path, required=True, help="folder of the programs")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--gate", action="store_true")
    parser.add_argument("--cases", nargs="*", help="only these")
    options = parser.parse_args()
    wanted = [
        *columns.own(options.library, every=options.all or options.write),
        columns.c_library(),
    ]
    if options.all:
        wanted += columns.others()
        for text in columns.missing():
            print(text, file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hakmem-misuse-") as folder:
        rows = cases.from_programs(options.programs) + cases.from_environment(Path(folder))
        rows = [case for case in rows if not options.cases or case.name in options.cases]
        proven = {column.name: column.prove(options.programs) for column in wanted}
        board = measure(wanted, options.programs, rows)
    names = [column.name for column in wanted]
    print("\n".join(page.totals(board, names)))
    if options.cases:
        for case, cells in board.items():
            print(case, cells)
    if options.write:
        print("\n".join(write(board, rows, proven)))
    failures = (
        gate_failures(board, names) if options.gate else targets_missed(board, list(columns.OWN))
    )
    for failure in failures:
        print(failure)
    return 1 if failures and options.gate else 0


if __name__ == "__main__":
    sys.exit(main())
