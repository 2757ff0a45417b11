"""Every course of events of the lock-free protocols, walked by spin; and each planted bug is found.

A model's first comment names its variants: `correct: X` is one more correct model, compiled with
that definition; `planted: BUG_A BUG_B` must each fail; so must `planted with X: BUG_C`, under X.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import HANG_SECONDS

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Variant:
    """One model to search, and whether it is to be found correct."""

    model: Path
    definitions: tuple[str, ...]
    correct: bool

    def __str__(self) -> str:
        return "-".join([self.model.stem, *self.definitions])


def variants_of(model: Path) -> list[Variant]:
    """The model as it is, and what its first comment lists."""
    comment = model.read_text(encoding="utf-8").split("*/")[0]
    found = [Variant(model, (), True)]
    found += [
        Variant(model, (name,), True)
        for names in re.findall(r"\* correct: (.*)", comment)
        for name in names.split()
    ]
    for base, names in re.findall(r"\* planted(?: with (\w+))?: (.*)", comment):
        bases = (base,) if base else ()
        found += [Variant(model, (*bases, name), False) for name in names.split()]
    return found


MODELS = sorted(HERE.glob("*.pml"))
VARIANTS = [variant for model in MODELS for variant in variants_of(model)]


def run(command: list[str], folder: Path) -> str:
    """Standard output of a command that must succeed."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return done.stdout


def search(variant: Variant, folder: Path) -> str:
    """What the whole search of a variant prints."""
    defines = [f"-D{name}" for name in variant.definitions]
    translated = run(["spin", *defines, "-a", str(variant.model)], folder)
    assert "Error" not in translated, translated
    # A planted bug is found after few states: there, compiling would be all the time.
    level = "-O2" if variant.correct else "-O0"
    run(["gcc", level, "-w", "-DSAFETY", "-DCOLLAPSE", "-o", "pan", "pan.c"], folder)
    return run(["./pan", "-m1000000"], folder)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_variant(variant: Variant, tmp_path: Path) -> None:
    """A correct model has no error in its whole state space; a planted bug is found."""
    report = search(variant, tmp_path)
    errors = re.search(r"errors: (\d+)", report)
    assert errors is not None, report
    stored = re.search(r"([\d.e+]+) states, stored", report)
    assert stored is not None, report
    states = f"{float(stored[1]):,.0f}"
    print(f"{variant}: {states} states")
    if variant.correct:
        assert errors[1] == "0", report
        rows = (HERE / "README.md").read_text(encoding="utf-8")
        row = f"| `{variant.model.name}` | {' '.join(variant.definitions)} | {states} |"
        assert row in rows, f"README.md has no row {row}"
        assert "max search depth too small" not in report, report
        assert "Search not completed" not in report, report
    else:
        assert errors[1] != "0", report


def test_models_have_planted_bugs() -> None:
    """Each model is shown to be able to fail, and each bug in a text is one that is tried."""
    assert len(MODELS) >= 8
    for model in MODELS:
        tried = {name for variant in variants_of(model) for name in variant.definitions}
        used = set(re.findall(r"#if(?:n?def) (\w+)", model.read_text(encoding="utf-8")))
        assert used == tried, model
        assert any(not variant.correct for variant in variants_of(model)), model
