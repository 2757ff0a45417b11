"""Does hakmem serve a running process, and why not if not? Read from outside."""

from __future__ import annotations

import pwd
from collections.abc import Callable
from pathlib import Path

from hakmem.diagnosis import absence, machine, surface
from hakmem.diagnosis.bindings import Bindings
from hakmem.diagnosis.finding import Finding
from hakmem.diagnosis.modules import (
    AT_SECURE,
    BindingError,
    Memory,
    Module,
    NoAccessError,
    auxiliary_vector,
    is_short,
    read_modules,
)
from hakmem.diagnosis.variables import variable_findings
from hakmem.diagnosis.verdict import bindings_findings
from hakmem.errors import HakmemError, UsageError
from hakmem.inspect.errors import GoneError, KernelError
from hakmem.inspect.model import Snapshot
from hakmem.project import Project
from hakmem.watch import running_thread, why_unseen

LIBRARY_STEM = "libhakmem"
# Only hakmem's own library has this name.
OWN_SYMBOL = "hakmem_inspect_root"

UNKNOWN = "unknown: the process is not yours to look into; its user and root may"
SECURE = "was started with more rights than its user's (AT_SECURE): the loader ignores LD_PRELOAD"
NOT_TAKEN = (
    "the loader did not take it: it cannot be read there, is for another libc or processor, or the "
    "variable was set after the start"
)


def examine(pid: int, project: Project, look: Callable[[int], Snapshot]) -> list[Finding]:
    """UsageError when there is no such process. `look` reads its heap, or raises HakmemError: what
    this says of one that has ended, or is the kernel's, is all there is to say."""
    if not Path(f"/proc/{pid}").is_dir():
        raise UsageError(why_unseen(pid))
    thread = running_thread(pid)
    if thread is None:
        raise _ended(pid)
    proc = Path(f"/proc/{thread}")
    exe = _exe(proc)
    findings = [Finding("process", None, _who(pid, proc, exe))]
    snapshot, unreadable = None, None
    program: Path | None = proc / "exe"
    try:
        snapshot = look(pid)
    except (GoneError, KernelError):
        raise
    except HakmemError as error:
        unreadable = str(error)
    try:
        if is_short(proc):
            raise BindingError("its modules have addresses of 32 bits, which are not followed")
        with Memory(thread) as memory:
            modules = read_modules(memory, auxiliary_vector(proc), exe)
            if modules[0].name != exe:
                text = f"{modules[0].name}, started by the name of its loader"
                findings.append(Finding("program", None, text))
                program = None
            findings += _service(modules, snapshot, unreadable, proc, project)
    except BindingError as error:
        if running_thread(pid) is None:
            raise _ended(pid) from None
        findings += _served_by_reader_alone(snapshot, unreadable, proc, project, error)
    if snapshot is not None:
        findings += [
            Finding("option", None, f"{option.name}={option.text} ({option.origin})")
            for option in snapshot.options
            if option.name == "mode" or option.origin not in ("default", "mode")
        ]
    environment = _environment(proc)
    if environment is None:
        findings.append(Finding("variable", None, "its environment cannot be read"))
    else:
        findings += variable_findings(
            environment,
            project,
            root=proc / "root",
            directory=proc / "cwd",
            others=[option.name for option in snapshot.options] if snapshot is not None else (),
            version=snapshot.version if snapshot is not None else None,
            program=program,
            has_profile=snapshot.has_profile if snapshot is not None else None,
        )
    return [*findings, *machine.examine(proc)]


def _ended(pid: int) -> UsageError:
    return UsageError(f"process {pid} has ended")


