"""How long a test waits for what must come. Only a hang may take so long: on a machine that five
others keep busy, what takes ten seconds elsewhere takes a minute."""

from __future__ import annotations

HANG_SECONDS = 300.0
