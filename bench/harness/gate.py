"""The instruction table: what both hot paths of the built library cost, in exact counts.

Static: every hot function's path from entry to `ret`, taken from the disassembly. Dynamic:
callgrind counts of pairs of malloc and free, which also confirm that the static path is the one
that runs. The committed table is keyed by the compiler that made the library; a library made by a
compiler that the table does not know is held to the limits only.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import callgrind, disassembly, identity
from .disassembly import Disassembly, HitPath
from .errors import BenchError
from .layout import TOP
from .peers import Allocator
from .workshop import build

Table = dict[str, Any]

# Hot functions, and which of their values is the block's address.
ALLOCATING = ("malloc", "aligned_alloc", "memalign", "_Znwm", "_Znam")
FREEING = ("free", "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm")
BLOCK_BYTES = 64

# Pairs of malloc and free under callgrind: name -> blocks alive at once, pairs of the two runs.
# `single` never leaves the magazine; `hundred` crosses a node border in each round; `storm` holds
# more blocks than a thread caches that has learned nothing, so that nodes come from slabs and go
# back to them. In
# `watched` each block comes and goes by itself, as the first of each class of a thread do; of a
# size that the loader and the C library have no blocks of: theirs would change what a free meets.
# In `asked` each block's usable size is asked when it comes and when it goes; in `resized` each is
# given to realloc once, and stays where it is. In `hardened` more blocks are alive than its
# quarantine holds back, so that each free puts back one that was freed before.
PATTERNS = {
    "single": {"slots": 1, "warm": 10_000, "few": 10_000, "many": 110_000},
    "hundred": {"slots": 100, "warm": 10_000, "few": 10_000, "many": 110_000},
    "storm": {"slots": 10_000, "warm": 200_000, "few": 100_000, "many": 400_000},
    "watched": {"slots": 1, "warm": 1_000, "few": 5_000, "many": 25_000, "bytes": 448},
    "asked": {"slots": 100, "warm": 10_000, "few": 10_000, "many": 110_000, "ask": 1},
    "resized": {"slots": 100, "warm": 10_000, "few": 10_000, "many": 110_000, "resize": 1},
    "hardened": {"slots": 400, "warm": 10_000, "few": 4_000, "many": 44_000},
}
ENVIRONMENTS = {
    "storm": {"HAKMEM_LEARN": "0"},
    "watched": {"HAKMEM_WATCHED_OPERATIONS": "65535"},
    # Without samples: those are of the clock and of chance.
    "hardened": {"HAKMEM_MODE": "hardened", "HAKMEM_GUARD_SAMPLE": "0"},
}
# The slow halves whose cost per call is in the table.
SLOW_FUNCTIONS = ("heap_take", "heap_put")
# What the library does about a hundred times a second.
TICK_FUNCTION = "look_at_clock"


def library_under_test() -> Path:
    """HAKMEM_LIBRARY, which CTest sets to what it has built, or where `make lib` puts it."""
    path = Path(os.environ.get("HAKMEM_LIBRARY", TOP / "build" / "release" / "libhakmem.so"))
    if not path.is_file():
        raise BenchError(f"{path} is not there: make lib")
    return path.resolve()


def library_allocator(library: Path) -> Allocator:
    """The library under test."""
    if not library.is_file():
        raise BenchError(f"{library} is not there (made by: make lib)")
    return Allocator(name="hakmem", library=library)


def paths(code: Disassembly) -> dict[str, HitPath]:
    """The hit path of every hot function."""
    found = {name: code.hit_path(name, "result") for name in ALLOCATING if name in code.symbols}
    found |= {name: code.hit_path(name, "argument") for name in FREEING if name in code.symbols}
    return found


def path_figures(path: HitPath) -> Table:
    """The numbers of one path that the table holds."""
    return {
        "instructions": len(path.instructions),
        "loads": path.loads,
        "stores": path.stores,
        "prefetches": path.prefetches,
    }


def path_problems(path: HitPath, limits: Mapping[str, int]) -> list[str]:
    """What is wrong with a path, whichever compiler made it."""
    figures = path_figures(path)
    problems = [
        f"{path.function}: {figures[key]} {key}, at most {limit} are allowed"
        for key, limit in limits.items()
        if figures[key] > limit
    ]
    problems += [f"{path.function}: atomic instruction: {text}" for text in path.atomics]
    problems += [f"{path.function}: touches the block: {text}" for text in path.block_accesses]
    return problems


def load_time_choices(library: Path) -> list[str]:
    """Names whose code a resolver would choose at load time: then one table could not hold."""
    kinds = disassembly.symbol_kinds(library)
    return [
        f"{name}: chosen at load time (symbol kind {kinds[name][1]})"
        for name in (*ALLOCATING, *FREEING)
        if name in kinds and kinds[name][1] not in "TWV"
    ]


def count_pattern(
    library: Path, name: str, environment: Mapping[str, str] | None = None
) -> tuple[callgrind.Counts, int]:
    """Callgrind's counts of a pattern, and the number of pairs they are of."""
    pattern = PATTERNS[name]
    counts = callgrind.per_operation(
        library_allocator(library),
        build() / "pairs",
        {
            "slots": pattern["slots"],
            "warm": pattern["warm"],
            "min": pattern.get("bytes", BLOCK_BYTES),
            "max": pattern.get("bytes", BLOCK_BYTES),
            "ask": pattern.get("ask", 0),
            "resize": pattern.get("resize", 0),
        },
        environment or ENVIRONMENTS.get(name, {}),
        few=pattern["few"],
        many=pattern["many"],
    )
    return counts, pattern["many"] - pattern["few"]


