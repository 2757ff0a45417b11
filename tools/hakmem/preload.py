"""Which programs hakmem can be preloaded into, said before they are started.

A program that the kernel or the loader would start without the library is refused in one sentence:
it would run on another malloc, and nobody would know.
"""

from __future__ import annotations

import mmap
import os
import re
import shlex
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hakmem import elf
from hakmem.errors import CannotExecuteError, CannotPreloadError, NotFoundError
from hakmem.schema import told

# The kernel follows this many interpreters of interpreters.
SCRIPT_DEPTH_MAX = 5
SHEBANG_BYTES_MAX = 256
GLIBC_LOADER = re.compile(r"(ld-linux.*|ld64|ld)\.so\.\d+$")
# As files, which can be started like programs: `ld.so PROGRAM`. That of musl is its libc.
GLIBC_LOADER_FILE = re.compile(rf"{GLIBC_LOADER.pattern}|ld-\d[\d.]*\.so")
MUSL_LOADER = re.compile(r"ld-musl-.*\.so\.\d+|libc\.so")
# In every file that hakmem was linked into (include/hakmem_inspect.h).
ROOT_MAGIC = b"hakmem-inspect\0\0"
CARRIES = (
    "it was linked with libhakmem.a, which serves it whatever is preloaded: start it by itself"
)
# Options of env(1) whose value is the next word.
ENV_WITH_VALUE = re.compile(r"-[0iv]*[uC]|--unset|--chdir")
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
# What has it look for the program elsewhere than in the caller's PATH.
ENV_OTHER_PATH = re.compile(
    r"PATH=.*|-|-[0v]*i.*|--ignore-environment|(-[0v]*u|--unset=?)PATH", re.DOTALL
)


@dataclass(frozen=True)
class Target:
    """What a command line would start: `path` is executed, `program` is the ELF file that then runs
    (the interpreter of a script). `header` is None when the file cannot be read, only executed."""

    path: str
    program: str
    header: elf.Program | None


def resolve(name: str, environment: Mapping[str, str]) -> str:
    """The file that execvp would execute."""
    if "/" in name:
        path = Path(name)
        try:
            is_there = path.exists()
        except OSError as error:
            raise CannotExecuteError(f"{name}: {error.strerror}") from None
        if not is_there:
            raise NotFoundError(f"{name}: no such file")
        _require_executable(path, name)
        return name
    refused: str | None = None
    for directory in environment.get("PATH", os.defpath).split(os.pathsep):
        candidate = Path(directory or ".") / name
        # What lies in a directory that may not be searched is passed over, as execvp does.
        if _is_file(candidate):
            if os.access(candidate, os.X_OK):
                return str(candidate)
            refused = str(candidate)
    if refused is not None:
        raise CannotExecuteError(f"{refused}: permission to execute it is missing")
    raise NotFoundError(f"{name}: no such program in PATH")


def _is_file(path: Path) -> bool:
    """Also False where this user cannot see it."""
    try:
        return path.is_file()
    except OSError:
        return False


def _require_executable(path: Path, name: str) -> None:
    if path.is_dir():
        raise CannotExecuteError(f"{name}: is a directory")
    if not path.is_file():
        raise CannotExecuteError(f"{name}: is not a regular file")
    if not os.access(path, os.X_OK):
        raise CannotExecuteError(f"{name}: permission to execute it is missing")


def examine(name: str, environment: Mapping[str, str]) -> Target:
    """Finds the program and follows scripts to what interprets them; raises what is wrong."""
    path = resolve(name, environment)
    program = path
    for _ in range(SCRIPT_DEPTH_MAX):
        try:
            with Path(program).open("rb") as file:
                start = file.read(SHEBANG_BYTES_MAX)
                header = elf.read_program(file)
        except PermissionError:
            return Target(path, program, None)
        if header is not None:
            _require_preloadable(program, header)
            return Target(path, program, header)
        if start.startswith(elf.MAGIC):
            raise CannotExecuteError(f"{program}: is a damaged ELF file")
        if not start.startswith(b"#!"):
            # What execvp does with a file that the kernel does not know: the shell reads it.
            program = "/bin/sh"
            continue
        program = _interpreter(program, start, environment)
    raise CannotExecuteError(f"{path}: scripts interpret scripts more than {SCRIPT_DEPTH_MAX} deep")


def _interpreter(script: str, start: bytes, environment: Mapping[str, str]) -> str:
    line = start[2:].split(b"\n")[0].decode(errors="surrogateescape").strip()
    words = line.split(None, 1)
    if not words:
        raise CannotExecuteError(f"{script}: its first line names no interpreter")
    interpreter = words[0]
    if not _is_file(Path(interpreter)):
        raise CannotExecuteError(f"{script}: its interpreter {interpreter} does not exist")
    if Path(interpreter).name == "env" and len(words) == 2:
        started = _started_by_env(words[1])
        if started is not None:
            try:
                return resolve(started, environment)
            except NotFoundError as error:
                raise CannotExecuteError(f"{script}: its interpreter is missing: {error}") from None
    return interpreter


