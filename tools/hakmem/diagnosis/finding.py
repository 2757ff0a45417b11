"""One line of what `hakmem doctor` says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """`ok` None: worth knowing, neither good nor bad."""

    name: str
    ok: bool | None
    text: str
