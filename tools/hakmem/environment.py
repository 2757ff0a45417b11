"""The Python environment of the verbs that need more than Python itself: build/venv, or where a
wheel was installed, the packages beside it."""

from __future__ import annotations

import filecmp
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hakmem import interruption
from hakmem.errors import HakmemError, UsageError
from hakmem.project import Project

# Python's own variable is for the Python that the user calls, which may be of another version than
# the one of build/venv; programs that hakmem starts get it back.
HOME, KEPT_HOME = "PYTHONHOME", "PYTHONHOME_KEPT_BY_HAKMEM"
READER, DEVELOPER = ("requirements.txt",), ("requirements.txt", "requirements-dev.txt")


def enter(project: Project, lists: Sequence[str] = READER) -> None:
    """Goes on in build/venv, which is made when it is missing or out of date; `lists` are files of
    scripts/ that name its packages. Where a wheel was installed its packages are there already.

    The command is executed again from its beginning, so this comes before anything that has an
    effect.
    """
    if project.is_tree:
        _go_on_in_venv(project, lists)
    # What all of these verbs need, and what tells of a Ctrl-C as of a damaged installation.
    with interruption.at_once():
        import numpy  # noqa: F401


def _go_on_in_venv(project: Project, lists: Sequence[str]) -> None:
    folder = project.build / "venv"
    is_inside = sys.prefix == str(folder)
    # With the interpreter of build/venv itself, what a reader needs is there; it is not replaced.
    needed = [name for name in lists if not (is_inside and name in READER)]
    if not all(_is_installed(project, folder, name) for name in needed):
        _install(project, folder, lists)
    if is_inside:
        if KEPT_HOME in os.environ:
            os.environ[HOME] = os.environ.pop(KEPT_HOME)
        return
    python = folder / "bin" / "python"
    if sys.executable == str(python):
        raise UsageError(f"{python} does not look for packages in {folder}: not by python3 -S")
    environment = dict(os.environ)
    if HOME in environment:
        environment[KEPT_HOME] = environment.pop(HOME)
    try:
        # Not by sys.argv: of `python3 -m hakmem` that has a file, and not what it was found by.
        os.execve(python, [str(python), *sys.orig_argv[1:]], environment)
    except OSError as error:
        raise HakmemError(f"{python}: {error.strerror}") from error


def _is_installed(project: Project, folder: Path, name: str) -> bool:
    try:
        is_same = filecmp.cmp(project.root / "scripts" / name, folder / name, shallow=False)
        return is_same and _is_of_this_python(folder) and (name in READER or _is_in_place(folder))
    except OSError:
        return False


def _noted(folder: Path) -> dict[str, str]:
    text = (folder / "pyvenv.cfg").read_text(encoding="utf-8", errors="surrogateescape")
    return dict(line.partition(" = ")[::2] for line in text.splitlines())


def _is_of_this_python(folder: Path) -> bool:
    """Its packages lie below the version of its Python; scripts/setup looks as well."""
    python = folder / "bin" / "python"
    is_same = not python.is_symlink() or _noted(folder).get("executable") == str(python.resolve())
    return is_same and python.exists()


def _is_in_place(folder: Path) -> bool:
    """Its programs, which a reader does not need, name the folder in which it was made."""
    command = _noted(folder).get("command", "")
    made = Path(command.rpartition(" -m venv ")[2])
    return made.is_absolute() and made.exists() and made.samefile(folder)


def _install(project: Project, folder: Path, lists: Sequence[str]) -> None:
    words = " and ".join(f"scripts/{name}" for name in lists)
    option = "--reader" if lists == READER else "--python"
    place = project.build if project.build.exists() else project.root
    if not os.access(place, os.W_OK | os.X_OK):
        raise UsageError(
            f"the Python packages of {words} are not in {folder}, and this user may not write "
            f"there: whoever owns it runs scripts/setup {option} once"
        )
    setup = [str(project.root / "scripts" / "setup"), option]
    if subprocess.run(setup, stdout=sys.stderr, check=False).returncode != 0:
        raise UsageError(f"the Python packages of {words} could not be installed")
