"""Which of the files that a core or a snapshot names is the program's."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from pathlib import Path

# Of the vector that the kernel hands a program at its start: pairs of words, see getauxval(3).
AT_ENTRY = 9
PAIR = struct.Struct("<QQ")
NAME_LETTERS = 15  # that the kernel keeps


def find_program(auxv: bytes, files: Iterable[tuple[int, int, str]], name: str) -> str:
    """The file, of those mapped as (start, end, path), that the kernel started. Without the vector
    the one that is called as the process is, which a script, a link to a program and a process that
    renamed itself are not; empty when there is none."""
    pairs = dict(PAIR.iter_unpack(auxv[: len(auxv) // PAIR.size * PAIR.size]))
    entry = pairs.get(AT_ENTRY)
    called = ""
    for start, end, path in files:
        if entry is not None and start <= entry < end:
            return path
        if not called and Path(path).name[:NAME_LETTERS] == name:
            called = path
    return called
