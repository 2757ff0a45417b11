#!/usr/bin/env python3
"""The misuse board: every program on every allocator. Without options, prints the totals.

--all     also the peers that are installed, not only hakmem and glibc
--write   rewrites docs/MISUSE.md and tests/misuse/board.json (wants --all)
--gate    fails unless hakmem meets its targets and the committed board still holds
--as      puts another library into hakmem's columns: the gate must then fail
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
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
REPETITIONS = 3


def cell(column: Column, programs: Path, case: Case, times: int) -> str:
    """How a case ends, measured several times: "A" or "A or B"."""
    found = set()
    for _ in range(times):
        run = column.run(programs, case)
        found.add(outcome.ABSENT if run is None else outcome.judge(run, contract=case.contract))
    return " or ".join(sorted(found))


def measure(
    wanted: Sequence[Column], programs: Path, rows: Sequence[Case], times: int
) -> dict[str, dict[str, str]]:
    """Case, column, outcome. Two processes at a time."""
    pairs = [(case, column) for case in rows for column in wanted]
    with ThreadPoolExecutor(max_workers=2) as pool:
        cells = pool.map(lambda pair: cell(pair[1], programs, pair[0], times), pairs)
        board: dict[str, dict[str, str]] = {case.name: {} for case in rows}
        for (case, column), found in zip(pairs, cells, strict=True):
            board[case.name][column.name] = found
    return board


def targets_missed(board: page.Board) -> list[str]:
    """What hakmem's columns promise and do not hold."""
    missed = []
    for name, least in AT_LEAST.items():
        noticed = page.total(board, name, (outcome.ABORT,))
        if noticed < least:
            missed.append(f"{name} notices {noticed} mistakes, not {least}")
    for name in columns.OWN:
        for word in (outcome.CORRUPT, outcome.TIMEOUT, outcome.BAD, outcome.BROKEN):
            wrong = [case for case, cells in board.items() if word in cells.get(name, "")]
            if wrong:
                missed.append(f"{name} is {word} in {', '.join(wrong)}")
    return missed


def unlike_kept(board: page.Board, kept: page.Board, names: Sequence[str]) -> list[str]:
    """Cells that are not those of the committed board."""
    if board.keys() != kept.keys():
        return [f"the committed board has other cases: {sorted(board.keys() ^ kept.keys())}"]
    return [
        f"{case}: {name} is {cells[name]}, committed is {kept[case].get(name, 'nothing')}"
        for case, cells in board.items()
        for name in names
        if cells[name] not in kept[case].get(name, "").split(" or ")
    ]


def write(
    board: page.Board, rows: Sequence[Case], wanted: Sequence[Column], proven: Mapping[str, Any]
) -> None:
    """Rewrites the committed board."""
    names = [column.name for column in wanted]
    PAGE.write_text(page.render(board, rows, names, proven, REPETITIONS))
    data = {"repetitions": REPETITIONS, "columns": proven, "outcomes": board}
    DATA.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", type=Path, required=True, help="libhakmem.so")
    parser.add_argument("--programs", type=Path, required=True, help="folder of the programs")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--gate", action="store_true")
    parser.add_argument("--as", type=Path, dest="instead", metavar="LIBRARY")
    parser.add_argument("--cases", nargs="*", help="only these")
    options = parser.parse_args()
    wanted = [*columns.own(options.instead or options.library), columns.c_library()]
    if options.all:
        wanted += columns.others()
        for text in columns.missing():
            print(text, file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="hakmem-misuse-") as folder:
        rows = cases.from_programs(options.programs) + cases.from_environment(Path(folder))
        rows = [case for case in rows if not options.cases or case.name in options.cases]
        proven = {column.name: column.prove(options.programs) for column in wanted}
        times = REPETITIONS if options.write else 1
        board = measure(wanted, options.programs, rows, times)
    names = [column.name for column in wanted]
    print("\n".join(page.totals(board, names)))
    if options.cases:
        for case, cells in board.items():
            print(case, cells)
    failures = targets_missed(board)
    if options.gate:
        failures += unlike_kept(board, cases.read(DATA), names)
    if options.write:
        write(board, rows, wanted, proven)
    for failure in failures:
        print(failure)
    return 1 if failures and options.gate else 0


if __name__ == "__main__":
    sys.exit(main())
