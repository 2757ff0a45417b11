#!/usr/bin/env python3
"""Many programs of Debian and PyPI, once on glibc's malloc and once in each mode of hakmem: what
they write and how they end must be the same.

    tests/sweep/sweep.py [--only NAME ...] [--modes fast,lean] [--library LIBRARY]

A wide net with large meshes: one short command of each program of `programs.toml`, and one of each
package of `packages.toml`, nothing that takes minutes. `tests/apps` goes into a few programs more
deeply. Each run on hakmem is one of `hakmem run`, which must find at its end that every malloc
symbol of every process led to hakmem, and no misuse. Programs that are not installed are passed
over; what all of them want is named at the end: some 2 GB of Debian packages, and as much of
packages from PyPI, which `make sweep` installs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO

ROOT = Path(__file__).resolve().parents[2]
LISTS = [Path(__file__).with_name(name) for name in ("programs.toml", "packages.toml")]
# What is from PyPI: `scripts/setup --sweep` makes it, with the versions of requirements.txt.
VENV = ROOT / "build/sweep"
MODES = ("fast", "lean", "hardened", "research")
SECONDS_MOST = 300.0
# For `hakmem run` to conclude about a program that was ended.
SECONDS_TO_CONCLUDE = 30.0
SHELL = "/usr/bin/bash"


@dataclass(frozen=True)
class Program:
    """One command for the shell; it runs in a folder of its own that holds `inputs`."""

    name: str
    packages: tuple[str, ...]
    command: str
    inputs: Mapping[str, str]
    # Names of programs in which hakmem need not serve all: they bring a malloc of their own, or are
    # linked statically.
    other_mallocs: tuple[str, ...]
    # Packages from PyPI: the command finds `python` and theirs first.
    pypi: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ending:
    """How a run ended. Standard error differs from run to run: it is shown, not compared."""

    status: int | str
    output: str
    complaint: str
    # None: it ran on glibc.
    proof: Proof | None


@dataclass(frozen=True)
class Proof:
    """What `hakmem run` says of a run."""

    # Programs besides the shell that hakmem served, and misuse that it noticed in any.
    served: frozenset[str]
    misuses: int
    doubts: tuple[Doubt, ...]


@dataclass(frozen=True)
class Doubt:
    """What is not hakmem's in a program of that name, or not shown to be."""

    program: str
    text: str


def read_programs(files: Iterable[Path]) -> list[Program]:
    """All programs of the lists, in their order."""
    return [
        Program(
            name=row["name"],
            packages=tuple(row.get("packages", ())),
            command=row["command"],
            inputs=row.get("inputs", {}),
            other_mallocs=tuple(row.get("other_mallocs", ())),
            pypi=tuple(row.get("pypi", ())),
        )
        for file in files
        for row in tomllib.loads(file.read_text())["program"]
    ]


def missing_packages(packages: Iterable[str]) -> set[str]:
    """Those of the Debian packages that are not installed."""
    wanted = sorted(set(packages))
    words = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package}\n", *wanted]
    listed = subprocess.run(words, capture_output=True, text=True, check=False).stdout
    installed = {line.split()[1] for line in listed.splitlines() if line.startswith("installed ")}
    return set(wanted) - installed


