"""Durations as people write them: 1s, 500ms, 2m, 1h, or seconds without a unit."""

from __future__ import annotations

import argparse
import re

UNITS_S = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
LONGEST_S = 366 * 86400.0


def seconds(text: str) -> float:
    """For argparse: a positive duration in seconds; ArgumentTypeError says how to write one."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+) ?([a-z]*)", text.strip().lower())
    value = float(found[1]) * UNITS_S.get(found[2], 0.0) if found is not None else 0.0
    if not 0 < value <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write 500ms, 1s, 2m or 1h")
    return value
