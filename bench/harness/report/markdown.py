"""Reports as Markdown text, which is also what a terminal shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from . import facts, sections, standing
from .cells import Cell, Table
from .results import Results, short_id


def table(header: Sequence[str], rows: Sequence[Sequence[str]], text_columns: int = 1) -> str:
    """A table; the first columns are text, the others are figures."""
    ruler = ["---"] * text_columns + ["---:"] * (len(header) - text_columns)
    escaped = [[field.replace("|", "\\|").replace("\n", " ") for field in row] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in [header, ruler, *escaped]) + "\n"


def _field(cell: Cell) -> str:
    return f"**{cell.text}**" if cell.first else cell.text


def section(of: Table, level: int = 2) -> str:
    """A table with its title and note. An empty one says so."""
    rows = [[_field(cell) for cell in row] for row in of.rows]
    body = table(of.header, rows, of.text_columns) if rows else "None.\n"
    note = f"{of.note}\n\n" if of.note else ""
    return f"{'#' * level} {of.title}\n\n{note}{body}"


STATES = {
    "running": "This run has not finished: not all rows are here.",
    "interrupted": "This run was interrupted: not all rows are here.",
    "unsound": "This run is unsound: checksums differ between allocators, or a library changed "
    "while it was measured. Do not use its figures.",
}


def warning(results: Results) -> str:
    """What a reader has to know before any figure; empty for a complete run."""
    said = [STATES.get(each, f"The state of this run is '{each}'.")
            for each in sorted(results.states - {"complete"})]  # fmt: skip
    if len(results.builds) > 1:
        builds = ", ".join(short_id(each) for each in results.builds)
        said.append(f"Its rows are of {len(results.builds)} builds of {results.subject}: {builds}.")
    return " ".join(said)


def headline(results: Results) -> str:
    """One sentence about the subject. Rows that it has not are among those it is not first in."""
    absent = [case.name for case in standing.absent(results)]
    parts = []
    for what in standing.WHAT:
        all_rows = standing.standings(results, what)
        behind = standing.losses(results, what)
        if all_rows:
            worst = (
                f" (widest gap {behind[0].factor:.2f}x, {behind[0].case.name})" if behind else ""
            )
            count = len(all_rows) + len(absent)
            parts.append(f"in {what} on {len(all_rows) - len(behind)} of {count} rows{worst}")
    if not parts and absent:
        return f"{results.subject} has no figures on {', '.join(absent)}.{_scales(results)}"
    if not parts:
        return f"{results.subject} was measured without any peer."
    missing = f" It has no figures on {', '.join(absent)}." if absent else ""
    return f"{results.subject} is first " + " and ".join(parts) + f".{missing}{_scales(results)}"


def _scales(results: Results) -> str:
    """A sentence when not all was measured as the matrix says."""
    found = Counter[float]()
    for each in results.sessions:
        found[float(each.manifest.get("scale") or 1.0)] += len(each.cases)
    if min(found) >= 1:
        return ""
    named = [f"{scale:g}" + (f" ({count} rows)" if len(found) > 1 else "")
             for scale, count in sorted(found.items())]  # fmt: skip
    return f" Measured at scale {' and '.join(named)}: below 1 rows are shorter than they say."


def summary(results: Results) -> str:
    """What a terminal shows at the end of a run."""
    parts = [sections.scoreboard(results)]
    parts += [sections.losses(results, what) for what in standing.WHAT]
    lost = facts.refused(results)
    if lost is not None:
        parts.append(lost)
    text = "\n".join(section(part) for part in parts)
    return f"{text}\n{headline(results)} {warning(results)}\n"


def report(results: Results) -> str:
    """Everything, for table.md."""
    parts = [
        f"# {results.manifest.get('kind', 'Results')}, {results.manifest.get('machine', '')}\n"
    ]
    if warning(results):
        parts.append(f"{warning(results)}\n")
    parts.append(f"    {results.manifest.get('command', '')}\n\n{headline(results)}\n")
    tables = [
        sections.scoreboard(results),
        *(sections.relative(results, what) for what in standing.WHAT),
        *(sections.losses(results, what) for what in standing.WHAT),
        *facts.latency(results),
    ]
    tables += [
        each
        for each in (
            facts.os_calls(results),
            facts.idle_memory(results),
            facts.refused(results),
        )
        if each is not None
    ]
    tables += [facts.allocators(results), facts.machine(results)]
    tables += [each for each in (facts.sessions(results),) if each is not None]
    parts += [section(each) for each in tables]
    parts.append("## Every row\n")
    parts += [section(sections.detail(results, case), level=3) for case in results.cases]
    return "\n".join(parts)
