"""java: native memory under the virtual machine."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution
from .layout import INPUTS

TURNS = 400
# Small fixed limits: how far the Java heap grows shall not depend on the machine.
LIMITS = ("-Xmx64m", "-XX:MaxDirectMemorySize=64m", "-XX:+UseSerialGC")


class Java(RealProgram):
    """The Java heap is not malloc's; direct buffers, zlib streams, threads and the compiler are."""

    name = "java"
    about = "direct buffers, zlib streams, 400 short threads, the just-in-time compiler"
    executable = Path("/usr/bin/java")
    packages = ("openjdk-17-jdk-headless",)
    threads = 4

    def make_inputs(self, folder: Path) -> None:
        shutil.copy(INPUTS / "Churn.java", folder)
        words = ["/usr/bin/javac", "-d", str(folder), str(folder / "Churn.java")]
        subprocess.run(words, check=True, capture_output=True, timeout=120)

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        turns = scaled(TURNS, scale)
        words = [str(self.executable), *LIMITS, "-cp", str(inputs), "Churn", str(turns)]
        return Outcome(turns * 8, "turns of 40 buffers", execution.command(words).stdout)
