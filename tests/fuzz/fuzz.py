#!/usr/bin/env python3
"""Runs the fuzz targets.

search   all targets in turn, for some minutes together; new findings are written to a folder and
         named, and the exit status is 1
replay   the corpus of one target, then a number of fresh inputs from a fixed seed
control  one target built with a planted fault, which it must find from the corpus
minimise the corpus of one target: the smallest inputs that reach all that --from and it reach
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
TOP = HERE.parents[1]
TARGETS = ("api", "options", "profile")
# What one input may hold: programs of some hundred calls, texts of some hundred settings.
BYTES_MAX = {"api": 1024, "options": 2048, "profile": 4096}
SEED = 1

sys.path.insert(0, str(TOP / "tools"))
from hakmem.options import read_options  # noqa: E402


def corpus(target: str) -> Path:
    return HERE / "corpus" / target


def write_words(target: str, folder: Path) -> list[str]:
    """The words of the options' language, from their table: the flag that names the file."""
    if target == "api":
        return []
    table = read_options(TOP / "src/config/options.def")
    words = {"HAKMEM_CONF=", "0x", "18446744073709551616"}
    if target == "profile":
        words |= {"size_class=", "prewarm=", "profile_format=1", "program_build_id=", "65536", "#"}
    words |= {f"{alias}=" for alias, _ in table.aliases}
    for option in table.options:
        words |= {f"{option.environment}=", f"{option.name}=", f"{option.name}:"}
        words |= {choice.name for choice in option.choices}
    file = folder / "words.dict"
    file.write_text("".join(f'"{word}"\n' for word in sorted(words)), encoding="utf-8")
    return [f"-dict={file}"]


