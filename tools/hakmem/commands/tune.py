"""hakmem tune -- PROGRAM ARGS: find a profile that makes a program leaner or faster, and prove
it."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hakmem import render
from hakmem.build import ensure_library
from hakmem.environment import enter
from hakmem.errors import EXIT_USAGE, HakmemError, UsageError
from hakmem.interruption import like_ctrl_c
from hakmem.output import write_whole
from hakmem.project import Project, find_project, require_tree
from hakmem.report.durations import seconds

if TYPE_CHECKING:
    from hakmem.tune.execution import Command
    from hakmem.tune.profile_file import Profile
    from hakmem.tune.session import Plan

EXIT_WORSE = 1
EXIT_NOT_BETTER = 3
GOALS = ("time", "memory", "balanced")
EXAMPLES = """\
examples:
  hakmem tune --goal memory --output app.profile -- python3 app.py
  hakmem tune --runs 21 --metric wall -- sh -c './serve & load; kill $!; wait $!; true'
  hakmem tune --check app.profile -- python3 app.py other-input
  hakmem tune --pid 4242 --for 60s --output server.profile   a proposal, without a restart
  HAKMEM_PROFILE=./app.profile hakmem run -- python3 app.py

The program is run again and again, with nothing on its standard input; what it writes is dropped.
It is recorded once in research mode, then changes that may help are tried one by one, and what
seemed to help is measured against the default in fresh interleaved pairs. The profile is written
only when the interval of these pairs, of 93.8 % and more, says that it is better.

