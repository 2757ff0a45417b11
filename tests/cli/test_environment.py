"""Bad input from the environment, given to a real program: its exact message, and that it runs on.

What the parser makes of single values is tests/config; this is the whole way from execve on.
"""

from __future__ import annotations

import os
import random
import string
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.support import (
    CAP_DAC_OVERRIDE,
    CAP_DAC_READ_SEARCH,
    Compile,
    call,
    clean_environment,
    library,
    without,
)

STATUS = 9
KIB = 1024
# Of the name of a profile in a message.
PROFILE_SHOWN = 128
CUT = "no further warnings about them"

Start = Callable[..., list[str]]


@pytest.fixture
def start(build_program: Compile) -> Start:
    """start(HAKMEM_X="1") runs a program on the library; the lines it drew on standard error."""

    def run_with(before: Callable[[], None] | None = None, **variables: str) -> list[str]:
        environment = clean_environment(LD_PRELOAD=str(library()), **variables)
        outcome = call(
            [build_program("plain.c"), str(STATUS)], environment=environment, preexec_fn=before
        )
        assert outcome.status == STATUS, outcome.stderr
        assert outcome.stdout == b""
        return outcome.stderr.splitlines()

    return run_with


def number(name: str, value: str, rest: str) -> str:
    return f"hakmem: option {name}: value '{value}' is not a number {rest}"


MODES = "is not one of fast, lean, hardened, research, kept fast"
BYTES = "of bytes (0..68719476736), kept 67108864"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("HAKMEM_NO_SUCH", "1", "hakmem: option HAKMEM_NO_SUCH: unknown, ignored"),
        ("HAKMEM_", "1", "hakmem: option HAKMEM_: unknown, ignored"),
        ("HAKMEM_check", "1", "hakmem: option HAKMEM_check: unknown, ignored"),
        ("HAKMEM_CHECK", "", number("HAKMEM_CHECK", "", "(0..2), kept 0")),
        ("HAKMEM_CHECK", "-1", number("HAKMEM_CHECK", "-1", "(0..2), kept 0")),
        ("HAKMEM_CHECK", "3", number("HAKMEM_CHECK", "3", "(0..2), kept 0")),
        ("HAKMEM_CHECK", "one", number("HAKMEM_CHECK", "one", "(0..2), kept 0")),
        ("HAKMEM_CHECK", " 1", number("HAKMEM_CHECK", " 1", "(0..2), kept 0")),
        ("HAKMEM_CHECK", "1 ", number("HAKMEM_CHECK", "1 ", "(0..2), kept 0")),
        ("HAKMEM_CHECK", "0x1", number("HAKMEM_CHECK", "0x1", "(0..2), kept 0")),
        ("HAKMEM_CHECK", "1e0", number("HAKMEM_CHECK", "1e0", "(0..2), kept 0")),
        ("HAKMEM_CHECK", "9" * 20, number("HAKMEM_CHECK", "9" * 20, "(0..2), kept 0")),
        (
            "HAKMEM_PREWARM_BLOCKS",
            "18446744073709551616",
            number("HAKMEM_PREWARM_BLOCKS", str(2**64), "of blocks (0..4096), kept 0"),
        ),
        ("HAKMEM_HUGE_CACHE_BYTES", "-1", number("HAKMEM_HUGE_CACHE_BYTES", "-1", BYTES)),
        ("HAKMEM_HUGE_CACHE_BYTES", "65G", number("HAKMEM_HUGE_CACHE_BYTES", "65G", BYTES)),
        ("HAKMEM_HUGE_CACHE_BYTES", "1KB", number("HAKMEM_HUGE_CACHE_BYTES", "1KB", BYTES)),
        (
            "HAKMEM_HUGE_CACHE_BYTES",
            "18014398509481985G",
            number("HAKMEM_HUGE_CACHE_BYTES", "18014398509481985G", BYTES),
        ),
        ("HAKMEM_MODE", "", f"hakmem: option HAKMEM_MODE: value '' {MODES}"),
        ("HAKMEM_MODE", "quick", f"hakmem: option HAKMEM_MODE: value 'quick' {MODES}"),
        (
            "HAKMEM_ABORT",
            "maybe",
            "hakmem: option HAKMEM_ABORT: value 'maybe' is not 0 or 1, kept 1",
        ),
        (
            "HAKMEM_CHECK",
            "\x1b[2Jx\n",
            number("HAKMEM_CHECK", r"\x1b[2Jx\x0a", "(0..2), kept 0"),
        ),
        (
            "HAKMEM_CONF",
            "nonsense",
            "hakmem: option nonsense in HAKMEM_CONF: has no ':' and value, ignored",
        ),
        ("HAKMEM_CONF", "a:1", "hakmem: option a in HAKMEM_CONF: unknown, ignored"),
        (
            "HAKMEM_CONF",
            "check:x",
            "hakmem: option check in HAKMEM_CONF: value 'x' is not a number (0..2), kept 0",
        ),
    ],
)
def test_bad_value_draws_one_line(start: Start, variable: str, value: str, message: str) -> None:
    assert start(**{variable: value}) == [message]


