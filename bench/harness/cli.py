"""The verbs of `hakmem bench`; tools/hakmem/commands/bench.py holds their command line."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hakmem.interruption import like_ctrl_c

from . import cargo, cases, peers, setup
from .cases import Case
from .errors import BenchError, MeasureError
from .layout import display
from .peers import Allocator
from .session import Plan, Session, say

EXIT_OK, EXIT_BAD, EXIT_USAGE = 0, 1, 2
LIST_SCHEMA = "hakmem-bench-list/1"
FULL_BLOCKS, QUICK_BLOCKS = 5, 3
# The quick mode does this share of each row's work, to be done in about a minute.
QUICK_SCALE = 0.25


def run_bench(options: argparse.Namespace) -> int:
    """Runs the verb that the command line names; see bench.EXAMPLES for the exit status."""
    verbs: dict[str | None, Callable[[argparse.Namespace], int]] = {
        None: measure,
        "list": show_list,
        "compare": compare,
        "verify": verify,
        "report": report,
        "pool": pool,
        "scorecard": scorecard,
        "syscalls": syscalls,
        "startup": startup,
        "memory": memory,
        "profiles": profiles,
        "setup": set_up,
    }
    try:
        with like_ctrl_c():
            return verbs[options.verb](options)
    except BenchError as error:
        say(f"hakmem bench: {error}")
        return EXIT_USAGE
    except MeasureError as error:
        say(f"hakmem bench: {error}")
        return EXIT_BAD
    except KeyboardInterrupt:
        say("interrupted")
        return EXIT_BAD


def command() -> str:
    """The command as the user gave it, for the manifest."""
    return shlex.join(["./hakmem", *sys.argv[1:]])


def print_json(value: object) -> None:
    """JSON on standard output."""
    print(json.dumps(value, indent=2))


def make_plan(options: argparse.Namespace) -> Plan:
    """What the command line asks for."""
    whole = options.workloads is None and options.allocators is None
    kind = "quick" if options.quick else "full" if whole else "part"
    counting = options.counts if options.counts is not None else not options.quick
    return Plan(
        kind=kind,
        command=command(),
        workloads=options.workloads,
        allocators=options.allocators,
        own=options.allocator,
        quick=options.quick,
        blocks=options.reps or (QUICK_BLOCKS if options.quick else FULL_BLOCKS),
        scale=options.scale * (QUICK_SCALE if options.quick else 1.0),
        seed=options.seed,
        cpu=options.cpu,
        baseline=options.baseline,
        metric=options.metric,
        counting=counting,
        instructions=options.instructions,
        output=options.output,
        programs=options.programs,
    )


def measure(options: argparse.Namespace) -> int:
    """`hakmem bench`: runs the matrix and derives the tables."""
    plan = make_plan(options)
    # A slip of the pen is told before anything is built.
    cases.choose(plan.workloads, quick=plan.quick)
    peers.require_own(plan.own)
    available = os.sched_getaffinity(0)
    if plan.cpu is not None and plan.cpu not in available:
        raise BenchError(f"--cpu {plan.cpu} is none of this process's: {sorted(available)}")
    require_page_place(options.html)
    setup.build_needed(plan.allocators, quick=plan.quick)
    session = Session(plan)
    sound = session.run()
    folder = session.store.folder
    if not session.peaks:
        say("no row was measured")
        return EXIT_BAD
    show_report([folder], options, baseline=options.baseline)
    return EXIT_OK if sound else EXIT_BAD


def require_page_place(page: Path | None) -> None:
    """BenchError when the page of --html could not be written."""
    if page is None:
        return
    if not page.absolute().parent.is_dir():
        raise BenchError(f"--html {page}: there is no directory {page.parent}")
    if page.is_dir():
        raise BenchError(f"--html {page}: is a directory")


def show_report(
    folders: Sequence[Path], options: argparse.Namespace, *, baseline: str | None
) -> None:
    """Tables and page into the first folder, the summary or the figures onto standard output."""
    from . import report as reports

    reports.write(folders, html=options.html, metric=options.metric, baseline=baseline)
    if options.json:
        print_json(reports.as_json(folders, metric=options.metric, baseline=baseline))
    else:
        print(reports.summary(folders, metric=options.metric, baseline=baseline))
    page = options.html or folders[0] / "report.html"
    say(f"tables: {display(folders[0] / 'table.md')}, page: {display(page)}")


def report(options: argparse.Namespace) -> int:
    """`hakmem bench report`: derives everything from raw rows again."""
    require_page_place(options.html)
    show_report(options.folders, options, baseline=options.baseline)
    return EXIT_OK


def compare(options: argparse.Namespace) -> int:
    """`hakmem bench compare`: two folders, or with --against two allocators of the same runs."""
    if options.against is not None:
        from .report import against

        return against.main(
            options.folders,
            options.of,
            options.against,
            metric=options.metric,
            least_better=options.least_better,
            as_json_text=options.json,
        )
    from .report import compare as comparing

    if len(options.folders) != 2:
        raise BenchError("compare takes two folders, or --against NAME")
    before, after = options.folders
    return comparing.main(before, after, metric=options.metric, as_json_text=options.json)


def pool(options: argparse.Namespace) -> int:
    """`hakmem bench pool`: every row over several series."""
    from .report import pooled

    pooled.main(options.folders, options.metric, as_json_text=options.json)
    return EXIT_OK


def scorecard(options: argparse.Namespace) -> int:
    """`hakmem bench scorecard`: the targets, passed or failed."""
    from .report import scorecard as scoring

    return EXIT_OK if scoring.write(options.folders) else EXIT_BAD


def verify(options: argparse.Namespace) -> int:
    """`hakmem bench verify`: the proof of kept rows, or of each allocator at this moment."""
    from . import verifying

    if options.folder is not None:
        found = verifying.of_folder(options.folder)
    else:
        setup.build_needed(options.allocators, quick=False)
        found = verifying.of_allocators(options.allocators, options.allocator)
    if options.json:
        print_json({"schema": verifying.SCHEMA, "statements": found})
    else:
        print(verifying.text(found))
    proven = [each["holds"] for each in found if each["holds"] is not None]
    return EXIT_OK if proven and all(proven) else EXIT_BAD


def syscalls(options: argparse.Namespace) -> int:
    """`hakmem bench syscalls`: OS calls of a long run after warm-up."""
    from . import long_run

    setup.build_needed(options.allocators, quick=False)
    return long_run.main(options, command())


def startup(options: argparse.Namespace) -> int:
    """`hakmem bench startup`: what preloading adds to a program that hardly allocates."""
    from . import startup as starting

    setup.build_needed(options.allocators, quick=False)
    return starting.main(options, command())


def memory(options: argparse.Namespace) -> int:
    """`hakmem bench memory`: what the memory of each row is made of at its peak."""
    from . import peaks

    cases.choose(options.workloads, quick=False)
    setup.build_needed(options.allocators, quick=False)
    return peaks.main(options, command())


def profiles(options: argparse.Namespace) -> int:
    """`hakmem bench profiles`: what the installed profiles bring their programs."""
    from . import profiles as profiling

    profiling.choose(options.names)
    setup.build_needed(["hakmem"], quick=False)
    return profiling.main(options, command())


def set_up(options: argparse.Namespace) -> int:
    """`hakmem bench setup`: everything that is compared, onto this machine."""
    del options
    return EXIT_OK if setup.everything() else EXIT_BAD


def describe_allocator(allocator: Allocator) -> dict[str, Any]:
    """A line of the list."""
    if allocator.crate is not None:
        origin = f"{allocator.crate.holds}, {allocator.crate.build}"
    elif allocator.package:
        origin = f"Debian package {allocator.package}"
    else:
        origin = allocator.made_by
    return {
        "name": allocator.name,
        "kind": allocator.kind,
        "installed": allocator.installed,
        "default": allocator.default,
        "quick": allocator.quick,
        "library": display(allocator.library),
        "from": origin,
        "missing": "" if allocator.installed else peers.missing_text(allocator),
    }


def describe_case(case: Case) -> dict[str, Any]:
    """A line of the list."""
    return {
        "name": case.name,
        "group": case.group,
        "quick": case.quick,
        "threads": case.threads,
        "installed": case.real is None or case.real.installed,
        "packages": list(case.real.packages) if case.real is not None else [],
        "about": case.about,
    }


def show_list(options: argparse.Namespace) -> int:
    """`hakmem bench list`: what there is to choose from."""
    workloads = [describe_case(case) for case in cases.known()]
    allocators = [describe_allocator(each) for each in peers.known().values()]
    if options.json:
        print_json({"schema": LIST_SCHEMA, "workloads": workloads, "allocators": allocators})
        return EXIT_OK
    for each in workloads:
        absent = "" if each["installed"] else f" (missing: {' '.join(each['packages'])})"
        quick = "quick" if each["quick"] else ""
        print(f"{each['name']:22}{each['group']:11}{quick:7}{each['about']}{absent}")
    print()
    for each in allocators:
        quick = "quick" if each["quick"] else "" if each["default"] else "named"
        state = each["from"] if each["installed"] else f"MISSING {each['missing']}"
        print(f"{each['name']:22}{each['kind']:11}{quick:7}{state}")
    for tool in cargo.missing_tools():
        say(f"to build the allocators that are Rust crates, {tool} is missing")
    return EXIT_OK
