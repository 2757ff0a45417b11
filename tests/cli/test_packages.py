"""Which Python packages whom is asked for: the reader only what it needs."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hakmem import environment
from hakmem.errors import UsageError
from hakmem.project import Project
from tests.cli.support import ROOT
from tests.patience import HANG_SECONDS

MODULES = {"pyelftools": "elftools", "prometheus-client": "prometheus_client"}
READER, DEVELOPER = environment.DEVELOPER


def packages(name: str) -> set[str]:
    """The modules that a list brings."""
    lines = (ROOT / "scripts" / name).read_text(encoding="utf-8").splitlines()
    names = {line.partition("==")[0] for line in lines if "==" in line}
    return {MODULES.get(name, name) for name in names}


def imported(folder: Path) -> set[str]:
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    return found


def test_the_readers_list_has_what_the_verbs_import() -> None:
    foreign = imported(ROOT / "tools" / "hakmem") - sys.stdlib_module_names
    foreign -= {"hakmem", "harness", "_typeshed"}
    assert foreign == packages(READER)
    assert packages(DEVELOPER) >= {"pytest", "mypy", "ruff", "matplotlib"}
    assert not packages(DEVELOPER) & packages(READER)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree whose build/venv has the reader's packages, and a pip that writes down its words."""
    scripts, programs = tmp_path / "scripts", tmp_path / "build" / "venv" / "bin"
    programs.mkdir(parents=True)
    shutil.copytree(ROOT / "scripts", scripts)
    shutil.copy(scripts / READER, programs.parent / READER)
    for name in ("python", "pip"):
        (programs / name).write_text('#!/bin/sh\necho "$@" >> "$0.log"\n', encoding="utf-8")
        (programs / name).chmod(0o755)
    return tmp_path


def test_setup_brings_what_is_missing(tree: Path) -> None:
    log = tree / "build" / "venv" / "bin" / "pip.log"

    def setup(option: str) -> None:
        subprocess.run([tree / "scripts" / "setup", option], check=True, timeout=HANG_SECONDS)

    setup("--reader")
    assert not log.exists()
    setup("--python")
    (line,) = log.read_text(encoding="utf-8").splitlines()
    assert line.endswith(f"--requirement scripts/{DEVELOPER}")
    setup("--python")
    assert len(log.read_text(encoding="utf-8").splitlines()) == 1


def test_who_may_not_install_is_told_who_may(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    with pytest.raises(UsageError, match=r"this user may not write there: .* --python once"):
        environment.enter(Project(tree), environment.DEVELOPER)
    (tree / "build" / "venv" / READER).unlink()
    with pytest.raises(UsageError, match=r"of scripts/requirements.txt are not in .* --reader"):
        environment.enter(Project(tree))


def test_a_reader_wants_no_more_than_its_list(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[str] = []
    monkeypatch.setattr(os, "execv", lambda python, words: executed.append(str(python)))
    environment.enter(Project(tree))
    assert executed == [str(tree / "build" / "venv" / "bin" / "python")]
    assert not (tree / "build" / "venv" / "bin" / "pip.log").exists()
