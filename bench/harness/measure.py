"""One run of one workload on one allocator, and the proof that it was that allocator."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import MeasureError, RefusedError
from .layout import display
from .peers import Allocator
from .programs import Case

Row = dict[str, Any]

PROVEN_NAMES = ("malloc", "free", "realloc", "calloc")
TIMEOUT_SECONDS = 300
BINDING = r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: normal symbol `(\w+)'"
# Nothing of the caller's environment reaches a measured process.
CLEAN_ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LC_ALL": "C"}


@contextmanager
def pinned(cpu: int | None) -> Iterator[None]:
    """Runs the body, and whatever it starts, on one CPU."""
    before = os.sched_getaffinity(0)
    if cpu is not None:
        os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def command_line(program: Path, *arguments: Mapping[str, object]) -> list[str]:
    """The program with its options; later mappings win over earlier ones."""
    merged: dict[str, object] = {}
    for each in arguments:
        merged.update(each)
    pairs = [[f"--{key}", str(value)] for key, value in merged.items()]
    return [str(program), *(text for pair in pairs for text in pair)]


def verify(proof: object, allocator: Allocator) -> None:
    """Refuses a run unless every witness names the allocator's own file for every function."""
    if not isinstance(proof, dict):
        raise RefusedError("the process gave no proof of which malloc it ran on")
    for name in PROVEN_NAMES:
        witnesses = proof.get(name)
        if not isinstance(witnesses, dict):
            raise RefusedError(f"the process does not say where its {name} comes from")
        for witness in ("loader", "map"):
            file = str(witnesses.get(witness, ""))
            if not allocator.serves(file):
                raise RefusedError(
                    f"{name} is served by {file or 'no file at all'} (witness: the process's "
                    f"{witness}), not by {allocator.library}"
                )


def run_workload(
    case: Case, allocator: Allocator, folder: Path, *, cpu: int | None, scale: float = 1.0
) -> Row:
    """Runs the case once; a row comes back only when its proof holds."""
    scaled = {"ops": max(1, int(float(str(case.arguments["ops"])) * scale))}
    command = command_line(folder / case.program, case.arguments, scaled, allocator.arguments)
    environment = {**CLEAN_ENVIRONMENT, **allocator.settings()}
    try:
        with pinned(cpu):
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        raise MeasureError(f"still running after {TIMEOUT_SECONDS} s") from error
    except OSError as error:
        raise MeasureError(f"cannot be started: {error}") from error
    if done.returncode != 0:
        raise MeasureError(f"exit status {done.returncode}: {done.stderr.strip()[-500:]}")
    try:
        row: Row = json.loads(done.stdout)
    except json.JSONDecodeError as error:
        raise MeasureError(f"its output is not a result line: {done.stdout[:200]!r}") from error
    verify(row.get("proof"), allocator)
    for witnesses in row["proof"].values():
        for witness, file in witnesses.items():
            witnesses[witness] = display(file)
    row["arguments"] = command[1:]
    row["cpu"] = cpu
    return row


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
