"""hakmem inspect: the whole heap of a running process, or of what it left behind."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from hakmem import render
from hakmem.environment import enter
from hakmem.errors import EXIT_USAGE, UsageError
from hakmem.inspect.files import damage_told, named
from hakmem.project import find_project

EXAMPLES = """\
examples:
  hakmem inspect 4242                      a running process; it is not stopped
  hakmem inspect --freeze 4242             stopped for a moment, so that every figure is exact
  hakmem inspect core.4242                 what was on its heap when it crashed
  hakmem inspect --decisions 4242          and what the learner decided
  hakmem inspect --json 4242 | jq .waterfall
  hakmem inspect --json 4242 | jq '.findings[] | select(.severity == "warn")'
  hakmem inspect --json 4242 | jq .guarded_sites     who allocated, with HAKMEM_GUARD_SAMPLE
  hakmem inspect --json --blocks 4242 > before.json

Exit status: 0 the heap was read, 2 it could not be (a sentence says why).
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "inspect",
        help="show the heap of a running process, a core file or a snapshot",
        description="Reads the heap of a process that uses hakmem, from outside and at no cost to "
        "it: blocks live, cached and free by size class and by heap, where the resident memory is, "
        "and what stands out.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "target",
        metavar="PID|CORE|SNAPSHOT|JSON",
        type=named,
        help="a process, or a file one left",
    )
    parser.add_argument("--json", action="store_true", help="as JSON, sizes as integers")
    parser.add_argument(
        "--blocks", action="store_true", help="with --json: the state of every single block too"
    )
    parser.add_argument(
        "--freeze",
        action="store_true",
        help="stop the process while it is read (milliseconds; longer with 1,000 threads)",
    )
    parser.add_argument(
        "--events", action="store_true", help="also the latest slow-path events of the library"
    )
    parser.add_argument(
        "--decisions", action="store_true", help="also what the learner decided, and why"
    )
    parser.add_argument(
        "--signals",
        action="store_true",
        help="only the windows that the learner decided on, as docs/LEARNING.md says; not with "
        "--json",
    )
    parser.add_argument(
        "--heap",
        type=int,
        metavar="N",
        help="this heap's classes and row alone (with --signals its windows); not with --json",
    )
    parser.add_argument("--all", action="store_true", help="tables in full length; not with --json")
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)


def _require_sense(options: argparse.Namespace) -> None:
    if options.heap is not None and options.json:
        raise UsageError("--heap chooses what a table shows; --json has every heap")
    if options.signals and options.json:
        raise UsageError("--signals writes a format of its own; --json has no windows alone")
    if options.all and options.json:
        raise UsageError("--all is for tables; --json has every row")
    if options.blocks and not options.json:
        raise UsageError("--blocks is for --json; tables have no single blocks")


def run(options: argparse.Namespace) -> int:
    _require_sense(options)
    enter(find_project())
    from hakmem.inspect import jsonform, learned, targets, text
    from hakmem.report import series

    if not targets.is_process(options.target) and series.is_series(Path(options.target)):
        raise UsageError(
            f"{options.target}: is a series: `hakmem report` draws it, `hakmem diff` compares its "
            "first snapshot with its last"
        )
    snapshot = targets.take(
        options.target,
        freeze=options.freeze,
        events=options.events,
        decisions=options.decisions or options.signals,
    )
    if options.heap is not None and all(heap.id != options.heap for heap in snapshot.heaps):
        raise UsageError(f"there is no heap {options.heap}; this one has {len(snapshot.heaps)}")
    if options.signals and not snapshot.windows:
        sys.stderr.write("hakmem: the learner has looked at nothing so far\n")
    elif options.decisions and not snapshot.decisions:
        sys.stderr.write("hakmem: the learner has decided nothing so far\n")
    with damage_told(options.target):
        if options.signals:
            said = learned.recording(snapshot, options.heap)
        elif options.json:
            detail = "blocks" if options.blocks else "runs"
            said = json.dumps(jsonform.encode(snapshot, detail)) + "\n"
        else:
            style = render.environment_style(sys.stdout)
            said = text.render(snapshot, style, heap=options.heap, everything=options.all)
    sys.stdout.write(said)
    return 0
