"""`hakmem bench profiles`: each installed profile against the default, on its program's inputs.

The measurement is that of `hakmem tune --check`: interleaved pairs (tools/hakmem/tune/trial.py).
"""

from __future__ import annotations

import argparse
import datetime
import os
import shlex
import statistics
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hakmem.errors import HakmemError
from hakmem.options import read_options
from hakmem.project import find_project
from hakmem.render import size
from hakmem.tune import execution, profile_file, report, trial
from hakmem.tune.format import read_format
from hakmem.tune.profile_file import Profile
from hakmem.tune.proposal import Goal

from . import cases, identity, machine, peers
from .cases import RealProgram
from .errors import BenchError
from .figures import Ratio, interval_words, paired_ratio
from .layout import TOP, display
from .peers import Allocator
from .report import markdown
from .session import say
from .store import MANIFEST, Store, fresh_folder, read_manifest, read_rows

KIND = "profiles"
FOLDER = TOP / "profiles"
TABLE = FOLDER / "programs.toml"
DOCUMENT = TOP / "docs" / "PROFILES.md"
BEGIN, END = "<!-- bench profiles: begin -->\n", "<!-- bench profiles: end -->\n"
# So much less is what a profile is for; docs/PROFILES.md counts the programs that reach it.
LEANER_MOST, FASTER_MOST = 0.90, 0.95
LEANER, FASTER = "10 % leaner", "5 % faster"
TIMEOUT_S = 300.0

Row = dict[str, Any]


@dataclass(frozen=True)
class Input:
    """What a program is run on. `used`: its profile was made with it."""

    profile: str
    about: str
    command: tuple[str, ...]
    used: bool


@dataclass(frozen=True)
class Target:
    """A profile, the program that it is for, and its inputs."""

    name: str
    program: RealProgram
    inputs: tuple[Input, ...]
    file: Path


def targets(table: Path = TABLE) -> dict[str, Target]:
    """All of the table, whether their profiles exist or not."""
    programs = {case.name: case.real for case in cases.real() if case.real is not None}
    found = {}
    for name, entry in tomllib.loads(table.read_text()).items():
        inputs = tuple(
            Input(
                name,
                each["about"],
                tuple(shlex.split(each.get("command", entry["learn"]))),
                each.get("used", False),
            )
            for each in entry["input"]
        )
        file = table.parent / f"{name}.profile"
        found[name] = Target(name, programs[name], inputs, file)
    return found


def choose(names: Sequence[str], table: Path = TABLE) -> list[Target]:
    """Those that were named, or all whose profile and program are installed."""
    known = targets(table)
    for name in names:
        if name not in known:
            raise BenchError(f"no profile '{name}' in {display(table)}; known: {', '.join(known)}")
        if not known[name].file.is_file():
            raise BenchError(f"{display(known[name].file)} is not there (profiles/learn.py {name})")
    chosen = [known[name] for name in names] or [
        each for each in known.values() if each.file.is_file()
    ]
    for each in chosen:
        if not each.program.installed:
            packages = " ".join(each.program.packages)
            say(f"left out: {each.name}: Debian packages {packages} (./hakmem bench setup)")
    return [each for each in chosen if each.program.installed]


def key(row: Mapping[str, Any]) -> tuple[str, str]:
    """What a row was measured on."""
    return str(row["profile"]), str(row["input"])


def _ratio(row: Row, value: str) -> Ratio:
    own, default = ([float(run[value]) for run in row[side]] for side in ("ours", "default"))
    return paired_ratio(own, default)


def comparison(row: Row) -> trial.Comparison:
    """The figures of a row, from its raw runs."""
    return trial.Comparison(_ratio(row, "peak_rss_bytes"), _ratio(row, f"{row['metric']}_s"),
                            (), ())  # fmt: skip


def verdict(found: trial.Comparison) -> str:
    """The larger gains are named, at equal time or memory; of the others only that there is one."""
    if trial.is_worse(found):
        return "worse"
    equal_rss, equal_time = trial.not_worse(found.rss), trial.not_worse(found.time)
    if trial.improved(found.rss) and found.rss.median <= LEANER_MOST and equal_time:
        return LEANER
    if trial.improved(found.time) and found.time.median <= FASTER_MOST and equal_rss:
        return FASTER
    if trial.is_better(found, Goal.BALANCED):
        return "better"
    return "equal" if equal_rss and equal_time else "unclear"


def confirmed(rows: Sequence[Row]) -> list[str]:
    """The profiles whose large gain some input shows that they were not made with."""
    return [
        name
        for name in dict.fromkeys(str(row["profile"]) for row in rows)
        if any(
            verdict(comparison(row)) in (LEANER, FASTER)
            for row in rows
            if row["profile"] == name and not row["used"]
        )
    ]


