"""Programs that cannot be preloaded: one clear sentence, exit status 125, and never started."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from hakmem import elf, preload
from hakmem.diagnosis import process
from hakmem.errors import CannotExecuteError, NotFoundError
from tests.cli.support import Compile, Outcome, Run, clean_environment, heeds_setuid, library

NOBODY = 65534
ARCHIVE = ["-Wl,--undefined=malloc", str(library().with_name("libhakmem.a")), "-lpthread"]


def require_refused(outcome: Outcome, program: Path, reason: str) -> None:
    assert outcome.status == 125
    assert outcome.stdout == b""
    assert re.fullmatch(
        rf"hakmem: {re.escape(str(program))} cannot run on hakmem: it .*{reason}.*\n",
        outcome.stderr,
    )


def test_static_program(run: Run, build_program: Compile) -> None:
    program = build_program("plain.c", "-static")
    require_refused(run(program), program, "is statically linked")


@pytest.mark.parametrize("flag", ["-static", "-static-pie"])
def test_static_program_with_the_archive(run: Run, build_program: Compile, flag: str) -> None:
    """It is not told to do what was done."""
    program = build_program("plain.c", flag, *ARCHIVE)
    outcome = run(program)
    assert (outcome.status, outcome.stdout) == (125, b"")
    assert "runs on hakmem without this: it was linked with libhakmem.a" in outcome.stderr


def test_static_pie_program(run: Run, build_program: Compile) -> None:
    program = build_program("plain.c", "-static-pie")
    require_refused(run(program), program, "is static-pie")


def test_program_for_the_loader_of_another_libc(run: Run, build_program: Compile) -> None:
    program = build_program("plain.c", "-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1")
    require_refused(run(program), program, "is linked with musl")


def test_program_whose_loader_is_missing(run: Run, build_program: Compile) -> None:
    program = build_program("plain.c", "-Wl,--dynamic-linker=/nowhere/ld-linux-x86-64.so.2")
    outcome = run(program)
    assert outcome.status == 126
    assert outcome.stderr == (
        f"hakmem: {program}: its loader /nowhere/ld-linux-x86-64.so.2 does not exist\n"
    )


@pytest.mark.parametrize(
    ("machine", "name"), [(183, "aarch64"), (243, "RISC-V"), (9999, "ELF machine 9999")]
)
def test_program_for_another_processor(
    run: Run, build_program: Compile, tmp_path: Path, machine: int, name: str
) -> None:
    image = bytearray(build_program("plain.c").read_bytes())
    image[18:20] = machine.to_bytes(2, "little")
    program = tmp_path / "foreign"
    program.write_bytes(image)
    program.chmod(0o755)
    require_refused(run(program), program, f"is for {name}, and libhakmem.so is built for")


def test_setuid_program(run: Run, build_program: Compile, tmp_path: Path) -> None:
    """Root can make one for another user; anybody else has passwd, which is root's."""
    program = Path("/usr/bin/passwd")
    if os.geteuid() == 0:
        program = tmp_path / "setuid"
        program.write_bytes(build_program("plain.c").read_bytes())
        os.chown(program, NOBODY, -1)
        program.chmod(0o4755)
    assert program.stat().st_mode & stat.S_ISUID
    if not heeds_setuid(program):
        assert preload.privilege_reason(str(program)) is None
        return
    require_refused(run(program), program, "is setuid")


def test_setuid_program_of_the_same_user_runs(
    run: Run, build_program: Compile, tmp_path: Path
) -> None:
    program = tmp_path / "own"
    program.write_bytes(build_program("plain.c").read_bytes())
    program.chmod(0o4755)
    outcome = run(program, "9")
    assert outcome.status == 9
    assert outcome.stderr.startswith("hakmem: active")


def test_setgid_and_capabilities(
    monkeypatch: pytest.MonkeyPatch, build_program: Compile, tmp_path: Path
) -> None:
    """As another user would find it, whoever runs this test."""
    program = tmp_path / "special"
    program.write_bytes(build_program("plain.c").read_bytes())
    monkeypatch.setattr(preload, "_no_new_privileges", lambda: False)
    mount = SimpleNamespace(f_flag=0)
    monkeypatch.setattr(os, "statvfs", lambda path: mount)
    program.chmod(0o2755)
    monkeypatch.setattr(os, "getgid", lambda: program.stat().st_gid + 1)
    assert "is setgid" in str(preload.privilege_reason(str(program)))
    mount.f_flag = os.ST_NOSUID
    assert preload.privilege_reason(str(program)) is None
    mount.f_flag = 0
    program.chmod(0o755)
    assert preload.privilege_reason(str(program)) is None
    monkeypatch.setattr(os, "getuid", lambda: program.stat().st_uid + 1)
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"\1")
    assert preload.privilege_reason(str(program)) == "has file capabilities"
    monkeypatch.setattr(preload, "_no_new_privileges", lambda: True)
    assert preload.privilege_reason(str(program)) is None


# ---- Scripts


