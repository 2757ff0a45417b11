"""One run of the matrix: warm-up, interleaved blocks, separate counting runs, tables."""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from . import counts, host_memory, identity, machine, measure, peers, store, strace, workshop
from .cases import Case, choose
from .environment import CLEAN_ENVIRONMENT, TIMEOUT_SECONDS
from .errors import BenchError, MeasureError, RefusedError
from .layout import PROGRAMS, display
from .measure import Row
from .peers import Allocator
from .progress import Progress

# What ratios are against where nothing else is asked for.
BASELINE = "glibc"
WARM_UP_SHARE = 0.02
Pair = tuple[str, str]
# What hakmem says of a setting that it does not take (option_sources.c and option_profile.c).
NOT_TAKEN = re.compile(
    r"^hakmem: (?:option|profile) .*(?:, ignored|, kept .*|; the default is used)$", re.MULTILINE
)


@dataclass(frozen=True)
class Plan:
    """What a session is to do."""

    kind: str
    command: str
    workloads: list[str] | None = None
    allocators: list[str] | None = None
    own: list[str] = field(default_factory=list)
    quick: bool = False
    blocks: int = 5
    scale: float = 1.0
    seed: int = 1
    cpu: int | None = None
    baseline: str | None = None
    metric: str = "wall"
    counting: bool = True
    instructions: bool = False
    output: Path | None = None
    programs: Path | None = None


def say(text: str) -> None:
    """A line for people; standard output is for results."""
    print(text, file=sys.stderr, flush=True)


def usable_cases(chosen: list[Case]) -> list[Case]:
    """Without the real programs whose packages are missing, each said."""
    usable = []
    for case in chosen:
        if case.real is None or case.real.installed:
            usable.append(case)
        else:
            names = " ".join(case.real.packages)
            say(f"left out: {case.name}: Debian packages {names} (./hakmem bench setup)")
    return usable


def usable_allocators(plan: Plan) -> list[Allocator]:
    """Those that are there; the others are named, with how to get them."""
    chosen, missing = peers.choose(plan.allocators, plan.own, quick=plan.quick)
    for allocator in missing:
        say(f"left out: {peers.missing_text(allocator)}")
    for allocator in chosen:
        require_settings(allocator)
    return chosen


def libraries_unchanged(
    allocators: Iterable[Allocator], identities: Mapping[str, Mapping[str, object]]
) -> bool:
    """A library that was built anew during the run, which is said, is two libraries in one row."""
    changed = identity.changed(allocators, identities)
    for name in changed:
        say(f"FAILED {name}: its library changed during the run")
    return not changed


def require_settings(allocator: Allocator) -> None:
    """BenchError where hakmem does not take a setting: the row would be named after it and be the
    default's. Asked in the root directory, since real programs run in directories of their own."""
    if not allocator.environment:
        return
    done = subprocess.run(
        ["/bin/true"], env={**CLEAN_ENVIRONMENT, **allocator.settings()}, cwd="/",
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False,
        timeout=TIMEOUT_SECONDS,
    )  # fmt: skip
    told = NOT_TAKEN.search(done.stderr)
    if told is not None:
        raise BenchError(f"{allocator.name}: {told[0]}")


def require_baseline(chosen: str | None, measured: Iterable[str]) -> None:
    """BenchError for one that was asked for by name and is not measured."""
    names = list(measured)
    if chosen is not None and chosen not in names:
        raise BenchError(f"no baseline '{chosen}'; measured: {', '.join(names)}")


