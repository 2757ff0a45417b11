"""What every real program of the benchmark is: a name, its packages, an input and one run."""

from __future__ import annotations

import abc
import hashlib
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from harness.errors import MeasureError

from .execution import Execution
from .layout import INPUTS, LAUNCHER, WITNESS
from .process import ProgramFailedError


@dataclass(frozen=True)
class Outcome:
    """What a run did: how much, in which unit, and what must be the same on every allocator.

    `result` is None where chance has a part in it, such as the order of several clients.
    """

    ops: int
    unit: str
    result: bytes | None = None


class RealProgram(abc.ABC):
    """A program from Debian with a fixed input."""

    name: ClassVar[str]
    about: ClassVar[str]
    # The file that is started; where it is missing, the Debian packages bring it.
    executable: ClassVar[Path]
    packages: ClassVar[tuple[str, ...]]
    # How many threads work at once, those of clients included; 1: it may be pinned to one CPU.
    threads: ClassVar[int] = 1
    quick: ClassVar[bool] = False

    @property
    def installed(self) -> bool:
        """Whether it can run here."""
        return self.executable.exists()

    def make_inputs(self, folder: Path) -> None:  # noqa: B027 - most programs need none
        """Writes the generated inputs; called once, the result is kept."""

    @abc.abstractmethod
    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        """The work, once. `scale` multiplies its amount."""

    def prepare(self, work: Path, scale: float = 1.0) -> None:
        """Makes the inputs in the folder `work` unless they are there. They do not depend on
        `scale`: it is the run that does more or less with them."""
        del scale
        inputs = self._inputs(work)
        if inputs.exists():
            return
        work.mkdir(parents=True, exist_ok=True)
        for old in work.iterdir():
            shutil.rmtree(old)  # Made by an earlier version of this program, or left unfinished.
        with tempfile.TemporaryDirectory(prefix="unfinished-", dir=work) as folder:
            made = Path(folder) / "inputs"
            made.mkdir()
            self.make_inputs(made)
            made.rename(inputs)

    def run(
        self,
        environment: Mapping[str, str],
        work: Path,
        scale: float = 1.0,
        *,
        count_calls: bool = False,
        idle_ms: int = 0,
    ) -> dict[str, Any]:
        """Runs it once with the allocator that `environment` preloads; returns a row's fields.

        The proof in it is that of the main process, and those of all others agree with it. With
        `count_calls`, for runs that are not timed, the row has "syscalls"; with `idle_ms`, the main
        process stays that long before it exits, and extra.idle_rss_bytes tells of its end.
        """
        for file in (LAUNCHER, WITNESS):
            if not file.exists():
                raise MeasureError(f"{file} is not built")
        self.prepare(work)
        with tempfile.TemporaryDirectory(prefix="hakmem-bench-") as folder:
            execution = Execution(
                environment, Path(folder), count_calls=count_calls, idle_ms=idle_ms
            )
            try:
                outcome = self.exercise(execution, self._inputs(work), scale)
            except ProgramFailedError as error:
                raise MeasureError(str(error)) from error
            row = execution.row()
        checksum = None
        if outcome.result is not None:
            checksum = hashlib.sha256(outcome.result).hexdigest()[:16]
        return {"ops": outcome.ops, "unit": outcome.unit, "checksum": checksum, **row}

    def _inputs(self, work: Path) -> Path:
        """Named after all that the inputs are made from."""
        module = sys.modules[type(self).__module__].__file__ or ""
        digest = hashlib.sha256(Path(module).read_bytes())
        for file in sorted(INPUTS.iterdir()):
            digest.update(file.read_bytes())
        return work / digest.hexdigest()[:12]


def scaled(amount: int, scale: float, least: int = 1) -> int:
    """The amount of work at a scale."""
    return max(least, round(amount * scale))