def _service(
    modules: list[Module],
    snapshot: Snapshot | None,
    unreadable: str | None,
    proc: Path,
    project: Project,
) -> list[Finding]:
    """Whether hakmem is there, and what leads to it."""
    library = next(
        (
            module.name
            for module in modules
            if Path(module.name).name.startswith(LIBRARY_STEM) or module.definition(OWN_SYMBOL)
        ),
        # Linked into the program, which then has the malloc that all others use.
        modules[0].name if snapshot is not None else None,
    )
    proof = Bindings(modules, surface.malloc_names(project)).lines()
    if library is None:
        program = proc / "root" / modules[0].name.lstrip("/")
        started = program if modules[0].name != _exe(proc) else proc / "exe"
        findings = [Finding("active", False, _absence(proc, project, started))]
        own = {line.module for line in proof if line.route == "defines"}
        served = sorted({line.provider for line in proof if line.route != "defines"} & own)
        text = f"its malloc is that of {', '.join(served) or modules[0].name}"
        return [*findings, Finding("allocator", None, text)]
    if len(modules) == 1:
        return [_active(snapshot, f"linked into {library}; no other module is loaded")]
    findings = [_active(snapshot, library)]
    if unreadable is not None:
        findings.append(Finding("inspect", False, unreadable))
    files = {module.name: proc / "root" / module.name.lstrip("/") for module in modules}
    return [*findings, *bindings_findings(proof, library, files)]


def _served_by_reader_alone(
    snapshot: Snapshot | None,
    unreadable: str | None,
    proc: Path,
    project: Project,
    error: BindingError,
) -> list[Finding]:
    """Its modules could not be read: a static program, or one that is not ours to look into."""
    if snapshot is not None:
        return [_active(snapshot, "linked into the program"), Finding("bindings", None, str(error))]
    why = UNKNOWN if isinstance(error, NoAccessError) else _absence(proc, project, proc / "exe")
    findings = [Finding("active", False, why), Finding("bindings", None, str(error))]
    return [*findings, Finding("inspect", None, unreadable)] if unreadable else findings


def _active(snapshot: Snapshot | None, where: str) -> Finding:
    if snapshot is None:
        return Finding("active", None, f"{where} is loaded")
    return Finding("active", True, f"hakmem {snapshot.version}, mode {snapshot.mode}: {where}")


def _absence(proc: Path, project: Project, program: Path) -> str:
    """Why hakmem is not in the process."""
    library = project.library if project.library.is_file() else None
    # What the kernel made of the program's rights: its file may have others for us, or by now.
    is_secure = bool(auxiliary_vector(proc).get(AT_SECURE))
    reason = absence.program_reason(program, library, is_secure=is_secure)
    if reason is not None:
        return reason
    if is_secure:
        return SECURE
    environment = _environment(proc)
    entries = (environment or {}).get("LD_PRELOAD", "").replace(" ", ":").split(":")
    named = [entry for entry in entries if LIBRARY_STEM in Path(entry).name]
    if not named:
        return "was started without hakmem in LD_PRELOAD; `hakmem run` starts a program on it"
    if named[0].startswith("/") and _is_missing(proc / "root" / named[0].lstrip("/")):
        return f"LD_PRELOAD names {named[0]}, which does not exist where the process runs"
    return f"LD_PRELOAD names {named[0]}, but {NOT_TAKEN}"


def _is_missing(path: Path) -> bool:
    """False where that cannot be seen: it lies in a directory that may not be searched."""
    try:
        return not path.exists()
    except OSError:
        return False


def _environment(proc: Path) -> dict[str, str] | None:
    """As the program was given it; None when it cannot be read. Of several variables of one name
    the library takes the first, and the loader the last."""
    try:
        data = (proc / "environ").read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return None
    environment: dict[str, str] = {}
    for name, equals, value in (entry.partition("=") for entry in data.split("\0")):
        if equals and (name not in environment or name == "LD_PRELOAD"):
            environment[name] = value
    return environment


def _exe(proc: Path) -> str:
    try:
        return str((proc / "exe").readlink())
    except OSError:
        return "[program]"


def _who(pid: int, proc: Path, exe: str) -> str:
    try:
        user = proc.stat().st_uid
    except OSError:
        raise _ended(pid) from None
    try:
        name = pwd.getpwuid(user).pw_name
    except KeyError:
        name = str(user)
    try:
        count = sum(1 for _ in (proc / "task").iterdir())
        threads = f", {count} thread{'s' if count != 1 else ''}"
    except OSError:
        threads = ""
    return f"{pid} {exe}, user {name}{threads}"
