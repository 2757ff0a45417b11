"""A profile: the file that HAKMEM_PROFILE names. Options, size classes, what to make ready, rules
of call sites, and which program and version it was made for; docs/PROFILES.md has the format."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hakmem.errors import UsageError
from hakmem.inspect.model import REQUEST_STEP_BYTES
from hakmem.options import OptionTable

FORMAT = "1"
FILE_BYTES_MAX = 64 << 10  # the library reads no larger file
SMALL_BYTES_MAX = 64 << 10
SLAB_PAGES_MAX = 64
COMMENT_WIDTH = 96
HEX = re.compile(r"[0-9a-f]+")
SITE = re.compile(r"[0-9a-f]+\+0x[0-9a-f]+:\d+(-\d+)?:\d+")


class ProfileError(UsageError):
    """A file that is no profile, with the line that is wrong."""


@dataclass(frozen=True)
class Setting:
    """An option's line, and why it is there."""

    name: str
    value: str
    reason: str = ""


@dataclass(frozen=True)
class Profile:
    """`size_classes`: block bytes and pages of a slab (None: as the library chooses), rising;
    empty: the library's own. `prewarm`: block bytes and blocks. `about`: comments at the file's
    head. An empty `build_id` means any build of the program, an empty `version` any of hakmem."""

    settings: tuple[Setting, ...] = ()
    size_classes: tuple[tuple[int, int | None], ...] = ()
    prewarm: tuple[tuple[int, int], ...] = ()
    sites: tuple[str, ...] = ()
    build_id: str = ""
    version: str = ""
    about: tuple[str, ...] = ()
    classes_reason: str = ""
    prewarm_reason: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return not (self.settings or self.size_classes or self.prewarm or self.sites)

    def with_about(self, lines: Sequence[str]) -> Profile:
        return replace(self, about=tuple(lines))


def _comment(text: str) -> list[str]:
    return [
        f"# {line}" for line in textwrap.wrap(text, COMMENT_WIDTH, break_on_hyphens=False) or [""]
    ]


def render(profile: Profile) -> str:
    """The file's text."""
    lines = [line for text in profile.about for line in _comment(text)]
    lines.append(f"profile_format={FORMAT}")
    if profile.version:
        lines.append(f"hakmem_version={profile.version}")
    if profile.build_id:
        lines.append(f"program_build_id={profile.build_id}")
    for setting in profile.settings:
        lines += ["", *_comment(setting.reason)] if setting.reason else []
        lines.append(f"{setting.name}={setting.value}")
    if profile.size_classes:
        lines += ["", *(_comment(profile.classes_reason) if profile.classes_reason else [])]
        for size, pages in profile.size_classes:
            lines.append(f"size_class={size}" + (f":{pages}" if pages is not None else ""))
    if profile.prewarm:
        lines += ["", *(_comment(profile.prewarm_reason) if profile.prewarm_reason else [])]
        lines += [f"prewarm={size}:{count}" for size, count in profile.prewarm]
    if profile.sites:
        lines += ["", *(f"site={site}" for site in profile.sites)]
    return "\n".join(lines) + "\n"


def _number(text: str, low: int, high: int, what: str) -> int:
    if not (text.isascii() and text.isdecimal() and low <= int(text) <= high):
        raise ValueError(f"{text!r} is no {what} ({low} to {high})")
    return int(text)


def _size_class(value: str, last: int) -> tuple[int, int | None]:
    size_text, colon, pages_text = value.partition(":")
    size = _number(size_text, REQUEST_STEP_BYTES, SMALL_BYTES_MAX, "block size")
    if size % REQUEST_STEP_BYTES:
        raise ValueError(f"block sizes are multiples of {REQUEST_STEP_BYTES}, and {size} is none")
    if size <= last:
        raise ValueError(f"size classes rise, and {size} follows {last}")
    return size, _number(pages_text, 1, SLAB_PAGES_MAX, "number of pages") if colon else None


def parse(text: str, table: OptionTable) -> Profile:
    """What a profile says; ProfileError names the line that is wrong. Comments are left out."""
    if len(text.encode()) > FILE_BYTES_MAX:
        raise ProfileError(f"the profile is larger than {FILE_BYTES_MAX} bytes")
    settings: list[Setting] = []
    classes: list[tuple[int, int | None]] = []
    prewarm: list[tuple[int, int]] = []
    sites: list[str] = []
    heads: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = (part.strip() for part in line.partition("#")[0].partition("="))
        if not name and not equals:
            continue
        try:
            match name:
                case "profile_format" | "hakmem_version" | "program_build_id":
                    heads[name] = _head(name, value)
                case "size_class":
                    classes.append(_size_class(value, classes[-1][0] if classes else 0))
                case "prewarm":
                    size, _, count = value.partition(":")
                    prewarm.append(
                        (
                            _number(size, 1, SMALL_BYTES_MAX, "block size"),
                            _number(count, 1, 1 << 20, "number of blocks"),
                        )
                    )
                case "site":
                    if not SITE.fullmatch(value):
                        raise ValueError(
                            f"{value!r} is no rule BUILD_ID+0xOFFSET:BYTES[-BYTES]:SHARD"
                        )
                    sites.append(value)
                case _:
                    settings.append(_setting(name, value, bool(equals), table))
        except ValueError as error:
            raise ProfileError(f"line {number}: {error}") from None
    if classes and classes[-1][0] != SMALL_BYTES_MAX:
        raise ProfileError(f"the last size class must be {SMALL_BYTES_MAX}")
    return Profile(
        settings=tuple(settings),
        size_classes=tuple(classes),
        prewarm=tuple(prewarm),
        sites=tuple(sites),
        build_id=heads.get("program_build_id", ""),
        version=heads.get("hakmem_version", ""),
    )


def _head(name: str, value: str) -> str:
    if name == "profile_format" and value != FORMAT:
        raise ValueError(f"format {value!r} is not known")
    if name == "program_build_id" and not HEX.fullmatch(value):
        raise ValueError(f"{value!r} is no build id")
    return value


def _setting(name: str, value: str, has_value: bool, table: OptionTable) -> Setting:
    option = table.find(name)
    if not has_value or option is None:
        raise ValueError(f"{name!r} is no option" if has_value else f"{name!r} is no NAME=VALUE")
    problem = option.problem(value)
    if problem is not None:
        raise ValueError(f"{name}: {value!r} {problem}")
    return Setting(name, value)


def read(path: Path, table: OptionTable) -> Profile:
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
        return parse(data.decode(), table)
    except UnicodeDecodeError:
        raise ProfileError(f"{path}: is not a text file") from None
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from None
