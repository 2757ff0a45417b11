"""hakmem diff: what grew between two snapshots; a leak gate."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem import render
from hakmem.environment import enter
from hakmem.errors import EXIT_USAGE, UsageError
from hakmem.inspect.files import damage_told, named
from hakmem.options import SIZE_SUFFIXES
from hakmem.project import find_project

if TYPE_CHECKING:
    from hakmem.inspect.model import Snapshot

EXAMPLES = """\
examples:
  hakmem inspect --json --blocks 4242 > before.json
  hakmem diff before.json 4242                        what grew since
  hakmem diff before.json 4242 --fail-above 1M        status 1 when live memory grew by more
  hakmem diff series.jsonl --fail-above-percent 2     a series: its last snapshot, its first
  hakmem diff core.1 core.2 --json

Exit status: 0 within the limits (or none were given), 1 live memory grew by more, 2 wrong usage or
unreadable, 3 the counts are too uncertain to tell.
"""


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]?)(?:i?b)?", text.strip().lower())
    # Of too many digits a float is made that is no number.
    value = float(found[1]) * SIZE_SUFFIXES.get(found[2], 1) if found is not None else math.inf
    if value == math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 4096, 64K or 1M")
    return int(value)


def _percent(text: str) -> float:
    try:
        value = float(text.strip().rstrip("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage")
    return value


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "diff",
        help="show what grew between two snapshots, and fail when it is too much",
        description="Compares two heaps: processes, core files, snapshots, saved JSON or series "
        "(the first snapshot of one as A, the last of one as B). Live memory is compared by size "
        "class, heap, run, and large and huge blocks.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "before", metavar="A", type=named, help="PID, core, snapshot, JSON or series"
    )
    parser.add_argument(
        "after", metavar="B", nargs="?", type=named, help="another; not needed when A is a series"
    )
    parser.add_argument(
        "--fail-above", metavar="SIZE", type=_bytes, help="status 1 when live memory grew by more"
    )
    parser.add_argument(
        "--fail-above-percent", metavar="P", type=_percent, help="the same, as a share of A's"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, sizes as integers")
    parser.add_argument("--all", action="store_true", help="tables in full length")
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)


def _pair(before: str, after: str | None) -> tuple[Snapshot, Snapshot]:
    """The two snapshots that the command line names."""
    from hakmem.inspect import targets
    from hakmem.report import series

    def is_series(target: str) -> bool:
        return not targets.is_process(target) and series.is_series(Path(target))

    if after is None:
        if not is_series(before):
            raise UsageError("diff compares two: give B as well, or a series as A")
        told = series.read(Path(before))
        return told.first, told.last
    first = series.read(Path(before)).first if is_series(before) else targets.take(before)
    second = series.read(Path(after)).last if is_series(after) else targets.take(after)
    return first, second


def run(options: argparse.Namespace) -> int:
    enter(find_project())
    from hakmem.report import growth, growthtext

    before, after = _pair(options.before, options.after)
    if growth.is_turned_round(before, after):
        raise UsageError(f"A is of process {before.pid} later than B: what grew is from B to A")
    limits = growth.Limits(options.fail_above, options.fail_above_percent)
    with damage_told(options.before, *([options.after] if options.after is not None else [])):
        found = growth.compare(before, after)
        if options.json:
            facts = growth.as_json(before, after, found, limits)
            said = json.dumps(facts, indent=2) + "\n"
        else:
            style = render.environment_style(sys.stdout)
            said = growthtext.render(before, after, found, limits, style, everything=options.all)
        verdict = growth.judge(found, limits)
    sys.stdout.write(said)
    return verdict
