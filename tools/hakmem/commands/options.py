"""hakmem options: the table of options."""

from __future__ import annotations

import argparse
import sys

from hakmem import render
from hakmem.errors import EXIT_USAGE, UsageError
from hakmem.options import read_options
from hakmem.project import find_project

EXAMPLES = """\
examples:
  hakmem options
  hakmem options purge_delay_ms huge_pages
  hakmem options --json

An option is set by HAKMEM_<NAME>=value, by HAKMEM_CONF=name:value,name:value, or by a line
name=value in the file that HAKMEM_PROFILE names; HAKMEM_VERBOSE=1 prints what is in effect.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "options",
        help="list the options of the library",
        description="Prints every option: its environment variable, default, range and meaning.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="as JSON, sizes as integers")
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these options")
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)


def run(options: argparse.Namespace) -> int:
    table = read_options(find_project().options_table)
    chosen = list(table.options)
    if options.names:
        names = [name.lower().removeprefix("hakmem_") for name in options.names]
        found = {name: table.find(name) for name in names}
        unknown = [name for name in names if found[name] is None]
        if unknown:
            raise UsageError(f"there is no option {', '.join(unknown)}")
        chosen = [option for option in table.options if option in found.values()]
    if options.json:
        sys.stdout.write(render.json_text(render.options_json(table, chosen)))
    else:
        sys.stdout.write(render.options_text(table, chosen, render.environment_style(sys.stdout)))
    return 0
