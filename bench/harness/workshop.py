"""Builds the workload programs, the probes and the floor allocator."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

from .errors import BenchError
from .layout import BENCH, PROGRAMS


def build(folder: Path = PROGRAMS) -> Path:
    """Builds what is missing or older than its source; returns the folder.

    Two commands that start at the same time wait for each other.
    """
    for tool, package in (("cmake", "cmake"), ("cc", "gcc")):
        if shutil.which(tool) is None:
            raise BenchError(f"{tool} is missing (Debian package {package})")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (
            ["cmake", "-S", str(BENCH), "-B", str(folder)],
            ["cmake", "--build", str(folder), "--parallel", "2"],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise BenchError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return folder
