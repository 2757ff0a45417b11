"""gcc and g++: the compilers proper, on large files.

The drivers only start other programs; what is measured is cc1 and cc1plus, which do the work.
"""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution

FUNCTIONS = 90
CLASSES = 7
STANDARD = "-std=c++17"


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
    about = f"cc1 on a generated C file of {FUNCTIONS} functions, -O2"
    executable = Path("/usr/bin/gcc")
    packages = ("gcc",)

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        functions = scaled(FUNCTIONS, scale)
        source = execution.directory / "generated.c"
        source.write_text(c_source(functions))
        words = [compiler("gcc", "cc1"), "-quiet", "-O2", str(source), "-o", "generated.s"]
        execution.command(words)
        return Outcome(functions, "functions", (execution.directory / "generated.s").read_bytes())


def cxx_source(classes: int) -> str:
    """C++ classes that each bring their own instances of the library's templates, without the
    headers."""
    chance = random.Random(6)
    parts = []
    for number in range(classes):
        fields = "".join(f"    int field{i} = {i};\n" for i in range(chance.randrange(2, 6)))
        parts.append(
            f"struct Item{number} {{\n{fields}"
            f"    bool operator<(const Item{number} &other) const {{\n"
            f"        return field1 % {chance.randrange(3, 99)} < other.field1;\n"
            f"    }}\n"
            f"}};\n"
            f"std::size_t sum{number}(std::map<std::string, std::vector<Item{number}>> &all) {{\n"
            f"    std::size_t total = 0;\n"
            f"    for (auto &[name, items] : all) {{\n"
            f"        std::sort(items.begin(), items.end());\n"
            f"        items.push_back(Item{number}{{}});\n"
            f"        total += name.size() * items.size() + items.back().field0;\n"
            f"    }}\n"
            f"    all[std::to_string(total)] = {{}};\n"
            f"    return total;\n"
            f"}}\n"
        )
    return "".join(parts)


class Gxx(RealProgram):
    """C++: many instances of the standard library's templates."""

    name = "g++"
    about = f"cc1plus on {CLASSES} generated classes with maps, vectors and sorts, -O1"
    executable = Path("/usr/bin/g++")
    packages = ("g++",)

    def make_inputs(self, folder: Path) -> None:
        headers = folder / "headers.cc"
        names = ("algorithm", "map", "string", "vector")
        headers.write_text("".join(f"#include <{name}>\n" for name in names))
        words = ["/usr/bin/g++", STANDARD, "-E", "-P", str(headers), "-o"]
        subprocess.run([*words, str(folder / "headers.ii")], check=True, timeout=60)

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        classes = scaled(CLASSES, scale)
        source = execution.directory / "generated.ii"
        source.write_text((inputs / "headers.ii").read_text() + cxx_source(classes))
        words = [compiler("g++", "cc1plus"), "-quiet", STANDARD, "-O1", "-fpreprocessed"]
        execution.command([*words, str(source), "-o", "generated.s"])
        return Outcome(classes, "classes", (execution.directory / "generated.s").read_bytes())