def text(rows: Sequence[Row], manifest: Mapping[str, Any]) -> str:
    """The table, and what it was measured with."""
    lines = []
    ratios: list[Ratio] = []
    for row in rows:
        found = comparison(row)
        ratios += [found.rss, found.time]
        usual = statistics.median(run["peak_rss_bytes"] for run in row["default"])
        lines.append([
            f"`{row['profile']}`", row["input"], "yes" if row["used"] else "no",
            size(round(usual)), report.interval(found.rss), report.interval(found.time),
            str(found.rss.pairs), verdict(found),
        ])  # fmt: skip
    metrics = {row["metric"] for row in rows}
    time = report.METRICS[metrics.pop()] if len(metrics) == 1 else "time"
    names = list(dict.fromkeys(str(row["profile"]) for row in rows))
    good = confirmed(rows)
    header = ["profile", "input", "made with it", "default", "peak RSS", time, "pairs",
              "verdict"]  # fmt: skip
    return (
        f"Peak RSS of the default, and what the profile changes, in interleaved pairs: median and "
        f"{interval_words(ratios)}; {manifest['cpu']}, "
        f"{manifest['cpus']} CPUs, {str(manifest['at'])[:10]}, library "
        f"{str(manifest['library']['build_id'])[:12]}. {LEANER}, {FASTER}: by that much at least, "
        f"and no worse in the other.\n\n"
        + markdown.table(header, lines, text_columns=3)
        + f"\nOn an input that they were not made with, {len(good)} of {len(names)} programs are "
        f"{LEANER} or {FASTER}{': ' if good else ''}{', '.join(good)}.\n"
    )


def in_order(rows: Sequence[Row], table: Path = TABLE) -> list[Row]:
    """As the table of programs has them, what it no longer has last."""
    known = [each for target in targets(table).values() for each in target.inputs]
    places = {(each.profile, each.about): place for place, each in enumerate(known)}
    return sorted(rows, key=lambda row: places.get(key(row), len(places)))


def write(content: str, document: Path = DOCUMENT) -> None:
    """Puts the table between the marks of the document."""
    before, begin, rest = document.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError(f"{display(document)} has no marks {BEGIN.strip()} and {END.strip()}")
    document.write_text(f"{before}{begin}{content}{end}{after}")


class Session:
    """Measures what its folder does not hold yet: a measurement can be made in pieces."""

    def __init__(self, options: argparse.Namespace, command: str, table: Path = TABLE) -> None:
        self.options = options
        self.command = command
        self.library: Allocator = peers.known()["hakmem"]
        self.table = table
        self.chosen = choose(options.names, table)
        self.folder: Path = (options.output or fresh_folder(KIND)).absolute()
        self.manifest: dict[str, Any] = {
            "kind": KIND, "command": command, **machine.describe(),
            "library": identity.identity(self.library),
        }  # fmt: skip

    def store(self) -> Store:
        """The folder, new or begun with the same library."""
        if not (self.folder / MANIFEST).exists():
            store = Store(self.folder, KIND)
            store.manifest(self.manifest)
            return store
        begun = read_manifest(self.folder)
        if begun.get("library") != self.manifest["library"]:
            raise BenchError(f"{self.folder} holds results of something else; name a new folder")
        self.manifest = begun
        return Store(self.folder, KIND, begun=True)

    def missing(self) -> Iterator[tuple[Target, Input]]:
        """What was chosen and not measured yet."""
        measured = {key(row) for row in read_rows(self.folder)}
        for target in self.chosen:
            for each in target.inputs:
                if (each.profile, each.about) not in measured:
                    yield target, each

    def measure(self, target: Target, each: Input) -> Row:
        """The pairs of one input."""
        profile = read_profile(target.file)
        command = execution.prepare(each.command, self.library.library)
        row: Row = {
            "profile": each.profile, "input": each.about, "used": each.used,
            "command": shlex.join(each.command), "metric": self.options.metric,
            "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "load_average": machine.load(),
            "packages": {name: identity.package_version(name) for name in target.program.packages},
        }  # fmt: skip
        with trial.runner(command, TIMEOUT_S) as once:
            once(Profile())  # the first run of a program finds cold files
            once(profile)
            found = trial.compare(once, profile, self.options.runs, self.options.metric)
        return {
            **row, "ours": report.runs_json(found.ours), "default": report.runs_json(found.default),
        }  # fmt: skip

    def run(self) -> int:
        """Everything; returns the exit status."""
        store = self.store()
        failed = 0
        for target, each in self.missing():
            try:
                row = self.measure(target, each)
            except HakmemError as error:
                say(f"FAILED {each.profile} on {each.about}: {error}")
                failed += 1
                continue
            store.row(row)
            found = comparison(row)
            gains = f"peak RSS {report.interval(found.rss)}, time {report.interval(found.time)}"
            say(f"{each.profile} on {each.about}: {gains}: {verdict(found)}")
        rows = in_order(read_rows(self.folder), self.table)
        if not rows:
            raise BenchError("no profile was measured")
        content = text(rows, self.manifest)
        store.text("table.md", f"    {self.command}\n\n{content}")
        print(content)
        if self.options.write:
            source = f"Rows: `{display(self.folder)}`.\n"
            write(f"{content}{source}")
        worse = any(verdict(comparison(row)) == "worse" for row in rows)
        return 1 if failed or worse else 0


def read_profile(file: Path) -> Profile:
    """The profile, by the library's own limits."""
    project = find_project()
    return profile_file.read(file, read_options(project.options_table), read_format(project))


def main(options: argparse.Namespace, command: str) -> int:
    """Measures what is missing, and shows all; returns the exit status."""
    session = Session(options, command)
    os.chdir(TOP)  # the commands of programs.toml name files of the repository
    return session.run()
