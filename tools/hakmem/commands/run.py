"""hakmem run -- PROGRAM ARGS: run a program on hakmem and prove it."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hakmem import analysis, preload, render, schema, watch
from hakmem.build import ensure_library
from hakmem.diagnosis import absence
from hakmem.errors import EXIT_FAILURE, HakmemError
from hakmem.folders import report_folder
from hakmem.options import OptionTable, read_options
from hakmem.output import write_whole
from hakmem.project import find_project
from hakmem.spawn import Ended, Running
from hakmem.watch import Image

EXAMPLES = """\
examples:
  hakmem run -- redis-server --save ''
  hakmem run --mode lean -- python3 app.py
  hakmem run --set purge_delay_ms=0 --set huge_pages=never -- ./server
  hakmem run --json --summary-file run.json -- make -j4
  hakmem run --quiet -- sh -c 'generate | sort'

The program keeps its standard streams, its terminal and its exit status; 128+n when signal n
killed it. 125: hakmem could not run it, or it ran without hakmem. 126: it cannot be executed.
127: it was not found.

A process that lives for a moment, and by exec becomes a program that does not load hakmem, may be
missed: what leaves no report is only seen by looks now and then.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "run",
        help="run a program on hakmem and prove at its end that hakmem served it",
        description="Builds libhakmem.so when needed, runs PROGRAM on it, and says on standard "
        "error whose malloc every loaded module used, with the heap's own figures.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-q",
        "--quiet",
        action="store_true",
        help="no summary when hakmem was active in every process",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help=f"the summary as JSON ({render.RUN_SCHEMA}), bytes as integers",
    )
    parser.add_argument(
        "--summary-file",
        metavar="FILE",
        type=Path,
        help="write the summary to FILE instead of standard error",
    )
    parser.add_argument("--mode", metavar="MODE", help="fast (default), lean, hardened or research")
    parser.add_argument(
        "--set",
        metavar="OPTION=VALUE",
        action="append",
        default=[],
        dest="settings",
        help="set an option; `hakmem options` lists them",
    )
    parser.add_argument(
        "--library",
        metavar="FILE",
        type=Path,
        help="use this libhakmem.so instead of the command's own",
    )
    parser.add_argument("program", metavar="PROGRAM")
    parser.add_argument("arguments", metavar="ARGS", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_FAILURE)


def settings_environment(
    table: OptionTable, mode: str | None, settings: Sequence[str]
) -> dict[str, str]:
    """HAKMEM_<OPTION> for what the command line sets. What the library warns of is refused here."""
    pairs = [("mode", mode)] if mode is not None else []
    for setting in settings:
        name, equals, value = setting.partition("=")
        if not equals:
            raise HakmemError(f"--set {setting}: write it as OPTION=VALUE")
        pairs.append((name.strip().lower().removeprefix("hakmem_"), value))
    environment = {}
    for name, value in pairs:
        option = table.find(name)
        if option is None or option.type == "STRING":
            raise HakmemError(f"there is no option {name!r} to set; `hakmem options` lists them")
        problem = option.problem(value)
        if problem is not None:
            raise HakmemError(f"option {name}: {value!r} {problem}")
        environment[option.environment] = value
    return environment


def _own_environment() -> dict[str, str]:
    """The environment as we were given it: in the C locale Python sets LC_CTYPE for itself."""
    environment = dict(os.environ)
    if "LC_CTYPE" in environment:
        try:
            given = Path("/proc/self/environ").read_bytes().split(b"\0")
        except OSError:
            return environment
        if not any(variable.startswith(b"LC_CTYPE=") for variable in given):
            del environment["LC_CTYPE"]
    return environment


def _environment(
    library: str, directory: Path, settings: dict[str, str], table: OptionTable
) -> dict[str, str]:
    # By an option's other name our caller may have set what the command line sets.
    others = {
        f"HAKMEM_{alias.upper()}"
        for alias, name in table.aliases
        if f"HAKMEM_{name.upper()}" in settings
    }
    return {
        **{name: value for name, value in _own_environment().items() if name not in others},
        **settings,
        "HAKMEM_REPORT": str(directory),
        "LD_PRELOAD": preload.preload_value(library, os.environ.get("LD_PRELOAD")),
    }


def explain_absence(image: Image, library: str) -> str | None:
    """Why a program did not load hakmem, as far as it can be told afterwards."""
    reason = absence.program_reason(image.exe, library)
    if reason is not None:
        return reason
    if image.preload is not None and library not in image.preload:
        return "was started without LD_PRELOAD (its environment was changed)"
    return None


def reports_elsewhere(image: Image, library: str, directory: Path) -> bool:
    """Whether a program was given hakmem, but not this run's HAKMEM_REPORT: servers start others
    with an environment that they choose."""
    return (
        bool(image.preload)
        and image.report not in (None, str(directory))
        and explain_absence(image, library) is None
    )


def _write_summary(text: str, file: Path | None) -> None:
    if file is None:
        sys.stderr.write(text)
        sys.stderr.flush()
        return
    try:
        write_whole(file, text.encode(errors="surrogateescape"))
    except OSError as error:
        sys.stderr.write(f"hakmem: cannot write {file}: {error.strerror}\n")
        sys.stderr.write(text)


def _conclude(
    options: argparse.Namespace, facts: analysis.RunFacts, ended: Ended, command: Sequence[str]
) -> int:
    exit_status = EXIT_FAILURE if facts.served_nothing else ended.exit_status
    active = facts.verdict is analysis.Verdict.ACTIVE
    if options.json:
        text = render.json_text(render.summary_json(facts, ended, command, exit_status))
    else:
        stream = sys.stderr if options.summary_file is None else sys.stdout
        style = render.environment_style(stream)
        style.colours = style.colours and options.summary_file is None
        text = render.summary_text(facts, ended, style)
    if options.summary_file is not None or not (options.quiet and active):
        _write_summary(text, options.summary_file)
    if not active and options.summary_file is not None:
        style = render.environment_style(sys.stderr)
        sys.stderr.write(f"hakmem: {render.headline(facts, style)} see {options.summary_file}\n")
    return exit_status


def run(options: argparse.Namespace) -> int:
    project = find_project()
    table = read_options(project.options_table)
    settings = settings_environment(table, options.mode, options.settings)
    command = [options.program, *options.arguments]
    target = preload.examine(options.program, os.environ)
    library = options.library if options.library is not None else ensure_library(project)
    if not library.is_file():
        raise HakmemError(f"there is no library {library}")
    preload.require_same_architecture(target, library)
    with report_folder("hakmem-run-") as directory:
        preloaded = preload.preloadable_path(library, directory)
        environment = _environment(preloaded, directory, settings, table)
        # To be seen in a process shows something of a hakmem alone.
        looked_for = library if preload.carries_hakmem(library) else None
        running = Running(target.path, command, environment, looked_for)
        ended = running.wait()
        facts = analysis.summarise(
            schema.read_reports(directory),
            running.watch.images(),
            ended,
            program=target.program,
            is_alive=watch.is_alive,
            explain=lambda image: explain_absence(image, preloaded),
            unwritten=schema.unwritten(directory),
            unread=schema.unread(directory),
            elsewhere=lambda image: reports_elsewhere(image, preloaded, directory),
        )
    return _conclude(options, facts, ended, command)
