"""The option and counter tables in src/config, as data. The only reader of them in Python: the
command line and the generated documents both use it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hakmem.errors import HakmemError

UNITS = {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30}
SIZE_SUFFIXES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
DIGITS_MAX = 20
# What the library trims around items of HAKMEM_CONF and of profiles; around variables, nothing.
BLANKS = " \t\r"
BOOL_WORDS = {
    "0": 0, "false": 0, "no": 0, "off": 0,
    "1": 1, "true": 1, "yes": 1, "on": 1,
}  # fmt: skip

TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*|/\*.*?\*/|^\s*\#[^\n]*)
      | (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<word>[A-Za-z0-9_]+)
      | (?P<mark>[(),*])""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Choice:
    name: str
    number: int
    help: str


def _decimal(digits: str) -> int | None:
    """None for what has no room in 64 bits. Python refuses to read very many digits."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= DIGITS_MAX else None


@dataclass(frozen=True)
class Option:
    """A row of options.def. `initial` of a STRING is text, of every other type a number."""

    name: str
    type: str
    initial: int | str
    min: int
    max: int
    unit: str
    when: str
    help: str
    choices: tuple[Choice, ...]

    @property
    def environment(self) -> str:
        return f"HAKMEM_{self.name.upper()}"

    @property
    def live(self) -> bool:
        return self.when == "LIVE"

    def initial_text(self) -> str:
        for choice in self.choices:
            if choice.number == self.initial:
                return choice.name
        return str(self.initial)

    def number_of(self, value: str) -> int | None:
        """The number that a value stands for, unless it is no value of this option, or text."""
        number: int | None = None
        if not value.isascii():
            # Python has more digits than the library, and more capitals.
            return None
        word = value.lower()
        if self.type == "ENUM":
            return next((choice.number for choice in self.choices if choice.name == word), None)
        if self.type == "BOOL":
            number = BOOL_WORDS.get(word)
        elif self.type == "BYTES" and word[:-1].isdecimal() and word[-1:] in SIZE_SUFFIXES:
            digits = _decimal(word[:-1])
            number = None if digits is None else digits * SIZE_SUFFIXES[word[-1]]
        elif self.type != "STRING" and word.isdecimal():
            number = _decimal(word)
        return number if number is not None and self.min <= number <= self.max else None

    def problem(self, value: str) -> str | None:
        """Why the library would not take this value, or None when it would."""
        if self.type == "STRING":
            count = len(value.encode(errors="surrogateescape"))
            return None if count <= self.max else f"is longer than {self.max} bytes"
        if self.number_of(value) is not None:
            return None
        if self.type == "ENUM":
            return f"is not one of {', '.join(choice.name for choice in self.choices)}"
        return f"is not {self.expectation()}"

    def expectation(self) -> str:
        bounds = f"({self.min}..{self.max})"
        match self.type:
            case "BOOL":
                return "0 or 1"
            case "BYTES":
                return f"a size {bounds}, with K, M or G if you like"
            case _:
                return f"a number of {self.unit or 'steps'} {bounds}".replace("of steps ", "")


@dataclass(frozen=True)
class Preset:
    """A row MODE: what a mode sets one option to."""

    mode: str
    option: str
    value: int


@dataclass(frozen=True)
class OptionTable:
    """`aliases`: other names, and the options they mean. `tuned`: what a profile may set, and how
    (ANY, RAISE, LOWER)."""

    options: tuple[Option, ...]
    presets: tuple[Preset, ...]
    aliases: tuple[tuple[str, str], ...] = ()
    tuned: tuple[tuple[str, str], ...] = ()

    def find(self, name: str) -> Option | None:
        own = dict(self.aliases).get(name, name)
        return next((option for option in self.options if option.name == own), None)


@dataclass(frozen=True)
class Counter:
    """A row of counters.def; `kind` is COUNTER (only grows) or GAUGE."""

    kind: str
    name: str
    unit: str
    help: str


def _tokens(text: str, path: Path) -> Iterator[str]:
    at = 0
    while at < len(text):
        found = TOKEN.match(text, at)
        if found is None:
            line = text.count("\n", 0, at) + 1
            raise HakmemError(f"{path}:{line}: unexpected {text[at]!r}")
        at = found.end()
        if found.lastgroup != "space":
            yield found[0]


def _unquote(token: str) -> str:
    return re.sub(r"\\(.)", r"\1", token[1:-1])


def _field(tokens: list[str]) -> str | int:
    """Adjacent strings are one string; a product of numbers and units is its value."""
    if tokens and all(token.startswith('"') for token in tokens):
        return "".join(_unquote(token) for token in tokens)
    factors = [token for token in tokens if token != "*"]
    if all(factor.isdecimal() or factor in UNITS for factor in factors) and factors:
        value = 1
        for factor in factors:
            value *= UNITS[factor] if factor in UNITS else int(factor)
        return value
    return " ".join(tokens)


def read_rows(path: Path) -> Iterator[tuple[str, list[str | int]]]:
    """Every NAME(field, ...) of a table. Strings and words become str, numbers int."""
    name: str | None = None
    fields: list[str | int] = []
    pending: list[str] = []
    inside = False
    for token in _tokens(path.read_text(encoding="utf-8"), path):
        if not inside:
            if token == "(":
                inside, fields, pending = True, [], []
            else:
                name = token
        elif token == ")" or token == ",":
            fields.append(_field(pending))
            pending = []
            if token == ")":
                inside = False
                yield str(name), fields
        else:
            pending.append(token)


def _number(value: str | int, path: Path) -> int:
    if not isinstance(value, int):
        raise HakmemError(f"{path}: {value!r} is not a number")
    return value


def _pairs(path: Path) -> tuple[tuple[str, str], ...]:
    """A table of two columns; none where the file is not."""
    if not path.exists():
        return ()
    return tuple((str(fields[0]), str(fields[1])) for _, fields in read_rows(path))


def read_options(path: Path) -> OptionTable:
    rows = list(read_rows(path))
    choices: dict[str, list[Choice]] = {}
    for kind, fields in rows:
        if kind == "CHOICE":
            option, name, number, text = fields
            choices.setdefault(str(option), []).append(
                Choice(str(name), _number(number, path), str(text))
            )
    options = []
    presets = []
    for kind, fields in rows:
        if kind == "OPTION":
            name, type_, initial, low, high, unit, when, text = fields
            options.append(
                Option(
                    name=str(name),
                    type=str(type_),
                    initial=initial,
                    min=_number(low, path),
                    max=_number(high, path),
                    unit=str(unit),
                    when=str(when),
                    help=str(text),
                    choices=tuple(choices.get(str(name), ())),
                )
            )
        elif kind == "MODE":
            mode, option, value = fields
            presets.append(Preset(str(mode), str(option), _number(value, path)))
    aliases, tuned = (_pairs(path.parent / name) for name in ("aliases.def", "profile.def"))
    return OptionTable(tuple(options), tuple(presets), aliases, tuned)


def read_counters(path: Path) -> tuple[Counter, ...]:
    return tuple(
        Counter(kind, str(fields[0]), str(fields[1]), str(fields[2]))
        for kind, fields in read_rows(path)
        if kind in ("COUNTER", "GAUGE")
    )
