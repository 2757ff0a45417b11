"""hakmem doctor on programs and processes: is hakmem active there, and why not if not?"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hakmem import elf, schema
from hakmem.diagnosis import bindings, machine, modules, surface, trial
from hakmem.project import find_project
from tests.cli.support import (
    CAP_SYS_PTRACE,
    HAKMEM,
    ROOT,
    Compile,
    Outcome,
    call,
    clean_environment,
    heeds_setuid,
    library,
    without,
)
from tests.patience import HANG_SECONDS

NAMES = surface.malloc_names(find_project())
MIB = 1 << 20
NOBODY = 65534


def doctor(*words: str | Path, **more: Any) -> tuple[Outcome, dict[str, Any]]:
    outcome = call([*HAKMEM, "doctor", "--json", "--library", library(), *words], **more)
    return outcome, json.loads(outcome.stdout) if outcome.stdout else {}


def texts(facts: dict[str, Any], name: str, ok: bool | None = None) -> list[str]:
    return [
        finding["text"]
        for finding in facts["findings"]
        if finding["name"] == name and finding["ok"] is ok
    ]


def test_surface_is_the_librarys() -> None:
    assert {"malloc", "free", "_Znwm", "__libc_memalign"} < NAMES
    assert not any(name.startswith("hakmem") for name in NAMES)
    proof_names = (ROOT / "src/control/proof.c").read_text(encoding="utf-8")
    assert all(f'"{name}"' in proof_names for name in ("malloc", "_ZdlPvm"))


# Runs a command of Python's as a process would that can write to no temporary folder.
NO_FOLDER = (
    "import runpy, sys, tempfile; tempfile.tempdir = '/nowhere'; del sys.argv[0];"
    " runpy.run_path(sys.argv[0], run_name='__main__')"
)


@pytest.mark.parametrize(
    ("words", "name"), [([], "active"), (["--library", str(library()), "true"], "program")]
)
def test_nowhere_to_write(words: Sequence[str], name: str) -> None:
    """What needs no folder is told all the same."""
    bare = [HAKMEM[0], "-c", NO_FOLDER, *HAKMEM[1:], "doctor", "--json", *words]
    outcome = call(bare, environment=clean_environment(HAKMEM_NO_SUCH="1"))
    assert outcome.status == 1, outcome.stderr
    facts = json.loads(outcome.stdout)
    assert texts(facts, name, False) == [
        "no temporary folder can be made: No such file or directory"
    ]
    assert any("no such option" in finding["text"] for finding in facts["findings"])


# ---- Programs


def test_program_that_can_be_served(build_program: Compile) -> None:
    program = build_program("cpp.cc")
    outcome, facts = doctor(program)
    assert outcome.status == 0, outcome.stderr
    assert facts["healthy"] and facts["target"] == str(program)
    (text,) = texts(facts, "bindings", True)
    assert text.startswith("all ") and text.endswith(f"lead to {library()}")


def test_library_below_a_path_with_spaces(build_program: Compile, tmp_path: Path) -> None:
    """`hakmem run` reaches it by a link."""
    directory = tmp_path / "a directory: with marks"
    directory.mkdir()
    (directory / "libhakmem.so").symlink_to(library())
    link = directory / "libhakmem.so"
    outcome, facts = doctor("--library", link, build_program("plain.c"))
    assert outcome.status == 0, outcome.stdout
    (text,) = texts(facts, "bindings", True)
    assert text.endswith(f"lead to {link}")


def test_program_is_not_run(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n", encoding="utf-8")
    script.chmod(0o755)
    outcome, facts = doctor(script)
    assert outcome.status == 0
    assert not (tmp_path / "ran").exists()
    assert texts(facts, "program", True) == ["/bin/sh can be preloaded into"]


def test_program_with_the_archive(build_program: Compile) -> None:
    archive = ["-Wl,--undefined=malloc", str(library().with_name("libhakmem.a")), "-lpthread"]
    _, facts = doctor(build_program("plain.c", *archive))
    told = texts(facts, "program")
    assert any(text.startswith("it was linked with libhakmem.a") for text in told), told


@pytest.mark.parametrize(
    ("source", "flags", "name", "text"),
    [
        ("plain.c", ["-static"], "program", "is statically linked"),
        ("plain.c", ["-Wl,--dynamic-linker=/lib/ld-musl-x86_64.so.1"], "program", "with musl"),
        ("own_malloc.c", [], "bindings", "inactive: no malloc symbol of any module"),
        ("own_operators.cc", [], "bindings", "partial: some malloc symbols lead to another file"),
    ],
)
def test_program_that_cannot(
    build_program: Compile, source: str, flags: Sequence[str], name: str, text: str
) -> None:
    program = build_program(source, *flags)
    outcome, facts = doctor(program)
    assert outcome.status == 1
    assert not facts["healthy"]
    assert any(text in found for found in texts(facts, name, False))
    if name == "bindings":
        assert any(f"-> {program}" in found for found in texts(facts, "stray", False))


def test_program_whose_library_is_missing(build_program: Compile, tmp_path: Path) -> None:
    needed = tmp_path / "libneeded.so"
    needed.write_bytes(build_program("plugin.c", "-shared", "-fPIC").read_bytes())
    program = build_program("plain.c", "-Wl,--no-as-needed", str(needed))
    needed.unlink()
    outcome, facts = doctor(program)
    assert outcome.status == 1
    assert any("libneeded.so is missing" in text for text in texts(facts, "program", False))


def test_no_such_program() -> None:
    outcome, facts = doctor("no-such-program")
    assert outcome.status == 1
    assert texts(facts, "program", False) == ["no-such-program: no such program in PATH"]


def test_what_is_set_for_a_program(build_program: Compile) -> None:
    changes = {"HAKMEM_MODE": "lean", "HAKMEM_CONF": "check:1", "HAKMEM_NO_SUCH": "1"}
    environment = clean_environment(**changes, HAKMEM_CHECK="9")
    outcome, facts = doctor(build_program("plain.c"), environment=environment)
    assert outcome.status == 1
    assert texts(facts, "option") == ["mode=lean (environment)", "check=1 (HAKMEM_CONF)"]
    assert {"HAKMEM_CONF=check:1", "HAKMEM_MODE=lean"} <= set(texts(facts, "variable"))
    assert texts(facts, "variable", False) == [
        "HAKMEM_CHECK=9: ignored, because the value is not a number (0..2)",
        "HAKMEM_NO_SUCH=1: ignored, because there is no such option",
    ]


def test_program_is_examined_without_the_packages(tmp_path: Path) -> None:
    """By an interpreter that has nothing installed."""
    environment = clean_environment(HAKMEM_PROFILE="./nonexist")
    bare = [HAKMEM[0], "-S", "-E", *HAKMEM[1:]]
    outcome = call([*bare, "doctor", "--library", library(), "true"], environment=environment)
    assert outcome.status == 1, outcome.stderr
    assert "no such file or directory" in outcome.stdout.decode()
    (tmp_path / "wrong").write_text("size_class=17\n", encoding="utf-8")
    environment = clean_environment(HAKMEM_PROFILE=str(tmp_path / "wrong"))
    outcome = call([*bare, "doctor", "--library", library(), "true"], environment=environment)
    assert outcome.status == 1, outcome.stderr
    assert "line 1: block sizes are multiples of 16" in outcome.stdout.decode()


def test_profile_that_is_for_another(build_program: Compile, tmp_path: Path) -> None:
    """Program, version, or name of an installed one: the library ignores it."""
    plain, nap = build_program("plain.c"), build_program("nap.c")
    own = elf.read_build_id(plain)
    assert own and own != elf.read_build_id(nap)
    version = find_project().version
    cases = (
        (f"program_build_id={own}\nhakmem_version={version}\n", 0, ""),
        (f"program_build_id={own.upper()}\n", 0, ""),
        (f"program_build_id={elf.read_build_id(nap)}\n", 1, "it is for another program or build"),
        ("hakmem_version=9.9.9\n", 1, "it is for hakmem 9.9.9, and this is"),
    )
    for text, status, problem in cases:
        (tmp_path / "it").write_text(text + "refill_blocks=9\n", encoding="utf-8")
        environment = clean_environment(HAKMEM_PROFILE=str(tmp_path / "it"))
        outcome, facts = doctor(plain, environment=environment)
        assert outcome.status == status, text
        told = texts(facts, "variable", None if status == 0 else False)
        assert any(problem in each for each in told)
    with napping(nap, LD_PRELOAD=str(library()), HAKMEM_PROFILE=str(tmp_path / "it")) as pid:
        status, facts = examine(pid)
    assert status == 1 and "it is for hakmem 9.9.9" in texts(facts, "variable", False)[0]
    outcome, facts = doctor(plain, environment=clean_environment(HAKMEM_PROFILE="none-of-these"))
    assert outcome.status == 1
    missing = "profile 'none-of-these' is not installed; the default is used"
    assert texts(facts, "option", False) == [missing]
    outcome, facts = doctor(environment=clean_environment(HAKMEM_PROFILE="none-of-these"))
    assert (outcome.status, texts(facts, "option", False)) == (1, [missing])


def test_values_reach_the_terminal_without_control_characters(build_program: Compile) -> None:
    environment = clean_environment(HAKMEM_EVIL="\x1b[2J\n" + "x" * 1000)
    words = ["doctor", "--library", str(library()), str(build_program("plain.c"))]
    text = call([*HAKMEM, *words], environment=environment).stdout.decode()
    assert "HAKMEM_EVIL=?[2J?xxx" in text and "xxx...: ignored" in text
    assert "\x1b" not in text


def test_values_that_are_odd(build_program: Compile) -> None:
    """A path in another encoding; more digits than Python reads."""
    environment = clean_environment(HAKMEM_REPORT="/nowhere/caf\udce9", HAKMEM_CHECK="1" * 5000)
    words = ["doctor", "--library", str(library()), str(build_program("plain.c"))]
    outcome = call([*HAKMEM, *words], environment=environment)
    text = outcome.stdout.decode()
    assert (outcome.status, outcome.stderr) == (1, "")
    assert "note variable       HAKMEM_REPORT=/nowhere/caf?\n" in text
    assert "111...: ignored, because the value is not a number (0..2)\n" in text
    outcome = call([*HAKMEM, "run", "--set", f"check={'1' * 5000}", "--", "true"])
    assert (outcome.status, outcome.stdout) == (125, b"")
    assert outcome.stderr.endswith(" is not a number (0..2)\n")


@pytest.mark.parametrize(
    ("name", "value", "is_taken"),
    [
        ("HAKMEM_CHECK", "1 ", False),
        ("HAKMEM_CHEC\u212a", "1", False),
        ("HAKMEM_CONF", " \tcheck\r: 1 , ", True),
        ("HAKMEM_CONF", "check:1\n", False),
        ("HAKMEM_CONF", "\fcheck:1", False),
        ("HAKMEM_CONF", "check:\u00a01", False),
        ("HAKMEM_CONF", "check:1,\n", False),
    ],
)
def test_blanks_and_letters_are_judged_as_the_library_does(
    build_program: Compile, name: str, value: str, is_taken: bool
) -> None:
    program = build_program("plain.c")
    environment = clean_environment(**{name: value})
    outcome, facts = doctor(program, environment=environment)
    assert bool(texts(facts, "variable", False)) is not is_taken, facts
    assert outcome.status == (0 if is_taken else 1)
    warned = call([program, "0"], environment={**environment, "LD_PRELOAD": str(library())})
    assert (warned.stderr == "") is is_taken, warned


def test_damaged_words_of_the_loader_are_passed_over() -> None:
    line = "  7:\tbinding file /bin/p [0] to /lib/h.so [0]: normal symbol `malloc' [GLIBC_2.2.5]\n"
    (found,) = trial.parse(f"noise\n{line}binding file\n{line}", frozenset({"malloc"}))
    assert (found.module, found.symbol, found.provider) == ("/bin/p", "malloc", "/lib/h.so")
    assert trial.parse(line, frozenset({"free"})) == []


# ---- Where the calls of a running process lead


@contextmanager
def running(
    command: Sequence[str | Path], reports: Path, **changes: str
) -> Iterator[tuple[int, schema.Report | None]]:
    """A process under the library, and the report that the library wrote of it at its start."""
    reports.mkdir(exist_ok=True)
    environment = clean_environment(HAKMEM_REPORT=str(reports), **changes)
    with subprocess.Popen([str(word) for word in command], env=environment) as process:
        try:
            end = time.monotonic() + HANG_SECONDS
            report = None
            while report is None and changes and time.monotonic() < end:
                found = [row for row in schema.read_reports(reports) if row.pid == process.pid]
                # The proof is written line by line, and the state after it.
                report = found[0] if found and found[0].books["state"] else None
                time.sleep(0.02)
            yield process.pid, report
        finally:
            process.kill()


def outside(pid: int) -> set[tuple[str, str, str]]:
    with modules.Memory(pid) as memory:
        loaded = modules.read_modules(
            memory,
            modules.auxiliary_vector(Path(f"/proc/{pid}")),
            str(Path(f"/proc/{pid}/exe").readlink()),
        )
        lines = bindings.Bindings(loaded, NAMES).lines()
    return {(line.module, line.symbol, line.provider) for line in lines}


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["-Wl,-z,now"],
        ["-Wl,-z,lazy"],
        ["-no-pie", "-fno-pic"],
        ["-fno-plt"],
    ],
)
def test_process_seen_from_outside_is_as_it_sees_itself(
    build_program: Compile, tmp_path: Path, flags: Sequence[str]
) -> None:
    nap = build_program("nap.c", *flags)
    with running([nap, "60000"], tmp_path / "r", LD_PRELOAD=str(library())) as (pid, report):
        assert report is not None
        own = {
            (line.module, line.symbol, line.provider)
            for line in report.proof
            if line.phase == "start" and line.symbol in NAMES
        }
        assert len(own) > 10
        assert outside(pid) >= own


def test_large_process_seen_from_outside(tmp_path: Path) -> None:
    # A module that is being loaded has slots that nothing is bound to yet: wait for the last.
    loaded = tmp_path / "loaded"
    script = "import pathlib, ssl, sys, time; pathlib.Path(sys.argv[1]).touch(); time.sleep(600)"
    command: list[str | Path] = ["/usr/bin/python3", "-c", script, loaded]
    with running(command, tmp_path / "r", LD_PRELOAD=str(library())) as (pid, report):
        assert report is not None
        end = time.monotonic() + HANG_SECONDS
        while not loaded.exists() and time.monotonic() < end:
            time.sleep(0.02)
        found = outside(pid)
        providers = {provider for module, _, provider in found if module != provider}
        assert providers == {str(library())}


def test_memory_that_cannot_be_read_is_said() -> None:
    with pytest.raises(modules.BindingError, match="its memory cannot be read"):
        modules.Memory(0x7FFFFFFF)
    with modules.Memory(os.getpid()) as memory:
        for address in (0, 8, (1 << 63) - 8, 1 << 63, -1):
            with pytest.raises(modules.BindingError):
                memory.read(address, 8)
        with pytest.raises(modules.BindingError):
            modules.read_modules(memory, {modules.AT_PHDR: 64, modules.AT_PHNUM: 9}, "x")
        with pytest.raises(modules.BindingError):
            modules.read_modules(memory, {modules.AT_PHDR: 64, modules.AT_PHNUM: 60000}, "x")


def test_files_that_are_mapped_may_have_any_name(tmp_path: Path) -> None:
    """Of one with a line feed the kernel writes the number; what ends a line elsewhere stays."""
    odd = tmp_path / "carriage\rreturn"
    odd.write_bytes(b"x" * 4096)
    with odd.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        at = np.frombuffer(mapped, np.uint8).ctypes.data
        with modules.Memory(os.getpid()) as memory:
            assert memory.file_at(at) == modules.MappedFile(at, str(odd))


def test_vector_of_a_process_of_32_bits(tmp_path: Path) -> None:
    """A folder as that of a process in /proc."""
    pairs = [(modules.AT_SECURE, 0), (modules.AT_PHNUM, 9), (modules.AT_PHDR, 0x8048034), (0, 0)]
    for letter, mark in (("I", 1), ("Q", 2)):
        identity = b"\x7fELF" + bytes([mark, 1, 1])
        (tmp_path / "exe").write_bytes(identity.ljust(64, b"\0"))
        (tmp_path / "auxv").write_bytes(
            b"".join(struct.pack(f"<2{letter}", *each) for each in pairs)
        )
        assert modules.auxiliary_vector(tmp_path) == dict(pairs)


def test_list_of_modules_that_never_ends() -> None:
    """Read while the loader changes it, it may lead back to where it was."""
    headers, dynamic, debug, ring = ((ctypes.c_uint64 * words)() for words in (21, 4, 8, 8))
    at, dynamic_at, debug_at, ring_at = (
        ctypes.addressof(each) for each in (headers, dynamic, debug, ring)
    )
    # Program headers: type and flags, offset, address, physical address, two sizes, alignment.
    headers[:7] = [modules.PT_PHDR, 0, at, 0, 0, 0, 0]
    headers[7:14] = [modules.PT_LOAD, 0, 0, 0, 1 << 47, 1 << 47, 4096]
    headers[14:] = [modules.PT_DYNAMIC, 0, dynamic_at, 0, 32, 32, 8]
    dynamic[:] = [modules.DT_DEBUG, debug_at, 0, 0]
    debug[:2] = [1, ring_at]
    # Two modules without a name, each followed by the other: base, name, dynamic section, next.
    ring[:] = [0, 0, 0, ring_at + 32, 0, 0, 0, ring_at]
    with modules.Memory(os.getpid()) as memory:
        vector = {modules.AT_PHDR: at, modules.AT_PHNUM: 3}
        assert [module.name for module in modules.read_modules(memory, vector, "x")] == ["x"]


# ---- A running process


@contextmanager
def napping(
    program: Path, before: Sequence[str | Path] = (), user: int | None = None, /, **changes: str
) -> Iterator[int]:
    """A process that has passed its loader. `before`: what the program is started by."""
    command = [*before, program, "60000"]
    with subprocess.Popen(command, user=user, env=clean_environment(**changes)) as process:
        try:
            end = time.monotonic() + HANG_SECONDS
            while _state(process.pid) != "S" and time.monotonic() < end:
                assert process.poll() is None
                time.sleep(0.02)
            yield process.pid
        finally:
            process.kill()


def _state(pid: int) -> str:
    """S: it sleeps, and does not wait for a file."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()[0]