@pytest.mark.parametrize("variable", ["HAKMEM_CONF", "HAKMEM_PROFILE", "HAKMEM_REPORT"])
def test_empty_source_is_none(start: Start, variable: str) -> None:
    assert start(**{variable: ""}) == []


# ---- 100 KiB


@pytest.mark.parametrize("variable", ["HAKMEM_CHECK", "HAKMEM_MODE", "HAKMEM_REPORT"])
def test_value_of_100_kib_is_shown_in_part(start: Start, variable: str) -> None:
    (line,) = start(**{variable: "7" * (100 * KIB)})
    assert line.startswith(f"hakmem: option {variable}: value '{'7' * 64}...' is not ")
    assert len(line) < 300


def test_name_of_100_kib_is_shown_in_part(start: Start) -> None:
    (line,) = start(**{"HAKMEM_" + "N" * (100 * KIB): "1"})
    assert line == f"hakmem: option HAKMEM_{'N' * 64}...: unknown, ignored"


def test_path_of_100_kib_is_no_profile(start: Start) -> None:
    (line,) = start(HAKMEM_PROFILE="p" * (100 * KIB))
    assert line == profile_line("p" * (100 * KIB), "is too long for a path")


def test_list_of_100_kib_is_read_to_its_end_and_warns_no_more_than_it_must(start: Start) -> None:
    lines = start(HAKMEM_CONF="a:1," * (25 * KIB) + "verbose:1")
    warnings = [line for line in lines if "(" not in line]
    assert warnings[:8] == ["hakmem: option a in HAKMEM_CONF: unknown, ignored"] * 8
    assert len(warnings) == 9
    assert CUT in warnings[8]
    assert any(line.startswith("hakmem: verbose") and "HAKMEM_CONF" in line for line in lines)


def test_a_thousand_wrong_variables_do_not_flood(start: Start) -> None:
    lines = start(**{f"HAKMEM_WRONG_{i}": "1" for i in range(1000)})
    assert len(lines) == 9
    assert CUT in lines[-1]


@pytest.mark.parametrize("seed", range(6))
def test_random_bytes_never_stop_a_program(start: Start, seed: int) -> None:
    source = random.Random(seed)
    letters = [chr(code) for code in range(1, 256)]
    words = [*string.ascii_lowercase, "mode", "check", "huge_cache_bytes", ":", ",", "=", "9", "\n"]
    text = "".join(source.choice(letters if seed % 2 else words) for _ in range(20 * KIB))
    lines = start(HAKMEM_CONF=text, HAKMEM_MODE=text, HAKMEM_PROFILE=text[:300])
    assert len(lines) <= 60


# ---- Profiles


def profile_line(path: Path | str, what: str) -> str:
    """As a whole or not at all: there is one line."""
    shown = str(path)
    shown = shown if len(shown) <= PROFILE_SHOWN else shown[:PROFILE_SHOWN] + "..."
    return f"hakmem: profile '{shown}' {what}; the default is used"


