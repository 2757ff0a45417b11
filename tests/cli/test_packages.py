"""Which Python packages whom is asked for: the reader only what it needs."""

from __future__ import annotations

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from hakmem import environment
from hakmem.errors import UsageError
from hakmem.project import Project
from tests.cli.support import ROOT
from tests.patience import HANG_SECONDS

MODULES = {"pyelftools": "elftools", "prometheus-client": "prometheus_client"}
READER, DEVELOPER = environment.DEVELOPER


def pinned(name: str) -> set[str]:
    """The packages of a list, each with its version."""
    lines = (ROOT / "scripts" / name).read_text(encoding="utf-8").splitlines()
    return {line for line in lines if "==" in line}


def packages(name: str) -> set[str]:
    """The modules that a list brings."""
    names = {line.partition("==")[0] for line in pinned(name)}
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


def test_a_wheel_needs_the_readers_list_and_is_built_by_the_developers_backend() -> None:
    told = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(told["project"]["dependencies"]) == pinned(READER)
    assert set(told["build-system"]["requires"]) < pinned(DEVELOPER)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree whose build/venv has the reader's packages, and a Python that notes its words."""
    tree = tmp_path / "tree"
    scripts, folder = tree / "scripts", tree / "build" / "venv"
    python = folder / "bin" / "python"
    python.parent.mkdir(parents=True)
    shutil.copytree(ROOT / "scripts", scripts)
    shutil.copy(scripts / READER, folder / READER)
    python.write_text('#!/bin/sh\necho "$@" >> "$0.log"\n', encoding="utf-8")
    python.chmod(0o755)
    (folder / "pyvenv.cfg").write_text(f"command = x -m venv {folder}\n", encoding="utf-8")
    return tree


def test_setup_brings_what_is_missing(tree: Path) -> None:
    log = tree / "build" / "venv" / "bin" / "python.log"

    def setup(option: str) -> None:
        subprocess.run([tree / "scripts" / "setup", option], check=True, timeout=HANG_SECONDS)

    setup("--reader")
    assert not log.exists()
    setup("--python")
    (line,) = log.read_text(encoding="utf-8").splitlines()
    assert line.startswith("-m pip install ")
    assert line.endswith(f"--requirement scripts/{DEVELOPER}")
    setup("--python")
    assert len(log.read_text(encoding="utf-8").splitlines()) == 1


# Of a user who may become root, on a system that lacks some packages. What is asked of sudo is
# noted, and done where it is about this tree's policy; apt-get ends as told, also with its caller.
STAND_INS = {
    "id": "echo 1000",
    "dpkg-query": """
        shift 3
        for name; do
            case " $LACKING " in *" $name "*) ;; *) echo "installed $name" ;; esac
        done""",
    "sudo": """
        echo "$@" >>"$LOG"
        [ -z "$REFUSED" ] || exit 1
        case "$*" in
            *"apt-get install"*) eval "$APT_GET" ;;
            *policy-rc.d) exec "$@" ;;
        esac""",
}
SERVERS = ("nginx", "redis-server", "postgresql-15")


