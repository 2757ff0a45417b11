"""The names that hakmem replaces, from the list that the library is linked with."""

from __future__ import annotations

import re

from hakmem.project import Project

OWN_PREFIX = "hakmem_"


def malloc_names(project: Project) -> frozenset[str]:
    """libc's malloc family and the C++ operators; hakmem's own extensions are not among them."""
    text = (project.root / "src" / "api" / "exports.map").read_text(encoding="utf-8")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    given = text.partition("global:")[2].partition("local:")[0]
    return frozenset(
        name for name in re.findall(r"(\w+)\*?;", given) if not name.startswith(OWN_PREFIX)
    )
