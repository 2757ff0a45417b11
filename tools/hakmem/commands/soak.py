"""hakmem soak: run a server's heap for long, and fail when memory or speed drift."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from hakmem.environment import enter
from hakmem.errors import EXIT_USAGE
from hakmem.project import find_project, require_tree

EXAMPLES = """\
examples:
  hakmem soak                                  ten minutes of hakmem
  hakmem soak --minutes 60 --output soak-1     an hour, samples and plot in ./soak-1
  hakmem soak --minutes 5 --allocator jemalloc
  hakmem soak --minutes 2 --leak 200000        a control: this must fail

Exit status: 0 all thresholds hold, 1 one does not, 2 wrong usage, 3 too noisy to tell.
"""


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 100_000:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def _count(text: str) -> int:
    value = int(text) if text.isascii() and text.isdecimal() else 0
    if not 0 < value < 10_000_000:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "soak",
        help="run for long, and fail when memory or throughput drift",
        description="Replaces blocks of many sizes from several threads at a constant live size, "
        "and judges the second half of the time: drift of resident memory and of throughput, "
        "spread of throughput against the machine's own (measured with the floor), growth of the "
        "number of mappings.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--minutes", type=_positive, default=10.0, metavar="N", help="how long (10)"
    )
    parser.add_argument(
        "--allocator", default="hakmem", metavar="NAME", help="of `hakmem bench list`, or NAME=PATH"
    )
    parser.add_argument(
        "--threads", type=_count, default=2, metavar="N", help="that replace blocks"
    )
    parser.add_argument("--seed", type=int, default=73, metavar="N", help="of the work")
    parser.add_argument(
        "--interval-ms", type=_count, default=1000, metavar="N", help="between two samples"
    )
    parser.add_argument("--output", metavar="DIR", type=Path, help="folder for the results")
    parser.add_argument("--json", action="store_true", help="the verdicts as JSON")
    controls = parser.add_argument_group("controls, with which it must fail")
    controls.add_argument(
        "--leak", type=int, default=0, metavar="BYTES", help="forget so much per second"
    )
    controls.add_argument(
        "--slowdown", type=int, default=0, metavar="PERCENT", help="slower by so much at the end"
    )
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)


def run(options: argparse.Namespace) -> int:
    project = find_project()
    require_tree(project, "soak")
    enter(project)
    sys.path.insert(0, str(project.root / "bench"))
    from harness import soaking

    return soaking.main(options, shlex.join(["./hakmem", *sys.argv[1:]]))