def examine(pid: int) -> tuple[int, dict[str, Any]]:
    outcome, facts = doctor(str(pid))
    assert outcome.stderr == ""
    return outcome.status, facts


def test_process_that_is_served(build_program: Compile) -> None:
    nap = build_program("nap.c")
    with napping(nap, LD_PRELOAD=str(library()), HAKMEM_MODE="lean") as pid:
        status, facts = examine(pid)
    assert status == 0 and facts["healthy"]
    (active,) = texts(facts, "active", True)
    assert active.endswith(f"mode lean: {library()}")
    (bound,) = texts(facts, "bindings", True)
    assert bound.startswith("all ") and bound.endswith(f"lead to {library()}")
    assert "mode=lean (environment)" in texts(facts, "option")
    assert "HAKMEM_MODE=lean" in texts(facts, "variable")
    (mappings,) = texts(facts, "mappings")
    assert re.match(r"\d+ of at most", mappings)


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("HAKMEM_MODE", "leen", "the value is not one of"),
        ("HAKMEM_FOO", "1", "there is no such option"),
        ("HAKMEM_PROFILE", "/nonexist", "no such file or directory"),
        ("HAKMEM_PROFILE", "./wrong", "line 1: 'nonsense' is no NAME=VALUE"),
        ("HAKMEM_PROFILE", "./pipe", "it is not a regular file"),
        ("HAKMEM_CONF", "mode=leen,foo=1", "of 'mode=leen' it has no ':' and value; of 'foo=1'"),
        ("HAKMEM_CONF", "check:1, mode:leen", "of 'mode:leen' the value is not one of"),
        ("HAKMEM_CONF", "check:1,mode:lean,", None),
        ("HAKMEM_PROFILE", "./right", None),
        ("HAKMEM_PROFILE", "none-of-these", "at the start it was not installed where"),
        ("HAKMEM_PROFILE", "default", None),
    ],
)
def test_setting_that_was_ignored_counts(
    build_program: Compile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    problem: str | None,
) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "wrong").write_text("nonsense\n", encoding="utf-8")
    (tmp_path / "right").write_text("profile_format=1\nrefill_blocks=9\n", encoding="utf-8")
    nap = build_program("nap.c")
    monkeypatch.chdir(tmp_path)
    with napping(nap, LD_PRELOAD=str(library()), **{name: value}) as pid:
        monkeypatch.chdir("/")
        status, facts = examine(pid)
    wrong = texts(facts, "variable", False)
    if problem is None:
        assert (status, wrong) == (0, [])
    else:
        assert status == 1 and not facts["healthy"]
        assert len(wrong) == 1 and f"{name}={value}: ignored, because {problem}" in wrong[0]