def normal(name: str) -> str:
    """A package of PyPI has several spellings of its name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def missing_from_pypi(packages: Iterable[str]) -> set[str]:
    """Those of the packages from PyPI that are not installed."""
    folders = [str(folder) for folder in VENV.glob("lib/python*/site-packages")]
    found = metadata.distributions(path=folders)
    installed = {normal(one.metadata["Name"]) for one in found}
    return {name for name in packages if normal(name) not in installed}


def read_proof(file: Path) -> Proof:
    """From the summary that `hakmem run` wrote."""
    if not file.is_file():
        return Proof(frozenset(), 0, (Doubt("hakmem", "it wrote no summary"),))
    summary = json.loads(file.read_text())
    doubts = []
    for process in summary["processes"]:
        if process["verdict"] == "active":
            continue
        texts = [
            f"{stray['symbol']} of {stray['module']} leads to {stray['provider']}"
            for stray in process["strays"]
        ] or [f"{process['exe']}: {process['reason']}"]
        doubts += [Doubt(Path(process["exe"]).name, text) for text in texts]
    for one in (*summary["absent"], *summary["unwritten"]):
        doubts.append(Doubt(Path(one["exe"]).name, f"{one['exe']}: {one['reason']}"))
    if summary["active"] == bool(doubts):
        doubts.append(Doubt("hakmem", f"{summary['verdict']} without a reason"))
    exes = (process["exe"] for process in summary["processes"])
    return Proof(
        served=frozenset(exe for exe in exes if exe != SHELL),
        misuses=sum(process["books"]["misuses"] for process in summary["processes"]),
        doubts=tuple(dict.fromkeys(doubts)),
    )


def ended_status(process: subprocess.Popen[bytes]) -> int | str:
    """As the shell tells it, and `hakmem run` does. What takes too long is asked to end, so that
    `hakmem run` can conclude."""
    try:
        code = process.wait(SECONDS_MOST)
        return code if code >= 0 else 128 - code
    except subprocess.TimeoutExpired:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_CONCLUDE)
        return f"not over after {SECONDS_MOST:.0f} s"


def run(program: Program, mode: str | None = None, library: Path | None = None) -> Ending:
    """One run in a fresh folder, on glibc or in a mode of hakmem; all its processes end with it."""
    places = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/games"
    with (
        tempfile.TemporaryDirectory(prefix=f"sweep-{program.name}-") as name,
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as errors,
        tempfile.TemporaryDirectory(prefix="sweep-summary-") as beside,
    ):
        folder, summary = Path(name), Path(beside) / "summary"
        for path, text in program.inputs.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        given = {
            # Without the caller's own options: an unknown one would be complained about.
            **{key: text for key, text in os.environ.items() if "HAKMEM_" not in key},
            "HOME": name,
            "TMPDIR": name,
            "LC_ALL": "C.UTF-8",
            "PATH": f"{VENV / 'bin'}:{places}" if program.pypi else places,
        }
        words = [SHELL, "-c", program.command]
        if mode is not None:
            on_hakmem = [sys.executable, str(ROOT / "hakmem"), "run", "--mode", mode]
            told = ["--library", str(library), "--json", "--summary-file", str(summary), "--"]
            words = [*on_hakmem, *told, *words]
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=given,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        status = ended_status(process)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # That the verdict lies in a file is said by `hakmem run`, not by a program.
        complaint = re.sub(rf"hakmem: .* see {summary}\n", "", text_of(errors))
        return Ending(
            status=status,
            output=text_of(output).replace(name, "FOLDER").strip(),
            complaint=complaint.strip(),
            proof=read_proof(summary) if mode is not None else None,
        )


def text_of(file: IO[bytes]) -> str:
    """All of what a program wrote to it."""
    file.seek(0)
    return file.read().decode(errors="replace")


def few(texts: Sequence[str]) -> str:
    """The first of them: one malloc too many strays in every module."""
    rest = len(texts) - 3
    return ", ".join(texts[:3]) + (f" and {rest} more" if rest > 0 else "")


def unproved(program: Program, proof: Proof) -> list[str]:
    """What speaks against hakmem having served all of a run."""
    problems = []
    if not proof.served and not program.other_mallocs:
        problems.append("no process but the shell ran on hakmem")
    texts = [one.text for one in proof.doubts if one.program not in program.other_mallocs]
    if texts:
        problems.append(f"hakmem run does not prove it: {few(texts)}")
    return problems


def differences(program: Program, reference: Ending, found: Ending) -> list[str]:
    """What is wrong with a run on hakmem; nothing, when all is as on glibc."""
    problems = []
    if found.status != reference.status:
        problems.append(f"ended with {found.status}, on glibc {reference.status}")
    if found.output != reference.output:
        problems.append(f"wrote {found.output[:200]!r}, on glibc {reference.output[:200]!r}")
    if "hakmem:" in found.complaint or (found.proof is not None and found.proof.misuses):
        problems.append("hakmem complained")
    if found.proof is not None:
        problems += unproved(program, found.proof)
    if problems and found.complaint:
        problems.append(f"standard error ends with {found.complaint[-400:]!r}")
    return problems


def sweep(programs: Sequence[Program], modes: Sequence[str], library: Path) -> int:
    """Runs all of them; prints a line for each. Returns how many differ."""
    absent = missing_packages(package for program in programs for package in program.packages)
    absent_pypi = missing_from_pypi(package for program in programs for package in program.pypi)
    failed = ran = 0
    for program in programs:
        lacks = sorted(absent.intersection(program.packages))
        lacks += [f"{name} of PyPI" for name in sorted(absent_pypi.intersection(program.pypi))]
        if lacks:
            print(f"{program.name}: not installed ({', '.join(lacks)})")
            continue
        ran += 1
        reference = run(program)
        problems = []
        if reference.status != 0 or not reference.output:
            problems.append(
                f"glibc: ended with {reference.status}, wrote {reference.output[:200]!r}, "
                f"standard error ends with {reference.complaint[-400:]!r}"
            )
        for mode in modes:
            found = run(program, mode, library)
            problems += [f"{mode}: {text}" for text in differences(program, reference, found)]
        failed += bool(problems)
        print(f"{program.name}: {'; '.join(problems) if problems else 'the same'}", flush=True)
    print(f"{ran} programs, {failed} not the same, {len(programs) - ran} not installed")
    if absent:
        print(f"as root: apt-get install --no-install-recommends {' '.join(sorted(absent))}")
    if absent_pypi:
        print(f"scripts/setup --sweep: {' '.join(sorted(absent_pypi))}")
    return failed + (ran == 0)


def main(arguments: Sequence[str]) -> int:
    """The command line. 1: a program differs, or none ran."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", type=Path, default=ROOT / "build/release/libhakmem.so")
    parser.add_argument("--list", type=Path, nargs="+", default=LISTS, help="another programs.toml")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    options = parser.parse_args(arguments)
    if not options.library.is_file():
        parser.error(f"{options.library} is not there: make lib")
    programs = read_programs(options.list)
    unknown = set(options.only) - {program.name for program in programs}
    if unknown:
        parser.error(f"not in the list: {' '.join(sorted(unknown))}")
    chosen = [program for program in programs if not options.only or program.name in options.only]
    modes = options.modes.split(",")
    return 1 if sweep(chosen, modes, options.library.resolve()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
