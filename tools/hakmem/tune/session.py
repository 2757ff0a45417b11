"""The whole of a tuning: recording, screening, proof. What is said on the way goes to standard
error."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from hakmem.tune import report, trial
from hakmem.tune.execution import Command, Run
from hakmem.tune.profile_file import Profile
from hakmem.tune.proposal import Change, Goal, changes, compose
from hakmem.tune.recorder import build_id, record_command
from hakmem.tune.recording import Recording
from hakmem.tune.trial import Comparison, Screened

# How much longer a recorded run takes than another, about.
RECORDING_TIMES = 8


@dataclass(frozen=True)
class Plan:
    """What is asked for. `pairs`: of the proof; `timeout_s`: of one run; `any_build`: the profile
    is to serve every build of the program."""

    goal: Goal
    pairs: int
    metric: str
    timeout_s: float
    any_build: bool


@dataclass
class Outcome:
    """`comparison` is None when there was nothing to prove; `profile` is what was proved or failed
    to be."""

    recording: Recording
    proposed: Sequence[Change]
    screened: list[Screened] = field(default_factory=list)
    comparison: Comparison | None = None
    profile: Profile = field(default_factory=Profile)
    is_better: bool = False


class Progress:
    """One line that is written over, where somebody looks, until something is said. `least`: how
    many runs there will be; what is measured decides on more. 0: nothing is told."""

    is_open = False

    def __init__(self, least: int) -> None:
        self.least = least
        self.done = 0

    def step(self) -> None:
        self.done += 1
        if self.least and sys.stderr.isatty():
            of = f" of at least {self.least}" if self.done <= self.least else " " * 20
            sys.stderr.write(f"\r{self.done} runs{of}")
            sys.stderr.flush()
            Progress.is_open = True


def say(text: str) -> None:
    """A line for people: standard output is for the profile."""
    begin = "\n" if Progress.is_open else ""
    Progress.is_open = False
    sys.stderr.write(f"{begin}hakmem tune: {text}\n")
    sys.stderr.flush()


def _announce(seconds: float, runs: tuple[int, int], tried: Sequence[Change], plan: Plan) -> None:
    least, most = seconds * (runs[0] + 2 * plan.pairs), seconds * (runs[1] + 4 * plan.pairs)
    say(
        f"{len(tried)} changes to try in {runs[0]} to {runs[1]} runs, then {plan.pairs} pairs, at "
        f"most twice: {least:.0f} to {most:.0f} s, at {seconds:.1f} s a run"
    )


def tune(command: Command, plan: Plan) -> Outcome:
    """Records, proposes, and measures; RunFailedError when the program cannot be run."""
    began = time.monotonic()
    progress = Progress(0)
    with trial.runner(command, plan.timeout_s, lambda: progress.step()) as once:
        once(Profile())  # the first run of a program finds cold files
        seconds = once(Profile()).wall_s
        say(f"recording, about {RECORDING_TIMES * seconds:.0f} s")
        recording, done = record_command(command, plan.timeout_s * RECORDING_TIMES)
        judged = partial(once, exe=_program_of(recording.build_id, done))
        say(report.describe(recording))
        identity = "" if plan.any_build else recording.build_id
        tried = changes(recording, plan.goal)
        outcome = Outcome(recording, tried)
        runs = 2 * trial.SCREEN_PAIRS * len(tried)
        most = runs + 2 * trial.SCREEN_PAIRS_MORE * len(tried)
        _announce(seconds, (runs, most), tried, plan)
        progress = Progress(runs)
        outcome.screened = trial.screen(
            judged, tried, plan.goal, plan.metric, identity, recording.version
        )
        for each in outcome.screened:
            say(report.screened_text(each, plan.metric))
        _prove(outcome, judged, plan, identity)
    say(f"done in {time.monotonic() - began:.0f} s")
    return outcome


def check(command: Command, profile: Profile, plan: Plan) -> Comparison:
    """Measures a profile that exists against the default, without learning anything."""
    progress = Progress(2 * plan.pairs + 2)
    with trial.runner(command, plan.timeout_s, progress.step) as once:
        judged = partial(once, exe=_program_of(profile.build_id, once(Profile())))
        judged(profile)
        found = trial.compare(judged, profile, plan.pairs, plan.metric)
    say(report.gain_text(found, plan.metric))
    return found


def _program_of(wanted: str, done: Run) -> str:
    """The program of a run that has this build id, by the name that reports have for it; empty
    where none is known to have it, and all processes are judged."""
    found = (each.exe for each in done.reports if wanted and build_id(each.exe) == wanted)
    return next(found, "")


def _without_costliest(found: Sequence[Screened]) -> list[Screened]:
    """What is left when the change that cost most time goes."""
    worst = max(found, key=lambda each: each.time)
    return [each for each in found if each is not worst]


def _prove(outcome: Outcome, once: trial.Runner, plan: Plan, identity: str) -> None:
    """Fresh runs, so that what looked best by chance does not count as better. When it costs time,
    once more without what cost most."""
    kept = [each for each in outcome.screened if each.kept]
    for _ in range(2):
        if not kept:
            return
        told = report.reasons(kept, plan.metric)
        outcome.profile = compose(
            [each.change for each in kept],
            told,
            build_id=identity,
            version=outcome.recording.version,
        )
        outcome.comparison = trial.compare(once, outcome.profile, plan.pairs, plan.metric)
        say(report.gain_text(outcome.comparison, plan.metric))
        outcome.is_better = trial.is_better(outcome.comparison, plan.goal)
        if outcome.is_better or trial.not_worse(outcome.comparison.time):
            return
        kept = _without_costliest(kept)
