"""hakmem record: a series of snapshots of a process."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from hakmem.environment import enter
from hakmem.errors import EXIT_USAGE, UsageError
from hakmem.project import find_project
from hakmem.report.durations import seconds

SHORTEST_S = 0.02
EXAMPLES = """\
examples:
  hakmem record 4242 --every 1s -o series.jsonl              until Ctrl-C, or its end
  hakmem record 4242 --every 200ms --for 60s -o series.jsonl
  hakmem report series.jsonl -o heap.html                    with a timeline
  hakmem diff series.jsonl --fail-above 1M                   what grew from first to last

Each line of the file is a snapshot without single blocks; the last has them, for the map of the
report, unless the process ended before. Exit status: 0 a series was written, 2 the process cannot
be read, 125 the disk is full (what was written is whole).
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "record",
        help="write a series of snapshots of a process",
        description="Looks at the heap of a process at fixed moments, without stopping it, and "
        "writes a line of JSON for each.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pid", metavar="PID", help="a process that uses hakmem")
    parser.add_argument(
        "--every", metavar="TIME", type=seconds, default=1.0, help="between two snapshots (1s)"
    )
    parser.add_argument(
        "--for", metavar="TIME", type=seconds, dest="for_s", help="how long; until Ctrl-C without"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=Path, help="the series; standard output without it"
    )
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)


def run(options: argparse.Namespace) -> int:
    enter(find_project())
    from hakmem.inspect import targets
    from hakmem.inspect.reading import Session
    from hakmem.report import recording

    if not targets.is_process(options.pid):
        raise UsageError(f"{options.pid!r} is no process: a series is of a running one, by its pid")
    if options.every < SHORTEST_S:
        raise UsageError(f"--every is at least {SHORTEST_S * 1000:.0f}ms")
    stop = recording.Stop()
    with Session(targets.open_source(options.pid)) as session:
        # Before an older series in that file is gone.
        session.take(residency=False)
        if options.output is None:
            descriptor, name = os.dup(sys.stdout.fileno()), "standard output"
        else:
            name = str(options.output)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            descriptor = os.open(options.output, flags, 0o666)
        lines = recording.Lines(descriptor, name)
        try:
            with stop.listening():
                outcome = recording.record(
                    session,
                    lines,
                    stop,
                    every_s=options.every,
                    for_s=options.for_s,
                    progress=recording.say_progress,
                )
        finally:
            os.close(descriptor)
    unreadable = (
        f", {outcome.unreadable:,} more could not be read" if outcome.unreadable else ""
    )  # fmt: skip
    ahead = "\n" if sys.stderr.isatty() else ""
    count = f"{outcome.written:,} snapshot{'' if outcome.written == 1 else 's'}"
    sys.stderr.write(f"{ahead}hakmem: {name}: {count}{unreadable}; {outcome.reason}\n")
    return 0 if outcome.written or lines.is_unread else EXIT_USAGE
