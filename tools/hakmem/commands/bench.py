"""hakmem bench: measure allocators against each other. The work is done by bench/harness."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from hakmem.environment import DEVELOPER, enter
from hakmem.errors import EXIT_USAGE
from hakmem.project import find_project, require_tree

EXAMPLES = """\
examples:
  hakmem bench --quick                              about a minute, allocators that are installed
  hakmem bench                                      the full matrix, more than an hour
  hakmem bench --workloads redis,larson_small_2 --allocators hakmem,jemalloc --reps 11
  hakmem bench --quick --allocator mine=./libmine.so --baseline glibc --html report.html
  hakmem bench compare bench/results/A bench/results/B
  hakmem bench compare bench/results/A --of hakmem --against hakmem_nolearn

Exit status: 0 all is well, 1 a row was refused or failed or a verdict is bad, 2 wrong usage,
3 too noisy to tell. docs/BENCHMARKING.md says how to measure and how to read the tables.
"""
METRICS = ("wall", "cpu", "user", "system")
FOLDERS = "of several the later, in the order of their time, replace whole rows of the first"
# Of the verbs below it.
EXAMPLES_OF = {
    "list": """\
  hakmem bench list
  hakmem bench list --json | jq -r '.allocators[] | select(.installed) | .name'
""",
    "compare": """\
  hakmem bench compare bench/results/before bench/results/after
  hakmem bench compare bench/results/A --against jemalloc --metric cpu
