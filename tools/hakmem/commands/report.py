"""hakmem report: one page about a heap."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hakmem.environment import enter
from hakmem.errors import EXIT_USAGE, HakmemError, UsageError
from hakmem.inspect.files import damage_told, named
from hakmem.output import write_whole
from hakmem.project import find_project

EXAMPLES = """\
examples:
  hakmem report 4242 -o heap.html                     a running process; it is not stopped
  hakmem report --freeze 4242 -o heap.html            stopped for a moment, every figure exact
  hakmem report core.4242 -o heap.html
  hakmem report series.jsonl -o heap.html             with a timeline, see `hakmem record`
  hakmem report 4242 --series series.jsonl -o heap.html

The page needs no network and no other file. Exit status: 0 it was written, 2 the heap could not be
read or the file not be written.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "report",
        help="write one self-contained HTML page about a heap",
        description="Writes a page about the heap of a process, a core file, a snapshot or a "
        "series: resident memory by what it is for, a map of every superslab down to the block, "
        "size classes, heaps, large blocks, and what stands out, with advice.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "target",
        metavar="PID|CORE|SNAPSHOT|JSON|SERIES",
        type=named,
        help="a process, or a file that one or `hakmem record` left",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="the page; standard output without it"
    )
    parser.add_argument("--series", metavar="FILE", type=Path, help="draws its timeline as well")
    parser.add_argument(
        "--freeze",
        action="store_true",
        help="stop the process while it is read (milliseconds; longer with 1,000 threads)",
    )
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)


def run(options: argparse.Namespace) -> int:
    enter(find_project())
    from hakmem.inspect import targets
    from hakmem.report import growth, page, series

    target = options.target
    told = None
    if not targets.is_process(target) and series.is_series(Path(target)):
        if options.freeze:
            raise UsageError("only a living process can be frozen")
        told = series.read(Path(target))
        snapshot = told.last
    else:
        snapshot = targets.take(target, freeze=options.freeze, events=True, decisions=True)
    if options.series is not None:
        told = series.read(options.series)
        if not growth.is_same_process(told.last, snapshot):
            other = f"process {told.last.pid}"
            if told.last.pid == snapshot.pid:
                other = f"another one, or an earlier program, with the number {snapshot.pid}"
            raise UsageError(f"{options.series}: is not of {target}, but of {other}")
    with damage_told(target, *([str(options.series)] if options.series is not None else [])):
        markup = page.render(snapshot, told)
    if options.output is None:
        sys.stdout.buffer.write(markup.encode())
        return 0
    try:
        write_whole(options.output, markup.encode())
    except BrokenPipeError:
        # As of standard output: who reads it (`-o /dev/stdout | head`) has had enough.
        return 0
    except OSError as error:
        raise PageError(f"{options.output}: {error.strerror}") from None
    sys.stderr.write(f"hakmem: {options.output}: {len(markup.encode()) / 1024:,.0f} KiB\n")
    return 0


class PageError(HakmemError):
    """The page could not be written."""

    status = EXIT_USAGE
