"""The board as a page and as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from judging import outcome
from judging.cases import Case

Board = Mapping[str, Mapping[str, str]]  # case, column, outcome

TOTALS = (
    ("ABORT", (outcome.ABORT,)),
    ("FAULT", (outcome.FAULT,)),
    ("ignored, sound", (outcome.IGNORED, outcome.WARNED)),
    ("CORRUPT", (outcome.CORRUPT, outcome.TIMEOUT)),
    ("contract ok", (outcome.OK,)),
    ("contract bad", (outcome.BAD,)),
)
HEAD = """\
# The misuse board

<!-- Measured and written by `make misuse-board`; not edited by hand. -->

What allocators do with {mistakes} mistakes, one program each (tests/misuse/programs), and whether
they keep their word in {contracts} cases of impossible sizes, odd alignments and hostile
environments. Each case runs in a process of its own. After the mistake a workload allocates 12,000
blocks of many sizes, twice, on a new thread and on the first one, and checks that they are disjoint
and keep their contents. What an allocator that trusts its caller does may depend on addresses, so
single cells of the others may differ from run to run; hakmem's are a test (`misuse.board`).

| word | meaning |
|---|---|
| ABORT | noticed: the allocator ended the process, at the latest when it exits after the workload |
| FAULT | the process died of a fault (SIGSEGV, SIGBUS, SIGFPE) |
| warned | reported on standard error; the call had no effect and the heap is sound |
| ignored | nothing said, and the heap is sound |
| CORRUPT | blocks handed out afterwards overlap, are damaged, or cannot be had |
| TIMEOUT | no end within {seconds} s; counts as CORRUPT |
| ok, bad | contract cases: the answer is right, or it is not |
| - | the allocator has no such function or setting, or does not serve what the case needs |

The columns `no_abort` are hakmem with `HAKMEM_ABORT=0`: every report becomes a warning.

## Totals
"""
PROOF = """
## How each column was proven

In every run the process says which file serves malloc, free, realloc and malloc_usable_size; a run
on another file is refused. Before the first run the loader is asked, by `LD_DEBUG=bindings`, where
it binds malloc's names in every module of the process; not for a proxy, which looks up the
functions that it replaces.

| column | version | file | build id |
|---|---|---|---|
"""


def total(board: Board, column: str, words: Sequence[str]) -> int:
    """How many cases of a column ended in one of these ways."""
    return sum(cells.get(column, outcome.ABSENT) in words for cells in board.values())


def _row(*cells: object) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def totals(board: Board, columns: Sequence[str]) -> list[str]:
    """A line per allocator."""
    lines = [_row("", *(name for name, _ in TOTALS)), "|---" * (len(TOTALS) + 1) + "|"]
    return lines + [
        _row(column, *(total(board, column, words) for _, words in TOTALS)) for column in columns
    ]


def _cases(board: Board, cases: Sequence[Case], columns: Sequence[str]) -> list[str]:
    lines = [_row("case", *columns), "|---" * (len(columns) + 1) + "|"]
    return lines + [
        _row(f"`{case.name}`", *(board[case.name].get(each, outcome.ABSENT) for each in columns))
        for case in cases
    ]


def render(
    board: Board,
    cases: Sequence[Case],
    columns: Sequence[str],
    proven: Mapping[str, Mapping[str, Any]],
) -> str:
    """docs/MISUSE.md."""
    mistakes = [case for case in cases if not case.contract]
    contracts = [case for case in cases if case.contract]
    head = HEAD.format(mistakes=len(mistakes), contracts=len(contracts), seconds=outcome.SECONDS)
    lines = [head, *totals(board, columns), "\n## Mistakes\n"]
    lines += [*_cases(board, mistakes, columns), "\n## Contracts\n"]
    lines += [*_cases(board, contracts, columns), PROOF.rstrip()]
    for column in columns:
        known = proven[column]
        lines.append(
            _row(column, known["version"] or known["build"], known["library"], known["build_id"])
        )
    return "\n".join(lines) + "\n"
