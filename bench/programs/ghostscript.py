"""ghostscript: a page description drawn to pixels."""

from __future__ import annotations

from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution
from .layout import INPUTS

PAGES = 16


class Ghostscript(RealProgram):
    """Fonts, paths, clipping, shading and images."""

    name = "ghostscript"
    about = "PostScript pages drawn to PNG"
    executable = Path("/usr/bin/gs")
    packages = ("ghostscript",)

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        pages = scaled(PAGES, scale)
        words = [str(self.executable), "-q", "-dSAFER", "-dBATCH", "-dNOPAUSE"]
        words += [f"-dpages={pages}", "-sDEVICE=png16m", "-r100", "-o", "page-%03d.png"]
        execution.command([*words, str(INPUTS / "page.ps")])
        drawn = b"".join(f.read_bytes() for f in sorted(execution.directory.glob("page-*.png")))
        return Outcome(pages, "pages", drawn)
