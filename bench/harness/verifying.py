"""`hakmem bench verify`: the proof, shown; of kept rows, or of each allocator at this moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import measure, peers, proof, startup, store, workshop
from .cases import Case
from .errors import BenchError, MeasureError, RefusedError
from .layout import display
from .peers import Allocator

SCHEMA = "hakmem-bench-verify/1"
# Enough for every counter to move, little enough to take no time.
TRIAL = Case(
    name="trial",
    about="a short run of random_mixed",
    program="random_mixed",
    arguments={"ops": 200_000, "slots": 1000, "min": 16, "max": 2048},
)


def _statement(name: str, where: str, proven: Any, why: str) -> dict[str, Any]:
    return {"allocator": name, "where": where, "holds": not why, "why": why, "proof": proven}


def of_allocators(names: Sequence[str] | None, own: Sequence[str]) -> list[dict[str, Any]]:
    """Runs each allocator once and lets the process state whom it was served by."""
    folder = workshop.build()
    chosen, _ = peers.choose(names, own)
    return [_trial(allocator, folder) for allocator in chosen]


def _trial(allocator: Allocator, folder: Path) -> dict[str, Any]:
    try:
        row = measure.run(TRIAL, allocator, folder, cpu=None)
    except (RefusedError, MeasureError) as error:
        return _statement(allocator.name, TRIAL.program, None, str(error))
    return _statement(allocator.name, TRIAL.program, row["proof"], "")


def of_folder(folder: Path) -> list[dict[str, Any]]:
    """Checks every kept row against the identities in the manifest; one statement for each
    allocator whose rows all hold, one for each row that does not. What was refused when it ran is
    listed, neither true nor false."""
    manifest = store.read_manifest(folder)
    if "allocators" not in manifest:
        kind = manifest.get("kind", "unknown")
        raise BenchError(f"{folder} holds results of kind {kind}, which keep no proof")
    kept = manifest["allocators"]
    rows = store.read_rows(folder) + store.read_rows(folder, store.COUNTS)
    if manifest.get("kind") == startup.KIND:
        left_out = [_left_out(row) for row in store.read_rows(folder, store.REFUSED)]
        return _of_starts(rows, kept) + left_out
    good: dict[str, list[dict[str, Any]]] = {}
    found = []
    for row in rows:
        name = str(row.get("allocator", ""))
        try:
            if name not in kept:
                raise RefusedError("the manifest does not know this allocator")
            proof.verify_kept(row.get("proof"), kept[name])
        except RefusedError as error:
            where = f"{row.get('case', '?')}, block {row.get('block', 'counting')}"
            found.append(_statement(name, where, row.get("proof"), str(error)))
            continue
        good.setdefault(name, []).append(row)
    for name, proven in good.items():
        found.append(_statement(name, f"{len(proven)} rows", proven[-1]["proof"], ""))
    found += [_left_out(row) for row in store.read_rows(folder, store.REFUSED)]
    return found


def _of_starts(
    rows: Sequence[dict[str, Any]], kept: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Of processes that are too short to tell: what the loader bound each program to, and which
    build that file was then."""
    proofs = {(row["program"], row["allocator"]): row for row in rows if "bound" in row}
    pairs = Counter((row["program"], row["allocator"]) for row in rows if "bound" not in row)
    found = []
    for (program, name), count in pairs.items():
        said = proofs.get((program, name), {})
        own, build = kept.get(name, {}).get("build_id"), said.get("build_id")
        why = "" if said.get("bound") else "nothing says what the loader bound it to"
        if not why and build not in (None, own):
            why = f"the build id was {build}, not {own}"
        where = f"{program}, {count} rows"
        found.append(_statement(name, where, {"bound": said.get("bound", {})}, why))
    return found


def _left_out(row: dict[str, Any]) -> dict[str, Any]:
    """A run that was refused or failed: it is in no table, so it says nothing about those rows."""
    name, where = str(row.get("allocator")), str(row.get("case"))
    why = f"{str(row.get('kind', 'refused')).lower()}: {row.get('why')}"
    return {**_statement(name, where, None, why), "holds": None}


def text(statements: Sequence[dict[str, Any]]) -> str:
    """For people: who served, which build, how the counter moved."""
    lines = []
    for each in statements:
        if each["holds"] is None:
            lines.append(f"left out {each['allocator']} ({each['where']}): {each['why']}")
            continue
        if not each["holds"]:
            lines.append(f"REFUSED  {each['allocator']} ({each['where']}): {each['why']}")
            continue
        if "bound" in each["proof"]:
            bound = ", ".join(f"{name} {count}" for name, count in each["proof"]["bound"].items())
            lines.append(f"proven   {each['allocator']} ({each['where']})")
            lines.append(f"         bound to it by the loader: {bound}")
            continue
        served = sorted({each["proof"][name]["map"] for name in proof.PROVEN_NAMES})
        moved = each["proof"]["moved"]
        lines += [
            f"proven   {each['allocator']} ({each['where']})",
            f"         {', '.join(proof.PROVEN_NAMES)}: {', '.join(map(display, served))}",
            f"         build id {each['proof']['build_id']}",
            f"         {moved['counter']}: {moved['before']} -> {moved['after']}",
        ]
    return "\n".join(lines) if lines else "no statement"
