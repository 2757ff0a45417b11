"""hakmem serve-metrics --listen HOST:PORT [PID...]: the metrics of running processes over HTTP."""

from __future__ import annotations

import argparse
import re

from hakmem.commands.top import process_id
from hakmem.environment import enter
from hakmem.errors import EXIT_USAGE
from hakmem.options import read_counters
from hakmem.project import find_project

EXAMPLES = """\
examples:
  hakmem serve-metrics --listen 127.0.0.1:9464 1234
  hakmem serve-metrics --listen 127.0.0.1:9464          every process that uses hakmem

Each scrape is one look at the processes, from outside. SIGINT or SIGTERM ends it with exit status
0; 2 is wrong usage. tools/hakmem/metrics/dashboard.json is a dashboard for Grafana.
"""


def listening_address(text: str) -> tuple[str, int]:
    """Of HOST:PORT or [IPV6]:PORT."""
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]\s]+)):(\d{1,5})", text)
    if found is None or int(found[3]) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return found[1] or found[2], int(found[3])


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "serve-metrics",
        help="serve the metrics of running processes to Prometheus",
        description="Answers HTTP requests for /metrics with what `hakmem export openmetrics` "
        "prints.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--listen",
        required=True,
        type=listening_address,
        metavar="HOST:PORT",
        help="where to listen; port 0 is any that is free",
    )
    parser.add_argument("pids", metavar="PID", nargs="*", type=process_id)
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)


def run(options: argparse.Namespace) -> int:
    project = find_project()
    enter(project)
    from hakmem.metrics.collect import collecting
    from hakmem.metrics.server import Address, serve

    with collecting(options.pids, read_counters(project.counters_table)) as collector:
        serve(collector, Address(*options.listen))
    return 0
