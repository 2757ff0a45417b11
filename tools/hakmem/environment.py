"""The Python environment of the verbs that need more than Python itself: build/venv."""

from __future__ import annotations

import filecmp
import os
import subprocess
import sys

from hakmem import interruption
from hakmem.errors import HakmemError, UsageError
from hakmem.project import Project


def enter(project: Project) -> None:
    """Goes on in build/venv, which is made when it is missing or out of date.

    The command is executed again from its beginning, so this comes before anything that has an
    effect.
    """
    folder = project.build / "venv"
    if sys.prefix == str(folder):
        # What all of these verbs need, and what tells of a Ctrl-C as of a damaged installation.
        with interruption.at_once():
            import numpy  # noqa: F401
        return
    python = folder / "bin" / "python"
    wanted, there = project.root / "scripts" / "requirements.txt", folder / "requirements.txt"
    if not (python.exists() and there.exists() and filecmp.cmp(wanted, there, shallow=False)):
        setup = [str(project.root / "scripts" / "setup"), "--python"]
        if subprocess.run(setup, stdout=sys.stderr, check=False).returncode != 0:
            raise UsageError(
                "the Python packages of scripts/requirements.txt could not be installed"
            )
    try:
        os.execv(python, [str(python), *sys.argv])
    except OSError as error:
        raise HakmemError(f"{python}: {error.strerror}") from error
