"""The allocators that are compared: the table, the choice, and how to get a missing one."""

from __future__ import annotations

import platform
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from . import cargo
from .cargo import Crate
from .errors import BenchError
from .layout import BENCH, TOP, display

LIBRARY_FOLDERS = tuple(
    Path(folder.format(machine=platform.machine()))
    for folder in (
        "/usr/lib/{machine}-linux-gnu",
        "/lib/{machine}-linux-gnu",
        "/usr/lib64",
        "/usr/lib",
        "/usr/local/lib",
    )
)


@dataclass(frozen=True)
class Allocator:
    """One column of the comparison: the file that must serve malloc, and how a process gets it."""

    name: str
    library: Path
    kind: str = "peer"
    preload: bool = True
    default: bool = True
    quick: bool = False
    # The file that does the work, where `library` only forwards to it.
    engine: Path | None = None
    package: str = ""
    crate: Crate | None = None
    made_by: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)
    # Workloads it is known to fail, and why: such a row is reported and no surprise.
    known_failures: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def installed(self) -> bool:
        """Whether the library can be used as it is."""
        if self.crate is not None:
            return cargo.is_current(self.name, self.crate)
        return self.library.is_file()

    def settings(self) -> dict[str, str]:
        """The variables that put this allocator into a process."""
        settings = dict(self.environment)
        if self.preload:
            settings["LD_PRELOAD"] = str(self.library)
        return settings

    def serves(self, file: str) -> bool:
        """Whether `file`, as a process names it, is this allocator's library."""
        return same_file(file, self.library)


def require_preloadable(allocator: Allocator) -> None:
    """BenchError where the loader would take the library's path for several, or for another."""
    names = {" ": "a space", ":": "a colon", "$": "a dollar"}
    found = next((name for sign, name in names.items() if sign in str(allocator.library)), None)
    if found is not None:
        raise BenchError(
            f"{allocator.name}: {allocator.library} cannot be preloaded, since there is {found} in "
            "its path: move it, or the tree that it is in"
        )


def same_file(file: str, library: Path) -> bool:
    """Whether a name that a process gave is that file on disk."""
    try:
        return bool(file) and Path(file).samefile(library)
    except OSError:
        return False


def locate(name: str) -> Path:
    """A library by its name in the table; the first candidate when it is nowhere."""
    if "/" in name:
        return TOP / name
    for folder in LIBRARY_FOLDERS:
        if (folder / name).is_file():
            return folder / name
    return LIBRARY_FOLDERS[0] / name


def known(file: Path = BENCH / "allocators.toml") -> dict[str, Allocator]:
    """Every allocator of the table, installed or not, in its order."""
    with file.open("rb") as table:
        rows = tomllib.load(table)
    found = {}
    for name, row in rows.items():
        row["library"] = locate(row["library"])
        if "engine" in row:
            row["engine"] = locate(row["engine"])
        if "crate" in row:
            row["crate"] = Crate.read(row["crate"])
        try:
            found[name] = Allocator(name=name, **row)
        except TypeError as error:
            raise BenchError(f"{display(file)}: {name}: {error}") from error
    return found


def read_own(entry: str) -> Allocator:
    """An allocator of the user's: --allocator NAME=PATH[,VARIABLE=VALUE]..."""
    first, *settings = entry.split(",")
    name, _, path = first.partition("=")
    variables = [setting.partition("=") for setting in settings]
    named = all(re.fullmatch(r"\w+", variable) and equals for variable, equals, _ in variables)
    if not path or not re.fullmatch(r"[\w.+-]+", name) or not named:
        raise BenchError(f"--allocator takes NAME=PATH[,VARIABLE=VALUE], not '{entry}'")
    return Allocator(
        name=name,
        library=Path(path).absolute(),
        environment={variable: value for variable, _, value in variables},
    )


def require_own(extra: Sequence[str]) -> None:
    """BenchError unless each of the user's own is a file."""
    for own in map(read_own, extra):
        if not own.library.is_file():
            raise BenchError(f"--allocator {own.name}: there is no file {own.library}")


def choose(
    names: Sequence[str] | None, extra: Sequence[str], *, quick: bool = False
) -> tuple[list[Allocator], list[Allocator]]:
    """The allocators to run, and those of the table that are not installed.

    Named ones must exist. Without names, all that are installed are taken, or with `quick` those of
    the quick set; but never those that are only run when named. `extra` holds the user's own, as
    `read_own` takes them.
    """
    table = known()
    own = {each.name: each for each in map(read_own, extra)}
    table.update(own)
    if names is None:
        wanted = [
            each.name for each in table.values() if each.default and (each.quick or not quick)
        ]
    else:
        wanted = list(names)
    for name in wanted:
        if name not in table:
            raise BenchError(f"no allocator '{name}'; known: {', '.join(table)}")
    chosen = [table[name] for name in dict.fromkeys([*wanted, *own])]
    # A path the user gave is always run: when it is wrong the run's proof says so.
    missing = [each for each in chosen if not each.installed and each.name not in own]
    if names is not None and missing:
        raise BenchError("; ".join(missing_text(each) for each in missing))
    there = [each for each in chosen if each not in missing]
    for each in there:
        if each.preload:
            require_preloadable(each)
    return there, missing


def missing_text(allocator: Allocator) -> str:
    """Why an allocator is left out, and how to get it."""
    if allocator.crate is not None:
        tools = cargo.missing_tools()
        source = f"./hakmem bench setup builds it from {allocator.crate.build}"
        if tools:
            source += f", which needs {', '.join(tools)}"
        state = "is of an older recipe" if allocator.library.is_file() else "is not there"
        return f"{allocator.name}: {display(allocator.library)} {state} ({source})"
    if allocator.package:
        source = f"Debian package {allocator.package}; ./hakmem bench setup installs it"
    else:
        source = f"made by: {allocator.made_by}" if allocator.made_by else "no such file"
    return f"{allocator.name}: {display(allocator.library)} is not there ({source})"