def run(
    program: Path,
    target: str,
    findings: Path,
    arguments: list[str],
    *,
    timeout_s: float | None = None,
    environment: dict[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """One run of a target in a folder of its own; findings become files `target-*`. A single input
    that takes a minute is one; how long a test takes in all, ctest limits alone."""
    with tempfile.TemporaryDirectory(prefix="hakmem-fuzz-") as scratch:
        command = [
            str(program),
            f"-max_len={BYTES_MAX[target]}",
            f"-artifact_prefix={findings}/{target}-",
            "-detect_leaks=0",
            "-timeout=60",
            "-print_final_stats=1",
            *write_words(target, Path(scratch)),
            *arguments,
        ]
        return subprocess.run(
            command,
            cwd=scratch,
            env={**os.environ, **(environment or {})},
            text=True,
            errors="replace",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
        )


def executions(output: str) -> int:
    found = re.search(r"stat::number_of_executed_units:\s*(\d+)", output)
    return int(found[1]) if found else 0


def telling(output: str) -> str:
    """The lines that say what was found."""
    marks = ("fuzz: ", "ERROR: ", "SUMMARY: ", "fake_os: ", "hakmem: ", "Test unit written")
    lines = [line for line in output.splitlines() if any(mark in line for mark in marks)]
    return "\n".join(lines[:12]) or output[-2000:]


def replay(build: Path, target: str, runs: int) -> int:
    with tempfile.TemporaryDirectory(prefix="hakmem-fuzz-") as scratch:
        work = Path(scratch) / "corpus"
        work.mkdir()
        arguments = [f"-seed={SEED}", f"-runs={runs}", str(work), str(corpus(target))]
        done = run(build / f"fuzz_{target}", target, Path(scratch), arguments)
        print(f"{target}: {executions(done.stdout)} executions, exit status {done.returncode}")
        if done.returncode != 0:
            print(telling(done.stdout))
            for file in Path(scratch).glob(f"{target}-*"):
                print(f"the input: {file.read_bytes().hex()}")
    return 1 if done.returncode != 0 else 0


def control(build: Path, target: str, fault: str, runs: int) -> int:
    """0 when the planted fault is found, and nothing is found without it."""
    program = build / f"fuzz_{target}_planted"
    found = []
    for planted in (fault, "none"):
        with tempfile.TemporaryDirectory(prefix="hakmem-fuzz-") as scratch:
            # Without a fault, the corpus alone: that of the target as it is has its own test.
            count = runs if planted == fault else 0
            work = Path(scratch) / "corpus"
            work.mkdir()
            arguments = [f"-seed={SEED}", f"-runs={count}", str(work), str(corpus(target))]
            settings = {"FUZZ_PLANTED": planted}
            done = run(program, target, Path(scratch), arguments, environment=settings)
            found.append(any(Path(scratch).glob(f"{target}-crash-*")))
            print(f"{target}, planted {planted}: exit status {done.returncode}")
            print(telling(done.stdout) if done.returncode != 0 else "nothing found")
    return 0 if found == [True, False] else 1


def search(build: Path, minutes: float) -> int:
    findings = build / "findings"
    findings.mkdir(exist_ok=True)
    # The corpora of earlier searches go on growing in the build tree.
    end = time.monotonic() + 60 * minutes
    rounds = [(target, mode) for target in TARGETS for mode in ("fast", "hardened")]
    rounds = [(target, mode) for target, mode in rounds if mode == "fast" or target == "api"]
    # The calls of the allocator deserve more than the texts.
    shares = {"api": 2, "options": 1, "profile": 1}
    total = sum(shares[target] for target, _ in rounds)
    failed = 0
    before = set(findings.iterdir())
    for target, mode in rounds:
        seconds = max(int(60 * minutes * shares[target] / total), 1)
        grown = build / "corpus" / target
        grown.mkdir(parents=True, exist_ok=True)
        arguments = [f"-max_total_time={seconds}", str(grown), str(corpus(target))]
        done = run(
            build / f"fuzz_{target}", target, findings, arguments, timeout_s=seconds + 180,
            environment={"HAKMEM_MODE": mode},
        )  # fmt: skip
        name = f"{target} ({mode})" if target == "api" else target
        print(f"{name}: {seconds} s, {executions(done.stdout)} executions", flush=True)
        if done.returncode != 0:
            failed += 1
            print(telling(done.stdout), flush=True)
    new = sorted(set(findings.iterdir()) - before)
    for file in new:
        print(f"NEW FINDING: {file}", file=sys.stderr)
    spare = end - time.monotonic()
    print(f"{minutes:g} minutes, {len(new)} findings" + ("" if spare < 60 else ", ended early"))
    return 1 if failed or new else 0


def merge(build: Path, target: str, more: Path) -> int:
    before = len(list(corpus(target).iterdir()))
    with tempfile.TemporaryDirectory(prefix="hakmem-fuzz-") as scratch:
        arguments = ["-merge=1", "-use_counters=0", str(corpus(target)), str(more)]
        done = run(build / f"fuzz_{target}", target, Path(scratch), arguments, timeout_s=1200)
    if done.returncode != 0:
        print(telling(done.stdout))
        return 1
    print(f"{target}: {before} inputs, now {len(list(corpus(target).iterdir()))}")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--build", type=Path, required=True, help="where the targets were built")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("search")
    verb.add_argument("--minutes", type=float, required=True)
    for name in ("replay", "control", "merge"):
        verb = verbs.add_parser(name)
        verb.add_argument("target", choices=TARGETS)
        if name != "merge":
            verb.add_argument("--runs", type=int, required=True)
        if name == "control":
            verb.add_argument("--fault", required=True)
        if name == "merge":
            verb.add_argument("--from", dest="more", type=Path, required=True)
    arguments = parser.parse_args()
    build = arguments.build.resolve()
    match arguments.verb:
        case "search":
            return search(build, arguments.minutes)
        case "replay":
            return replay(build, arguments.target, arguments.runs)
        case "control":
            return control(build, arguments.target, arguments.fault, arguments.runs)
        case _:
            return merge(build, arguments.target, arguments.more.resolve())


if __name__ == "__main__":
    sys.exit(main())