def pair_figures(library: Path, counts: callgrind.Counts, pairs: int) -> Table:
    """Instructions of one pair: in the library, and with the two calls and the loop around them.

    Without the ticks, of which a slow machine counts more.
    """
    inside = sum(callgrind.in_file(counts, library).values())
    _, ticks = callgrind.function_calls(counts, TICK_FUNCTION)
    return {
        "library": round((inside - ticks) / pairs, 2),
        "with_calls_and_loop": round((counts.total - ticks) / pairs, 2),
    }


def unconfirmed(
    library: Path, counts: callgrind.Counts, pairs: int, code: Disassembly
) -> list[str]:
    """Where the counted run disagrees with the static path.

    In the `single` pattern each instruction of both paths runs exactly once per pair, and no other
    instruction of the library runs at all.
    """
    executed = callgrind.in_file(counts, library)
    problems = []
    expected: set[int] = set()
    for name, block in (("malloc", "result"), ("free", "argument")):
        for instruction in code.hit_path(name, block).instructions:
            expected.add(instruction.address)
            times = executed.get(instruction.address, 0)
            if times != pairs:
                problems.append(f"{name}: '{instruction}' ran {times} times in {pairs} pairs")
    extra = {address: times for address, times in executed.items() if address not in expected}
    if extra:
        problems.append(
            f"{sum(extra.values())} instructions ran outside of the two paths, "
            f"the first at {min(extra):x}"
        )
    return problems


def slow_figures(counts: callgrind.Counts) -> Table:
    """Instructions per call of the slow halves, everything below them included."""
    figures = {}
    for name in (*SLOW_FUNCTIONS, TICK_FUNCTION):
        calls, instructions = callgrind.function_calls(counts, name)
        if calls == 0:
            raise BenchError(f"the storm never called {name}: was it renamed or inlined?")
        figures[name] = round(instructions / calls, 1)
    del figures[TICK_FUNCTION]
    return figures


def measure(library: Path) -> Table:
    """Everything that the table holds for one compiler."""
    figures: Table = {
        "paths": {
            name: path_figures(path) for name, path in paths(disassembly.read(library)).items()
        },
        "pairs": {},
    }
    for name in PATTERNS:
        counts, pairs = count_pattern(library, name)
        figures["pairs"][name] = pair_figures(library, counts, pairs)
        if name == "storm":
            figures["slow"] = slow_figures(counts)
    return figures


def compiler_of(library: Path) -> str:
    """The key of the table."""
    name = identity.compiler(library)
    if not name:
        raise BenchError(f"{library} does not say which compiler made it (section .comment)")
    return name


def load(table: Path) -> Table:
    """The committed table."""
    loaded: Table = json.loads(table.read_text())
    return loaded


def differences(expected: Mapping[str, Any], found: Mapping[str, Any], percent: float) -> list[str]:
    """Where two trees of numbers differ by more than `percent`; 0 means exactly equal."""
    problems = []
    for key in sorted(expected.keys() | found.keys()):
        if key not in expected or key not in found:
            problems.append(f"{key}: only in the {'table' if key in expected else 'library'}")
        elif isinstance(expected[key], Mapping):
            inner = differences(expected[key], found[key], percent)
            problems += [f"{key}: {problem}" for problem in inner]
        elif abs(found[key] - expected[key]) > abs(expected[key]) * percent / 100:
            problems.append(f"{key}: {found[key]}, the table says {expected[key]}")
    return problems
