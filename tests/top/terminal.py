"""A real terminal for a test: a tmux server of its own, which types keys and reads the screen."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from tests.patience import HANG_SECONDS


class Terminal:
    """Runs one command, in a shell that says its exit status afterwards."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        columns: int = 120,
        lines: int = 40,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        # The path of a socket is short, and a test's own folder may be too deep.
        self._folder = TemporaryDirectory(prefix="hakmem-tmux-")
        self._server = ["tmux", "-S", f"{self._folder.name}/socket", "-f", "/dev/null"]
        assignments = [f"{name}={value}" for name, value in (environment or {}).items()]
        words = ["env", *assignments, *(str(word) for word in command)]
        line = f"{shlex.join(words)}; echo status=$?; exec sleep 1000"
        variables = {name: value for name, value in os.environ.items() if name != "TMUX"}
        size = ["-x", str(columns), "-y", str(lines)]
        subprocess.run(
            [*self._server, "new-session", "-d", *size, line],
            env={**variables, "LC_ALL": "C.UTF-8"},
            check=True,
            timeout=HANG_SECONDS,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        subprocess.run([*self._server, "kill-server"], check=False, timeout=HANG_SECONDS)
        self._folder.cleanup()

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            [*self._server, *words],
            check=True,
            timeout=HANG_SECONDS,
            capture_output=True,
            text=True,
        )
        return done.stdout

    def press(self, *keys: str) -> None:
        """Keys by tmux's names: q, Tab, Down, C-c."""
        self._tmux("send-keys", *keys)

    def resize(self, columns: int, lines: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def screen(self, *, colours: bool = False) -> str:
        """What is seen now; with `colours`, with the escape sequences that make it."""
        return self._tmux("capture-pane", "-p", *(["-e"] if colours else []))

    def is_alternate(self) -> bool:
        """A program that takes the whole screen has not given it back."""
        return self._tmux("display-message", "-p", "#{alternate_on}").strip() == "1"

    def pane_pid(self) -> int:
        return int(self._tmux("display-message", "-p", "#{pane_pid}"))

    def until(self, condition: Callable[[str], bool], what: str) -> str:
        """The first screen that fulfils the condition."""
        end = time.monotonic() + HANG_SECONDS
        while time.monotonic() < end:
            screen = self.screen()
            if condition(screen):
                return screen
            time.sleep(0.05)
        raise AssertionError(f"the terminal never showed {what}:\n{self.screen()}")

    def until_shown(self, text: str) -> str:
        return self.until(lambda screen: text in screen, repr(text))
