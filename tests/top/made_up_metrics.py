"""Serves the metrics of two made-up processes, of which server-11 ends after some looks:
made_up_metrics.py PORT LOOKS_MAX [CLIENT_S]."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from hakmem.metrics.collect import HeapCollector  # noqa: E402
from hakmem.metrics.server import CLIENT_S, Address, serve  # noqa: E402
from hakmem.options import read_counters  # noqa: E402
from hakmem.project import find_project  # noqa: E402
from tests.top.support import MadeUpSession, made_up_sampler  # noqa: E402


def main() -> None:
    port, looks_max = (int(word) for word in sys.argv[1:3])
    client_s = float(sys.argv[3]) if len(sys.argv) > 3 else CLIENT_S
    sessions = {10: MadeUpSession(10), 11: MadeUpSession(11, looks_max)}
    rows = read_counters(find_project().counters_table)
    serve(HeapCollector(made_up_sampler(sessions), rows), Address("127.0.0.1", port), client_s)


if __name__ == "__main__":
    main()
