"""The proof that a run was served by the allocator it is attributed to.

The measured process states it from inside (bench/probes/proof.h says what and how). Here the
statement is compared with the file that was meant to serve: a run whose statement is missing, names
another file, carries another build id or a counter that stood still is refused.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from . import identity
from .environment import CLEAN_ENVIRONMENT, TIMEOUT_SECONDS
from .errors import MeasureError, RefusedError
from .layout import display
from .peers import Allocator

PROVEN_NAMES = ("malloc", "free", "realloc", "calloc")
WITNESSES = ("loader", "map")
BINDING = r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: normal symbol `(\w+)'"


@cache
def _build_id(library: Path, changed_ns: int, size_bytes: int) -> str:
    """Read once for each state of the file."""
    del changed_ns, size_bytes
    return identity.build_id(library)


def build_id_on_disk(library: Path) -> str:
    """The build id of the file as it is now."""
    try:
        state = library.stat()
    except OSError as error:
        raise RefusedError(f"{library} cannot be read: {error.strerror}") from error
    return _build_id(library, state.st_mtime_ns, state.st_size)


def _statement(proof: object) -> Mapping[str, Any]:
    if not isinstance(proof, dict):
        raise RefusedError("the process gave no proof of which malloc it ran on")
    for name in PROVEN_NAMES:
        if not isinstance(proof.get(name), dict):
            raise RefusedError(f"the process does not say where its {name} comes from")
    return proof


def _check_moved(proof: Mapping[str, Any]) -> None:
    moved = proof.get("moved")
    if not isinstance(moved, dict) or "before" not in moved or "after" not in moved:
        raise RefusedError("the process does not say whether the allocator's counter moved")
    if moved["before"] == moved["after"]:
        raise RefusedError(
            f"the allocator served nothing: its counter {moved.get('counter', '?')} stood still "
            f"at {moved['before']}"
        )


def verify(proof: object, allocator: Allocator) -> None:
    """Refuses a run unless every witness names the allocator's own file for every function, the
    build id is that of the file on disk, and its counter moved."""
    statement = _statement(proof)
    for name in PROVEN_NAMES:
        for witness in WITNESSES:
            file = str(statement[name].get(witness, ""))
            if not allocator.serves(file):
                raise RefusedError(
                    f"{name} is served by {file or 'no file at all'} (witness: the process's "
                    f"{witness}), not by {allocator.library}"
                )
    stated, expected = str(statement.get("build_id", "")), build_id_on_disk(allocator.library)
    if stated != expected:
        raise RefusedError(
            f"the build id in memory is {stated or 'missing'}, that of {allocator.library} is "
            f"{expected or 'missing'}"
        )
    _check_moved(statement)


def verify_kept(proof: object, kept: Mapping[str, Any]) -> None:
    """The same for a row of a result folder, against the identity that its manifest keeps: the
    files themselves may be gone or changed since."""
    statement = _statement(proof)
    for name in PROVEN_NAMES:
        mapped = str(statement[name].get("map", ""))
        if mapped != kept.get("library"):
            raise RefusedError(f"{name} was served by {mapped or 'no file'}, not {kept['library']}")
        loader = str(statement[name].get("loader", ""))
        file = Path(loader).name
        if not file or not Path(mapped).name.startswith(file):
            raise RefusedError(
                f"{name}: the loader says {loader or 'nothing'}, the kernel's map {mapped}"
            )
    if statement.get("build_id", "") != kept.get("build_id"):
        raise RefusedError(
            f"the build id was {statement.get('build_id', 'missing')}, not {kept.get('build_id')}"
        )
    _check_moved(statement)


def shown(proof: Mapping[str, Any]) -> dict[str, Any]:
    """The statement with paths as results show them."""
    result = dict(proof)
    for name in PROVEN_NAMES:
        result[name] = {witness: display(file) for witness, file in proof[name].items()}
    return result


def verify_bindings(command: list[str], allocator: Allocator) -> dict[str, int]:
    """Proves a program that cannot speak for itself: asks the loader where it binds malloc's names.

    Returns, per name, how many modules were bound to the allocator.
    """
    with tempfile.TemporaryDirectory(prefix="hakmem-bench-") as folder:
        environment = {
            **CLEAN_ENVIRONMENT,
            **allocator.settings(),
            "LD_DEBUG": "bindings",
            "LD_DEBUG_OUTPUT": f"{folder}/bindings",
            "LD_BIND_NOW": "1",
        }
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=TIMEOUT_SECONDS, check=False
        )
        if done.returncode != 0:
            raise MeasureError(f"{command[0]}: exit status {done.returncode}")
        text = "".join(part.read_text(errors="replace") for part in Path(folder).iterdir())
    bindings = [each for each in re.findall(BINDING, text) if each[2] in PROVEN_NAMES]
    # A program that is not position independent and takes a function's address gives all modules
    # the address of a stub of its own; where the stub leads is the program's own binding.
    stubs = {
        name for of, to, name in bindings if allocator.serves(to) and Path(of).samefile(command[0])
    }
    bound: dict[str, int] = {}
    for _, to, name in bindings:
        if allocator.serves(to):
            bound[name] = bound.get(name, 0) + 1
        elif name not in stubs or not Path(to).samefile(command[0]):
            raise RefusedError(f"{name} is bound to {to}, not to {allocator.library}")
    if "malloc" not in bound or "free" not in bound:
        raise RefusedError(f"the loader bound no malloc in {command[0]}: is it linked statically?")
    return bound