Exit status: 0 a profile was written (with --check: it is better), 1 it is worse (--check), 2 the
program cannot be tuned or the usage is wrong, 3 no profile was found that is better.
"""


# The interval of five pairs covers 93.8 %, that of four 87.5: four are all better by chance alone
# once in 16 times.
PAIRS_LEAST = 5
PAIRS_MOST = 1000


def _pairs(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and PAIRS_LEAST <= int(text) <= PAIRS_MOST):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of pairs from {PAIRS_LEAST} to {PAIRS_MOST}"
        )
    return int(text)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "tune",
        help="learn a profile for a program, and prove that it is better",
        description="Records a program, fits knobs and size classes to it, measures them against "
        "the default in interleaved pairs, and writes a profile for HAKMEM_PROFILE if it is "
        "better.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--runs", metavar="N", type=_pairs, default=11, help="pairs that decide (11)"
    )
    parser.add_argument(
        "--goal",
        choices=GOALS,
        default="balanced",
        help="what is to become less: time, memory (peak RSS), or either (balanced, the default)",
    )
    parser.add_argument(
        "--metric",
        choices=("cpu", "wall"),
        default="cpu",
        help="which time: the processors' (the default), or from start to end",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=Path,
        help="the profile; standard output without it",
    )
    parser.add_argument(
        "--any-build",
        action="store_true",
        help="leave the program's build id out of the profile: it is for every build",
    )
    parser.add_argument(
        "--timeout", metavar="TIME", type=seconds, default=300.0, help="of one run (5m)"
    )
    parser.add_argument(
        "--check",
        metavar="FILE",
        type=Path,
        help="learn nothing: measure this profile against the default, on input it was not "
        "learned from, for instance",
    )
    parser.add_argument("--pid", metavar="PID", help="look at a running process instead")
    parser.add_argument(
        "--for",
        metavar="TIME",
        type=seconds,
        default=60.0,
        dest="for_s",
        help="with --pid: how long (60s)",
    )
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    parser.add_argument("--library", metavar="FILE", type=Path, help="use this libhakmem.so")
    parser.add_argument("program", metavar="PROGRAM", nargs="?")
    parser.add_argument("arguments", metavar="ARGS", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)


def _require_sense(options: argparse.Namespace) -> None:
    if (options.pid is None) == (options.program is None):
        raise UsageError("name a program to run, or a process with --pid; not both")
    if options.pid is not None and not (options.pid.isascii() and options.pid.isdecimal()):
        raise UsageError(f"--pid {options.pid!r} is no process")
    if options.check is not None and (options.pid is not None or options.output is not None):
        raise UsageError(
            "--check measures a profile that exists: it takes no --pid and no --output"
        )
    if options.output is not None and not options.output.absolute().parent.is_dir():
        raise UsageError(f"{options.output}: there is no directory {options.output.parent}")
    if options.output is not None:
        _require_writable(options.output)


def _require_writable(output: Path) -> None:
    """Before hours of measuring. What is not there yet is made in its directory."""
    if output.is_dir():
        raise UsageError(f"{output}: is a directory")
    try:
        if output.is_file():
            os.close(os.open(output, os.O_WRONLY | os.O_CLOEXEC))
        elif not output.exists():
            tempfile.TemporaryFile(dir=output.absolute().parent).close()
    except OSError as error:
        raise UsageError(f"{output}: {error.strerror}") from None


def run(options: argparse.Namespace) -> int:
    project = find_project()
    require_tree(project, "tune")
    enter(project)
    sys.path.insert(0, str(project.root / "bench"))

    _require_sense(options)
    try:
        with like_ctrl_c():
            if options.pid is not None:
                return _propose(options)
            if options.check is not None:
                return _check(options, project)
            return _tune(options, project)
    except HakmemError as error:
        # The statuses of `run` would be mistaken for the program's own.
        raise UsageError(str(error)) from None
    except KeyboardInterrupt:
        raise UsageError("interrupted; nothing was written") from None


def _write(profile: Profile, options: argparse.Namespace) -> Path | None:
    """To the file, or to standard output unless JSON goes there; None when it is in no file."""
    from hakmem.tune import session
    from hakmem.tune.profile_file import render

    output: Path | None = options.output
    if output is not None:
        try:
            write_whole(output, render(profile).encode())
            return output
        except OSError as error:
            # What was measured is not lost.
            session.say(f"{output}: {error.strerror}; the profile is on standard output")
    if not options.json:
        sys.stdout.write(render(profile))
    return None


def _command(options: argparse.Namespace, project: Project) -> Command:
    from hakmem.tune import execution

    library = options.library if options.library is not None else ensure_library(project)
    if not library.is_file():
        raise UsageError(f"there is no library {library}")
    return execution.prepare([options.program, *options.arguments], library)


def _plan(options: argparse.Namespace) -> Plan:
    from hakmem.tune.proposal import Goal
    from hakmem.tune.session import Plan

    return Plan(
        goal=Goal(options.goal),
        pairs=options.runs,
        metric=options.metric,
        timeout_s=options.timeout,
        any_build=options.any_build,
    )


def _check(options: argparse.Namespace, project: Project) -> int:
    from hakmem.options import read_options
    from hakmem.tune import profile_file, report, session, trial
    from hakmem.tune.format import read_format

    table = read_options(project.options_table)
    profile = profile_file.read(options.check, table, read_format(project))
    if profile.is_empty:
        raise UsageError(f"{options.check}: changes nothing")
    plan = _plan(options)
    found = session.check(_command(options, project), profile, plan)
    better, worse = trial.is_better(found, plan.goal), trial.is_worse(found)
    if options.json:
        facts = report.check_json(found, plan.goal, plan.metric, better=better, worse=worse)
        sys.stdout.write(render.json_text(facts))
    verdict = "better" if better else "worse" if worse else "neither better nor worse"
    session.say(f"{options.check} is {verdict} than the default for the goal {plan.goal.value}")
    return 0 if better else EXIT_WORSE if worse else EXIT_NOT_BETTER


def _tune(options: argparse.Namespace, project: Project) -> int:
    from hakmem.tune import report, session

    words = [options.program, *options.arguments]
    plan = _plan(options)
    outcome = session.tune(_command(options, project), plan)
    profile, written = outcome.profile, None
    if outcome.is_better and outcome.comparison is not None:
        about = report.measured_about(
            outcome.recording, outcome.comparison, words, plan.goal, plan.metric
        )
        profile = profile.with_about(about)
        written = _write(profile, options)
    if options.json:
        facts = report.as_json(
            outcome.recording, plan.goal, plan.metric,
            proposed=outcome.proposed, profile=profile, written=written,
            screened=outcome.screened, comparison=outcome.comparison, better=outcome.is_better,
        )  # fmt: skip
        sys.stdout.write(render.json_text(facts))
    if not outcome.is_better:
        why = "nothing that was tried helped"
        if outcome.comparison is not None:
            why = f"not proved better: {report.gain_text(outcome.comparison, plan.metric)}"
        session.say(f"no profile is written: {why}")
        return EXIT_NOT_BETTER
    session.say(f"better: the profile is {written if written is not None else 'written'}")
    return _status(options, written)


def _status(options: argparse.Namespace, written: Path | None) -> int:
    return 0 if written == options.output else EXIT_USAGE


def _propose(options: argparse.Namespace) -> int:
    from hakmem.report.recording import Stop
    from hakmem.tune import report, session
    from hakmem.tune.proposal import Goal, compose, unmeasured
    from hakmem.tune.recorder import record_process

    goal = Goal(options.goal)
    session.say(f"recording process {options.pid} for {options.for_s:g} s; Ctrl-C ends it earlier")
    stop = Stop()
    with stop.listening():
        recording = record_process(int(options.pid), options.for_s, stop.wait)
    session.say(report.describe(recording))
    proposed = unmeasured(recording, goal)
    identity = "" if options.any_build else recording.build_id
    profile = compose(proposed, build_id=identity, version=recording.version)
    written = None
    if proposed:
        profile = profile.with_about(report.unmeasured_about(recording, goal))
        written = _write(profile, options)
    if options.json:
        facts = report.as_json(
            recording, goal, options.metric, proposed=proposed, profile=profile, written=written
        )
        sys.stdout.write(render.json_text(facts))
    if not proposed:
        session.say("the recording speaks for no change; no profile is written")
        return EXIT_NOT_BETTER
    session.say(
        "proposed, NOT measured: compare a run with this profile and one without, or run "
        "`hakmem tune -- PROGRAM`"
    )
    return _status(options, written)