def test_profile_that_changed_since_the_start(build_program: Compile, tmp_path: Path) -> None:
    """What the library took then counts."""
    nap = build_program("nap.c")
    file = tmp_path / "it"
    environment = {"LD_PRELOAD": str(library()), "HAKMEM_PROFILE": str(file)}
    with napping(nap, **environment) as pid:
        file.write_text("refill_blocks=9\n", encoding="utf-8")
        status, facts = examine(pid)
    said = f"HAKMEM_PROFILE={file}: ignored, because at the start it could not be read, or was not"
    assert status == 1 and said in texts(facts, "variable", False)[0]
    with napping(nap, **environment) as pid:
        file.unlink()
        status, facts = examine(pid)
    assert (status, texts(facts, "variable", False)) == (0, [])


def test_name_that_is_no_utf_8() -> None:
    """The loader repeats it byte for byte."""
    environment = clean_environment(LD_PRELOAD=os.fsdecode(b"/opt/caf\xe9/none.so"))
    done = call([*HAKMEM, "doctor", "ls"], environment=environment)
    assert "Traceback" not in done.stderr
    assert b"none.so" in done.stdout


def test_environment_that_no_shell_makes(build_program: Compile) -> None:
    """Of several variables of one name the library takes the first; what has no '=' is none."""
    words = ["HAKMEM_RETAIN_SLABS=bad", "HAKMEM_ODD", "LD_PRELOAD=/nowhere/libhakmem.so"]
    before: list[str | Path] = [build_program("environment.c"), *words, "--"]
    nap = build_program("nap.c")
    environment = {"LD_PRELOAD": str(library()), "HAKMEM_RETAIN_SLABS": "7"}
    with napping(nap, before, **environment) as pid:
        _, facts = examine(pid)
    assert texts(facts, "variable", False) == []
    told = texts(facts, "variable")
    assert "HAKMEM_RETAIN_SLABS=7" in told
    # Of the loader's own it is the last.
    assert "LD_PRELOAD=/nowhere/libhakmem.so" in told
    assert "LD_PRELOAD names /nowhere/libhakmem.so" in str(facts["findings"])


