"""Sizes that the library counts in. Without NumPy: a program and its profile are examined where
nothing is installed."""

from __future__ import annotations

PAGE_BYTES = 64 << 10
REQUEST_STEP_BYTES = 16  # of Snapshot.requests
