"""gcc and g++: the compilers proper, on large files.

The drivers only start other programs; what is measured is cc1 and cc1plus, which do the work.
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution
from .layout import INPUTS

FUNCTIONS = 90


def compiler(driver: str, name: str) -> str:
    """The file of the compiler that a driver starts."""
    found = subprocess.run(
        [driver, f"-print-prog-name={name}"], check=True, capture_output=True, text=True, timeout=30
    )
    return found.stdout.strip()


def c_source(functions: int) -> str:
    """A C file of many functions that differ: loops, switches, structures, calls to one another."""
    chance = random.Random(5)
    parts = ["struct item { int kind; long value; struct item *next; unsigned char text[24]; };\n"]
    for number in range(functions):
        cases = "".join(
            f"        case {case}: total += at->value * {chance.randrange(2, 99)}"
            f" + at->text[{chance.randrange(24)}]; break;\n"
            for case in range(chance.randrange(4, 16))
        )
        callee = f"walk{chance.randrange(number)}(at, limit / 2)" if number else "limit"
        parts.append(
            f"long walk{number}(struct item *list, int limit) {{\n"
            f"    long total = {number};\n"
            f"    for (struct item *at = list; at && limit-- > 0; at = at->next) {{\n"
            f"        switch (at->kind) {{\n{cases}"
            f"        default: if (total & {1 << chance.randrange(8)}) total ^= {callee};\n"
            f"        }}\n"
            f"        for (int i = 0; i < {chance.randrange(8, 24)}; i++)\n"
            f"            at->text[i] = (unsigned char)(total >> (i & 7)) ^ at->text[23 - i];\n"
            f"    }}\n"
            f"    return total;\n"
            f"}}\n"
        )
    return "".join(parts)


class Gcc(RealProgram):
    """C: many functions, optimised."""

    name = "gcc"
    about = "cc1 on a generated C file of 90 functions, -O2"
    executable = Path("/usr/bin/gcc")
    packages = ("gcc",)

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        functions = scaled(FUNCTIONS, scale)
        source = execution.directory / "generated.c"
        source.write_text(c_source(functions))
        words = [compiler("gcc", "cc1"), "-quiet", "-O2", str(source), "-o", "generated.s"]
        execution.command(words)
        return Outcome(functions, "functions", (execution.directory / "generated.s").read_bytes())


class Gxx(RealProgram):
    """C++: templates of the standard library, preprocessed beforehand."""

    name = "g++"
    about = "cc1plus on containers and templates, -O1 -g"
    executable = Path("/usr/bin/g++")
    packages = ("g++",)

    def make_inputs(self, folder: Path) -> None:
        words = ["/usr/bin/g++", "-std=c++17", "-E", "-P", str(INPUTS / "containers.cc"), "-o"]
        subprocess.run([*words, str(folder / "containers.ii")], check=True, timeout=60)

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        del scale  # One file is the least there is.
        words = [compiler("g++", "cc1plus"), "-quiet", "-std=c++17", "-O1", "-g", "-fpreprocessed"]
        execution.command([*words, str(inputs / "containers.ii"), "-o", "containers.s"])
        return Outcome(1, "files", (execution.directory / "containers.s").read_bytes())
