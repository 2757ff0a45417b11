"""The sweep tells when a program differs on hakmem, and that hakmem served it."""

from __future__ import annotations

import dataclasses
import json
import os
import venv
from pathlib import Path

import pytest

from tests.sweep import sweep

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path(os.environ.get("HAKMEM_LIBRARY", ROOT / "build/release/libhakmem.so")).resolve()


def program(command: str, *other_mallocs: str, **inputs: str) -> sweep.Program:
    return sweep.Program("program", ("bash",), command, inputs, other_mallocs)


def swept(one: sweep.Program, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    failed = sweep.sweep([one], ["fast", "hardened"], LIBRARY)
    return failed, capsys.readouterr().out


def test_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    failed, said = swept(program("cat text; pwd", text="from the input\n"), capsys)
    assert failed == 0
    assert said.startswith("program: the same\n")


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("ls >/dev/null; echo ${LD_PRELOAD:-none}", "fast: wrote '/"),
        ("ls >/dev/null; echo text; test -z $LD_PRELOAD", "hardened: ended with 1, on glibc 0"),
        ("ls >/dev/null; echo text; [ $LD_PRELOAD ] && echo hakmem: >&2; true", "complained"),
        ("echo text", "fast: no process but the shell ran on hakmem"),
        ("ls >/dev/null; false", "glibc: ended with 1"),
        ("ls >/dev/null", "glibc: ended with 0, wrote ''"),
        ("ls >/dev/null; echo text; [ -z $LD_PRELOAD ] || sleep 60", "fast: ended with not over"),
    ],
)
def test_what_differs_is_told(
    command: str,
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sweep, "SECONDS_MOST", 5.0 if "sleep" in command else 60.0)
    failed, said = swept(program(command), capsys)
    assert failed == 1
    assert told in said


def test_misuse_that_a_program_hides_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """It closed its standard error, and a free of what is no block is ignored."""
    freed_twice = "import ctypes as c; f = c.CDLL(None).free; f.argtypes = [c.c_void_p]; f(4096)"
    command = f'HAKMEM_ABORT=0 /usr/bin/python3 -c "{freed_twice}" 2>/dev/null; echo text'
    command = f"if [ $LD_PRELOAD ]; then {command}; else echo text; fi"
    failed, said = swept(program(command), capsys)
    assert failed == 1
    assert "hakmem complained" in said


OWN_MALLOC = ROOT / "tests/cli/programs/own_malloc.c"
PRELOADS_ANOTHER = (
    f"cc -shared -fPIC -o own.so {OWN_MALLOC} && LD_PRELOAD=$PWD/own.so:$LD_PRELOAD ls | wc -l"
)
STARTS_WITHOUT = "ls; env -u LD_PRELOAD sleep 2"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (PRELOADS_ANOTHER, "hakmem run does not prove it: calloc of /usr/bin/ls leads to /"),
        (STARTS_WITHOUT, "hakmem run does not prove it: /usr/bin/sleep: was started"),
    ],
)
def test_what_another_malloc_served_is_told(
    command: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its output and status are the same, and it ran without hakmem, or with a part of it."""
    failed, said = swept(program(command, text=""), capsys)
    assert failed == 1
    assert f"program: fast: {told}" in said
    assert f"; hardened: {told}" in said


@pytest.mark.parametrize(
    ("command", "others"),
    [("echo text", ["any"]), (PRELOADS_ANOTHER, ["ls", "wc"]), (STARTS_WITHOUT, ["sleep"])],
)
def test_another_malloc_is_taken_as_told(
    command: str, others: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    failed, said = swept(program(command, *others, text=""), capsys)
    assert failed == 0, said


def test_hakmem_run_itself_must_conclude(tmp_path: Path) -> None:
    """Without its summary nothing is proved."""
    assert sweep.read_proof(tmp_path / "none").doubts


def test_a_verdict_has_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "summary"
    told = {"processes": [], "absent": [], "unwritten": [], "verdict": "partial", "active": False}
    file.write_text(json.dumps(told))
    assert [one.text for one in sweep.read_proof(file).doubts] == ["partial without a reason"]
    file.write_text(json.dumps({**told, "verdict": "active", "active": True}))
    assert not sweep.read_proof(file).doubts


def test_what_is_not_installed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    absent = sweep.Program("program", ("no-such-package",), "true", {}, ())
    assert sweep.sweep([absent], ["fast"], LIBRARY) != 0, "a sweep of nothing shows nothing"
    said = capsys.readouterr().out
    assert "program: not installed (no-such-package)" in said
    assert said.endswith("apt-get install --no-install-recommends no-such-package\n")


def package_of_pypi(folder: Path, name: str, version: str, value: str) -> None:
    """A package with one module in the virtual environment of that folder."""
    place = next(folder.glob("lib/python*/site-packages"))
    told = place / f"{name.replace('-', '_')}-{version}.dist-info"
    told.mkdir()
    (told / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (place / f"{name.replace('-', '_')}.py").write_text(f"value = {value!r}\n")


def test_packages_from_pypi(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Such a row alone runs the Python that has them; one that lacks any is passed over."""
    monkeypatch.setattr(sweep, "VENV", tmp_path / "venv")
    rows = tmp_path / "packages.toml"
    rows.write_text(
        "[[program]]\nname = 'row'\npypi = ['Zope.One']\n"
        "command = 'python -c \"import zope_one; print(zope_one.value)\"'\n"
    )
    [row] = sweep.read_programs([rows])
    assert sweep.sweep([row], ["fast"], LIBRARY) != 0
    said = capsys.readouterr().out
    assert "row: not installed (Zope.One of PyPI)" in said
    assert said.endswith("scripts/setup --sweep: Zope.One\n")

    venv.create(tmp_path / "venv", with_pip=False)
    package_of_pypi(tmp_path / "venv", "zope-one", "1.0", "the package's")
    assert sweep.sweep([row], ["fast"], LIBRARY) == 0
    assert capsys.readouterr().out.startswith("row: the same\n")
    assert sweep.run(row).output == "the package's"
    other = dataclasses.replace(row, pypi=(), command="command -v python || echo none")
    assert "venv" not in sweep.run(other).output


def test_lists_are_well_formed() -> None:
    programs = sweep.read_programs(sweep.LISTS)
    assert len(programs) > 110
    assert len({one.name for one in programs}) == len(programs)
    for one in programs:
        assert one.packages or one.pypi
        assert "/work" not in one.command and "/tmp" not in one.command, one.name


def test_versions_are_pinned() -> None:
    lines = (Path(sweep.__file__).parent / "requirements.txt").read_text().splitlines()
    pinned = [line.split("==") for line in lines if not line.startswith("#")]
    assert all(len(words) == 2 for words in pinned)
    names = {sweep.normal(words[0]) for words in pinned}
    wanted = {name for one in sweep.read_programs(sweep.LISTS) for name in one.pypi}
    assert {sweep.normal(name) for name in wanted} <= names
