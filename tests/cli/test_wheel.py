"""The command as `pip install .` brings it: a wheel of this tree, in an environment of its own, run
where nothing leads to the tree."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_bytes
from pathlib import Path

import numpy as np
import pytest

from hakmem.project import find_project
from tests.cli.support import ROOT, Outcome, call, clean_environment
from tests.patience import HANG_SECONDS

# Nothing of a make around us, of another pip, or of this test's own modules.
ALONE = clean_environment(
    MAKEFLAGS="", CMAKE_BUILD_PARALLEL_LEVEL="2", PIP_CONFIG_FILE="/dev/null", PYTHONPATH=""
)
READER = Path(np.__file__).parents[1]  # where the packages of scripts/requirements.txt are


def pip(*words: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *words]
    done = call([*command, "--no-index"], environment=ALONE)
    assert done.status == 0, done.stdout.decode() + done.stderr


def make_environment(folder: Path, packages: Path) -> Path:
    """An empty one that sees these packages too; its own."""
    call([sys.executable, "-m", "venv", "--without-pip", folder], environment=ALONE)
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "others.pth").write_text(f"{packages}\n", encoding="utf-8")
    return own


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # --no-build-isolation: by the backend of build/venv, from no network.
    pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", folder, ROOT)
    (built,) = folder.iterdir()
    return built


@dataclass(frozen=True)
class Installed:
    prefix: Path
    packages: Path

    @property
    def library(self) -> Path:
        return self.packages / "hakmem" / "installed" / "lib" / "libhakmem.so"

    def __call__(self, *words: str | Path, **variables: str) -> Outcome:
        command = [self.prefix / "bin" / "hakmem", *words]
        return call(command, cwd=self.prefix.parent, environment={**ALONE, **variables})


@pytest.fixture(scope="module")
def hakmem(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    prefix = tmp_path_factory.mktemp("installed") / "environment"
    packages = make_environment(prefix, READER)
    # What the wheel says it needs is there, or this fails.
    pip("--python", prefix / "bin" / "python", "install", wheel)
    return Installed(prefix, packages)


@pytest.fixture
def pid(hakmem: Installed) -> Iterator[str]:
    """Of a shell that waits, on the wheel's library."""
    with subprocess.Popen(
        ["/bin/sh", "-c", "echo ready; read line"],
        env={**ALONE, "LD_PRELOAD": str(hakmem.library)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as shell:
        assert shell.stdout is not None and shell.stdout.readline() == b"ready\n"
        yield str(shell.pid)
        shell.communicate(b"\n", timeout=HANG_SECONDS)


def test_wheel_is_for_every_python_and_says_what_it_is(wheel: Path) -> None:
    version = find_project().version
    assert re.fullmatch(rf"hakmem-{re.escape(version)}-py3-none-linux_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        told = message_from_bytes(archive.read(f"hakmem-{version}.dist-info/METADATA"))
        names = archive.namelist()
    assert (told["Version"], told["License-Expression"]) == (version, "MIT")
    # The library once: of a link a wheel has a copy.
    assert [name for name in names if ".so" in name] == ["hakmem/installed/lib/libhakmem.so"]


def test_library_of_the_wheel_names_no_folder_of_its_build(hakmem: Installed) -> None:
    """Which is gone, and could be anybody's by then: named profiles are looked for in it."""
    found = set(re.findall(rb"[ -~]*/profiles", hakmem.library.read_bytes()))
    assert found == {b"/../share/hakmem/profiles", b"/../../profiles",
                     b"/usr/local/share/hakmem/profiles"}  # fmt: skip
    assert b".debug_" not in hakmem.library.read_bytes()


def test_library_of_the_wheel_is_known_as_the_installed_one(hakmem: Installed) -> None:
    """A program that was linked with that loads no second one beside it."""
    shown = call(["readelf", "--dynamic", hakmem.library], environment=ALONE).stdout
    assert b"Library soname: [libhakmem.so.0]" in shown


def test_it_knows_its_version_and_library(hakmem: Installed) -> None:
    facts = json.loads(hakmem("version", "--json").stdout)
    assert facts["version"] == find_project().version
    assert (facts["library"], facts["built"]) == (str(hakmem.library), True)


def test_run_proves_the_library_of_the_wheel(hakmem: Installed) -> None:
    done = hakmem("run", "--", "/bin/true")
    assert done.status == 0
    assert done.stderr.startswith(
        f"hakmem: active: every malloc symbol of every loaded module resolves to {hakmem.library}\n"
    )
    assert "1 process, all proved: true\n" in done.stderr


def test_profiles_are_found_by_name(hakmem: Installed) -> None:
    done = hakmem("run", "--quiet", "--", "/bin/true", HAKMEM_PROFILE="lean", HAKMEM_VERBOSE="1")
    assert re.search(r"^hakmem: mode +lean +\(profile\)$", done.stderr, re.MULTILINE)


def test_doctor_wants_no_tools_for_building(hakmem: Installed) -> None:
    done = hakmem("doctor", "--json", PATH="/nowhere")
    facts = json.loads(done.stdout)
    assert (done.status, facts["healthy"]) == (0, True)
    found = {finding["name"]: finding["text"] for finding in facts["findings"]}
    assert found["library"] == str(hakmem.library)
    assert found["active"] == f"/bin/sh is served by {hakmem.library}"
    assert not {"cmake", "gcc", "make"} & set(found)


def test_a_lost_library_is_said(hakmem: Installed) -> None:
    away = hakmem.library.with_name("away")
    hakmem.library.rename(away)
    try:
        done = hakmem("doctor")
        assert (done.status, f"BAD  library        {hakmem.library} is missing\n"
                .encode() in done.stdout) == (1, True)  # fmt: skip
        done = hakmem("run", "--", "/bin/true")
        assert (done.status, done.stderr) == (
            125,
            f"hakmem: there is no library {hakmem.library}\n",
        )
        assert hakmem("version").stdout.endswith(b"libhakmem.so (missing)\n")
    finally:
        away.rename(hakmem.library)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["inspect", "PID"], "process PID sh ("),
        (["top", "--once", "--interval", "100ms", "PID"], "PID sh, hakmem "),
        (["report", "PID"], "</html>"),
        (["export", "openmetrics", "PID"], 'hakmem_readable{pid="PID"} 1.0'),
        (["set", "PID", "research=on"], "process PID: research 1"),
        (["doctor", "PID"], "ok   active"),
        (["doctor", "/bin/ls"], "ok   bindings"),
        (["options", "mode"], "HAKMEM_MODE=fast"),
    ],
)
def test_verbs_that_look_work(hakmem: Installed, pid: str, words: list[str], told: str) -> None:
    done = hakmem(*(word.replace("PID", pid) for word in words))
    assert (done.status, done.stderr) == (0, "")
    assert told.replace("PID", pid) in done.stdout.decode()