class Installation:
    """The tree's scripts/setup, with stand-ins for what would reach the system."""

    def __init__(self, tree: Path) -> None:
        self.tree, self.log = tree, tree / "sudo.log"
        self.policy, self.tools, self.said = tree / "policy-rc.d", tree / "tools", ""
        setup = tree / "scripts" / "setup"
        text = setup.read_text(encoding="utf-8")
        assert text.count("=/usr/sbin/policy-rc.d\n") == 1
        setup.write_text(text.replace("/usr/sbin/policy-rc.d", str(self.policy)), encoding="utf-8")
        self.tools.mkdir()
        for name, script in STAND_INS.items():
            self.stand_in(name, script)

    def stand_in(self, name: str, script: str) -> None:
        (self.tools / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (self.tools / name).chmod(0o755)

    def run(self, apt_get: str, *, lacking: Sequence[str] = (), **environment: str) -> int:
        """The status, and in `said` what it says; apt-get does this."""
        self.log.write_text("", encoding="utf-8")
        done = subprocess.run(
            [self.tree / "scripts" / "setup"],
            env={**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}", "APT_GET": apt_get,
                 "LOG": str(self.log), "LACKING": " ".join(lacking), **environment},
            check=False, capture_output=True, text=True, timeout=HANG_SECONDS,
        )  # fmt: skip
        self.said = done.stderr
        return done.returncode

    def asked(self) -> list[str]:
        return self.log.read_text(encoding="utf-8").splitlines()

    def switched_off(self) -> set[str]:
        """The services, of those that were switched off after apt-get, if that was called."""
        asked = self.asked()
        at = next((at for at, line in enumerate(asked) if "apt-get install" in line), 0)
        word = "deb-systemd-helper disable "
        return {line.removeprefix(word) for line in asked[at:] if line.startswith(word)}


SWITCHED_OFF = {"nginx.service", "redis-server.service", "postgresql.service"}


@pytest.mark.parametrize(
    ("apt_get", "status"), [("true", 0), ("exit 100", 1), ("kill -TERM $PPID", 1)]
)
def test_servers_stay_off_however_their_installation_ends(
    tree: Path, apt_get: str, status: int
) -> None:
    made = Installation(tree)
    assert made.run(apt_get, lacking=[*SERVERS, "groff"]) == status
    assert made.switched_off() == SWITCHED_OFF
    assert not made.policy.exists()
    assert made.run("true") == 0
    assert made.asked() == []


def test_servers_of_a_killed_setup_are_switched_off_by_the_next(tree: Path) -> None:
    """And its policy, by which no server of the system would start for good, goes as well, also
    where another process has its number by now; not while another set-up is at work, nor one that
    is not of scripts/setup."""
    made = Installation(tree)
    assert made.run("kill -KILL $PPID", lacking=SERVERS) == -signal.SIGKILL
    policy = made.policy.read_text(encoding="utf-8")
    assert "exit 101" in policy and made.switched_off() == set()
    # Who gives no password is asked again.
    assert made.run("true", REFUSED="1") == 0
    assert made.switched_off() == set()
    assert made.run("true") == 0
    assert made.switched_off() == SWITCHED_OFF
    assert not made.policy.exists()
    begun = int(re.findall(r"process \d+ (\d+)\n", policy)[0])

    def policy_of(start: int) -> str:
        """As this process, which has started so many ticks after the boot, would have left it."""
        return re.sub(r"process .*", f"process {os.getpid()} {start}", policy)

    start = int(Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(") ")[2].split()[19])
    assert start < begun
    made.policy.write_text(policy_of(begun), encoding="utf-8")
    assert made.run("true") == 0
    assert not made.policy.exists()
    for text in ("#!/bin/sh\nexit 101\n", policy_of(start)):
        made.policy.write_text(text, encoding="utf-8")
        assert made.run("true", lacking=SERVERS) == 0
        assert made.policy.read_text(encoding="utf-8") == text


def test_whom_sudo_refuses_is_told_what_root_has_to_do(tree: Path) -> None:
    made = Installation(tree)
    assert made.run("true", lacking=["groff-base"], REFUSED="1") == 1
    assert made.said.endswith("scripts/setup: as root: apt-get install groff-base\n")
    assert made.asked() == ["true"]


def test_what_root_makes_is_the_owners_of_the_tree(tree: Path) -> None:
    made = Installation(tree)
    made.stand_in("id", "echo 0")
    made.stand_in("chown", 'echo "$PWD" "$@" >>"$LOG"')
    assert made.run("true") == 0
    assert made.asked() == [
        f"{tree} -h --reference=. build build/.setup.lock build/setup.*",
        f"{tree} -hR --reference=. build/venv",
    ]


