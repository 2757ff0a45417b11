"""docs/SCORECARD.md: the targets with PASS or FAIL, and every row that is lost."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from .. import cases, peers
from ..layout import BENCH, TOP, display
from . import facts, markdown, results, sections, standing, targets

TARGETS = BENCH / "scorecard.toml"
OUTPUT = TOP / "docs" / "SCORECARD.md"


def whole_suite() -> targets.Suite:
    """Every workload and real program, and every peer that is compared by default."""
    rivals = [each.name for each in peers.known().values() if each.kind == "peer" and each.default]
    return targets.Suite(cases.known(), rivals)


def judged(
    loaded: results.Results, file: Path = TARGETS, suite: targets.Suite | None = None
) -> list[tuple[str, str, targets.Outcome]]:
    """What is measured, its target, and the outcome, in the order of the file."""
    with file.open("rb") as table:
        lines = tomllib.load(table)["target"]
    evidence = targets.gather(loaded, suite)
    return [(line["what"], line["target"], targets.judge(evidence, line)) for line in lines]


def text(
    loaded: results.Results, file: Path = TARGETS, suite: targets.Suite | None = None
) -> tuple[str, bool]:
    """The document, and whether the run is sound and every line passed."""
    outcomes = judged(loaded, file, suite)
    beside = [outcome.beside for _, _, outcome in outcomes if outcome.beside is not None]
    states = [outcome.state for _, _, outcome in outcomes]
    tally = ", ".join(
        f"{states.count(state)} {state}"
        for state in (targets.PASS, targets.FAIL, targets.NOT_MEASURED)
    )
    rows = [
        [what, target, f"**{outcome.state}**", outcome.measured]
        for what, target, outcome in outcomes
    ]
    shown = [
        sections.scoreboard(loaded),
        *(sections.losses(loaded, what) for what in standing.WHAT),
        facts.refused(loaded),
        facts.allocators(loaded),
        facts.machine(loaded),
        facts.sessions(loaded, beside),
    ]
    folders = ", ".join(f"`{display(each.folder.absolute())}`" for each in loaded.sessions)
    parts = [
        "# Scorecard\n\n<!-- Derived by `hakmem bench scorecard` from bench/scorecard.toml and the "
        "results named below. -->\n",
        f"{markdown.headline(loaded)} Targets: {tally}. All rows, plots and raw figures: "
        f"{folders}. {markdown.warning(loaded)}".rstrip()
        + "\n",
        "## Targets\n\n"
        + markdown.table(["what", "target", "verdict", "measured"], rows, text_columns=4),
        *(markdown.section(each) for each in shown if each is not None),
    ]
    return "\n".join(parts), not markdown.warning(loaded) and all(
        state == targets.PASS for state in states
    )


def write(folders: Sequence[Path], output: Path = OUTPUT, metric: str = "wall") -> bool:
    """Writes the document from result folders, of which the later replace whole cases of the first,
    and from the further runs beside them; True when every line passed."""
    loaded = results.load(folders[0], metric, newer=folders[1:])
    content, passed = text(loaded, suite=whole_suite())
    output.write_text(content)
    return passed
