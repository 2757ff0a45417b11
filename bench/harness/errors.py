"""What can go wrong, each with its own exit status in the commands."""

from __future__ import annotations


class BenchError(Exception):
    """The harness cannot go on; the message says why and what to do."""


class RefusedError(Exception):
    """A run happened, but it does not prove that the named allocator served it."""


class MeasureError(Exception):
    """A workload failed: it crashed, ran too long, found a damaged block or said nothing."""
