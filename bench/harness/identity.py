"""What tells two library files apart: hash, build id, package, compiler."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from .layout import display
from .peers import Allocator


def _output(*command: str) -> str:
    if shutil.which(command[0]) is None:
        return ""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def build_id(library: Path) -> str:
    """The GNU build id that the linker put into the file; empty when there is none."""
    found = re.search(r"Build ID: ([0-9a-f]+)", _output("readelf", "--notes", str(library)))
    return found.group(1) if found else ""


def compiler(library: Path) -> str:
    """The compilers that the file says made it; empty when it does not say."""
    comment = _output("readelf", "--string-dump=.comment", str(library))
    return "; ".join(dict.fromkeys(re.findall(r"\]\s+(.*\S)", comment)))


def package_version(package: str) -> str:
    """The installed version of a Debian package; empty when there is none."""
    if not package:
        return ""
    return _output("dpkg-query", "--show", "--showformat=${Version}", package).strip()


def callers_flags(library: Path) -> list[str]:
    """The flags of its caller that a build by CMake was configured with, which the crates and the
    packages do not have; none where the library does not lie in a build directory."""
    try:
        cache = (library.resolve().parent / "CMakeCache.txt").read_text(errors="replace")
    except OSError:
        return []
    found = re.findall(r"^CMAKE_(C|CXX)_FLAGS:\w+=[ ]*(.*\S)", cache, re.MULTILINE)
    return [f"{language}FLAGS {flags}" for language, flags in found]


def _origin(allocator: Allocator) -> dict[str, str]:
    """Which version it is, and how it was built."""
    if allocator.crate is not None:
        return {
            "version": allocator.crate.holds,
            "crate": f"{allocator.crate.name} {allocator.crate.version}",
            "build": allocator.crate.build,
        }
    if allocator.package:
        version = package_version(allocator.package)
        package = f"{allocator.package} {version}".strip()
        return {"version": version, "package": package, "build": f"Debian package {package}"}
    made_by = allocator.made_by or "the user's own"
    return {"version": "", "build": ", ".join([made_by, *callers_flags(allocator.library)])}


def identity(allocator: Allocator) -> dict[str, object]:
    """What the manifest keeps about an allocator, enough to tell two builds apart."""
    found: dict[str, object] = {
        "library": display(allocator.library.resolve()),
        "kind": allocator.kind,
        "environment": dict(allocator.environment),
        **_origin(allocator),
    }
    if not allocator.library.is_file():
        return {**found, "missing": True}
    found["sha256"] = hashlib.sha256(allocator.library.read_bytes()).hexdigest()
    found["build_id"] = build_id(allocator.library)
    found["compiler"] = compiler(allocator.library)
    if allocator.engine is not None:
        found["engine"] = display(allocator.engine.resolve())
        found["engine_build_id"] = build_id(allocator.engine)
    return found


def changed(
    allocators: Iterable[Allocator], before: Mapping[str, Mapping[str, object]]
) -> list[str]:
    """Allocators whose library is no longer the file that `before` identifies."""
    return [each.name for each in allocators if identity(each) != before[each.name]]