""",
    "pool": """\
  hakmem bench pool bench/results/2026-11-*/*-real
  hakmem bench pool bench/results/A bench/results/B --json | jq '.time.counts'
""",
    "verify": """\
  hakmem bench verify                              each allocator, by a short run now
  hakmem bench verify bench/results/A --json
""",
    "report": """\
  hakmem bench report bench/results/A --html report.html
  hakmem bench report bench/results/A bench/results/again --baseline glibc
""",
    "scorecard": """\
  hakmem bench scorecard bench/results/A bench/results/again
""",
    "syscalls": """\
  hakmem bench syscalls --allocators hakmem,glibc
  hakmem bench syscalls --json | jq '.rows[] | [.allocator, .calls_total]'
""",
    "startup": """\
  hakmem bench startup --allocators hakmem,glibc --runs 15 --starts 100
""",
    "memory": """\
  hakmem bench memory --workloads redis --allocators hakmem
  hakmem bench memory --json | jq '.rows[] | [.case, .peak_rss_bytes]'
""",
    "profiles": """\
  hakmem bench profiles postgres --runs 21         one of them, in 21 pairs
  hakmem bench profiles --metric wall
""",
    "setup": """\
  hakmem bench setup                               as root, for packages of Debian
""",
}


def _number(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def _factor(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return value


def _percent(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"{text} is no share of 100")
    return value


def _names(text: str) -> list[str]:
    return [part for part in text.split(",") if part]


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--allocators", metavar="A,B", type=_names, help="only these; `bench list` shows them"
    )
    parser.add_argument(
        "--allocator",
        metavar="NAME=PATH[,VARIABLE=VALUE]",
        action="append",
        default=[],
        help="one more library, with what its processes find in their environment; may be given "
        "several times",
    )
    parser.add_argument("--output", metavar="DIR", type=Path, help="folder for the results")


def _add_report(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--baseline", metavar="NAME", help="ratios are against this one")
    parser.add_argument("--metric", choices=METRICS, default="wall", help="which time")
    parser.add_argument("--html", metavar="FILE", type=Path, help="also write the page to FILE")
    parser.add_argument("--json", action="store_true", help="the figures as JSON")


def _add_measuring(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="the quick rows, about a minute")
    parser.add_argument(
        "--workloads", metavar="A,B", type=_names, help="only these; `synthetic`, `real`: a group"
    )
    parser.add_argument("--reps", type=_number, metavar="N", help="blocks (5; with --quick 3)")
    parser.add_argument("--cpu", type=int, metavar="N", help="CPU for rows of one thread")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the order of the runs")
    parser.add_argument(
        "--scale",
        type=_factor,
        default=1.0,
        metavar="X",
        help="multiplies the operations of every row whose working set does not depend on them",
    )
    parser.add_argument(
        "--counts",
        action=argparse.BooleanOptionalAction,
        help="count OS calls and memory after idling, in runs of their own (not with --quick)",
    )
    parser.add_argument(
        "--instructions", action="store_true", help="count instructions per operation, by callgrind"
    )
    parser.add_argument(
        "--programs", metavar="DIR", type=Path, help="folder of built workload programs"
    )


def _add_verbs(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", dest="verb")

    def verb(name: str, text: str) -> argparse.ArgumentParser:
        found = verbs.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            epilog=f"examples:\n{EXAMPLES_OF[name]}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        found.set_defaults(run=run, parser=found)
        return found

    verb("list", "show the workloads and the allocators").add_argument(
        "--json", action="store_true", help="as JSON"
    )
    compare = verb("compare", "compare two result folders, or two allocators of one, row by row")
    compare.add_argument(
        "folders",
        metavar="DIR",
        type=Path,
        nargs="+",
        help=f"two; with --against one or more, {FOLDERS}",
    )
    compare.add_argument(
        "--against", metavar="NAME", help="compare allocators of the same runs, with this one"
    )
    compare.add_argument("--of", metavar="NAME", default="hakmem", help="which one (hakmem)")
    compare.add_argument(
        "--least-better",
        metavar="PERCENT",
        type=_percent,
        default=0.0,
        help="with --against: end with 1 when fewer rows are better",
    )
    compare.add_argument("--metric", choices=METRICS, default="wall")
    compare.add_argument("--json", action="store_true", help="as JSON")
    pool = verb("pool", "show every row over several series, against its best peer")
    pool.add_argument(
        "folders", metavar="DIR", type=Path, nargs="+", help="series of one machine, in any order"
    )
    pool.add_argument("--metric", choices=METRICS, default="wall")
    pool.add_argument("--json", action="store_true", help="as JSON")
    verify = verb("verify", "show the proof: of a result folder, or of each allocator now")
    verify.add_argument("folder", metavar="DIR", type=Path, nargs="?")
    verify.add_argument("--json", action="store_true", help="as JSON")
    _add_choice(verify)
    report = verb("report", "derive tables and plots of result folders again")
    report.add_argument("folders", metavar="DIR", type=Path, nargs="+", help=FOLDERS)
    _add_report(report)
    scorecard = verb("scorecard", "write docs/SCORECARD.md from result folders")
    scorecard.add_argument("folders", metavar="DIR", type=Path, nargs="+", help=FOLDERS)
    syscalls = verb("syscalls", "count the OS calls of 200 million operations after warm-up")
    syscalls.add_argument("--json", action="store_true", help="as JSON")
    _add_choice(syscalls)
    startup = verb("startup", "measure memory, time and OS calls of programs that hardly allocate")
    # Where the loader maps things moves single readings by 60 KiB, medians of 15 by 20.
    startup.add_argument("--runs", type=_number, default=101, help="memory readings per allocator")
    startup.add_argument("--starts", type=_number, default=500, help="processes per allocator")
    startup.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of the order of the runs"
    )
    startup.add_argument("--baseline", metavar="NAME", help="differences are against this one")
    _add_choice(startup)
    memory = verb("memory", "show what each row's memory is made of at its peak")
    memory.add_argument(
        "--workloads", metavar="A,B", type=_names, help="only these; `synthetic`, `real`: a group"
    )
    memory.add_argument(
        "--scale", type=_factor, default=1.0, metavar="X", help="as of a measurement"
    )
    memory.add_argument("--json", action="store_true", help="as JSON")
    memory.add_argument("--write", action="store_true", help="put the table into docs/PEAKS.md")
    _add_choice(memory)
    profiles = verb("profiles", "measure the installed profiles against the default, in pairs")
    profiles.add_argument("names", metavar="NAME", nargs="*", help="only these profiles")
    profiles.add_argument("--runs", type=_number, default=11, metavar="N", help="pairs (11)")
    profiles.add_argument("--metric", choices=("cpu", "wall"), default="cpu", help="which time")
    profiles.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        help="folder for the results; what it holds already is not measured again",
    )
    profiles.add_argument(
        "--write", action="store_true", help="put the table into docs/PROFILES.md"
    )
    verb("setup", "install the allocators and programs that are compared")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "bench",
        help="measure allocators against each other, with proof of who served each row",
        description="Runs workloads and real programs on hakmem and its peers, interleaved in "
        "random order, and refuses every row whose process does not prove which malloc it used.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)
    _add_measuring(parser)
    _add_choice(parser)
    _add_report(parser)
    _add_verbs(parser)


def run(options: argparse.Namespace) -> int:
    project = find_project()
    require_tree(project, "bench")
    enter(project, DEVELOPER)
    sys.path.insert(0, str(project.root / "bench"))
    from harness.cli import run_bench

    return run_bench(options)
