"""Where things lie, and how paths are written into results."""

from __future__ import annotations

from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
BENCH = TOP / "bench"
PROGRAMS = TOP / "build" / "bench"
PEERS = PROGRAMS / "peers"
INPUTS = PROGRAMS / "inputs"
PEER_LOCKS = BENCH / "peers"
RESULTS = BENCH / "results"


def display(path: str | Path) -> str:
    """A path as results show it: relative to the repository when it lies inside."""
    resolved = Path(path)
    return str(resolved.relative_to(TOP)) if resolved.is_relative_to(TOP) else str(path)
