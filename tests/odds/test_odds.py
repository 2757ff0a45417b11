"""What the random runs can find: each fault that is planted, and nothing where none is."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.odds import odds

BUILD = Path(os.environ.get("HAKMEM_BUILD", odds.ROOT / "build/release")).resolve()


def wrong_with(*things: str, around: tuple[str, ...] = (), status: int = 0) -> str:
    case = odds.Case(7, BUILD.name, "odd", status=status, milliseconds=200)
    case.things |= set(things)
    case.around += around
    return "\n".join(odds.run(case, BUILD.parent))


def test_sound() -> None:
    assert wrong_with("cancel", "children", "options", "look", "plugin", "interrupts") == ""


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("plant_byte", "changed at byte 0"),
        ("plant_lost", "KiB are live at the end"),
        ("plant_twice", "hakmem: "),
    ],
)
def test_fault_is_found(fault: str, told: str) -> None:
    assert told in wrong_with(fault)


def test_status_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrong_with(status=3) == ""
    monkeypatch.setattr(odds.Case, "statuses", lambda _: {4})
    assert "ended with 3" in wrong_with(status=3)


def test_hang_is_found_and_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(odds, "HANG_SECONDS", 3.0)
    assert wrong_with("plant_hang") == "hangs"


def test_null_is_a_failure_unless_something_refuses() -> None:
    around = ("flaky=mmap:2:5",)
    assert wrong_with("null", "kept", around=around) == ""
    assert "NULL for" in wrong_with("kept", around=around)


def test_picture_of_damage_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(odds.BESIDE, "look", lambda *_: ["damaged: 1 slab"])
    case = odds.Case(7, BUILD.name, "odd", milliseconds=500, beside=["look"])
    assert odds.run(case, BUILD.parent) == ["look: damaged: 1 slab"]


def test_calls_are_refused() -> None:
    """In the process itself: python3 asks for what the surroundings say."""
    ask = "import ctypes as c; l = c.CDLL(None, use_errno=True); l.madvise(0, 0, 0); "
    ask += "import resource as r; print(c.get_errno(), r.getrlimit(r.RLIMIT_AS)[0] >> 20)"
    around = BUILD / "tests/odds/around"
    library = (BUILD / "libhakmem.so").resolve()
    surroundings = ["refuse=madvise:ENOSYS", "as=400"]
    done = subprocess.run(
        [around, *surroundings, library, "/usr/bin/python3", "-c", ask],
        capture_output=True,
        text=True,
    )
    assert done.stdout == "38 400\n"


def test_a_number_is_a_run() -> None:
    assert [str(odds.draw(seed)) for seed in range(50)] == [
        str(odds.draw(seed)) for seed in range(50)
    ]
