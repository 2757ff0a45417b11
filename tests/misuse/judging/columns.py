"""The columns of the board: allocators, and hakmem in its modes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import identity, peers, proof
from harness.environment import CLEAN_ENVIRONMENT
from harness.peers import Allocator
from judging import outcome
from judging.cases import PLAIN, PREFIX, Case
from judging.outcome import Run, ServedByAnotherError

OWN = {
    "hakmem_fast": {"HAKMEM_MODE": "fast"},
    "hakmem_lean": {"HAKMEM_MODE": "lean"},
    "hakmem_hardened": {"HAKMEM_MODE": "hardened", "HAKMEM_GUARD_SAMPLE": "0"},
    "hakmem_fast_no_abort": {"HAKMEM_MODE": "fast", "HAKMEM_ABORT": "0"},
    "hakmem_hardened_no_abort": {
        "HAKMEM_MODE": "hardened",
        "HAKMEM_ABORT": "0",
        "HAKMEM_GUARD_SAMPLE": "0",
    },
}
# Not on the board: the floor is no allocator, and hakmem's columns are above.
LEFT_OUT = ("own", "floor")


@dataclass(frozen=True)
class Column:
    """One allocator as it is put into a process."""

    name: str
    allocator: Allocator
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, programs: Path, case: Case) -> Run | None:
        """The case in a process of its own; None where the allocator has nothing of the kind."""
        added = case.environment(self.name)
        if added is None:
            return None
        environment = {
            **CLEAN_ENVIRONMENT,
            **self.allocator.settings(),
            **self.environment,
            "MISUSE_WORKLOAD": "1",
            **added,
        }
        run = outcome.start(programs / f"{PREFIX}{case.program}", environment)
        for file in outcome.served_by(run):
            if not self.allocator.serves(file):
                raise ServedByAnotherError(
                    f"{self.name}: {case.name} ran on {file}, not on {self.allocator.library}"
                )
        return run

    def prove(self, programs: Path) -> dict[str, Any]:
        """What makes the column this allocator's: where the loader binds malloc's names. A proxy
        looks up the functions that it replaces, so there only the process itself can speak."""
        program = str(programs / f"{PREFIX}{PLAIN}")
        known = identity.identity(self.allocator)
        if self.allocator.engine is None:
            known["bound"] = proof.verify_bindings([program], self.allocator)
        return known


def own(library: Path, *, every: bool) -> list[Column]:
    """hakmem's modes; with `every` also those that report and go on."""
    allocator = Allocator(name="hakmem", library=library.absolute(), kind="own")
    return [
        Column(name, allocator, settings)
        for name, settings in OWN.items()
        if every or "HAKMEM_ABORT" not in settings
    ]


def c_library() -> Column:
    """glibc."""
    return Column("glibc", peers.known()["glibc"])


def others() -> list[Column]:
    """Every installed peer."""
    return [
        Column(each.name, each)
        for each in peers.known().values()
        if each.kind not in LEFT_OUT and each.installed and each.name != "glibc"
    ]


def missing() -> list[str]:
    """Peers that are not here, with how to get them."""
    return [
        peers.missing_text(each)
        for each in peers.known().values()
        if each.kind not in LEFT_OUT and not each.installed
    ]