def test_threads_are_counted(build_program: Compile) -> None:
    with napping(build_program("nap.c"), LD_PRELOAD=str(library())) as pid:
        _, facts = examine(pid)
    assert texts(facts, "process")[0].endswith((", 1 thread", ", 2 threads"))


def test_process_with_the_archive_is_served(build_program: Compile) -> None:
    archive = ["-Wl,--undefined=malloc", str(library().with_name("libhakmem.a")), "-lpthread"]
    for flags in (archive, ["-static", *archive]):
        program = build_program("nap.c", *flags)
        with napping(program) as pid:
            status, facts = examine(pid)
        assert status == 0, facts
        assert any("hakmem" in text for text in texts(facts, "active", True))
    assert any("statically linked" in text for text in texts(facts, "bindings"))


def test_library_with_a_malloc_of_its_own_is_named(build_program: Compile) -> None:
    second = build_program("own_malloc.c", "-shared", "-fPIC")
    program = build_program("nap.c", "-Wl,--no-as-needed", str(second))
    with napping(program, LD_PRELOAD=str(library())) as pid:
        status, facts = examine(pid)
    assert status == 0
    assert any(f"({second})" in text for text in texts(facts, "own malloc"))


def test_variable_that_a_library_set_anew_is_no_stray(build_program: Compile) -> None:
    changed = build_program("variable.c", "-shared", "-fPIC")
    program = build_program("nap.c", "-Wl,--no-as-needed", str(changed))
    with napping(program, LD_PRELOAD=str(library())) as pid:
        status, facts = examine(pid)
        found = {
            (symbol, provider) for name, symbol, provider in outside(pid) if name == str(changed)
        }
    assert (status, texts(facts, "stray", False)) == (0, []), facts
    assert found == {("free", str(library()))}


