"""Where the parts of the real programs' runs lie."""

from __future__ import annotations

from pathlib import Path

from harness.layout import PROGRAMS

# Fixed inputs that are kept in the repository; others are generated.
INPUTS = Path(__file__).with_name("inputs")
LAUNCHER_SOURCE = Path(__file__).with_name("launch.c")
# Built by bench/CMakeLists.txt.
LAUNCHER = PROGRAMS / "launch"
WITNESS = PROGRAMS / "libwitness.so"
