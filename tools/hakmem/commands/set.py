"""hakmem set: switches research mode and events of a running process, and makes it purge."""

from __future__ import annotations

import argparse
import json
import sys

from hakmem.environment import enter
from hakmem.errors import EXIT_USAGE, UsageError
from hakmem.project import find_project

EXAMPLES = """\
examples:
  hakmem set 4242 research=on       count and time every operation; `hakmem inspect` shows it
  hakmem set 4242 research=off
  hakmem set 4242 events=on         note refills, flushes and large blocks as well
  hakmem set 4242 purge=now         give back what can be given back
  hakmem set 4242                   only say what is wanted now

A thread follows when it next takes a slow path: one that sleeps, when it wakes up.
Exit status: 0 done (a purge that no thread has begun yet is said), 2 it could not be set.
"""
SCHEMA = "hakmem.set/1"
WORDS = {"research": ("on", "off"), "events": ("on", "off"), "purge": ("now",)}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "set",
        help="switch research mode or events of a running process, or make it purge",
        description="Writes wishes into the inspect root of a process of the same user.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("pid", metavar="PID", type=int, help="a process that uses hakmem")
    parser.add_argument(
        "wishes", metavar="NAME=VALUE", nargs="*", help="research=on|off, events=on|off, purge=now"
    )
    parser.add_argument(
        "--wait", type=float, default=1.0, metavar="SECONDS", help="for a purge; 1 if not given"
    )
    parser.add_argument("--json", action="store_true", help="the state afterwards as JSON")
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)


def parse(wishes: list[str]) -> dict[str, str]:
    """The wishes by name, all of them valid; UsageError otherwise."""
    parsed: dict[str, str] = {}
    for wish in wishes:
        name, _, value = wish.partition("=")
        if value not in WORDS.get(name, ()):
            known = ", ".join(f"{name}={'|'.join(words)}" for name, words in WORDS.items())
            raise UsageError(f"{wish!r} cannot be set; what can be: {known}")
        parsed[name] = value
    return parsed


def run(options: argparse.Namespace) -> int:
    wishes = parse(options.wishes)
    enter(find_project())
    from hakmem.inspect.control import Control
    from hakmem.inspect.process import ProcessSource
    from hakmem.inspect.reading import Session

    source = ProcessSource(options.pid)
    with Session(source) as session:
        control = Control(source, session.layout)
        purged = None
        for name, value in wishes.items():
            if name == "purge":
                purged = control.purge(options.wait)
            else:
                control.switch(name, value == "on")
        state = control.state()
    if options.json:
        facts = {"schema": SCHEMA, "pid": options.pid, "purged": purged, **vars(state)}
        sys.stdout.write(json.dumps(facts) + "\n")
        return 0
    switches = f"research {_word(state.research)}, events {_word(state.events)}"
    sys.stdout.write(f"process {options.pid}: {switches}\n")
    if purged is not None:
        done = "purged" if purged else "the next thread that takes a slow path will purge"
        sys.stdout.write(f"process {options.pid}: {done}\n")
    return 0


def _word(is_on: bool) -> str:
    return "on" if is_on else "off"
