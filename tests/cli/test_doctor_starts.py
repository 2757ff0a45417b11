"""hakmem doctor and run on programs that were started, or linked, in seldom ways."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from hakmem import elf
from tests.cli.support import ROOT, Compile, Run, library
from tests.cli.test_doctor import NOBODY, doctor, examine, napping, texts
from tests.patience import HANG_SECONDS


def loader() -> str:
    """That of this machine's programs."""
    with Path("/bin/sh").open("rb") as file:
        header = elf.read_program(file)
    assert header is not None and header.loader is not None
    return header.loader


@pytest.mark.parametrize("flags", [[], ["-no-pie", "-fno-pic"]])
def test_process_that_was_started_by_the_name_of_the_loader(
    build_program: Compile, flags: Sequence[str]
) -> None:
    nap = build_program("nap.c", *flags)
    with napping(nap, [loader()], LD_PRELOAD=str(library())) as pid:
        status, facts = examine(pid)
    assert status == 0, facts
    assert texts(facts, "program") == [f"{nap}, started by the name of its loader"]
    assert texts(facts, "active", True)[0].endswith(f": {library()}")
    (bound,) = texts(facts, "bindings", True)
    assert bound.startswith("all ") and bound.endswith(f"lead to {library()}")


@pytest.mark.parametrize(
    ("preload", "reason"),
    [
        (None, "was started without hakmem in LD_PRELOAD"),
        ("/nowhere/libhakmem.so", "which does not exist where the process runs"),
    ],
)
def test_process_of_the_loader_that_is_not_served(
    build_program: Compile, preload: str | None, reason: str
) -> None:
    changes: dict[str, str] = {} if preload is None else {"LD_PRELOAD": preload}
    with napping(build_program("nap.c"), [loader()], **changes) as pid:
        status, facts = examine(pid)
    assert status == 1
    (text,) = texts(facts, "active", False)
    assert reason in text
    assert any("libc.so.6" in text for text in texts(facts, "allocator"))


def test_command_of_the_loader(run: Run, build_program: Compile) -> None:
    plain = build_program("plain.c")
    outcome, facts = doctor(loader(), plain)
    assert outcome.status == 0, facts
    assert texts(facts, "bindings", True)[0].endswith(f"lead to {library()}")
    ran = run(loader(), plain)
    assert ran.status == 0, ran.stderr
    assert "hakmem: active: every malloc symbol" in ran.stderr
    static = run(loader(), build_program("plain.c", "-static"))
    assert static.status == 125 and "NOT ACTIVE" in static.stderr


def test_process_for_another_libc_by_the_name_of_its_loader(build_program: Compile) -> None:
    musl = build_program("nap.c").with_name("nap-musl")
    source = ROOT / "tests/cli/programs/nap.c"
    subprocess.run(["musl-gcc", "-o", musl, source], check=True, timeout=HANG_SECONDS)
    with musl.open("rb") as file:
        header = elf.read_program(file)
    assert header is not None and header.loader is not None
    with napping(musl, [header.loader]) as pid:
        _, facts = examine(pid)
    (text,) = texts(facts, "active", False)
    assert "uses the loader of another libc" in text
    outcome, facts = doctor(header.loader, musl)
    assert outcome.status == 1
    assert any("the loader of musl" in text for text in texts(facts, "program", False))


def test_library_that_is_linked_for_an_address(build_program: Compile) -> None:
    """As prelink makes them: the file does not begin where its addresses begin to count."""
    place = "-Wl,-Ttext-segment=0x600000000000"
    linked = build_program("own_malloc.c", "-shared", "-fPIC", place)
    nap = build_program("nap.c", "-Wl,--no-as-needed", str(linked))
    with napping(nap, LD_PRELOAD=str(library())) as pid:
        status, facts = examine(pid)
    assert status == 0, facts
    assert texts(facts, "bindings", True)[0].endswith(f"lead to {library()}")
    assert any(f"({linked})" in text for text in texts(facts, "own malloc"))


def test_setuid_program_of_its_own_user_is_not_called_secure(build_program: Compile) -> None:
    """Only root can look at one of another user; its own user is told the same."""
    user = NOBODY if os.geteuid() == 0 else None
    # Not below tmp_path, which is root's alone.
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        program = Path(folder) / "setuid"
        program.write_bytes(build_program("nap.c").read_bytes())
        if user is not None:
            os.chown(program, user, -1)
        program.chmod(0o4755)
        with napping(program, (), user) as pid:
            _, facts = examine(pid)
    (text,) = texts(facts, "active", False)
    assert "was started without hakmem in LD_PRELOAD" in text
