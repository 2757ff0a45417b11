"""The screen of `hakmem top` on two made-up processes, of which server-11 ends after some looks:
made_up_screen.py FOLDER INTERVAL_S LOOKS_MAX."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from hakmem.top.app import TopApp, run_screen  # noqa: E402
from tests.top.support import MadeUpSession, made_up_sampler  # noqa: E402


def main() -> None:
    folder, interval_s, looks_max = sys.argv[1:]
    sessions = {10: MadeUpSession(10), 11: MadeUpSession(11, int(looks_max))}
    app = TopApp(made_up_sampler(sessions), float(interval_s), Path(folder))
    run_screen(app)
    print("closed:", all(session.closed for session in sessions.values()))


if __name__ == "__main__":
    main()
