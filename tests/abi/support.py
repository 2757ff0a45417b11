"""The compilers, and commands that must not fail."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CC = os.environ.get("CC", "cc")
CXX = os.environ.get("CXX", "c++")


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        command,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        input="one line\n",
        text=True,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}"
    return done.stdout
