"""hakmem doctor: can hakmem be built and used on this machine, and is it active?"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hakmem import build, interruption, render
from hakmem.diagnosis import command, machine
from hakmem.diagnosis.finding import Finding
from hakmem.diagnosis.variables import variable_findings
from hakmem.environment import enter
from hakmem.errors import EXIT_USAGE, HakmemError, UsageError
from hakmem.folders import temporary_folder
from hakmem.project import Project, find_project

CMAKE_MIN = (3, 25)
PROBE_TIMEOUT_S = 120


EXAMPLES = """\
examples:
  hakmem doctor                      this machine
  hakmem doctor 1234                 a running process: does hakmem serve it, and why not if not
  hakmem doctor redis-server         a program: would hakmem serve it (it is not run)
  hakmem doctor --json 1234

Exit status 0: all is well, 1: something is not, 2: wrong usage or no such process.
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="check the build tools, the library and whether it gets active",
        description="Without a target: checks what `hakmem run` needs, and runs a small program to "
        "see that hakmem serves it. With one: checks whether hakmem is active there, whether all "
        "malloc symbols of its modules lead to it, and what is set.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument(
        "--library",
        metavar="FILE",
        type=Path,
        help="for a program: this libhakmem.so instead of the command's own",
    )
    parser.add_argument("target", metavar="PID|CMD", nargs="?")
    parser.add_argument("arguments", metavar="ARGS", nargs=argparse.REMAINDER)
    parser.set_defaults(run=run, parser=parser, failure_status=EXIT_USAGE)


def _tools() -> list[Finding]:
    findings = []
    for tool in build.build_tools():
        path = tool.find()
        text = path or f"missing; on Debian: sudo apt-get install {tool.package}"
        findings.append(Finding(tool.names[0], path is not None, text))
    return findings


def _cmake_version() -> Finding | None:
    try:
        answer = subprocess.run(
            ["cmake", "--version"],
            capture_output=True,
            text=True,
            errors="backslashreplace",
            check=True,
            timeout=30,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r"(\d+)\.(\d+)", answer)
    version = (int(found[1]), int(found[2])) if found else (0, 0)
    wanted = ".".join(str(part) for part in CMAKE_MIN)
    return Finding(
        "cmake version",
        version >= CMAKE_MIN,
        f"{version[0]}.{version[1]} (at least {wanted} is needed)",
    )


def _library(project: Project) -> Finding:
    if not project.is_tree:
        is_there = project.library.is_file()
        return Finding("library", is_there, f"{project.library}{'' if is_there else ' is missing'}")
    if not project.library.is_file():
        return Finding("library", None, f"{project.library} is not built yet; run builds it")
    if not build.is_current(project):
        return Finding(
            "library", None, f"{project.library} is older than its sources; run rebuilds it"
        )
    return Finding("library", True, str(project.library))


def _answer(words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Of a trial run, which cleans up after itself when this command is interrupted."""
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as trial:
        try:
            stdout, stderr = trial.communicate(timeout=PROBE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            trial.kill()
            raise
        except KeyboardInterrupt:
            trial.terminate()
            trial.wait()
            raise
    return subprocess.CompletedProcess(words, trial.returncode, stdout, stderr)


def _active(project: Project) -> Finding:
    """Runs the whole route on a program that allocates: this interpreter's dynamic parent, sh."""
    with temporary_folder("hakmem-doctor-") as directory:
        summary = directory / "summary.json"
        # As a module not of the current directory.
        itself = [str(project.root / "hakmem")] if project.is_tree else ["-P", "-m", "hakmem"]
        command = [sys.executable, *itself, "run", "--json"]
        probe = ["--summary-file", str(summary), "--", "/bin/sh", "-c", ":"]
        try:
            answer = _answer([*command, *probe])
            facts = json.loads(summary.read_text(encoding="utf-8"))
        except (OSError, ValueError, subprocess.SubprocessError):
            said = answer.stderr.strip().splitlines()[-1:] if "answer" in locals() else []
            return Finding("active", False, said[0] if said else "the trial run gave no summary")
    if facts["active"] and answer.returncode == 0:
        return Finding("active", True, f"/bin/sh is served by {facts['library']}")
    return Finding("active", False, answer.stderr.strip() or f"verdict: {facts['verdict']}")


def _machine(project: Project) -> list[Finding]:
    findings = _tools() if project.is_tree else []
    version = _cmake_version() if project.is_tree else None
    if version is not None:
        findings.append(version)
    findings.append(_library(project))
    findings.extend(variable_findings(os.environ, project, version=project.version))
    findings.extend(machine.examine())
    try:
        if project.library.is_file() or (project.is_tree and not build.missing_tools()):
            findings.append(_active(project))
        elif project.is_tree:
            findings.append(Finding("active", False, "the library cannot be built"))
    except HakmemError as error:
        findings.append(Finding("active", False, str(error)))
    # The trial has built it.
    if project.library.is_file():
        preloaded = {**os.environ, "LD_PRELOAD": str(project.library)}
        told = command.options_in_effect(preloaded)
        findings += [finding for finding in told if finding.ok is False]
    return findings


def _process(project: Project, pid: int) -> list[Finding]:
    enter(project)
    from hakmem.diagnosis import process
    from hakmem.inspect.targets import take

    return process.examine(pid, project, lambda pid: take(str(pid), residency=False))


def _findings(options: argparse.Namespace) -> list[Finding]:
    project = find_project()
    if options.target is None:
        return _machine(project)
    if options.target.isascii() and options.target.isdecimal():
        if options.arguments:
            raise UsageError(f"a process takes no arguments: {' '.join(options.arguments)}")
        return _process(project, int(options.target))
    library = options.library if options.library is not None else project.library
    return command.examine([options.target, *options.arguments], os.environ, project, library)


def run(options: argparse.Namespace) -> int:
    with interruption.tidily():
        findings = _findings(options)
    healthy = all(finding.ok is not False for finding in findings)
    if options.json:
        facts = {
            "schema": render.DOCTOR_SCHEMA,
            "target": options.target,
            "healthy": healthy,
            "findings": [vars(finding) for finding in findings],
        }
        sys.stdout.write(render.json_text(facts))
    else:
        style = render.environment_style(sys.stdout)
        marks = {True: style.good("ok  "), False: style.bad("BAD "), None: style.faint("note")}
        for finding in findings:
            # Paths and variables of a process are anybody's.
            text = "".join(mark if mark.isprintable() else "?" for mark in finding.text)
            sys.stdout.write(f"{marks[finding.ok]} {finding.name:<14} {text}\n")
    return 0 if healthy else 1
