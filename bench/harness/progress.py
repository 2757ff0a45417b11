"""How far a session is, on standard error: a bar with the time left for people, nothing else."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress as Bar


class Estimate:
    """Time left, from how long each kind of run took; kinds not yet seen count as average."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._count: dict[str, int] = {}

    def add(self, kind: str, seconds: float) -> None:
        """A run of that kind is over."""
        self._seconds[kind] = self._seconds.get(kind, 0.0) + seconds
        self._count[kind] = self._count.get(kind, 0) + 1

    def left(self, remaining: dict[str, int]) -> float:
        """Seconds that so many runs of each kind will take; 0 when nothing is known yet."""
        runs = sum(self._count.values())
        average = sum(self._seconds.values()) / runs if runs else 0.0
        return sum(
            count * (self._seconds[kind] / self._count[kind] if kind in self._count else average)
            for kind, count in remaining.items()
        )


def text_of(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


class Progress:
    """A bar on a terminal; elsewhere only what `say` is given."""

    def __init__(self, what: str, remaining: dict[str, int]) -> None:
        self.what = what
        self.remaining = dict(remaining)
        self.total = sum(remaining.values())
        self.estimate = Estimate()
        self._bar: Bar | None = None
        self._started = time.monotonic()

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[left]}"),
                console=Console(stderr=True),
                refresh_per_second=2,  # drawing takes time from what is measured
                transient=True,
            )
            self._bar.start()
            self._task = self._bar.add_task(self.what, total=self.total, left="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, kind: str) -> None:
        """A run of that kind starts."""
        self._started = time.monotonic()
        if self._bar is not None:
            self._bar.update(self._task, description=f"{self.what}: {kind}")

    def end(self, kind: str, *, ran: bool = True) -> None:
        """It is over; `ran` false when it was passed over."""
        self.remaining[kind] -= 1
        if ran:
            self.estimate.add(kind, time.monotonic() - self._started)
        if self._bar is not None:
            left = f"{text_of(self.estimate.left(self.remaining))} left"
            self._bar.update(self._task, advance=1, left=left)

    def say(self, text: str) -> None:
        """One line that stays."""
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)