def test_who_may_not_install_is_told_who_may(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    with pytest.raises(UsageError, match=r"this user may not write there: .* --python once"):
        environment.enter(Project(tree), environment.DEVELOPER)
    (tree / "build" / "venv" / READER).unlink()
    with pytest.raises(UsageError, match=r"of scripts/requirements.txt are not in .* --reader"):
        environment.enter(Project(tree))


def test_a_reader_wants_no_more_than_its_list(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executed: list[str] = []
    monkeypatch.setattr(os, "execve", lambda python, *_: executed.append(str(python)))
    environment.enter(Project(tree))
    assert executed == [str(tree / "build" / "venv" / "bin" / "python")]
    assert not (tree / "build" / "venv" / "bin" / "python.log").exists()


def want_no_packages(tree: Path) -> None:
    for name in environment.DEVELOPER:
        (tree / "scripts" / name).write_text("# none\n", encoding="utf-8")
        shutil.copy(tree / "scripts" / name, tree / "build" / "venv" / name)


def test_packages_of_another_python_are_installed_anew(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed: list[str] = []
    monkeypatch.setattr(os, "execve", lambda python, *_: executed.append(str(python)))
    want_no_packages(tree)
    python = tree / "build" / "venv" / "bin" / "python"
    python.rename(python.with_name("python4"))
    python.symlink_to("python4")
    environment.enter(Project(tree))
    assert executed == [str(python)]
    done = subprocess.run([python, "-m", "pip", "-V"], capture_output=True, text=True)
    assert f" from {python.parents[1]}/" in done.stdout
    # The new one stays.
    made = python.lstat()
    environment.enter(Project(tree))
    assert os.path.samestat(python.lstat(), made)


def test_in_a_tree_that_was_moved_a_reader_has_what_it_needs(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that was copied to a machine without network. The programs name their place."""
    monkeypatch.setattr(os, "execve", lambda *_: None)
    want_no_packages(tree)
    tree = tree.rename(tree.with_name("moved"))
    python = tree / "build" / "venv" / "bin" / "python"
    made = python.lstat()
    environment.enter(Project(tree))
    subprocess.run([tree / "scripts" / "setup", "--reader"], check=True, timeout=HANG_SECONDS)
    assert os.path.samestat(python.lstat(), made)
    environment.enter(Project(tree), environment.DEVELOPER)
    assert not os.path.samestat(python.lstat(), made)
    made = python.lstat()
    environment.enter(Project(tree), environment.DEVELOPER)
    assert os.path.samestat(python.lstat(), made)


def test_what_is_for_the_users_python_is_kept_from_another(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONHOME of another version's, with which it would not start; programs have it again."""
    handed: list[dict[str, str]] = []
    monkeypatch.setattr(os, "execve", lambda python, words, variables: handed.append(variables))
    monkeypatch.setenv("PYTHONHOME", "/opt/python3.99")
    environment.enter(Project(tree))
    assert "PYTHONHOME" not in handed[0]
    monkeypatch.setattr(os, "environ", handed[0])
    monkeypatch.setattr(sys, "prefix", str(tree / "build" / "venv"))
    environment.enter(Project(tree))
    assert os.environ["PYTHONHOME"] == "/opt/python3.99"
    assert not any("KEPT" in name for name in os.environ)


def outside(*words: str) -> tuple[int, str]:
    """`python3 -m hakmem` outside of the folder of packages, which is executed again in it: the
    status and what it says."""
    python = sys._base_executable  # type: ignore[attr-defined]
    done = subprocess.run(
        [python, *words, "-m", "hakmem", "inspect", "99999999"],
        cwd=ROOT / "tools",
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    return done.returncode, done.stderr


def test_a_module_goes_on_in_the_folder_of_packages() -> None:
    assert outside() == (2, "hakmem: there is no process 99999999\n")


def test_a_python_that_looks_for_no_packages_is_not_started_for_ever() -> None:
    status, said = outside("-S")
    assert status == 2
    assert said.endswith("build/venv: not by python3 -S\n") and said.count("\n") == 1