def test_library_in_a_namespace_of_its_own(build_program: Compile) -> None:
    auditor = build_program("lodger.c", "-shared", "-fPIC")
    with napping(build_program("nap.c"), LD_PRELOAD=str(library()), LD_AUDIT=str(auditor)) as pid:
        status, facts = examine(pid)
    assert status == 1
    assert any(text.startswith(f"{auditor}: ") for text in texts(facts, "stray", False)), facts


@pytest.mark.parametrize(
    ("flags", "preload", "reason"),
    [
        ([], None, "was started without hakmem in LD_PRELOAD"),
        ([], "/nowhere/libhakmem.so", "which does not exist where the process runs"),
        (["-static"], "library", "statically linked: nothing can be preloaded"),
    ],
)
def test_process_that_is_not_served(
    build_program: Compile, flags: Sequence[str], preload: str | None, reason: str
) -> None:
    changes = {} if preload is None else {"LD_PRELOAD": preload}
    if preload == "library":
        changes = {"LD_PRELOAD": str(library())}
    with napping(build_program("nap.c", *flags), **changes) as pid:
        status, facts = examine(pid)
    assert status == 1 and not facts["healthy"]
    (text,) = texts(facts, "active", False)
    assert reason in text


def test_secure_process_is_not_served(build_program: Compile, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        program = tmp_path / "setuid"
        program.write_bytes(build_program("nap.c").read_bytes())
        os.chown(program, NOBODY, -1)
        program.chmod(0o4755)
        tmp_path.chmod(0o755)
        with napping(program, LD_PRELOAD=str(library())) as pid:
            status, facts = examine(pid)
        if not heeds_setuid(program):
            assert status == 0
            return
        assert status == 1
        (text,) = texts(facts, "active", False)
        assert "is setuid" in text or "AT_SECURE" in text
    elif not heeds_setuid(Path("/usr/bin/passwd")):
        assert doctor("/usr/bin/passwd")[0].status == 0
    else:
        outcome, facts = doctor("/usr/bin/passwd")
        assert outcome.status == 1
        assert any("is setuid" in text for text in texts(facts, "program", False))


def test_process_with_another_allocator(build_program: Compile) -> None:
    (jemalloc,) = Path("/usr/lib").glob("*-linux-gnu/libjemalloc.so.2")
    with napping(build_program("nap.c"), LD_PRELOAD=str(jemalloc)) as pid:
        status, facts = examine(pid)
    assert status == 1
    assert any("libjemalloc.so.2" in text for text in texts(facts, "allocator"))


def test_process_for_another_libc(build_program: Compile) -> None:
    program = build_program("nap.c")
    musl = program.with_name(f"{program.name}-musl")
    source = ROOT / "tests/cli/programs/nap.c"
    subprocess.run(["musl-gcc", "-o", musl, source], check=True, timeout=HANG_SECONDS)
    with napping(musl) as pid:
        status, facts = examine(pid)
    assert status == 1
    (text,) = texts(facts, "active", False)
    assert "uses the loader of another libc" in text


def test_process_of_another_user() -> None:
    user = NOBODY if os.geteuid() == 0 else None
    with subprocess.Popen(["/bin/sleep", "60"], user=user) as process:
        try:
            outcome, facts = doctor(
                str(process.pid if user is not None else 1), preexec_fn=without(CAP_SYS_PTRACE)
            )
        finally:
            process.kill()
    assert outcome.status == 1
    assert any("not yours to look into" in text for text in texts(facts, "active", False))
    assert any("is not permitted" in text for text in texts(facts, "inspect"))


def test_no_such_process() -> None:
    outcome, _ = doctor("2147483646")
    assert outcome.status == 2
    assert outcome.stderr == "hakmem: there is no process 2147483646\n"
    outcome, _ = doctor("1", "more")
    assert outcome.status == 2
    assert outcome.stderr == "hakmem: a process takes no arguments: more\n"


# ---- The machine


def made_up(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def machine_texts(system: Path) -> dict[str, list[tuple[bool | None, str]]]:
    found: dict[str, list[tuple[bool | None, str]]] = {}
    for finding in machine.examine(system / "proc/9", system):
        found.setdefault(finding.name, []).append((finding.ok, finding.text))
    return found


def test_settings_of_a_machine(tmp_path: Path) -> None:
    system = made_up(
        tmp_path,
        sys__kernel__mm__transparent_hugepage__enabled="always madvise [never]\n",
        sys__kernel__mm__transparent_hugepage__defrag="[always] defer never\n",
        proc__sys__vm__overcommit_memory="2\n",
        proc__meminfo="MemTotal: 4096 kB\nCommitLimit: 2048 kB\nCommitted_AS: 2000 kB\n",
        proc__sys__vm__max_map_count="10\n",
        proc__9__maps="a\n" * 10,
        proc__9__status="Name: x\nTHP_enabled:\t0\n",
        proc__9__cgroup="0::/outer/inner\n",
        proc__9__limits="Limit  Soft  Hard\nMax address space  1048576  unlimited  bytes\n",
    )
    group = system / "sys/fs/cgroup/outer"
    group.mkdir(parents=True)
    (group / "memory.max").write_text(f"{100 * MIB}\n", encoding="utf-8")
    (group / "memory.current").write_text(f"{95 * MIB}\n", encoding="utf-8")
    (group / "inner").mkdir()
    (group / "inner/memory.max").write_text("max\n", encoding="utf-8")
    (group / "inner/memory.current").write_text("4096\n", encoding="utf-8")
    made_up(tmp_path, proc__sys__kernel__yama__ptrace_scope="3\n")
    found = machine_texts(system)
    ((_, pages),) = found["huge pages"]
    assert pages.startswith("never: no huge pages") and "switched off for this process" in pages
    ((ok, overcommit),) = found["overcommit"]
    assert ok is False and "(2.0 MiB of 2.0 MiB)" in overcommit
    assert found["mappings"] == [(False, "10 of at most 10 (vm.max_map_count)")]
    assert found["cgroup"] == [
        (None, "memory.max is 100.0 MiB, 95.0 MiB of it used, page cache included")
    ]
    assert found["limit"] == [(None, "address space is 1.0 MiB (ulimit)")]
    said = "scope 3: nobody may look into another process, not even root"
    assert found["ptrace"] == [(None, said)]


def test_limits_beside_what_a_process_has(tmp_path: Path) -> None:
    """vsftpd limits each session to less than hakmem has reserved by then: no word of that once."""
    system = made_up(
        tmp_path,
        proc__9__limits="Limit  Soft  Hard\n"
        f"Max data size  {10 * MIB}  unlimited  bytes\n"
        f"Max address space  {400 * MIB}  unlimited  bytes\n",
        proc__9__status="Name: x\nVmSize:\t16826368 kB\nVmData:\t5120 kB\n",
    )
    refused = "16.0 GiB of it used: all further memory is refused"
    assert machine_texts(system)["limit"] == [
        (False, f"address space is 400.0 MiB (ulimit), {refused}"),
        (None, "data size is 10.0 MiB (ulimit), 5.0 MiB of it used"),
    ]


def test_cgroup_of_the_first_version(tmp_path: Path) -> None:
    system = made_up(tmp_path, proc__9__cgroup="4:memory:/a\n0::/\n")
    group = system / "sys/fs/cgroup/memory/a"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text(f"{64 * MIB}\n", encoding="utf-8")
    (group / "memory.usage_in_bytes").write_text(f"{MIB}\n", encoding="utf-8")
    assert machine_texts(system)["cgroup"] == [
        (None, "memory.limit_in_bytes is 64.0 MiB, 1.0 MiB of it used, page cache included")
    ]


def test_machine_that_says_nothing(tmp_path: Path) -> None:
    found = machine_texts(tmp_path)
    assert found["huge pages"] == [(None, "this kernel has no transparent huge pages")]
    assert found["cgroup"] == [(None, "no limit of memory is set")]
    assert machine.examine()


def test_cgroup_of_another_container(tmp_path: Path) -> None:
    """What lies at the root is that of whoever looks."""
    system = made_up(tmp_path, proc__9__cgroup="0::/../other\n")
    root = system / "sys/fs/cgroup"
    root.mkdir(parents=True)
    (root / "memory.max").write_text(f"{64 * MIB}\n", encoding="utf-8")
    (root / "memory.current").write_text(f"{MIB}\n", encoding="utf-8")
    assert machine_texts(system)["cgroup"] == [
        (None, "its group is of another container: its limits cannot be seen from here")
    ]