def test_series_are_recorded_and_compared(hakmem: Installed, pid: str, tmp_path: Path) -> None:
    series = tmp_path / "series.jsonl"
    done = hakmem("record", pid, "--every", "100ms", "--for", "300ms", "-o", series)
    assert done.status == 0
    done = hakmem("diff", series)
    assert done.status == 0 and done.stdout.startswith(b"sh: live memory ")


def test_metrics_are_served(hakmem: Installed, pid: str) -> None:
    program = hakmem.prefix / "bin" / "hakmem"
    command = [str(program), "serve-metrics", "--listen", "127.0.0.1:0", pid]
    with subprocess.Popen(command, env=ALONE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        found = re.fullmatch(r"hakmem: serving (http://\S+)\n", server.stderr.readline())
        assert found is not None
        with urllib.request.urlopen(found[1], timeout=HANG_SECONDS) as answer:
            assert f'hakmem_readable{{pid="{pid}"}} 1.0\n'.encode() in answer.read()
        server.send_signal(signal.SIGTERM)
    assert server.returncode == 0


@pytest.mark.parametrize("words", [["bench"], ["soak"], ["tune", "--", "/bin/true"]])
def test_verbs_of_a_source_tree_say_so(hakmem: Installed, words: list[str]) -> None:
    done = hakmem(*words)
    assert (done.status, done.stdout) == (2, b"")
    assert done.stderr == (
        f"hakmem: {words[0]} runs from a source tree of hakmem alone, as ./hakmem {words[0]}: what "
        "it needs is not installed with the command\n"
    )


def test_without_its_packages_it_runs_programs_and_says_what_it_lacks(
    hakmem: Installed, tmp_path: Path
) -> None:
    """As `pip install --no-deps` leaves it."""
    make_environment(tmp_path / "bare", hakmem.packages)
    bare = [str(tmp_path / "bare" / "bin" / "python"), "-P", "-m", "hakmem"]
    done = call([*bare, "run", "--", "/bin/true"], cwd=tmp_path, environment=ALONE)
    assert (done.status, done.stderr.startswith("hakmem: active: ")) == (0, True)
    assert call([*bare, "doctor"], cwd=tmp_path, environment=ALONE).status == 0
    for verb in ("inspect", "doctor"):
        done = call([*bare, verb, str(os.getpid())], cwd=tmp_path, environment=ALONE)
        assert (done.status, done.stderr) == (
            2,
            "hakmem: numpy cannot be imported: the command was installed without the Python "
            "packages that this verb needs\n",
        )


def test_manual_page_and_completion_are_where_they_are_looked_for(hakmem: Installed) -> None:
    share = hakmem.prefix / "share"
    for installed, name in (
        ("man/man1/hakmem.1", "hakmem.1"),
        ("bash-completion/completions/hakmem", "hakmem.bash"),
    ):
        assert (share / installed).read_bytes() == (ROOT / "docs" / name).read_bytes()
