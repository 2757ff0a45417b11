"""Gets what is compared onto this machine: Debian packages, crates, hakmem itself."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from . import cargo, cases, peers, workshop
from .errors import BenchError
from .layout import TOP
from .peers import Allocator


def say(text: str) -> None:
    """What is going on, for people."""
    print(text, file=sys.stderr, flush=True)


def build_crates(allocators: Sequence[Allocator]) -> list[str]:
    """Builds those that come as crates; returns what could not be built, with the reason."""
    failed = []
    for allocator in allocators:
        if allocator.crate is None or allocator.installed:
            continue
        say(f"building {allocator.name}: {allocator.crate.build} ...")
        try:
            cargo.build(allocator.name, allocator.crate)
        except BenchError as error:
            failed.append(str(error))
    return failed


def build_own(allocators: Sequence[Allocator]) -> None:
    """Builds hakmem when it is asked for and missing or older than its sources: measuring an old
    library by accident is the mistake that this harness exists to prevent."""
    if not any(each.kind == "own" for each in allocators):
        return
    from hakmem.build import ensure_library
    from hakmem.errors import HakmemError
    from hakmem.project import find_project

    try:
        ensure_library(find_project())
    except HakmemError as error:
        raise BenchError(str(error)) from error


def build_needed(names: Sequence[str] | None, *, quick: bool) -> None:
    """Before a measurement: builds hakmem, and the crates that were named or, in a full run, all
    that this machine can build. The quick mode takes what is there."""
    table = peers.known()
    wanted = [each for each in table.values() if names is None or each.name in names]
    build_own(wanted)
    if any(each.kind == "floor" for each in wanted):
        workshop.build()
    if names is None and (quick or cargo.missing_tools()):
        return
    failed = build_crates(wanted)
    for text in failed:
        say(text)
    if failed and names is not None:
        raise BenchError("not all of the named allocators could be built")


def install_packages() -> bool:
    """scripts/setup installs the Debian packages; it says what it does and what fails."""
    done = subprocess.run(
        [str(TOP / "scripts" / "setup"), "--bench"], stdout=sys.stderr, check=False
    )
    return done.returncode == 0


def everything() -> bool:
    """All packages, crates and programs; says what is still missing, and goes on after failures."""
    installed = install_packages()
    table = list(peers.known().values())
    failed = build_crates(table)
    build_own(table)
    workshop.build()
    for text in failed:
        say(text)
    missing = [peers.missing_text(each) for each in peers.known().values() if not each.installed]
    missing += [
        f"{case.name}: Debian packages {' '.join(case.real.packages)}"
        for case in cases.real()
        if case.real is not None and not case.real.installed
    ]
    for text in missing:
        say(f"still missing: {text}")
    if not missing:
        say("everything that is compared is on this machine")
    return installed and not missing
