"""Builds the library when it is missing or older than its sources."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from hakmem.errors import HakmemError
from hakmem.project import Project

SOURCES = ("src", "include", "cmake", "CMakeLists.txt", "CMakePresets.json", "Makefile")
LOG_LINES_SHOWN = 30
PERCENT = re.compile(r"^\[\s*(\d+)%\]")


@dataclass(frozen=True)
class Tool:
    """A program the build needs, and the Debian package that brings it."""

    names: tuple[str, ...]
    package: str

    def find(self) -> str | None:
        return next((path for name in self.names if (path := shutil.which(name))), None)


def build_tools() -> list[Tool]:
    compilers = {"CC": ("gcc", "cc"), "CXX": ("g++", "c++")}
    packages = {"CC": "gcc", "CXX": "g++"}
    tools = [Tool(("cmake",), "cmake")]
    for variable, names in compilers.items():
        chosen = os.environ.get(variable, "").split(" ")[0]
        tools.append(Tool((chosen,) if chosen else names, chosen or packages[variable]))
    return [*tools, Tool(("make",), "make"), Tool(("python3",), "python3")]


def missing_tools() -> list[Tool]:
    return [tool for tool in build_tools() if tool.find() is None]


def require_tools() -> None:
    missing = missing_tools()
    if not missing:
        return
    names = ", ".join(tool.names[0] for tool in missing)
    packages = " ".join(tool.package for tool in missing)
    raise HakmemError(
        f"libhakmem.so has to be built first, and {names} {'is' if len(missing) == 1 else 'are'} "
        f"missing; on Debian: sudo apt-get install {packages}"
    )


def newest_source(project: Project) -> float:
    """When a source was last changed, added or removed."""
    newest = 0.0
    for name in SOURCES:
        path = project.root / name
        if path.is_dir():
            for directory, _, files in os.walk(path):
                newest = max(newest, Path(directory).stat().st_mtime)
                for file in files:
                    # An editor's lock is a link to nothing, and its other files come and go.
                    with suppress(OSError):
                        newest = max(newest, (Path(directory) / file).stat().st_mtime)
        elif path.exists():
            newest = max(newest, path.stat().st_mtime)
    return newest


def is_current(project: Project) -> bool:
    """Whether no source was changed since the build of the library began: what was changed while it
    ran need not be in it. Of a library that make did not build only its own time is known."""
    try:
        library = project.library.stat()
    except OSError:
        return False
    built = library.st_mtime
    with suppress(OSError):
        # By the Makefile: its time is when the build began, and it was made when that ended. A
        # later library is of something else, as `cmake --build`.
        noted = (project.build / "release.built").stat()
        if library.st_mtime <= noted.st_ctime:
            built = noted.st_mtime
    return built >= newest_source(project)


@contextmanager
def _locked(project: Project) -> Iterator[None]:
    try:
        project.build.mkdir(exist_ok=True)
        lock = (project.build / "hakmem-run.lock").open("w", encoding="ascii")
    except OSError as error:
        raise HakmemError(f"cannot build below {project.build}: {error.strerror}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ensure_library(project: Project) -> Path:
    """The path of an up-to-date libhakmem.so; two commands at once build it once. That of a wheel
    is the wheel's."""
    if not project.is_tree:
        return project.library
    if is_current(project):
        return project.library
    require_tools()
    with _locked(project):
        if not is_current(project):
            _build(project)
    return project.library


def _build_environment() -> dict[str, str]:
    """The user's, without what is meant for the program to be run, or for a make around us."""
    foreign = ("LD_PRELOAD", "MAKEFLAGS", "MFLAGS", "MAKELEVEL", "DESTDIR")
    return {
        name: value
        for name, value in os.environ.items()
        if name not in foreign and not name.startswith("HAKMEM_")
    }


def _build(project: Project) -> None:
    log = project.build / "hakmem-run.log"
    progress = Progress(f"hakmem: building {project.library.name} (release)")
    tail: deque[str] = deque(maxlen=LOG_LINES_SHOWN)
    with (
        log.open("w", encoding="utf-8") as record,
        subprocess.Popen(
            ["make", "--no-print-directory", "-C", str(project.root), "lib"],
            env=_build_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as make,
    ):
        assert make.stdout is not None
        for line in make.stdout:
            record.write(line)
            tail.append(line)
            percent = PERCENT.match(line)
            progress.show(percent[1] if percent else None)
    progress.end(make.returncode == 0)
    if make.returncode != 0:
        sys.stderr.writelines(tail)
        raise HakmemError(f"the build failed; all of its output is in {log}")
    if not project.library.is_file():
        raise HakmemError(f"the build made no {project.library}; its output is in {log}")


class Progress:
    """One line on stderr: kept up to date on a terminal, a beginning and an end elsewhere."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.started = time.monotonic()
        self.live = sys.stderr.isatty()
        if not self.live:
            self._write(f"{title} ...\n")

    def show(self, percent: str | None) -> None:
        if self.live and percent is not None:
            self._write(f"\r\x1b[K{self.title} {percent:>3} %")

    def end(self, succeeded: bool) -> None:
        seconds = time.monotonic() - self.started
        if self.live:
            self._write("\r\x1b[K")
        if succeeded:
            self._write(f"{self.title}: done in {seconds:.0f} s\n")

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()
