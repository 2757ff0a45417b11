"""Why a program runs without hakmem, as far as its file tells."""

from __future__ import annotations

from pathlib import Path

from hakmem import elf, preload


def program_reason(
    exe: str | Path, library: str | Path | None, *, is_secure: bool = True
) -> str | None:
    """What is against preloading `library` into this program, or None. `is_secure`: False when the
    kernel is known not to have started it in secure mode."""
    header = _header(exe)
    built = _header(library) if library is not None else None
    if header is None:
        return None
    if header.loader is None and preload.MUSL_LOADER.fullmatch(Path(exe).resolve().name):
        return f"uses the loader of another libc ({Path(exe).resolve()})"
    if header.loader is None and preload.is_loader(exe):
        return None
    if header.loader is None:
        own = f"; {preload.CARRIES}" if preload.carries_hakmem(exe) else ""
        return f"statically linked: nothing can be preloaded{own}"
    privilege = preload.privilege_reason(str(exe)) if is_secure else None
    if privilege is not None:
        return f"{privilege}: the loader ignores LD_PRELOAD"
    if built is not None and (header.bits, header.machine) != (built.bits, built.machine):
        return f"is for {header.architecture}, the library for {built.architecture}"
    if "musl" in header.loader:
        return f"uses the loader of another libc ({header.loader})"
    return None


def _header(path: str | Path) -> elf.Program | None:
    try:
        with Path(path).open("rb") as file:
            return elf.read_program(file)
    except OSError:
        return None
