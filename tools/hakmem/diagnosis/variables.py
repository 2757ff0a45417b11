"""The variables of an environment that hakmem and the loader read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from hakmem import elf
from hakmem.diagnosis.finding import Finding
from hakmem.errors import HakmemError
from hakmem.options import BLANKS, Option, OptionTable, read_options
from hakmem.project import Project
from hakmem.tune import profile_file
from hakmem.tune.format import read_format

NOT_TAKEN = "at the start it could not be read, or was not right"
NOT_INSTALLED = "at the start it was not installed where the library looks, or was not right"
# Sources of several options, which are no options themselves.
CONF, PROFILE = "HAKMEM_CONF", "HAKMEM_PROFILE"
VALUE_LENGTH_MAX = 200
UNKNOWN = "there is no such option"


def variable_findings(
    environment: Mapping[str, str],
    project: Project,
    *,
    root: Path = Path("/"),
    directory: Path = Path(),
    others: Collection[str] = (),
    version: str | None = None,
    program: Path | None = None,
    has_profile: bool | None = None,
) -> list[Finding]:
    """Each with what is wrong about it: what the library ignores is not all right. `root` and
    `directory`: where paths begin for the program. `others`: options that its library has beyond
    this tree's. `version` of the library, the `program`'s file, and whether its library took a
    profile, where they are known."""
    table = read_options(project.options_table)
    findings = []
    for name, value in sorted(environment.items()):
        if name != "LD_PRELOAD" and not name.startswith("HAKMEM_"):
            continue
        if name == CONF:
            problem = _conf_problem(value, table, others)
        elif name == PROFILE:
            # What was taken at the start counts, whatever became of the file.
            if has_profile:
                problem = None
            else:
                problem = _profile_problem(value, project, table, root, directory, version, program)
            if problem is None and has_profile is False:
                problem = NOT_TAKEN if "/" in value else NOT_INSTALLED
        elif name == "LD_PRELOAD":
            problem = None
        else:
            own = name.removeprefix("HAKMEM_")
            is_name = own.isascii() and own == own.upper()
            problem = _problem(own.lower(), value, table, others) if is_name else UNKNOWN
        text = f"{name}={_shown(value)}"
        if problem is not None:
            text += f": ignored, because {problem}"
        findings.append(Finding("variable", None if problem is None else False, text))
    return findings


def _problem(name: str, value: str, table: OptionTable, others: Collection[str]) -> str | None:
    option: Option | None = table.find(name)
    if option is None:
        return None if name in others else UNKNOWN
    problem = option.problem(value)
    return None if problem is None else f"the value {problem}"


def _conf_problem(text: str, table: OptionTable, others: Collection[str]) -> str | None:
    """Of any of its items, name:value with commas between."""
    problems = []
    for item in (item.strip(BLANKS) for item in text.split(",")):
        name, colon, value = (part.strip(BLANKS) for part in item.partition(":"))
        problem = _problem(name, value, table, others) if colon else "it has no ':' and value"
        if item and problem is not None:
            problems.append(f"of {_shown(item)!r} {problem}")
    return "; ".join(problems) or None


def _profile_problem(
    value: str,
    project: Project,
    table: OptionTable,
    root: Path,
    directory: Path,
    version: str | None,
    program: Path | None,
) -> str | None:
    """Of a file; what is installed under a name is the library's to find."""
    if "/" not in value:
        return None
    path = root / value.lstrip("/") if value.startswith("/") else directory / value
    try:
        # A pipe would be waited for.
        if not path.is_dir() and path.exists() and not path.is_file():
            return "it is not a regular file"
        with path.open("rb"):
            pass
    except OSError as error:
        # What we may not look at, the process perhaps may.
        return None if isinstance(error, PermissionError) else f"{error.strerror}".lower()
    try:
        profile = profile_file.read(path, table, read_format(project))
    except HakmemError as error:
        return f"{error}".removeprefix(f"{path}: ")
    if version is not None and profile.version not in ("", version):
        return f"it is for hakmem {profile.version}, and this is {version}"
    build_id = elf.read_build_id(program) if profile.build_id and program is not None else None
    if build_id is not None and build_id != profile.build_id.lower():
        return f"it is for another program or build, of the build id {profile.build_id}"
    return None


def _shown(value: str) -> str:
    return value if len(value) <= VALUE_LENGTH_MAX else value[:VALUE_LENGTH_MAX] + "..."
