"""Counts SIGINT, and ends at the end of its input or by SIGTERM. argv[1]: where the count goes."""

import signal
import sys
from pathlib import Path

count = 0


def interrupted(number: int, frame: object) -> None:
    global count
    count += 1
    Path(sys.argv[1]).write_text(f"{count}", encoding="ascii")


signal.signal(signal.SIGINT, interrupted)
signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))
print("ready", flush=True)
while True:
    signal.pause()
