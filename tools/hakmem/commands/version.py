"""hakmem version."""

from __future__ import annotations

import argparse
import sys

from hakmem import render
from hakmem.errors import EXIT_USAGE
from hakmem.project import find_project


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "version",
        help="print the version and where the library is",
        description="Prints the version, and the library that run would use.",
        epilog="examples:\n  hakmem version\n  hakmem version --json\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)


def run(options: argparse.Namespace) -> int:
    project = find_project()
    built = project.library.is_file()
    if options.json:
        facts = {
            "schema": render.VERSION_SCHEMA,
            "version": project.version,
            "library": str(project.library),
            "built": built,
        }
        sys.stdout.write(render.json_text(facts))
    else:
        absent = " (not built yet; `hakmem run` builds it)" if project.is_tree else " (missing)"
        state = "" if built else absent
        sys.stdout.write(f"hakmem {project.version}\n{project.library}{state}\n")
    return 0
