"""What is seen of the processes of a run: of those that hide, and of numbers used again."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hakmem import watch
from tests.cli.support import (
    CAP_DAC_OVERRIDE,
    CAP_DAC_READ_SEARCH,
    CAP_SYS_PTRACE,
    Summarise,
    without,
)

PR_SET_DUMPABLE = 4  # linux/prctl.h


def test_child_of_a_process_that_hides_is_named(summarise: Summarise) -> None:
    """Which files it runs may not be looked at, as of ssh-agent; whose children are may be."""
    hide = f"import ctypes, subprocess; ctypes.CDLL(None).prctl({PR_SET_DUMPABLE}, 0, 0, 0, 0)"
    script = f"{hide}; subprocess.run(['/bin/sleep', '3'], env={{}})"
    summary = summarise(sys.executable, "-c", script, preexec_fn=without(CAP_SYS_PTRACE))
    assert summary.facts["verdict"] == "partial"
    (absent,) = summary.facts["absent"]
    assert Path(absent["exe"]).name == "sleep"
    assert absent["reason"].startswith("was started without LD_PRELOAD")


def test_program_that_may_not_be_looked_at_is_told(summarise: Summarise, tmp_path: Path) -> None:
    """Its file may be executed, but not read: so the process may not be looked into either."""
    hidden = Path(shutil.copy("/bin/sleep", tmp_path / "hidden"))
    hidden.chmod(0o111)
    as_others = without(CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE)
    start = f"import subprocess; subprocess.run(['{hidden}', '3'], env={{}})"
    summary = summarise(sys.executable, "-c", start, preexec_fn=as_others)
    assert summary.facts["verdict"] == "partial"
    (absent,) = summary.facts["absent"]
    assert absent["exe"] is None and absent["reason"].startswith("left no report")
    # The control: on hakmem it has one.
    start = f"import subprocess; subprocess.run(['{hidden}', '1'])"
    summary = summarise(sys.executable, "-c", start, preexec_fn=as_others)
    assert (summary.facts["verdict"], summary.facts["absent"]) == ("active", [])
    assert len(summary.processes("hidden")) == 1


def test_number_that_another_process_has_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was the run's when it was last looked at, and is nobody's child since."""
    with subprocess.Popen(["sleep", "600"]) as process:
        looked_at = watch.Watch(process.pid)
        looked_at.look()
        assert looked_at.alive == {process.pid}
        stat = watch._stat

        def later(place: Path) -> list[bytes]:
            words = stat(place)
            return [*words[:19], words[19] + b"1", *words[20:]]

        monkeypatch.setattr(watch, "_stat", later)
        looked_at.look()
        process.kill()
    assert looked_at.alive == set()
    assert len(looked_at.images()) == 1