def _started_by_env(argument: str) -> str | None:
    """The program in `#!/usr/bin/env [-S] [OPTIONS] [NAME=value] program`; None where only env
    itself can tell."""
    words = [argument]
    if argument.startswith("-"):
        try:
            words = shlex.split(re.sub(r"^(-\w*S|--split-string=?)\s*", "", argument))
        except ValueError:
            return None
    rest = iter(words)
    path_is_ours = True
    for word in rest:
        value = next(rest, "") if ENV_WITH_VALUE.fullmatch(word) else ""
        if not word.startswith("-") and not ASSIGNMENT.match(word):
            is_told = "$" not in word and (path_is_ours or "/" in word)
            return word if is_told else None
        path_is_ours = path_is_ours and not ENV_OTHER_PATH.fullmatch(word + value)
    return None


def is_loader(program: str | Path) -> bool:
    """Whether it is glibc's loader itself, which preloads into what it is told to start."""
    return GLIBC_LOADER_FILE.fullmatch(Path(program).resolve().name) is not None


def carries_hakmem(program: str | Path) -> bool:
    """Whether its file has an archive of hakmem in it."""
    try:
        with (
            elf.open_regular(program) as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
        ):
            return text.find(ROOT_MAGIC) >= 0
    except (OSError, ValueError):
        return False


def _require_preloadable(program: str, header: elf.Program) -> None:
    if header.loader is None and header.dynamic and is_loader(program):
        return
    if header.loader is None:
        if MUSL_LOADER.fullmatch(Path(program).resolve().name):
            raise CannotPreloadError(
                f"{program} cannot run on hakmem: it is the loader of musl, and hakmem is built "
                "for glibc"
            )
        if carries_hakmem(program):
            raise CannotPreloadError(f"{program} runs on hakmem without this: {CARRIES}")
        how = "static-pie" if header.dynamic else "statically linked"
        raise CannotPreloadError(
            f"{program} cannot run on hakmem: it is {how}, so no loader runs that could preload a "
            "library (link it with libhakmem.a instead)"
        )
    reason = privilege_reason(program)
    if reason is not None:
        raise CannotPreloadError(
            f"{program} cannot run on hakmem: it {reason}, and the loader ignores LD_PRELOAD then"
        )
    loader = Path(header.loader).name
    if not GLIBC_LOADER.fullmatch(loader):
        libc = "musl" if "musl" in loader else "another libc"
        raise CannotPreloadError(
            f"{program} cannot run on hakmem: it is linked with {libc} (its loader is "
            f"{header.loader}), and hakmem is built for glibc"
        )
    if not _is_file(Path(header.loader)):
        raise CannotExecuteError(f"{program}: its loader {header.loader} does not exist")


def require_same_architecture(target: Target, library: Path) -> None:
    with library.open("rb") as file:
        built = elf.read_program(file)
    if target.header is None or built is None:
        return
    if (target.header.bits, target.header.machine) != (built.bits, built.machine):
        raise CannotPreloadError(
            f"{target.program} cannot run on hakmem: it is for {target.header.architecture}, and "
            f"{library.name} is built for {built.architecture}"
        )


def privilege_reason(program: str) -> str | None:
    """Why the kernel would start this program in secure mode for this user, or None."""
    try:
        status = Path(program).stat()
        nosuid = bool(os.statvfs(program).f_flag & os.ST_NOSUID)
    except OSError:
        return None
    if nosuid or _no_new_privileges():
        return None
    if status.st_mode & stat.S_ISUID and status.st_uid != os.getuid():
        return f"is setuid (it runs as user {status.st_uid})"
    setgid = stat.S_ISGID | stat.S_IXGRP
    if status.st_mode & setgid == setgid and status.st_gid != os.getgid():
        return f"is setgid (it runs as group {status.st_gid})"
    if os.getuid() != 0:
        try:
            os.getxattr(program, "security.capability")
        except OSError:
            return None
        return "has file capabilities"
    return None


def _no_new_privileges() -> bool:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
    return re.search(r"^NoNewPrivs:\s*1", status, re.MULTILINE) is not None


def is_preloadable(path: str) -> bool:
    """LD_PRELOAD takes no path with a space, a colon or a dollar, and a report no longer one."""
    return told(path) == path and not any(character in path for character in ": \t\n$")


def preloadable_path(library: Path, directory: Path) -> str:
    """A library that is not preloadable by its path is reached by a link in the directory."""
    path = str(library.absolute())
    if is_preloadable(path):
        return path
    link = directory / library.name
    link.symlink_to(path)
    return str(link)


def preload_value(library: str, existing: str | None) -> str:
    """LD_PRELOAD with the library behind what is there already: a library that hooks malloc and
    passes it on finds hakmem next; one that replaces malloc is then reported."""
    kept = [entry for entry in re.split(r"[:\s]+", existing or "") if entry]
    if any(Path(entry).name == Path(library).name for entry in kept):
        kept = [entry for entry in kept if Path(entry).name != Path(library).name]
    return ":".join([*kept, library])
