"""The variables of an environment that hakmem and the loader read."""

from __future__ import annotations

from collections.abc import Mapping

from hakmem.diagnosis.finding import Finding
from hakmem.options import OptionTable

# Sources of several options, which are no options themselves.
SOURCES = ("HAKMEM_CONF", "HAKMEM_PROFILE")
VALUE_LENGTH_MAX = 200


def variable_findings(environment: Mapping[str, str], table: OptionTable) -> list[Finding]:
    """Each with what is wrong about it."""
    known = {option.environment: option for option in table.options}
    for alias, name in table.aliases:
        known[f"HAKMEM_{alias.upper()}"] = known[f"HAKMEM_{name.upper()}"]
    findings = []
    for name, value in sorted(environment.items()):
        if name != "LD_PRELOAD" and not name.startswith("HAKMEM_"):
            continue
        text = f"{name}={_shown(value)}"
        option = known.get(name)
        problem = option.problem(value) if option is not None and name not in SOURCES else None
        if problem is not None:
            text += f": ignored, because the value {problem}"
        elif name != "LD_PRELOAD" and option is None and name not in SOURCES:
            text += ": ignored, because there is no such option"
        findings.append(Finding("variable", None, text))
    return findings


def _shown(value: str) -> str:
    return value if len(value) <= VALUE_LENGTH_MAX else value[:VALUE_LENGTH_MAX] + "..."
