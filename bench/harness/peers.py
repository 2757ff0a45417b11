"""The allocators that are compared, and the identity of each library file."""

from __future__ import annotations

import hashlib
import platform
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

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
    """One row's allocator: the file that must serve malloc, and how a process gets it."""

    name: str
    library: Path
    preload: bool = True
    package: str = ""
    made_by: str = ""
    arguments: Mapping[str, object] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def installed(self) -> bool:
        """Whether the library file exists."""
        return self.library.is_file()

    def settings(self) -> dict[str, str]:
        """The variables that put this allocator into a process."""
        settings = dict(self.environment)
        if self.preload:
            settings["LD_PRELOAD"] = str(self.library)
        return settings

    def serves(self, file: str) -> bool:
        """Whether `file`, as a process names it, is this allocator's library."""
        try:
            return bool(file) and Path(file).samefile(self.library)
        except OSError:
            return False


def _locate(name: str) -> Path:
    if "/" in name:
        return TOP / name
    for folder in LIBRARY_FOLDERS:
        if (folder / name).is_file():
            return folder / name
    return LIBRARY_FOLDERS[0] / name


def known(file: Path = BENCH / "allocators.toml") -> dict[str, Allocator]:
    """Every allocator of the table, installed or not."""
    with file.open("rb") as table:
        rows = tomllib.load(table)
    return {
        name: Allocator(
            name=name,
            library=_locate(row["library"]),
            preload=row.get("preload", True),
            package=row.get("package", ""),
            made_by=row.get("made_by", ""),
            arguments=row.get("arguments", {}),
            environment=row.get("environment", {}),
        )
        for name, row in rows.items()
    }


def choose(names: list[str] | None, extra: list[str]) -> tuple[list[Allocator], list[Allocator]]:
    """The allocators to run, and those of the table that are not installed.

    Named ones must exist; without names, all that are installed are taken. `extra` holds the user's
    own, as NAME=PATH.
    """
    table = known()
    own: dict[str, Allocator] = {}
    for entry in extra:
        name, equals, path = entry.partition("=")
        if not equals or not re.fullmatch(r"[\w.+-]+", name):
            raise BenchError(f"--allocator takes NAME=PATH, not '{entry}'")
        own[name] = Allocator(name=name, library=Path(path).absolute())
    table.update(own)
    wanted = [*(names if names is not None else table), *own]
    for name in wanted:
        if name not in table:
            raise BenchError(f"no allocator '{name}'; known: {', '.join(table)}")
    chosen = [table[name] for name in dict.fromkeys(wanted)]
    missing = [allocator for allocator in chosen if not allocator.installed]
    if names is not None:
        for allocator in missing:
            if allocator.name in names:
                raise BenchError(missing_text(allocator))
    # A path the user gave is always run: when it is wrong the run's proof says so.
    return [each for each in chosen if each.installed or each.name in own], [
        each for each in missing if each.name not in own
    ]


def missing_text(allocator: Allocator) -> str:
    """Why an allocator is left out, and how to get it."""
    if allocator.package:
        source = f"Debian package {allocator.package}"
    else:
        source = f"made by: {allocator.made_by}" if allocator.made_by else "no such file"
    return f"{allocator.name}: {display(allocator.library)} is not there ({source})"


def build_id(library: Path) -> str:
    """The GNU build id that the linker put into the file; empty when there is none."""
    if shutil.which("readelf") is None:
        return ""
    notes = subprocess.run(
        ["readelf", "--notes", str(library)], capture_output=True, text=True, check=False
    ).stdout
    found = re.search(r"Build ID: ([0-9a-f]+)", notes)
    return found.group(1) if found else ""


def compiler(library: Path) -> str:
    """The compiler that the file says made it; empty when it does not say."""
    if shutil.which("readelf") is None:
        return ""
    comment = subprocess.run(
        ["readelf", "--string-dump=.comment", str(library)],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found = re.findall(r"\]\s+(.*\S)", comment)
    return "; ".join(dict.fromkeys(found))


def identity(allocator: Allocator) -> dict[str, object]:
    """What the manifest keeps about a library, enough to tell two builds apart."""
    if not allocator.installed:
        return {"library": display(allocator.library), "missing": True}
    version = ""
    if allocator.package and shutil.which("dpkg-query"):
        version = subprocess.run(
            ["dpkg-query", "--show", "--showformat=${Version}", allocator.package],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
    return {
        "library": display(allocator.library.resolve()),
        "sha256": hashlib.sha256(allocator.library.read_bytes()).hexdigest(),
        "build_id": build_id(allocator.library),
        "compiler": compiler(allocator.library),
        "package": f"{allocator.package} {version}".strip(),
        "environment": dict(allocator.environment),
    }


def changed(
    allocators: Iterable[Allocator], before: Mapping[str, Mapping[str, object]]
) -> list[str]:
    """Allocators whose library is no longer the file that `before` identifies."""
    return [each.name for each in allocators if identity(each) != before[each.name]]
