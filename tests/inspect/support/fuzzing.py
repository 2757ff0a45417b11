"""Flips bytes of a snapshot file and reads it, many times: fuzzing.py FILE SEED ROUNDS [strict]

Whatever the reader is given, it ends with a snapshot or with a sentence. Anything else ends this
program with a traceback. The memory that it may have is limited; who started it limits the time.
Prints how many rounds were read, and how many refused. `strict`: a sentence of the last net, which
hides a mistake of the reader, is a failure too.
"""

from __future__ import annotations

import random
import resource
import sys
import tempfile
from pathlib import Path

from hakmem.errors import HakmemError
from hakmem.inspect import jsonform, text
from hakmem.inspect.targets import take
from hakmem.render import Style

MEMORY_BYTES_MAX = 3 << 30
FLIPS_MAX = 40


def damage(data: bytes, chance: random.Random) -> bytes:
    """Some bytes changed, near each other or anywhere; sometimes a part missing, or doubled."""
    changed = bytearray(data)
    kind = chance.randrange(6)
    if kind == 0:
        return bytes(changed[: chance.randrange(len(changed))])
    if kind == 1:
        start = chance.randrange(len(changed))
        return bytes(changed[:start] + changed[start : start + 4096] + changed[start:])
    near = chance.randrange(len(changed)) if kind < 4 else None
    for _ in range(chance.randrange(1, FLIPS_MAX)):
        at = chance.randrange(len(changed)) if near is None else near + chance.randrange(512)
        if at >= len(changed):
            continue
        if chance.randrange(2):
            changed[at] ^= 1 << chance.randrange(8)
        else:
            # A whole word, of the kind that hurts.
            word = chance.choice([0, 1, 7, (1 << 64) - 1, 1 << 63, 1 << 47, 1 << 31, at])
            changed[at : at + 8] = word.to_bytes(8, "little")
    return bytes(changed)


def main() -> int:
    file, seed, rounds = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    is_strict = "strict" in sys.argv[4:]
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    data = file.read_bytes()
    chance = random.Random(seed)
    read = refused = 0
    with tempfile.TemporaryDirectory() as folder:
        changed = Path(folder) / "changed"
        for number in range(rounds):
            changed.write_bytes(damage(data, chance))
            sys.stderr.write(f"seed {seed}, round {number}\n")
            try:
                snapshot = take(str(changed), events=True)
                text.render(snapshot, Style(sys.stderr, {"NO_COLOR": "1"}))
                jsonform.decode(jsonform.encode(snapshot, "blocks"))
                read += 1
            except HakmemError as error:
                refused += 1
                if "\n" in str(error) or (is_strict and error.__cause__ is not None):
                    raise
    sys.stdout.write(f"{read} {refused}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
