"""hakmem set: changes options of a running process, asks it for events or for a purge."""

from __future__ import annotations

import argparse
import sys

from hakmem import render
from hakmem.environment import enter
from hakmem.errors import EXIT_USAGE, UsageError
from hakmem.options import BOOL_WORDS, OptionTable, read_options
from hakmem.project import find_project

EXAMPLES = """\
examples:
  hakmem set 4242 research=on            count and time every operation; `hakmem inspect` shows it
  hakmem set 4242 events=on              note refills, flushes and large blocks as well
  hakmem set 4242 purge=now              give back what can be given back
  hakmem set 4242 purge_delay_ms=100     any option that `hakmem options` calls live

A thread follows when it next takes a slow path: one that sleeps, when it wakes up.
What leaks and stats_at_exit tell at the end goes to what its descriptor 2 is when they are set.
Exit status: 0 done (a purge that no thread has begun yet is said), 2 it could not be set.
"""
SCHEMA = "hakmem.set/1"
EVENTS, PURGE, NOW = "events", "purge", "now"
WAIT_MAX_S = 3600.0
AT_ITS_START = "goes to what its descriptor 2 was when it started"
CLOSED = "goes nowhere: its descriptor 2 is closed"


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "set",
        help="change options of a running process, or make it purge",
        description="Changes LIVE options of a process of the same user, among them research; asks "
        "it for more events, or for a purge.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pid", metavar="PID", type=int, help="a process that uses hakmem")
    parser.add_argument(
        "wishes", metavar="NAME=VALUE", nargs="+", help="an option, events=on|off, or purge=now"
    )
    parser.add_argument(
        "--wait",
        type=_wait_seconds,
        default=1.0,
        metavar="SECONDS",
        help=f"for a purge, up to {WAIT_MAX_S:.0f}; 1 if not given",
    )
    parser.add_argument("--json", action="store_true", help="what was set as JSON")
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)


def _wait_seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= WAIT_MAX_S:
        raise argparse.ArgumentTypeError(f"{text!r} is not from 0 to {WAIT_MAX_S:.0f} seconds")
    return value


def parse(wishes: list[str], table: OptionTable) -> dict[str, int]:
    """The numbers by name, all of them valid; UsageError otherwise."""
    parsed: dict[str, int] = {}
    for wish in wishes:
        name, equals, value = wish.partition("=")
        if not name or not equals:
            raise UsageError(f"{wish!r}: write it as NAME=VALUE")
        name = name.lower().removeprefix("hakmem_")
        if name == PURGE and value == NOW:
            parsed[name] = 1
        elif name == EVENTS and value.lower() in BOOL_WORDS:
            parsed[name] = BOOL_WORDS[value.lower()]
        elif name in (PURGE, EVENTS):
            raise UsageError(f"{wish!r}: what can be set is purge=now, events=on, events=off")
        else:
            own, number = _option(name, value, table)
            parsed[own] = number
    return parsed


def _option(name: str, value: str, table: OptionTable) -> tuple[str, int]:
    """The option's own name, which the process knows it by, and the number."""
    option = table.find(name)
    if option is None:
        raise UsageError(f"there is no option {name}; beside options, events and purge can be set")
    if not option.live or option.type == "STRING":
        raise UsageError(f"{name} is only read when a program starts ({option.environment})")
    number = option.number_of(value)
    if number is None:
        raise UsageError(f"{name}: {value!r} {option.problem(value)}")
    return option.name, number


def run(options: argparse.Namespace) -> int:
    project = find_project()
    wishes = parse(options.wishes, read_options(project.options_table))
    enter(project)
    from hakmem.inspect.control import TELLING, Control
    from hakmem.inspect.errors import plain
    from hakmem.inspect.process import ProcessSource
    from hakmem.inspect.reading import Session

    source = ProcessSource(options.pid)
    purged, output, where = None, None, None
    with Session(source) as session:
        control = Control(source, session.layout)
        for name in wishes:
            if name not in (PURGE, EVENTS):
                control.place_of(name)  # all of them, or nothing is set
        if any(wishes.get(name) for name in TELLING):
            where = AT_ITS_START
            kept = control.tells_elsewhere()
            told = control.tell_output()
            if not kept:
                output = told
                where = CLOSED if told is None else f"goes to its descriptor 2, {plain(told)}"
        for name, number in wishes.items():
            if name == PURGE:
                purged = control.purge(options.wait)
            elif name == EVENTS:
                control.ask_events(bool(number))
            else:
                control.set_option(name, number)
    changed = {name: number for name, number in wishes.items() if name != PURGE}
    if options.json:
        facts = {
            "schema": SCHEMA,
            "pid": options.pid,
            "set": changed,
            "purged": purged,
            "output": output,
        }
        sys.stdout.write(render.json_text(facts, indent=None))
        return 0
    for name, number in changed.items():
        sys.stdout.write(f"process {options.pid}: {name} {number}\n")
    if where is not None:
        sys.stdout.write(f"process {options.pid}: what it tells at its end {where}\n")
    if purged is not None:
        done = "purged" if purged else "the next thread that takes a slow path will purge"
        sys.stdout.write(f"process {options.pid}: {done}\n")
    return 0
