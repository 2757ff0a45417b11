"""Profiles: what is written is what is read, and what is wrong is named."""

from __future__ import annotations

import re
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hakmem.options import read_options
from hakmem.project import find_project
from hakmem.tune.format import read_format
from hakmem.tune.profile_file import (
    Profile,
    ProfileError,
    Setting,
    parse,
    read,
    render,
)
from hakmem.tune.recorder import build_id
from tests.cli.support import call
from tests.inspect.support.targets import preloaded

PROJECT = find_project()
TABLE = read_options(PROJECT.options_table)
FORMAT = read_format(PROJECT)
PROGRAM = "/bin/true"
SIZES = st.integers(1, 4095).map(lambda step: step * 16)


def _fitting(rows: list[tuple[int, int | None]]) -> tuple[tuple[int, int | None], ...]:
    """Rising, with no more blocks to a slab than it may have."""
    return (
        *(
            (size, pages and min(pages, size // 16))
            for size, pages in sorted(rows, key=itemgetter(0))
        ),
        (65536, 8),
    )


CLASSES = st.lists(
    st.tuples(SIZES, st.none() | st.integers(1, FORMAT.slab_pages_max)),
    max_size=FORMAT.classes_max - 1,
    unique_by=itemgetter(0),
).map(_fitting)


@st.composite
def _profiles(draw: st.DrawFn) -> Profile:
    classes = draw(st.just(()) | CLASSES)
    sizes = st.sampled_from([size for size, _ in classes] or FORMAT.block_sizes)
    ready = draw(
        st.lists(st.tuples(sizes, st.integers(1, 16)), max_size=4, unique_by=itemgetter(0))
    )
    chosen = [(), (Setting("purge_delay_ms", "10", "why"), Setting("mode", "lean"))]
    return Profile(
        settings=draw(st.sampled_from([*chosen, (Setting("prewarm", "5"), Setting("abort", "1"))])),
        size_classes=classes,
        prewarm=tuple(ready),
        build_id=draw(st.sampled_from(["", build_id(PROGRAM)])),
        version=draw(st.sampled_from(["", PROJECT.version])),
        about=tuple(draw(st.lists(st.text("abc #=\t", max_size=200), max_size=3))),
        classes_reason=draw(st.sampled_from(["", "fits"])),
    )


PROFILES = _profiles()


def plain(profile: Profile) -> Profile:
    """Without what is only for people."""
    return Profile(
        settings=tuple(Setting(each.name, each.value) for each in profile.settings),
        size_classes=profile.size_classes,
        prewarm=profile.prewarm,
        build_id=profile.build_id,
        version=profile.version,
    )


@settings(max_examples=100, deadline=None, derandomize=True)
@given(PROFILES)
def test_what_is_written_is_read(profile: Profile) -> None:
    assert parse(render(profile), TABLE, FORMAT) == plain(profile)


OWN_ID = build_id(PROGRAM)
# What is wrong wherever it is read, with what is said of it here.
WRONG = [
    ("purge_delay_ms", "line 1: 'purge_delay_ms' is no NAME=VALUE"),
    ("no_such=1", "line 1: 'no_such' is no option"),
    ("=1", "line 1: '' is no option"),
    ("site=0a1b+0x40:16:2", "'site' is no option"),
    ("\npurge_delay_ms=soon", "line 2: purge_delay_ms: 'soon' is not a number"),
    ("retain_slabs=1\nretain_slabs=1", "line 2: retain_slabs is there twice"),
    ("prewarm=1\nprewarm_blocks=1", "line 2: prewarm_blocks is there twice"),
    ("verbose=1", "verbose: '1' is not for a profile to set"),
    ("report=/tmp", "report: '/tmp' is not for a profile to set"),
    ("mode=research", "mode: 'research' is not for a profile to set"),
    ("abort=0", "abort: '0' lowers a check"),
    ("cache_total_bytes=1G", "cache_total_bytes: '1G' raises a limit"),
    ("retain_slabs=1\vabort=1", "is not a number"),
    ("profile_format=2", "format '2' is not known"),
    ("profile_format=1\nprofile_format=1", "line 2: profile_format is there twice"),
    ("program_build_id=xyz", "'xyz' is no build id"),
    ("program_build_id=abc", "'abc' is no build id"),
    (f"program_build_id={'ab' * 33}", "is no build id"),
    (
        f"program_build_id={OWN_ID}\nprogram_build_id={OWN_ID}",
        "line 2: program_build_id is there twice",
    ),
    ("size_class=24\nsize_class=65536", "multiples of 16"),
    ("size_class=64\nsize_class=32", "size classes rise, and 32 follows 64"),
    ("size_class=65552", "'65552' is no block size"),
    ("size_class=64:0", "'0' is no number of pages"),
    ("size_class=65536:33", "'33' is no number of pages (1 to 32)"),
    ("size_class=16:2\nsize_class=65536", "a slab has more than 4096 blocks"),
    ("\n".join(f"size_class={16 * n}" for n in (*range(1, 73), 4096)), "more than 72 size classes"),
    ("size_class=64", "the last size class must be 65536"),
    ("prewarm=64:", "'' is no number of blocks"),
    ("prewarm=16:4097", "'4097' is no number of blocks (1 to 4096)"),
    ("\n".join(f"prewarm={n}:1" for n in range(1, 66)), "more than 64 such lines"),
    ("prewarm=1:1\nprewarm=16:1", "line 2: the size class of 16 is there twice"),
    ("prewarm=4097:961", "line 1: more than 4194304 bytes"),
    ("prewarm=1:65\nsize_class=65536", "line 1: more than 4194304 bytes"),
    ("retain_slabs=1\0", "a NUL byte is no text"),
    ("#" * (FORMAT.file_bytes_max + 1), "larger than 65536 bytes"),
]
RIGHT = [
    "prewarm=5",
    "prewarm=5\nprewarm=4097:960",
    "prewarm=1:64\nsize_class=65536",
    " size_class = 1K : 2 # two\r\nsize_class=64k\n",
    "\n".join(f"size_class={16 * n}" for n in (*range(1, 72), 4096)),
    "mode=hardened",
    "cache_total_bytes=32M\nabort=1",
    f"program_build_id={OWN_ID.upper()}",
    "#" * FORMAT.file_bytes_max,
]


def said(text: str, folder: Path) -> str:
    """What the library says of a profile: nothing when it takes it."""
    file = folder / "a.profile"
    file.write_text(text, encoding="utf-8", newline="")
    done = call([PROGRAM], environment=preloaded(HAKMEM_PROFILE=str(file)))
    assert done.status == 0
    return done.stderr


@settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(PROFILES)
def test_the_library_takes_what_is_written(tmp_path: Path, profile: Profile) -> None:
    assert said(render(profile), tmp_path) == ""


def test_what_lean_presets_can_be_set_one_by_one(tmp_path: Path) -> None:
    """So that a profile can have a part of the mode, and tune can find which."""
    presets = [each for each in TABLE.presets if each.mode == "lean"]
    text = "".join(f"{each.option}={each.value}\n" for each in presets)
    assert len(presets) > 8
    assert said(text, tmp_path) == ""
    assert len(parse(text, TABLE, FORMAT).settings) == len(presets)


@pytest.mark.parametrize("text", RIGHT)
def test_what_the_library_takes_is_read(text: str, tmp_path: Path) -> None:
    assert said(text, tmp_path) == ""
    parse(text, TABLE, FORMAT)


@pytest.mark.parametrize("text", [text for text, _ in WRONG])
def test_the_library_refuses_what_is_wrong_here(text: str, tmp_path: Path) -> None:
    assert "; the default is used\n" in said(text, tmp_path)


@pytest.mark.parametrize(("text", "complaint"), WRONG)
def test_what_is_wrong_is_named(text: str, complaint: str) -> None:
    with pytest.raises(ProfileError, match=re.escape(complaint)):
        parse(text, TABLE, FORMAT)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "a.profile"
    file.write_bytes(b"retain_slabs=2\n\0")
    with pytest.raises(ProfileError, match="line 2: a NUL byte is no text"):
        read(file, TABLE, FORMAT)


def test_comments_may_be_in_any_encoding(tmp_path: Path) -> None:
    """As for the library."""
    file = tmp_path / "a.profile"
    file.write_bytes(b"# caf\xe9\nretain_slabs=2\n")
    assert read(file, TABLE, FORMAT).settings == (Setting("retain_slabs", "2"),)
    done = call([PROGRAM], environment=preloaded(HAKMEM_PROFILE=str(file)))
    assert (done.status, done.stderr) == (0, "")
    file.write_bytes(b"retain_slabs=\xe9\n")
    with pytest.raises(ProfileError, match="line 1: retain_slabs: "):
        read(file, TABLE, FORMAT)
    assert (
        "the default is used"
        in call([PROGRAM], environment=preloaded(HAKMEM_PROFILE=str(file))).stderr
    )


def test_reasons_stand_above_their_lines() -> None:
    lines = render(
        Profile(settings=(Setting("mode", "lean", "because"),), about=("head",))
    ).splitlines()
    assert lines[0] == "# head"
    assert lines[lines.index("mode=lean") - 1] == "# because"
