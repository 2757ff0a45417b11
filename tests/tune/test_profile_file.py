"""Profiles: what is written is what is read, and what is wrong is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hakmem.options import read_options
from hakmem.project import find_project
from hakmem.tune.profile_file import (
    FILE_BYTES_MAX,
    Profile,
    ProfileError,
    Setting,
    parse,
    read,
    render,
)

TABLE = read_options(find_project().options_table)
LIMITS = st.integers(1, 4095).map(lambda step: step * 16)
CLASSES = st.lists(
    st.tuples(LIMITS, st.none() | st.integers(1, 64)), max_size=67, unique_by=lambda row: row[0]
).map(lambda rows: (*sorted(rows, key=lambda row: row[0]), (65536, 8)))
PROFILES = st.builds(
    Profile,
    settings=st.sampled_from(
        [(), (Setting("purge_delay_ms", "10", "why"), Setting("mode", "lean"))]
    ),
    size_classes=st.just(()) | CLASSES,
    prewarm=st.lists(st.tuples(LIMITS, st.integers(1, 4096)), max_size=4).map(tuple),
    sites=st.sampled_from([(), ("0a1b+0x40:16-64:2", "ff+0x1:32:0")]),
    build_id=st.sampled_from(["", "0123abcd"]),
    version=st.sampled_from(["", "0.1.0"]),
    about=st.lists(st.text("abc #=\t", max_size=200), max_size=3).map(tuple),
    classes_reason=st.sampled_from(["", "fits"]),
)


def plain(profile: Profile) -> Profile:
    """Without what is only for people."""
    return Profile(
        settings=tuple(Setting(each.name, each.value) for each in profile.settings),
        size_classes=profile.size_classes,
        prewarm=profile.prewarm,
        sites=profile.sites,
        build_id=profile.build_id,
        version=profile.version,
    )


@settings(max_examples=100, deadline=None, derandomize=True)
@given(PROFILES)
def test_what_is_written_is_read(profile: Profile) -> None:
    assert parse(render(profile), TABLE) == plain(profile)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("purge_delay_ms", "line 1: 'purge_delay_ms' is no NAME=VALUE"),
        ("no_such=1", "line 1: 'no_such' is no option"),
        ("\npurge_delay_ms=soon", "line 2: purge_delay_ms: 'soon' is not a number"),
        ("profile_format=2", "format '2' is not known"),
        ("program_build_id=xyz", "'xyz' is no build id"),
        ("size_class=24\nsize_class=65536", "multiples of 16"),
        ("size_class=64\nsize_class=32", "size classes rise, and 32 follows 64"),
        ("size_class=65552", "'65552' is no block size"),
        ("size_class=64:0", "'0' is no number of pages"),
        ("size_class=64", "the last size class must be 65536"),
        ("prewarm=64", "'' is no number of blocks"),
        ("site=here", "is no rule"),
        ("# x\n" * FILE_BYTES_MAX, "larger than 65536 bytes"),
    ],
)
def test_what_is_wrong_is_named(text: str, complaint: str) -> None:
    with pytest.raises(ProfileError, match=re.escape(complaint)):
        parse(text, TABLE)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "a.profile"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ProfileError, match="is not a text file"):
        read(file, TABLE)


def test_reasons_stand_above_their_lines() -> None:
    lines = render(
        Profile(settings=(Setting("mode", "lean", "because"),), about=("head",))
    ).splitlines()
    assert lines[0] == "# head"
    assert lines[lines.index("mode=lean") - 1] == "# because"
