"""Where the malloc calls of a program would lead, by the loader itself and without running any of
the program: ld.so loads it, resolves every symbol, says what it did (LD_DEBUG), and ends."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence

from hakmem.errors import HakmemError
from hakmem.folders import temporary_folder
from hakmem.schema import ProofLine

TIMEOUT_S = 60
BINDING = re.compile(
    r"\s*\d+:\s+binding file (?P<module>.+) \[\d+\] to (?P<provider>.+) \[\d+\]: "
    r"\w+ symbol `(?P<symbol>[^']+)'"
)


def link(
    command: Sequence[str], environment: Mapping[str, str], names: frozenset[str]
) -> list[ProofLine]:
    """A line for each module and name. `environment` names what is preloaded.

    HakmemError when the loader does not get that far, for instance for want of a library. Modules
    that the program would load later (dlopen) do not take part."""
    program = command[0]
    with temporary_folder("hakmem-doctor-") as folder:
        traced = {
            **environment,
            "LD_TRACE_LOADED_OBJECTS": "1",
            "LD_WARN": "1",
            "LD_BIND_NOW": "1",
            "LD_DEBUG": "bindings",
            "LD_DEBUG_OUTPUT": str(folder / "bindings"),
        }
        try:
            done = subprocess.run(
                command, env=traced, capture_output=True, timeout=TIMEOUT_S, check=False
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise HakmemError(f"{program}: the loader cannot try it: {error}") from None
        missing = re.search(
            r"^\s*(\S+) => not found$", done.stdout.decode("utf-8", "replace"), re.M
        )
        if missing is not None:
            raise HakmemError(f"{program}: its library {missing[1]} is missing")
        text = "".join(
            file.read_text(encoding="utf-8", errors="surrogateescape")
            for file in sorted(folder.iterdir())
        )
    if not text:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-1:]
        raise HakmemError(f"{program}: the loader bound nothing" + "".join(f": {s}" for s in said))
    return parse(text, names)


def parse(text: str, names: frozenset[str]) -> list[ProofLine]:
    found: dict[ProofLine, None] = {}
    for line in text.splitlines():
        binding = BINDING.match(line)
        if binding is not None and binding["symbol"] in names:
            module, provider = binding["module"], binding["provider"]
            found[ProofLine("link", module, binding["symbol"], provider, "call")] = None
    return list(found)
