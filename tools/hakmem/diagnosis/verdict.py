"""What the lines of a proof say, as findings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from hakmem import analysis
from hakmem.analysis import Verdict
from hakmem.bundled import find_bundled
from hakmem.diagnosis.finding import Finding
from hakmem.schema import ProofLine

STRAYS_MAX = 8


def bindings_findings(
    proof: Sequence[ProofLine], library: str, files: Mapping[str, Path]
) -> list[Finding]:
    """Where the malloc symbols of every module lead, and who has an allocator of his own. `files`:
    those of modules that may have one in them."""
    verdict, reason = analysis.judge(proof, library)
    imports = {
        (line.module, line.symbol)
        for line in proof
        if line.route != "defines" and line.module != library
    }
    modules = len({module for module, _ in imports})
    if verdict is Verdict.ACTIVE:
        text = f"all {len(imports)} malloc symbols of {modules} modules lead to {library}"
        findings = [Finding("bindings", True, text)]
    else:
        findings = [Finding("bindings", False, f"{verdict}: {reason}")]
    strays: dict[tuple[str, str], list[str]] = {}
    for stray in analysis.strays(proof, library):
        strays.setdefault((stray.module, stray.provider), []).append(stray.symbol)
    for (module, provider), symbols in list(strays.items())[:STRAYS_MAX]:
        findings.append(Finding("stray", False, f"{module}: {', '.join(symbols)} -> {provider}"))
    if len(strays) > STRAYS_MAX:
        findings.append(Finding("stray", False, f"and {len(strays) - STRAYS_MAX} modules more"))
    own = analysis.own_allocators(proof, library)
    for bundled in find_bundled(files, [*own, library]):
        findings.append(Finding("own malloc", None, f"{bundled.module} has {bundled}"))
    for module in own:
        name = Path(module).name
        text = f"{name} has {analysis.OWN} of its own, which it may call unseen ({module})"
        findings.append(Finding("own malloc", None, text))
    return findings
