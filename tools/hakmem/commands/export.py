"""hakmem export openmetrics|json [PID...]: the metrics of running processes, once."""

from __future__ import annotations

import argparse
import sys

from hakmem import render
from hakmem.commands.top import process_id
from hakmem.environment import enter
from hakmem.errors import EXIT_USAGE, UsageError
from hakmem.options import read_counters
from hakmem.project import find_project

FORMATS = ("openmetrics", "json")
EXAMPLES = """\
examples:
  hakmem export openmetrics 1234 > hakmem.prom
  hakmem export --json 1234
  hakmem export json | jq '.metrics[] | select(.name == "hakmem_live_bytes")'

Without a PID: every process that uses hakmem. Names and help are those of docs/OPTIONS.md.
Exit status: 0, 2 wrong usage or a process that cannot be read.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export",
        usage="%(prog)s [-h] [--json] [openmetrics|json] [PID ...]",
        help="print the metrics of running processes",
        description="Prints counters, gauges, size classes, heaps and what is resident for what, "
        "as OpenMetrics or JSON.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="the same as the format json")
    parser.add_argument(
        "words",
        metavar="FORMAT|PID",
        nargs="*",
        help="openmetrics or json, first (not needed with --json); then processes, all that use "
        "hakmem if none is named",
    )
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)


def _understand(options: argparse.Namespace) -> tuple[str, list[int]]:
    """The format, and the processes."""
    parser: argparse.ArgumentParser = options.parser
    words: list[str] = list(options.words)
    chosen = words.pop(0) if words and words[0] in FORMATS else ""
    if options.json:
        chosen = "json"
    if not chosen:
        parser.error(f"name the format first: {' or '.join(FORMATS)}")
    try:
        return chosen, [process_id(word) for word in words]
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))


def run(options: argparse.Namespace) -> int:
    chosen, pids = _understand(options)
    project = find_project()
    enter(project)
    from hakmem.metrics import text
    from hakmem.metrics.collect import collecting

    with collecting(pids, read_counters(project.counters_table)) as collector:
        views = collector.look()
        problems = [view.problem for view in views if view.problem is not None]
        if pids and problems:
            raise UsageError("; ".join(problems))
        metrics = collector.metrics(views)
        if chosen == "json":
            sys.stdout.write(render.json_text(text.metrics_json(metrics)))
        else:
            sys.stdout.write(text.openmetrics(metrics))
    return 0
