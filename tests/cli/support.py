"""Shared by the tests of the command line: the library under test and ways to run hakmem on it."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.patience import HANG_SECONDS

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = Path(__file__).resolve().parent / "programs"
# linux/prctl.h and linux/capability.h.
PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE = 1, 2, 19
# By this very interpreter: what `env python3` finds may be a wrapper that changes the environment.
HAKMEM = (sys.executable, str(ROOT / "hakmem"))


def library() -> Path:
    default = ROOT / "build" / "release" / "libhakmem.so"
    path = Path(os.environ.get("HAKMEM_LIBRARY", default)).absolute()
    if not path.is_file():
        raise pytest.UsageError(f"no library at {path}: run 'make lib' or set HAKMEM_LIBRARY")
    return path


def named_json(text: str | bytes) -> dict[str, Any]:
    """What a verb said with --json: an object that names its schema."""
    facts = json.loads(text)
    assert isinstance(facts, dict), text
    assert re.fullmatch(r"[a-z.-]+/[0-9]+", facts["schema"]), facts["schema"]
    return facts


def core_archive() -> Path:
    return Path(os.environ.get("HAKMEM_CORE", library().parent / "libhakmem_core.a"))


def clean_environment(**changes: str) -> dict[str, str]:
    """The caller's environment without anything that hakmem reads."""
    return {
        **{
            name: value
            for name, value in os.environ.items()
            if name not in ("LD_PRELOAD", "NO_COLOR", "FORCE_COLOR")
            and not name.startswith("HAKMEM_")
        },
        **changes,
    }


def without(*capabilities: int) -> Callable[[], None]:
    """What a process calls before exec: root has these no more then, as others do not."""

    def drop() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        for capability in capabilities:
            if os.geteuid() == 0 and libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
                raise OSError(ctypes.get_errno(), "prctl")

    return drop


@dataclass(frozen=True)
class Outcome:
    status: int
    stdout: bytes
    stderr: str


def heeds_setuid(program: Path) -> bool:
    """Whether the kernel heeds that bit: not on a file system mounted nosuid, and not for who may
    gain no rights."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    is_bound = re.search(r"^NoNewPrivs:\s*1", status, re.MULTILINE) is not None
    return not is_bound and not os.statvfs(program).f_flag & os.ST_NOSUID


def call(
    command: Sequence[str | Path],
    *,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    **more: Any,
) -> Outcome:
    done = subprocess.run(
        [str(word) for word in command],
        input=stdin,
        capture_output=True,
        timeout=HANG_SECONDS,
        env=environment if environment is not None else clean_environment(),
        **more,
    )
    return Outcome(done.returncode, done.stdout, done.stderr.decode(errors="surrogateescape"))


@dataclass(frozen=True)
class Summary:
    status: int
    stdout: bytes
    stderr: str
    facts: dict[str, Any]

    def processes(self, name: str) -> list[dict[str, Any]]:
        return [facts for facts in self.facts["processes"] if Path(facts["exe"]).name == name]


Run = Callable[..., Outcome]
Summarise = Callable[..., Summary]
Compile = Callable[..., Path]