def make_script(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def test_script_of_a_static_interpreter_is_refused(
    run: Run, build_program: Compile, tmp_path: Path
) -> None:
    static = build_program("plain.c", "-static")
    script = make_script(tmp_path / "script", f"#!{static}\n")
    require_refused(run(script), static, "is statically linked")
    outer = make_script(tmp_path / "outer", f"#!{script} -x\n")
    require_refused(run(outer), static, "is statically linked")


def test_script_started_through_env_is_followed(
    run: Run, build_program: Compile, tmp_path: Path
) -> None:
    static = build_program("plain.c", "-static")
    for line in (
        "/usr/bin/env ",
        "/usr/bin/env -S A=1 ",
        "/usr/bin/env -S -i ",
        "/usr/bin/env -S -u A --chdir / -iu B ",
    ):
        script = make_script(tmp_path / "script", f"#!{line}{static} -x\n".replace(" -x", ""))
        require_refused(run(script), static, "is statically linked")


def test_scripts_run(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "shell-of-test").symlink_to("/bin/sh")
    for name, text in {
        "sh": "#!/bin/sh\nexit 21\n",
        "env": "#!/usr/bin/env perl\nexit 21;\n",
        "option": "#!/usr/bin/env -S -u A perl\nexit 21;\n",
        "variable": "#!/usr/bin/env -S ${SHELL_OF_TEST}\nexit 21\n",
        "path": f"#!/usr/bin/env -S A=1 PATH={folder} shell-of-test\nexit 21\n",
        "none": "exit 21\n",
    }.items():
        environment = clean_environment(SHELL_OF_TEST="/bin/sh")
        outcome = run(make_script(tmp_path / name, text), environment=environment)
        assert outcome.status == 21, name
        assert outcome.stderr.startswith("hakmem: active"), name


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("-S PATH=/x perl", None),
        ("-S PATH=/x /usr/bin/perl", "/usr/bin/perl"),
        ("-S MYPATH=/x perl", "perl"),
        ("-S -i perl", None),
        ("-S - A=1 perl", None),
        ("-S -u PATH perl", None),
        ("-S -vu PATH perl", None),
        ("-S --unset=PATH perl", None),
        ("-S --unset PATH perl", None),
        ("-S -u PATHS perl", "perl"),
        ("-S -v -C /i perl", "perl"),
    ],
)
def test_program_that_env_starts(words: str, told: str | None) -> None:
    """Only env can tell where it is not the caller's PATH that counts."""
    assert preload._started_by_env(words) == told


def test_script_without_its_interpreter(run: Run, tmp_path: Path) -> None:
    script = make_script(tmp_path / "script", "#!/no/such/interpreter\n")
    outcome = run(script)
    assert outcome.status == 126
    assert "its interpreter /no/such/interpreter does not exist" in outcome.stderr
    script = make_script(tmp_path / "script", "#!/usr/bin/env no-such-interpreter\n")
    assert run(script).status == 126


def test_script_that_interprets_itself_ends(tmp_path: Path) -> None:
    script = make_script(tmp_path / "script", f"#!{tmp_path / 'script'}\n")
    with pytest.raises(CannotExecuteError, match="more than 5 deep"):
        preload.examine(str(script), os.environ)


# ---- Directories that may not be searched


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Path]:
    """One that this process may not search, with nothing of root's rights."""
    folder = tmp_path / "locked"
    folder.mkdir()
    make_script(folder / "true", "#!/bin/sh\nexit 9\n")
    folder.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    yield folder
    os.seteuid(user)
    folder.chmod(0o700)


def test_directory_that_may_not_be_searched_is_passed_over(locked: Path) -> None:
    environment = {"PATH": f"{locked}:/usr/bin"}
    assert preload.resolve("true", environment) == "/usr/bin/true"
    with pytest.raises(NotFoundError, match="no such program in PATH"):
        preload.resolve("true", {"PATH": str(locked)})
    with pytest.raises(CannotExecuteError, match="Permission denied"):
        preload.resolve(str(locked / "true"), environment)


def test_library_that_cannot_be_seen_is_not_missing(locked: Path) -> None:
    assert not process._is_missing(locked / "libhakmem.so")
    assert process._is_missing(Path("/nowhere/libhakmem.so"))


# ---- Pieces


@pytest.mark.parametrize(
    ("existing", "expected"),
    [
        (None, "/x/libhakmem.so"),
        ("", "/x/libhakmem.so"),
        ("/a.so", "/a.so:/x/libhakmem.so"),
        ("/a.so /b.so", "/a.so:/b.so:/x/libhakmem.so"),
        ("/old/libhakmem.so:/a.so", "/a.so:/x/libhakmem.so"),
    ],
)
def test_preload_value(existing: str | None, expected: str) -> None:
    assert preload.preload_value("/x/libhakmem.so", existing) == expected


def test_damaged_program_headers_are_survived(build_program: Compile, tmp_path: Path) -> None:
    """Every truncation and many changed bytes: an answer or None, never an exception."""
    image = build_program("plain.c").read_bytes()[:2048]
    file = tmp_path / "damaged"
    for length in range(0, 1024, 7):
        file.write_bytes(image[:length])
        with file.open("rb") as stream:
            elf.read_program(stream)
    for position in range(64):
        for value in (0, 1, 0x7F, 0xFF):
            changed = bytearray(image)
            changed[position] = value
            file.write_bytes(changed)
            with file.open("rb") as stream:
                elf.read_program(stream)
    file.write_bytes(image)
    with file.open("rb") as stream:
        program = elf.read_program(stream)
    assert program is not None and program.bits == 64 and program.dynamic
