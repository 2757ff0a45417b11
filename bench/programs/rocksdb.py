"""rocksdb: its own benchmark, db_bench."""

from __future__ import annotations

from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution

KEYS = 20_000
THREADS = 2


class Rocksdb(RealProgram):
    """Memtables, blocks in the cache, flushes and compactions in threads of their own."""

    name = "rocksdb"
    about = "db_bench: fill at random, overwrite, read, seek; two threads, small memtables"
    executable = Path("/usr/bin/db_bench")
    packages = ("rocksdb-tools",)
    threads = THREADS

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        keys = scaled(KEYS, scale, least=100)
        steps = ("fillrandom", "overwrite", "readrandom", "seekrandom")
        options = {
            "benchmarks": ",".join(steps),
            "db": str(execution.directory / "db"),
            "num": keys,
            "threads": THREADS,
            "seed": 1,
            "compression_type": "none",
            "disable_wal": "true",
            "write_buffer_size": 4 << 20,
            "cache_size": 8 << 20,
            "open_files": 64,
        }
        words = [str(self.executable), *(f"--{key}={value}" for key, value in options.items())]
        execution.command(words)
        return Outcome(len(steps) * keys * THREADS, "operations")
