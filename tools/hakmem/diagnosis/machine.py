"""Settings of the kernel and of the cgroup that matter to an allocator, in plain words."""

from __future__ import annotations

import re
from pathlib import Path

from hakmem.diagnosis.finding import Finding
from hakmem.render import size

SYSTEM = Path("/")
HUGE_PAGE_SETTINGS = {
    "always": "the kernel backs large areas with huge pages unasked",
    "madvise": "huge pages where hakmem asks for them (option huge_pages)",
    "never": "no huge pages; hakmem's option huge_pages has no effect",
}
OVERCOMMIT_SETTINGS = {
    "0": "heuristic: only obvious overcommits are refused",
    "1": "always: no mapping is refused",
    "2": "never: mappings count against the commit limit, touched or not",
}
PTRACE_SCOPES = {
    "0": "a user may look into all of his processes",
    "1": "without CAP_SYS_PTRACE, only into descendants and those that allow it",
    "2": "only with CAP_SYS_PTRACE",
    "3": "nobody may look into another process, not even root",
}
# From this share of a limit on it is said that it is close.
CLOSE = 0.9
CGROUP_UNLIMITED = 1 << 60
# What the kernel counts against a limit, and where it says how much of that a process has.
LIMITS = (("address space", "VmSize"), ("data size", "VmData"))


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _chosen(text: str) -> str:
    """Of "always [madvise] never"."""
    found = re.search(r"\[(\w+)\]", text)
    return found[1] if found is not None else text


def _field(path: Path, name: str) -> str | None:
    found = re.search(rf"^{name}:\s*(.*)$", _read(path) or "", re.MULTILINE)
    return found[1].strip() if found is not None else None


def examine(process: Path | None = None, system: Path = SYSTEM) -> list[Finding]:
    """Every setting that could be read. `process` is a folder of /proc: what is set for that
    process alone is said too, and how close it is to a limit; without one, what a program started
    from here would inherit."""
    proc = process if process is not None else system / "proc/self"
    return [
        *_huge_pages(proc, system),
        *_overcommit(system),
        *_mappings(process, system),
        *_cgroup(proc, system),
        *_limits(process, proc),
        _ptrace(system),
    ]


def _huge_pages(proc: Path, system: Path) -> list[Finding]:
    folder = system / "sys/kernel/mm/transparent_hugepage"
    enabled = _read(folder / "enabled")
    if enabled is None:
        return [Finding("huge pages", None, "this kernel has no transparent huge pages")]
    chosen = _chosen(enabled)
    text = f"{chosen}: {HUGE_PAGE_SETTINGS.get(chosen, 'unknown to hakmem')}"
    defrag = _read(folder / "defrag")
    if defrag is not None:
        text += f"; defrag {_chosen(defrag)}"
    if _field(proc / "status", "THP_enabled") == "0":
        text += "; switched off for this process (prctl)"
    return [Finding("huge pages", None, text)]


def _overcommit(system: Path) -> list[Finding]:
    mode = _read(system / "proc/sys/vm/overcommit_memory")
    if mode is None:
        return []
    text = f"{mode}, {OVERCOMMIT_SETTINGS.get(mode, 'unknown to hakmem')}"
    limit, used = (_kib(system, name) for name in ("CommitLimit", "Committed_AS"))
    if mode == "2" and limit is not None and used is not None:
        text += f" ({size(used)} of {size(limit)})"
        return [Finding("overcommit", False if used > CLOSE * limit else None, text)]
    return [Finding("overcommit", None, text)]


def _kib(system: Path, name: str) -> int | None:
    value = _field(system / "proc/meminfo", name)
    return int(value.split()[0]) * 1024 if value else None


def _mappings(process: Path | None, system: Path) -> list[Finding]:
    limit = _read(system / "proc/sys/vm/max_map_count")
    if limit is None:
        return []
    maps = _read(process / "maps") if process is not None else None
    if maps is None:
        return [Finding("mappings", None, f"at most {int(limit):,} a process (vm.max_map_count)")]
    used = maps.count("\n") + 1
    text = f"{used:,} of at most {int(limit):,} (vm.max_map_count)"
    return [Finding("mappings", False if used > CLOSE * int(limit) else None, text)]


def _cgroup(proc: Path, system: Path) -> list[Finding]:
    """The tightest limit on the way up from the process's group, as far as it can be seen here."""
    findings: list[Finding] = []
    is_hidden = False
    for line in (_read(proc / "cgroup") or "").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and controllers == "":
            root, usage = system / "sys/fs/cgroup", "memory.current"
            names = ["memory.max", "memory.high"]
        elif "memory" in controllers.split(","):
            root, usage = system / "sys/fs/cgroup/memory", "memory.usage_in_bytes"
            names = ["memory.limit_in_bytes"]
        else:
            continue
        if ".." in Path(path).parts:
            # Not below what is the root here, which is our own group.
            is_hidden = True
            continue
        for name in names:
            found = _tightest(root, path, name, usage)
            if found is not None:
                limit, used = found
                # Page cache counts, which the kernel drops first: full is not yet in need.
                text = f"{name} is {size(limit)}, {size(used)} of it used, page cache included"
                findings.append(Finding("cgroup", None, text))
    if is_hidden and not findings:
        text = "its group is of another container: its limits cannot be seen from here"
        return [Finding("cgroup", None, text)]
    return findings or [Finding("cgroup", None, "no limit of memory is set")]


def _tightest(root: Path, path: str, name: str, usage: str) -> tuple[int, int] | None:
    """Limit and usage, in bytes. A container sees its own group as the root."""
    best: tuple[int, int] | None = None
    inside = Path(path.lstrip("/"))
    for group in (inside, *inside.parents):
        limit, used = _read(root / group / name), _read(root / group / usage)
        if limit is None or used is None or not limit.isdecimal() or not used.isdecimal():
            continue
        if int(limit) < CGROUP_UNLIMITED and (best is None or int(limit) < best[0]):
            best = int(limit), int(used)
    return best


def _limits(process: Path | None, proc: Path) -> list[Finding]:
    findings = []
    for title, counted in LIMITS:
        found = re.search(rf"^Max {title}\s+(\d+)", _read(proc / "limits") or "", re.MULTILINE)
        if found is not None:
            findings.append(_limit(process, title, int(found[1]), counted))
    return findings


def _limit(process: Path | None, title: str, limit: int, counted: str) -> Finding:
    """A process may set a limit below what it has: it keeps that, and is granted nothing more."""
    text = f"{title} is {size(limit)} (ulimit)"
    field = _field(process / "status", counted) if process is not None else None
    if field is None:
        return Finding("limit", None, text)
    used = int(field.split()[0]) * 1024
    text += f", {size(used)} of it used"
    if used > limit:
        text += ": all further memory is refused"
    return Finding("limit", False if used > CLOSE * limit else None, text)


def _ptrace(system: Path) -> Finding:
    scope = _read(system / "proc/sys/kernel/yama/ptrace_scope")
    if scope is None:
        return Finding("ptrace", None, f"not restricted: {PTRACE_SCOPES['0']}")
    text = f"scope {scope}: {PTRACE_SCOPES.get(scope, 'unknown to hakmem')}"
    return Finding("ptrace", None, text)
