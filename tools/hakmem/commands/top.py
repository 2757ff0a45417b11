"""hakmem top [PID...]: live heaps on a terminal."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem import render
from hakmem.environment import enter
from hakmem.errors import EXIT_USAGE, UsageError
from hakmem.project import find_project

if TYPE_CHECKING:
    from hakmem.top.sampler import Sampler, View

EXAMPLES = """\
examples:
  hakmem top                                   every process that uses hakmem
  hakmem top 1234 --interval 100ms             one, ten times a second
  hakmem top --once 1234                       one frame as text
  hakmem top --once --json                     one frame as JSON

Keys: q quit, p pause, f one exact picture (the process stands still for a moment), s sort by the
next column, r reverse, w write a snapshot to a file, n next process, v next view (1 classes,
2 heaps, 3 rates, 4 map). Exit status: 0, 2 wrong usage or nothing to look at.
"""

NICENESS = 10
INTERVAL_MIN_S = 0.05
INTERVAL_MAX_S = 3600.0


def seconds(text: str) -> float:
    """Of "100ms", "1s", "2m" or a number of seconds."""
    for suffix, scale in (("ms", 0.001), ("s", 1.0), ("m", 60.0), ("", 1.0)):
        if text.endswith(suffix):
            try:
                value = float(text.removesuffix(suffix)) * scale
            except ValueError:
                break
            if INTERVAL_MIN_S <= value <= INTERVAL_MAX_S:
                return value
            break
    raise argparse.ArgumentTypeError(f"{text!r} is not a time from 50ms to 60m")


def process_id(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 0 < int(text) < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is not the number of a process")
    return int(text)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "top",
        help="watch the heaps of running processes on a live screen",
        description="Shows size classes, heaps, rates and an occupancy map of a running process, "
        "or of every process that uses hakmem. It reads from outside: the process is not stopped.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--interval",
        type=seconds,
        default=1.0,
        metavar="TIME",
        help="between two looks: 100ms, 1s (the default)",
    )
    parser.add_argument("--once", action="store_true", help="print one frame and end")
    parser.add_argument("--json", action="store_true", help="the frame as JSON; with --once")
    parser.add_argument(
        "--output", type=Path, default=Path(), metavar="DIR", help="where w puts snapshots"
    )
    parser.add_argument("pids", metavar="PID", nargs="*", type=process_id)
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)


def _once(sampler: Sampler, options: argparse.Namespace) -> int:
    """Two looks, because rates need two."""
    from hakmem.top import drawing, frame

    views = sampler.look()
    if any(view.snapshot is not None for view in views):
        time.sleep(options.interval)
        views = sampler.look()
    problems = [view.problem for view in views if view.snapshot is None and view.problem]
    if options.pids and len(problems) == len(views):
        raise UsageError("; ".join(problems))
    if options.json:
        sys.stdout.write(render.json_text(frame.frame_json(views)))
        return _status(views)
    charset = drawing.charset_for(sys.stdout.encoding)
    style = render.environment_style(sys.stdout)
    sys.stdout.write(frame.frame_text(views, charset, style, deep=bool(options.pids)))
    return _status(views)


def _status(views: Sequence[View]) -> int:
    if views:
        return 0
    sys.stderr.write("hakmem: no process here uses hakmem, or none that you may look into\n")
    return EXIT_USAGE


def run(options: argparse.Namespace) -> int:
    if options.json and not options.once:
        raise UsageError("--json needs --once")
    # The screen is drawn on standard error.
    streams = (sys.stdin, sys.stdout, sys.stderr)
    has_terminal = all(stream is not None and stream.isatty() for stream in streams)
    if not options.once and (not has_terminal or os.environ.get("TERM") == "dumb"):
        raise UsageError("top needs a terminal; --once prints one frame without one")
    enter(find_project())
    from hakmem.inspect.targets import find_processes
    from hakmem.top.sampler import Sampler
    from hakmem.top.session import ProcessSession, allow_many

    allow_many()
    sampler = Sampler(options.pids, opener=ProcessSession, find=find_processes)
    try:
        if options.once:
            return _once(sampler, options)
        from hakmem.top import drawing
        from hakmem.top.app import TopApp, run_screen

        # Where processors are scarce, those that are watched come first.
        os.nice(NICENESS)
        charset = drawing.charset_for(sys.stderr.encoding)
        app = TopApp(sampler, options.interval, options.output, charset)
        run_screen(app)
        return app.return_code or 0
    finally:
        sampler.close()
