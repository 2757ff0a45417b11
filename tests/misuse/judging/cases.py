"""The cases of the board: one per program, and what a hostile environment adds."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PREFIX = "misuse_"
CONTRACT = "contract_"
# The program whose run is only as good as its environment.
PLAIN = "contract_sound_use"

# Where an allocator takes a number from the environment, as NAME=TEXT with {} for the value.
NUMBER = {
    "hakmem": "HAKMEM_PURGE_DELAY_MS={}",
    "glibc": "GLIBC_TUNABLES=glibc.malloc.mmap_threshold={}",
    "mimalloc": "MIMALLOC_PURGE_DELAY={}",
    "mimalloc2_deb": "MIMALLOC_RESET_DELAY={}",
    "jemalloc": "MALLOC_CONF=dirty_decay_ms:{}",
    "tcmalloc": "TCMALLOC_MAX_TOTAL_THREAD_CACHE_BYTES={}",
    "scudo": "SCUDO_OPTIONS=release_to_os_interval_ms={}",
}
# A setting that does not exist, where an allocator would look for one.
UNKNOWN = {
    "hakmem": "HAKMEM_NO_SUCH_OPTION=1",
    "glibc": "GLIBC_TUNABLES=glibc.malloc.no_such_tunable=1",
    "mimalloc": "MIMALLOC_NO_SUCH_OPTION=1",
    "jemalloc": "MALLOC_CONF=no_such_option:1",
    "tcmalloc": "TCMALLOC_NO_SUCH_OPTION=1",
    "scudo": "SCUDO_OPTIONS=no_such_option=1",
}
VALUES = {
    "empty": "",
    "negative": "-1",
    "huge": "99999999999999999999999999",
    "text": "plenty",
    "100_kib": "9" * 100 * 1024,
}


@dataclass(frozen=True)
class Case:
    """One row of the board. Contract cases ask for something and check the answer; the others make
    a mistake."""

    name: str
    program: str
    contract: bool
    # By allocator, or by the first word of its name: what is added to its environment.
    settings: Mapping[str, str] = field(default_factory=dict)

    def environment(self, allocator: str) -> dict[str, str] | None:
        """What the case adds for an allocator; None where it has nothing of the kind."""
        if not self.settings:
            return {}
        text = self.settings.get(allocator, self.settings.get(allocator.split("_")[0]))
        if text is None and allocator.startswith("mimalloc"):
            text = self.settings.get("mimalloc")
        if text is None:
            return None
        name, _, value = text.partition("=")
        return {name: value}


def profiles(folder: Path) -> dict[str, str]:
    """Profile files that are none, made in a folder; by kind of badness."""
    hostile = folder / "hostile"
    hostile.write_bytes(bytes(range(256)) * 64 + b"mode=\nmode=" + b"x" * 70000 + b"\n=\n=1\nmode")
    unreadable = folder / "unreadable"
    unreadable.write_text("mode=lean\n")
    unreadable.chmod(0)
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    return {
        "missing": str(folder / "missing"),
        "directory": str(folder),
        "unreadable": str(unreadable),
        "endless": "/dev/zero",
        "pipe": str(pipe),
        "hostile": str(hostile),
    }


def from_environment(folder: Path) -> list[Case]:
    """The cases of a hostile environment; files that they need are made in the folder."""
    found = [Case("environment_unknown_name", PLAIN, True, UNKNOWN)]
    for kind, value in VALUES.items():
        settings = {name: text.replace("{}", value) for name, text in NUMBER.items()}
        found.append(Case(f"environment_{kind}", PLAIN, True, settings))
    for kind, path in profiles(folder).items():
        found.append(
            Case(f"environment_profile_{kind}", PLAIN, True, {"hakmem": f"HAKMEM_PROFILE={path}"})
        )
    return found


def from_programs(folder: Path) -> list[Case]:
    """A case for every program that was built."""
    names = sorted(each.name.removeprefix(PREFIX) for each in folder.glob(f"{PREFIX}*"))
    return [Case(name, name, name.startswith(CONTRACT)) for name in names]


def about(sources: Path) -> dict[str, str]:
    """What each program does: the comment at its top."""
    found = {}
    for source in [*sources.glob("*.c"), *sources.glob("*.cc")]:
        lines = []
        for line in source.read_text().splitlines():
            if not line.startswith("//"):
                break
            lines.append(line.removeprefix("//").strip())
        found[source.stem] = " ".join(lines)
    return found


def read(file: Path) -> dict[str, dict[str, str]]:
    """A kept board: case, column, outcome."""
    outcomes: dict[str, dict[str, str]] = json.loads(file.read_text())["outcomes"]
    return outcomes
