"""hakmem doctor: can hakmem be built and used on this machine, and is it active?"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hakmem import build, render
from hakmem.errors import EXIT_USAGE, HakmemError
from hakmem.project import Project, find_project

CMAKE_MIN = (3, 25)
PROBE_TIMEOUT_S = 120


@dataclass(frozen=True)
class Finding:
    """`ok` None: worth knowing, neither good nor bad."""

    name: str
    ok: bool | None
    text: str


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "doctor",
        help="check the build tools, the library and whether it gets active",
        description="Checks what `hakmem run` needs, and runs a small program to see that hakmem "
        "serves it. Exit status 0: all is well, 1: something is not.",
        epilog="examples:\n  hakmem doctor\n  hakmem doctor --json\n",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="as JSON")
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
            ["cmake", "--version"], capture_output=True, text=True, check=True, timeout=30
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
    if not project.library.is_file():
        return Finding("library", None, f"{project.library} is not built yet; run builds it")
    if not build.is_current(project):
        return Finding(
            "library", None, f"{project.library} is older than its sources; run rebuilds it"
        )
    return Finding("library", True, str(project.library))


def _environment() -> list[Finding]:
    return [
        Finding(name.lower(), None, f"{name}={value}")
        for name, value in sorted(os.environ.items())
        if name == "LD_PRELOAD" or name.startswith("HAKMEM_")
    ]


def _active(project: Project) -> Finding:
    """Runs the whole route on a program that allocates: this interpreter's dynamic parent, sh."""
    with TemporaryDirectory(prefix="hakmem-doctor-") as directory:
        summary = Path(directory) / "summary.json"
        command = [sys.executable, str(project.root / "hakmem"), "run", "--json"]
        probe = ["--summary-file", str(summary), "--", "/bin/sh", "-c", ":"]
        try:
            answer = subprocess.run(
                [*command, *probe], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S
            )
            facts = json.loads(summary.read_text(encoding="utf-8"))
        except (OSError, ValueError, subprocess.SubprocessError):
            said = answer.stderr.strip().splitlines()[-1:] if "answer" in locals() else []
            return Finding("active", False, said[0] if said else "the trial run gave no summary")
    if facts["active"] and answer.returncode == 0:
        return Finding("active", True, f"/bin/sh is served by {facts['library']}")
    return Finding("active", False, answer.stderr.strip() or f"verdict: {facts['verdict']}")


def run(options: argparse.Namespace) -> int:
    project = find_project()
    findings = _tools()
    version = _cmake_version()
    if version is not None:
        findings.append(version)
    findings.append(_library(project))
    findings.extend(_environment())
    try:
        can_run = project.library.is_file() or not build.missing_tools()
        findings.append(
            _active(project) if can_run else Finding("active", False, "the library cannot be built")
        )
    except HakmemError as error:
        findings.append(Finding("active", False, str(error)))
    healthy = all(finding.ok is not False for finding in findings)
    if options.json:
        facts = {
            "schema": render.DOCTOR_SCHEMA,
            "healthy": healthy,
            "findings": [vars(finding) for finding in findings],
        }
        sys.stdout.write(render.json_text(facts))
    else:
        style = render.environment_style(sys.stdout)
        marks = {True: style.good("ok  "), False: style.bad("BAD "), None: style.faint("note")}
        for finding in findings:
            sys.stdout.write(f"{marks[finding.ok]} {finding.name:<14} {finding.text}\n")
    return 0 if healthy else 1
