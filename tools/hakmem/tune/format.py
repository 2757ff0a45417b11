"""The limits of a profile's format, from the library's own sources: no figure is written twice."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hakmem.errors import HakmemError
from hakmem.options import read_rows
from hakmem.project import Project

DEFINE = re.compile(r"^#define PROFILE_(\w+) \(?(\d+(?: \* \d+)*)\)?(?: *//.*)?$", re.MULTILINE)
BUILD_ID = re.compile(r"^#define BUILD_ID_BYTES_MAX (\d+)$", re.MULTILINE)


@dataclass(frozen=True)
class Format:
    """What src/config/profile.h says, and the library's own table of block sizes, rising."""

    file_bytes_max: int
    classes_max: int
    class_bytes_last: int
    slab_pages_max: int
    slab_blocks_max: int
    prewarm_max: int
    prewarm_blocks_max: int
    prewarm_bytes_max: int
    build_id_bytes_max: int
    block_sizes: tuple[int, ...]


def _product(text: str) -> int:
    value = 1
    for factor in text.split(" * "):
        value *= int(factor)
    return value


def read_format(project: Project) -> Format:
    """HakmemError when a limit is not found where it was."""
    source = project.root / "src"
    header = source / "config" / "profile.h"
    found = {name: _product(text) for name, text in DEFINE.findall(_text(header))}
    build_id = BUILD_ID.search(_text(source / "config" / "build_id.h"))
    try:
        if build_id is None:
            raise KeyError("BUILD_ID_BYTES_MAX")
        return Format(
            file_bytes_max=found["BYTES_MAX"],
            classes_max=found["CLASSES_MAX"],
            class_bytes_last=found["CLASS_BYTES_LAST"],
            slab_pages_max=found["SLAB_PAGES_MAX"],
            slab_blocks_max=found["SLAB_BLOCKS_MAX"],
            prewarm_max=found["PREWARM_MAX"],
            prewarm_blocks_max=found["PREWARM_BLOCKS_MAX"],
            prewarm_bytes_max=found["PREWARM_BYTES_MAX"],
            build_id_bytes_max=int(build_id[1]),
            block_sizes=tuple(
                int(fields[2])
                for kind, fields in read_rows(source / "space" / "size_class.def")
                if kind == "SIZE_CLASS"
            ),
        )
    except KeyError as error:
        raise HakmemError(f"{header}: there is no limit {error}") from None


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
