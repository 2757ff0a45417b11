"""A profile: the file that HAKMEM_PROFILE names. Options, size classes, what to make ready, and
which program and version it was made for; docs/PROFILES.md has the format."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from hakmem.errors import UsageError
from hakmem.inspect.units import PAGE_BYTES, REQUEST_STEP_BYTES
from hakmem.options import BLANKS, SIZE_SUFFIXES, Option, OptionTable
from hakmem.tune.format import Format

FORMAT = "1"
COMMENT_WIDTH = 96
HEX = re.compile(r"([0-9a-fA-F]{2})+")


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
    build_id: str = ""
    version: str = ""
    about: tuple[str, ...] = ()
    classes_reason: str = ""
    prewarm_reason: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether it changes nothing."""
        return not (self.settings or self.size_classes or self.prewarm)

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
    return "\n".join(lines) + "\n"


def _number(text: str, low: int, high: int, what: str) -> int:
    if not (text.isascii() and text.isdecimal() and low <= int(text) <= high):
        raise ValueError(f"{text!r} is no {what} ({low} to {high})")
    return int(text)


def _size(text: str, low: int, high: int) -> int:
    suffix = SIZE_SUFFIXES.get(text[-1:].lower())
    digits, scale = (text[:-1], suffix) if suffix is not None else (text, 1)
    if not (digits.isascii() and digits.isdecimal() and low <= int(digits) * scale <= high):
        raise ValueError(f"{text!r} is no block size ({low} to {high})")
    return int(digits) * scale


@dataclass
class _Reading:
    """What the lines so far have said."""

    table: OptionTable
    format: Format
    settings: dict[str, Setting] = field(default_factory=dict)
    classes: list[tuple[int, int | None]] = field(default_factory=list)
    prewarm: list[tuple[int, int]] = field(default_factory=list)
    prewarm_lines: list[int] = field(default_factory=list)
    heads: dict[str, str] = field(default_factory=dict)

    def line(self, number: int, name: str, value: str) -> None:
        match name:
            case "profile_format" | "hakmem_version":
                self._head(name, value)
            case "program_build_id":
                self._head(name, _build_id(value, self.format))
            case "size_class":
                self._size_class(value)
            case "prewarm" if ":" in value:
                self._prewarm(value)
                self.prewarm_lines.append(number)
            case _:
                self._setting(name, value)

    def _head(self, name: str, value: str) -> None:
        if name == "profile_format" and value != FORMAT:
            raise ValueError(f"format {value!r} is not known")
        if name in self.heads:
            raise ValueError(f"{name} is there twice")
        self.heads[name] = value

    def _size_class(self, value: str) -> None:
        last = self.classes[-1][0] if self.classes else 0
        size_text, colon, pages_text = (part.strip(BLANKS) for part in value.partition(":"))
        size = _size(size_text, REQUEST_STEP_BYTES, self.format.class_bytes_last)
        if size % REQUEST_STEP_BYTES:
            raise ValueError(
                f"block sizes are multiples of {REQUEST_STEP_BYTES}, and {size} is none"
            )
        if size <= last:
            raise ValueError(f"size classes rise, and {size} follows {last}")
        if len(self.classes) == self.format.classes_max:
            raise ValueError(f"there are more than {self.format.classes_max} size classes")
        pages = None
        if colon:
            pages = _number(pages_text, 1, self.format.slab_pages_max, "number of pages")
            if pages * PAGE_BYTES // size > self.format.slab_blocks_max:
                raise ValueError(f"a slab has more than {self.format.slab_blocks_max} blocks")
        self.classes.append((size, pages))

    def _prewarm(self, value: str) -> None:
        size_text, _, count_text = (part.strip(BLANKS) for part in value.partition(":"))
        size = _size(size_text, 1, self.format.class_bytes_last)
        count = _number(count_text, 1, self.format.prewarm_blocks_max, "number of blocks")
        if len(self.prewarm) == self.format.prewarm_max:
            raise ValueError(f"there are more than {self.format.prewarm_max} such lines")
        self.prewarm.append((size, count))

    def _setting(self, name: str, value: str) -> None:
        option = self.table.find(name)
        if option is None:
            raise ValueError(f"{name!r} is no option")
        if option.name in self.settings:
            raise ValueError(f"{name} is there twice")
        problem = option.problem(value) or _untuned(option, value, self.table)
        if problem is not None:
            raise ValueError(f"{name}: {value!r} {problem}")
        self.settings[option.name] = Setting(name, value)

    def end(self) -> None:
        """Looks at what is known only when every line is."""
        last = self.format.class_bytes_last
        if self.classes and self.classes[-1][0] != last:
            raise ProfileError(f"the last size class must be {last}")
        table = [size for size, _ in self.classes] or list(self.format.block_sizes)
        used: set[int] = set()
        ready = 0
        for number, (size, count) in zip(self.prewarm_lines, self.prewarm, strict=True):
            block = next(each for each in table if each >= size)
            ready += block * count
            if block in used:
                raise ProfileError(f"line {number}: the size class of {size} is there twice")
            if ready > self.format.prewarm_bytes_max:
                raise ProfileError(
                    f"line {number}: more than {self.format.prewarm_bytes_max} bytes to have ready"
                )
            used.add(block)


def _build_id(value: str, limits: Format) -> str:
    if not HEX.fullmatch(value) or len(value) // 2 > limits.build_id_bytes_max:
        raise ValueError(f"{value!r} is no build id")
    return value.lower()


def _untuned(option: Option, value: str, table: OptionTable) -> str | None:
    """Why a profile may not set the option so, whatever the environment says."""
    how = dict(table.tuned).get(option.name)
    if how is None or (option.name, value.lower()) == ("mode", "research"):
        return "is not for a profile to set"
    number = option.number_of(value)
    if number is None or not isinstance(option.initial, int):
        return None
    if how == "RAISE" and number < option.initial:
        return "lowers a check, which a profile may not"
    if how == "LOWER" and number > option.initial:
        return "raises a limit, which a profile may not"
    return None


def parse(text: str, table: OptionTable, limits: Format) -> Profile:
    """What a profile says; ProfileError names the line that is wrong. Comments are left out. What
    only the process can tell is left to the library: its build id, its version, and the limits
    that the environment sets."""
    if len(text.encode(errors="surrogateescape")) > limits.file_bytes_max:
        raise ProfileError(f"the profile is larger than {limits.file_bytes_max} bytes")
    reading = _Reading(table, limits)
    for number, line in enumerate(text.split("\n"), 1):
        item = line.partition("#")[0].strip(BLANKS)
        name, equals, value = (part.strip(BLANKS) for part in item.partition("="))
        try:
            if "\0" in line:
                raise ValueError("a NUL byte is no text")
            if item and not equals:
                raise ValueError(f"{name!r} is no NAME=VALUE")
            if item:
                reading.line(number, name, value)
        except ValueError as error:
            raise ProfileError(f"line {number}: {error}") from None
    reading.end()
    return Profile(
        settings=tuple(reading.settings.values()),
        size_classes=tuple(reading.classes),
        prewarm=tuple(reading.prewarm),
        build_id=reading.heads.get("program_build_id", ""),
        version=reading.heads.get("hakmem_version", ""),
    )


def read(path: Path, table: OptionTable, limits: Format) -> Profile:
    try:
        with path.open("rb") as file:
            data = file.read(limits.file_bytes_max + 1)
        # A comment may be in any encoding.
        return parse(data.decode(errors="surrogateescape"), table, limits)
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from None
