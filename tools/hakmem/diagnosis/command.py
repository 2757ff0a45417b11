"""Would a program run on hakmem? Found out without running it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from hakmem import preload
from hakmem.diagnosis import machine, surface, trial
from hakmem.diagnosis.finding import Finding
from hakmem.diagnosis.variables import variable_findings
from hakmem.diagnosis.verdict import bindings_findings
from hakmem.errors import HakmemError
from hakmem.folders import temporary_folder
from hakmem.project import Project

# Any program that is served says what is in effect (HAKMEM_VERBOSE).
PROBE = "/bin/true"
TIMEOUT_S = 60
VERBOSE = re.compile(r"hakmem: (\w+) +(\S*) +\((.+)\)")
NOT_INSTALLED = re.compile(r"hakmem: (profile '.*' is (?:not installed|no name).*)")
UNREMARKABLE = ("default", "mode")


def examine(
    command: Sequence[str], environment: Mapping[str, str], project: Project, library: Path
) -> list[Finding]:
    """`environment` is what the program would be given, without the library. Its arguments count
    for the loader's own name alone: they tell what that starts."""
    findings: list[Finding] = []
    program: Path | None = None
    try:
        target = preload.examine(command[0], environment)
        started = command[1:] if preload.is_loader(target.program) else []
        program = Path(target.program) if not preload.is_loader(target.program) else None
        if not library.is_file():
            absent = "not built yet; `make lib` builds it" if project.is_tree else "missing"
            raise HakmemError(f"{library} is {absent}")
        preload.require_same_architecture(target, library)
        findings.append(Finding("program", True, f"{target.program} can be preloaded into"))
        with _preloadable(library) as path:
            value = preload.preload_value(path, environment.get("LD_PRELOAD"))
            preloaded = {**environment, "LD_PRELOAD": value}
            bound = trial.link([target.program, *started], preloaded, surface.malloc_names(project))
            names = {path: str(library.absolute())}
            proof = [
                replace(
                    line,
                    module=names.get(line.module, line.module),
                    provider=names.get(line.provider, line.provider),
                )
                for line in bound
            ]
            modules = {target.program, *(line.module for line in proof)}
            files = {module: Path(module) for module in sorted(modules)}
            findings += bindings_findings(proof, names[path], files)
            if preload.carries_hakmem(target.program):
                findings.append(Finding("program", None, preload.CARRIES))
            text = "what it loads later (dlopen) is seen only by `hakmem run`"
            findings.append(Finding("bindings", None, text))
            findings += options_in_effect(preloaded)
    except HakmemError as error:
        findings.append(Finding("program", False, str(error)))
    findings += variable_findings(environment, project, version=project.version, program=program)
    return [*findings, *machine.examine()]


@contextmanager
def _preloadable(library: Path) -> Iterator[str]:
    """As `hakmem run` names the library to the loader."""
    path = str(library.absolute())
    if preload.is_preloadable(path):
        yield path
        return
    with temporary_folder("hakmem-doctor-") as folder:
        yield preload.preloadable_path(library, folder)


def options_in_effect(preloaded: Mapping[str, str]) -> list[Finding]:
    """What would be in effect, by the library's own word."""
    try:
        said = subprocess.run(
            [PROBE],
            env={**preloaded, "HAKMEM_VERBOSE": "1"},
            capture_output=True,
            text=True,
            errors="backslashreplace",  # the loader repeats names as they are
            timeout=TIMEOUT_S,
            check=False,
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        return [Finding("option", None, f"{PROBE} did not say what is in effect: {error}")]
    found = [
        Finding("option", None, f"{name}={value} ({origin})")
        for name, value, origin in VERBOSE.findall(said)
        if name == "mode" or (origin not in UNREMARKABLE and name != "verbose")
    ]
    return found + [Finding("option", False, text) for text in NOT_INSTALLED.findall(said)]