class Session:
    """Measures, keeps every row at once, and derives the tables at the end."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        # As it is before the work begins, which loads it and may see another commit.
        self.machine = machine.describe()
        self.folder = plan.programs or workshop.build(PROGRAMS)
        self.cases = usable_cases(choose(plan.workloads, quick=plan.quick))
        self.allocators = usable_allocators(plan)
        self.cases = [case for case in self.cases if self.allocators_of(case)]
        if not self.allocators or not self.cases:
            raise BenchError(f"no {'allocator' if self.cases else 'workload'} to measure")
        self.cpu = plan.cpu if plan.cpu is not None else max(os.sched_getaffinity(0))
        if self.cpu not in os.sched_getaffinity(0):
            raise BenchError(f"CPU {self.cpu} is not one of this process's")
        self.identities = {each.name: identity.identity(each) for each in self.allocators}
        require_baseline(plan.baseline, self.identities)
        if plan.counting:
            strace.require()
        self.store = store.Store(plan.output, plan.kind)
        self.lost: set[Pair] = set()
        self.unexpected = 0
        self.known_failures: dict[Pair, str] = {
            (case, each.name): why
            for each in self.allocators
            for case, why in each.known_failures.items()
        }
        self.checksums: dict[str, dict[str, str]] = {}
        self.peaks: dict[Pair, int] = {}
        # By case, of runs that are no rows: of the warm-up, and of those that are run once more.
        self.peaks_not_kept: dict[str, int] = {}
        # Of every run so far.
        self.memory_brought = True
        self.started = time.monotonic()
        self.progress = Progress("", {})

    def manifest(self, state: str) -> dict[str, object]:
        """What is needed to repeat the run and to judge it."""
        return {
            "kind": self.plan.kind,
            "state": state,
            "command": self.plan.command,
            **self.machine,
            "baseline": self.baseline,
            "metric": self.plan.metric,
            "blocks": self.plan.blocks,
            "scale": self.plan.scale,
            "order_seed": self.plan.seed,
            "pinned_cpu": self.cpu,
            "memory_brought": self.memory_brought,
            "environment": CLEAN_ENVIRONMENT,
            "seconds": round(time.monotonic() - self.started, 1),
            "workload_compiler": self.workload_compiler(),
            "witness_build_ids": {
                probe.name: identity.build_id(probe) for probe in self.folder.glob("lib*.so")
            },
            "cases": [
                {
                    "name": case.name,
                    "about": case.about,
                    "group": case.group,
                    "threads": case.threads,
                    "quick": case.quick,
                    "arguments": dict(case.arguments),
                    "packages": self.package_versions(case),
                }
                for case in self.cases
            ],
            "allocators": self.identities,
        }

    @property
    def baseline(self) -> str:
        """The allocator that ratios are against: the chosen one, else BASELINE, and the first when
        that is not measured."""
        names = list(self.identities)
        wanted = self.plan.baseline or BASELINE
        return wanted if wanted in names else names[0]

    def workload_compiler(self) -> str:
        """The compiler of the first workload; all are built together."""
        program = next((case.program for case in self.cases if case.program), "")
        return identity.compiler(self.folder / program) if program else ""

    @staticmethod
    def package_versions(case: Case) -> dict[str, str]:
        """A real program's packages: another version is another workload."""
        names = case.real.packages if case.real is not None else ()
        return {name: identity.package_version(name) for name in names}

    def attempt(self, case: Case, allocator: Allocator, block: int) -> Row | None:
        """One proven row; or none, and then the pair is not run again."""
        head: Row = {
            "case": case.name,
            "group": case.group,
            "allocator": allocator.name,
            "block": block,
            "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            "load_average": machine.load(),
        }
        needed = self.bytes_to_bring(case)
        try:
            row = self.run_with(needed, case, allocator)
            peak_bytes = int(row["peak_rss_bytes"])
            known = self.peaks_not_kept.get(case.name, 0)
            self.peaks_not_kept[case.name] = max(known, peak_bytes)
            # It took more than was brought, and paid for that: once more, with as much.
            if peak_bytes > needed and self.bytes_to_bring(case) > needed:
                row = self.run_with(self.bytes_to_bring(case), case, allocator)
        except (RefusedError, MeasureError) as error:
            self.lose(head, error)
            return None
        return {**head, **row}

    def bytes_to_bring(self, case: Case) -> int:
        """For the most that any run of the case is known to take."""
        peaks = (bytes_ for (name, _), bytes_ in self.peaks.items() if name == case.name)
        return host_memory.bytes_for(max(self.peaks_not_kept.get(case.name, 0), *peaks, 0))

    def run_with(self, needed: int, case: Case, allocator: Allocator) -> Row:
        """One run that finds so much memory; errors as measure.run()."""
        if not host_memory.bring(needed):
            self.memory_brought = False
        return measure.run(
            case, allocator, self.folder, cpu=self.cpu, scale=case.scale(self.plan.scale)
        )

    def lose(self, head: Row, error: Exception) -> None:
        """Says and keeps why a pair has no row."""
        pair = (head["case"], head["allocator"])
        kind, why = "REFUSED", str(error)
        if not isinstance(error, RefusedError):
            kind = "FAILED"
            if pair in self.known_failures:
                why = f"{why} (known: {self.known_failures[pair]})"
        self.progress.say(f"{kind} {head['allocator']} on {head['case']}: {why}")
        self.lost.add(pair)
        if kind == "REFUSED" or pair not in self.known_failures:
            self.unexpected += 1
        self.store.row({**head, "kind": kind, "why": why}, file=store.REFUSED)

    def allocators_of(self, case: Case) -> list[Allocator]:
        """Those that the case runs on: the floor, which never frees, carries no real program."""
        return [each for each in self.allocators if case.real is None or each.kind != "floor"]

    def warm_up(self) -> None:
        """Brings every file into the page cache: each case once, each allocator once, briefly.

        Nothing is concluded from these runs but how much memory the first timed run of a case will
        need: cases whose working set is made of their operations run whole. What fails here fails
        in the first block as well.
        """
        for case in self.cases:
            measure.prepare(case, self.plan.scale)
        share = self.plan.scale * WARM_UP_SHARE
        first = self.cases[0]
        runs = [(case, self.allocators_of(case)[0], case.scale(share)) for case in self.cases]
        runs += [(first, each, share) for each in self.allocators_of(first)[1:]]
        with self.bar("warm-up", [case for case, _, _ in runs]):
            for case, allocator, scale in runs:
                self.progress.begin(case.name)
                with contextlib.suppress(RefusedError, MeasureError):
                    row = measure.run(case, allocator, self.folder, cpu=self.cpu, scale=scale)
                    known = self.peaks_not_kept.get(case.name, 0)
                    self.peaks_not_kept[case.name] = max(known, int(row["peak_rss_bytes"]))
                self.progress.end(case.name)

    def bar(self, what: str, cases: list[Case]) -> Progress:
        """A new progress bar for these runs."""
        self.progress = Progress(what, dict(Counter(case.name for case in cases)))
        return self.progress

    def order(self) -> Iterator[tuple[int, Case, Allocator]]:
        """All runs. A block holds every case once on every allocator; the cases of a block, and
        the allocators of a case, come in random order."""
        source = random.Random(self.plan.seed)
        for block in range(self.plan.blocks):
            for case in source.sample(self.cases, k=len(self.cases)):
                allocators = self.allocators_of(case)
                for allocator in source.sample(allocators, k=len(allocators)):
                    yield block, case, allocator

    def measure(self) -> None:
        """All blocks."""
        runs = list(self.order())
        with self.bar("measuring", [case for _, case, _ in runs]):
            for block, case, allocator in runs:
                self.progress.begin(case.name)
                lost = (case.name, allocator.name) in self.lost
                row = None if lost else self.attempt(case, allocator, block)
                if row is not None:
                    self.keep(row)
                self.progress.end(case.name, ran=not lost)

    def keep(self, row: Row) -> None:
        """A row enters the results."""
        self.store.row(row)
        pair = (row["case"], row["allocator"])
        self.peaks[pair] = max(self.peaks.get(pair, 0), int(row["peak_rss_bytes"]))
        if row["checksum"] is not None:
            found = self.checksums.setdefault(row["case"], {})
            found.setdefault(str(row["checksum"]), row["allocator"])

    def count(self) -> None:
        """The counting runs: one for each workload and allocator, several at once."""

        def one(case: Case, allocator: Allocator) -> Row:
            row = counts.count_whole(case, allocator, case.scale(self.plan.scale), self.folder)
            if self.plan.instructions and case.real is None:
                row["instructions_per_op"] = counts.instructions_per_op(
                    case, allocator, self.folder
                )
            return row

        pairs = [
            (case, allocator)
            for case in self.cases
            for allocator in self.allocators_of(case)
            if (case.name, allocator.name) not in self.lost
        ]
        with self.bar("counting", [case for case, _ in pairs]):
            for case, allocator, row in counts.count_all(pairs, one, self.peak_bytes):
                if isinstance(row, Exception):
                    head = {"case": case.name, "allocator": allocator.name, "counting": True}
                    self.lose(head, row)
                else:
                    self.store.row(row, file=store.COUNTS)
                self.progress.end(case.name)

    def peak_bytes(self, case: Case, allocator: Allocator) -> int:
        """What the pair is known to need."""
        return self.peaks.get((case.name, allocator.name), 0)

    def checksums_agree(self) -> bool:
        """A workload does the same on every allocator, or its figures mean nothing."""
        differing = {name: found for name, found in self.checksums.items() if len(found) > 1}
        for name, found in differing.items():
            seen = ", ".join(f"{checksum} ({where})" for checksum, where in found.items())
            say(f"FAILED {name}: checksums differ: {seen}")
        return not differing

    def run(self) -> bool:
        """Everything; what is finished is kept when it is interrupted. True when all is sound."""
        self.store.manifest(self.manifest("running"))
        state = "complete"
        try:
            self.warm_up()
            self.measure()
            if self.plan.counting:
                self.count()
        except KeyboardInterrupt:
            say("interrupted: the finished rows are kept")
            state = "interrupted"
        sound = self.checksums_agree() and libraries_unchanged(self.allocators, self.identities)
        self.store.manifest(self.manifest(state if sound else "unsound"))
        if self.lost:
            say(f"{len(self.lost)} rows were refused or failed; see above")
        say(f"results: {display(self.store.folder)}")
        return sound and self.unexpected == 0 and state == "complete"
