"""Result folders made up from a seed, with answers that are known: what reports are tested on."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

MIB = 2**20
# Speed and memory of each allocator as multiples of an ideal one; the noise comes on top.
CHARACTERS = {
    "hakmem": (1.00, 1.00),
    "hakmem_lean": (1.10, 0.90),
    "glibc": (1.60, 1.05),
    "mimalloc2": (1.20, 1.60),
    "jemalloc": (1.30, 1.45),
    "tcmalloc_deb": (1.25, 2.00),
    "floor": (0.60, 0.80),
}
CASES = {
    "redis_set": "real",
    "python_trees": "real",
    "gcc": "real",
    "tiny_lifo": "synthetic",
    "mixed_million": "synthetic",
    "larson_medium_1": "synthetic",
    "larson_medium_4": "synthetic",
    "burst": "synthetic",
    "spike_idle": "synthetic",
    "phase_change": "synthetic",
    "latency": "synthetic",
}


def row(
    case: str, allocator: str, block: int, time_ns: float, memory: float = 8 * MIB, **more: Any
) -> dict[str, Any]:
    """One raw row."""
    return {
        "case": case,
        "group": CASES.get(case, "synthetic"),
        "allocator": allocator,
        "block": block,
        "at": "2026-01-01T00:00:00.000+00:00",
        "load_average": 0.1,
        "cpu": 1,
        "wall_ns": round(time_ns),
        "cpu_ns": round(time_ns * 0.9),
        "user_ns": round(time_ns * 0.8),
        "system_ns": round(time_ns * 0.1),
        "peak_rss_bytes": round(memory),
        "end_rss_bytes": round(memory * 0.9),
        "minor_faults": 100,
        "major_faults": 0,
        "voluntary_switches": 1,
        "involuntary_switches": 2,
        "ops": 1_000_000,
        "unit": "calls",
        "checksum": "00",
        "proof": {},
        **more,
    }


def write(
    folder: Path,
    rows: Sequence[Mapping[str, Any]],
    counts: Sequence[Mapping[str, Any]] = (),
    refused: Sequence[Mapping[str, Any]] = (),
    **manifest: Any,
) -> Path:
    """A result folder on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("rows", rows), ("counts", counts), ("refused", refused)):
        if lines:
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / f"{name}.jsonl").write_text(text)
    facts = {"schema": "hakmem-bench/2", "state": "complete", "command": "hakmem bench",
             "machine": "made-up", "kind": "full", **manifest}  # fmt: skip
    (folder / "manifest.json").write_text(json.dumps(facts))
    return folder


def _latency(source: random.Random, speed: float) -> dict[str, Any]:
    values = sorted(
        20 * speed * math.exp(source.gauss(0, 0.35)) / math.sqrt(math.sqrt(source.random()))
        for _ in range(4000)
    )
    uppers = [10 * 1.25**step for step in range(36)]
    counts = [sum(value <= upper for value in values) for upper in uppers]
    buckets = [after - before for before, after in zip([0, *counts], counts, strict=False)]

    def at(share: float) -> float:
        return round(values[min(len(values) - 1, int(share * len(values)))], 1)

    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999, "p99_99": 0.9999,
              "p99_999": 0.99999}  # fmt: skip
    return {**{name: at(share) for name, share in shares.items()}, "max": round(values[-1], 1),
            "histogram": [[upper, count] for upper, count in zip(uppers, buckets, strict=True)
                          if count]}  # fmt: skip


def matrix(folder: Path, seed: int = 1, blocks: int = 5, noise: float = 0.02) -> Path:
    """A whole matrix: every case on every allocator, with spikes, latencies and counts."""
    source = random.Random(seed)
    rows, counts = [], []
    for number, case in enumerate(CASES):
        for block in range(blocks):
            for name, (speed, memory) in CHARACTERS.items():
                time = 2e8 * (1 + number / 7) * speed * math.exp(source.gauss(0, noise))
                size = (8 + 4 * number) * MIB * memory
                more: dict[str, Any] = {}
                if case == "spike_idle":
                    more["extra"] = {"idle_rss_bytes": size / 2, "live_bytes": size / 4}
                    more["rss_series"] = [
                        [ms, size * (min(ms, 400) / 400 if ms < 600 else memory / 3)]
                        for ms in range(0, 2600, 100)
                    ]
                if case == "phase_change":
                    more["extra"] = {"live_bytes": 4 * MIB}
                if case == "latency":
                    more["latency"] = {call: _latency(source, speed) for call in ("malloc", "free")}
                rows.append(row(case, name, block, time, size, **more))
        for name, (speed, memory) in CHARACTERS.items():
            calls = {"mmap": round(20 * memory), "munmap": 4, "madvise": round(10 * speed)}
            counts.append({"case": case, "allocator": name, "syscalls": calls,
                           "calls_total": sum(calls.values()), "end_rss_bytes": 8 * MIB,
                           "idle_rss_bytes": 8 * MIB * memory})  # fmt: skip
    refused = [{"case": "gcc", "allocator": "jemalloc", "kind": "REFUSED", "why": "made up"}]
    return write(
        folder,
        rows,
        counts,
        refused,
        allocator_order=list(CHARACTERS),
        allocators={name: {"version": "1.0", "package": f"lib{name}", "build": "Debian package",
                           "compiler": "GCC 12.2.0", "build_id": "ab" * 20, "sha256": "cd" * 32}
                    for name in CHARACTERS},
        cases=[{"name": name, "about": f"about {name}", "group": group, "threads": 1}
               for name, group in CASES.items()],
        cpu="Made-up CPU", cpus=2, kernel="6.1", memory_bytes=2**33, commit="f" * 40, blocks=blocks,
    )  # fmt: skip