def test_profile_that_cannot_be_read(start: Start, tmp_path: Path) -> None:
    unreadable = tmp_path / "unreadable"
    unreadable.write_text("mode=lean\n", encoding="utf-8")
    unreadable.chmod(0)
    # Root reads its own files as others do then.
    drop_override = without(CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH)
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    below = unreadable / "file"
    for path, before, what in (
        (unreadable, drop_override, "cannot be opened (error 13)"),
        (loop, None, "cannot be opened (error 40)"),
        (below, None, "cannot be opened (error 20)"),
        (tmp_path / "missing", None, "does not exist"),
        (tmp_path, None, "is not a regular file"),
    ):
        assert start(before=before, HAKMEM_PROFILE=str(path)) == [profile_line(path, what)]


def test_profile_that_never_ends(start: Start, tmp_path: Path) -> None:
    """Nothing here may wait: a FIFO without a writer, devices, a file of a terabyte."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(1 << 40)
    for path, what in (
        (fifo, "is not a regular file"),
        (Path("/dev/zero"), "is not a regular file"),
        (Path("/dev/tty"), "is not a regular file"),
        (sparse, "is larger than 65536 bytes"),
    ):
        (line,) = start(HAKMEM_PROFILE=str(path))
        # Without a terminal /dev/tty cannot be opened.
        assert line in (profile_line(path, what), profile_line(path, "cannot be opened (error 6)"))


def test_hostile_profile(start: Start, tmp_path: Path) -> None:
    profile = tmp_path / "profile"
    profile.write_bytes(b"mode=lean\0\n")
    assert start(HAKMEM_PROFILE=str(profile)) == [profile_line(profile, "is not a text file")]
    profile.write_bytes(bytes(random.Random(1).randbytes(60 * KIB)).replace(b"\0", b"x"))
    assert len(start(HAKMEM_PROFILE=str(profile))) == 1
    profile.write_bytes(b"=" * (64 * KIB))
    (line,) = start(HAKMEM_PROFILE=str(profile))
    assert line.endswith("...' is no option; the default is used")
    profile.write_bytes(b"check=1\ncheck=2\n")
    (line,) = start(HAKMEM_PROFILE=str(profile))
    assert line.endswith("line 2: check '2' is there twice; the default is used")


# ---- AT_SECURE


@pytest.mark.parametrize("linkage", ["static", "archive", "shared"])
def test_secure_program_takes_no_option(
    build_program: Compile, tmp_path: Path, linkage: str
) -> None:
    """The loader drops LD_PRELOAD by itself, so the program has the library linked."""
    folder = library().parent
    archive = ["-Wl,--undefined=malloc", str(folder / "libhakmem.a"), "-lpthread"]
    flags = {
        "static": ["-static", *archive],
        "archive": archive,
        "shared": ["-Wl,--no-as-needed", str(library()), f"-Wl,-rpath,{folder}"],
    }[linkage]
    program = build_program("plain.c", *flags)
    runner = build_program("secure.c")
    profile = tmp_path / "profile"
    profile.write_text("check=1\n", encoding="utf-8")
    environment = clean_environment(
        HAKMEM_VERBOSE="1",
        HAKMEM_MODE="hardened",
        HAKMEM_NO_SUCH="1",
        HAKMEM_CONF="nonsense",
        HAKMEM_PROFILE=str(profile),
        HAKMEM_REPORT=str(tmp_path),
        HAKMEM_STATS_AT_EXIT="1",
    )
    # The control: started in the same way, but not secure, it takes them all.
    heeded = call([runner, "0", program, str(STATUS)], environment=environment)
    assert heeded.status == STATUS
    assert "hakmem: option HAKMEM_NO_SUCH: unknown, ignored\n" in heeded.stderr
    assert "hardened" in heeded.stderr
    reports = set(tmp_path.iterdir())
    assert len(reports) > 1
    secure = call([runner, "1", program, str(STATUS)], environment=environment)
    assert (secure.status, secure.stdout, secure.stderr) == (STATUS, b"", "")
    assert set(tmp_path.iterdir()) == reports
