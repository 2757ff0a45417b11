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

EXAMPLES = """\
examples:
  hakmem export openmetrics 1234 > hakmem.prom
  hakmem export json | jq '.metrics[] | select(.name == "hakmem_live_bytes")'

Without a PID: every process that uses hakmem. Names and help are those of docs/OPTIONS.md.
Exit status: 0, 2 wrong usage or a process that cannot be read.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "export",
        help="print the metrics of running processes",
        description="Prints counters, gauges, size classes, heaps and what is resident for what, "
        "as OpenMetrics or JSON.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("format", choices=("openmetrics", "json"))
    parser.add_argument("--json", action="store_true", help="the same as the format json")
    parser.add_argument("pids", metavar="PID", nargs="*", type=process_id)
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)


def run(options: argparse.Namespace) -> int:
    project = find_project()
    enter(project)
    from hakmem.metrics import text
    from hakmem.metrics.collect import collecting

    with collecting(options.pids, read_counters(project.counters_table)) as collector:
        views = collector.look()
        problems = [view.problem for view in views if view.problem is not None]
        if options.pids and problems:
            raise UsageError("; ".join(problems))
        metrics = collector.metrics(views)
        if options.json or options.format == "json":
            sys.stdout.write(render.json_text(text.metrics_json(metrics)))
        else:
            sys.stdout.write(text.openmetrics(metrics))
    return 0
