"""The command line: arguments in, exit status out."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from hakmem import streams
from hakmem.commands import (
    bench,
    diff,
    doctor,
    export,
    inspect,
    options,
    record,
    report,
    run,
    serve_metrics,
    soak,
    top,
    tune,
    version,
)
from hakmem.commands import set as set_
from hakmem.errors import EXIT_FAILURE, EXIT_USAGE, HakmemError
from hakmem.project import find_project

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

EXAMPLES = """\
examples:
  hakmem run -- redis-server --version     run a program on hakmem and prove it
  hakmem inspect 4242                      show the heap of a running process
  hakmem report 4242 -o heap.html          draw it as one page
  hakmem top                               watch all that use hakmem, live
  hakmem bench --quick                     measure it against other allocators
  hakmem tune -- python3 app.py            learn a profile, and prove that it is better
  hakmem options                           list what can be set
  hakmem doctor                            check this machine

NO_COLOR=1: no colours; FORCE_COLOR=1: colours where the output is no terminal, too.
`hakmem VERB --help` has more. Without this tool: LD_PRELOAD=/path/to/libhakmem.so program
"""


class Parser(argparse.ArgumentParser):
    """Ends with the status that belongs to the verb: `run` must not be mistaken for its program."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        status = EXIT_FAILURE if self.prog.split()[-1] == "run" else EXIT_USAGE
        self.exit(status, f"hakmem: {message}\n")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        # That of Python 3.11.7 and later is silent about an output that takes nothing.
        (sys.stderr if file is None else file).write(message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        sys.stdout.flush()
        super().exit(status, message)


COMMANDS = (
    run,
    inspect,
    report,
    record,
    diff,
    set_,
    top,
    export,
    serve_metrics,
    bench,
    soak,
    tune,
    options,
    doctor,
    version,
)


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="hakmem",
        description="hakmem: a malloc that is fast, lean and open to view.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"hakmem {find_project().version}")
    commands = parser.add_subparsers(metavar="VERB", required=True)
    for command in COMMANDS:
        command.add(commands)
    return parser


def main(arguments: Sequence[str]) -> int:
    """The exit status. All output is written, or said to be lost, when this returns."""
    streams.take_over()
    # Of numbers with very many digits whoever reads them says what is wrong.
    sys.set_int_max_str_digits(0)
    failure_status = EXIT_USAGE
    try:
        chosen, unknown = make_parser().parse_known_args(arguments)
        if unknown:
            chosen.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        failure_status = int(chosen.failure_status)
        status: int = chosen.run(chosen)
        sys.stdout.flush()
    except ModuleNotFoundError as error:
        # `pip install --no-deps` leaves the verbs that need no packages.
        if find_project().is_tree:
            raise
        sys.stderr.write(
            f"hakmem: {error.name} cannot be imported: the command was installed without the "
            "Python packages that this verb needs\n"
        )
        return failure_status
    except HakmemError as error:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        sys.stderr.write(f"hakmem: {error}\n")
        return error.status
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        sys.stderr.write(f"hakmem: {where}{error.strerror}\n")
        return failure_status
    return status
