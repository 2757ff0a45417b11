"""Allocators that a file brings under names of their own, as servers do that have their own
jemalloc in them, and programs in Rust: no name of malloc leads there, so nothing can replace them,
and what they serve hakmem does not see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hakmem.elf import read_definitions

# What defines one of these has that allocator in it.
NAMES = {
    "je_malloc": "jemalloc",
    "je_arrow_malloc": "jemalloc",
    "duckdb_je_malloc": "jemalloc",
    "_rjem_malloc": "jemalloc",  # Rust's tikv-jemallocator
    "mi_malloc": "mimalloc",
    "rpmalloc": "rpmalloc",
    "sn_rust_alloc": "snmalloc",
    "scalable_malloc": "the malloc of TBB",
    "tc_malloc": "tcmalloc",
}


@dataclass(frozen=True)
class Bundled:
    module: str
    allocator: str

    def __str__(self) -> str:
        return f"{self.allocator} under a name of its own: what that serves, hakmem does not see"


def find_bundled(files: Mapping[str, Path], known: Iterable[str]) -> tuple[Bundled, ...]:
    """Of modules and where their files are; not of those `known` to have an allocator."""
    found = ((module, _allocator(file)) for module, file in files.items() if module not in known)
    return tuple(Bundled(module, allocator) for module, allocator in found if allocator)


@lru_cache(maxsize=4096)
def _allocator(file: Path) -> str | None:
    defined = read_definitions(file, NAMES)
    return next((NAMES[name] for name in NAMES if name in defined), None)
