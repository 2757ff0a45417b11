"""git: packing a repository anew."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution

FIRST_COMMIT_S = 1_600_000_000
COMMITS = 900
# How many objects each is compared with, in search of the smallest delta.
WINDOW = 25


def fast_import_stream(commits: int) -> bytes:
    """A history of text files that grow, change and vanish, the same at every call."""
    chance = random.Random(11)
    words = [f"word{number}" for number in range(500)]
    texts: dict[str, list[str]] = {}
    stream: list[bytes] = []
    for number in range(1, commits + 1):
        changes: list[bytes] = []
        for _ in range(4):
            path = f"directory{chance.randrange(20)}/file{chance.randrange(30)}.txt"
            lines = texts.setdefault(path, [])
            if len(lines) > 300 and chance.random() < 0.1:
                del texts[path]
                changes.append(f"D {path}\n".encode())
                continue
            for _ in range(chance.randrange(5, 40)):
                lines.insert(chance.randrange(len(lines) + 1), " ".join(chance.choices(words, k=8)))
            data = ("\n".join(lines) + "\n").encode()
            changes.append(b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(data), data))
        message = f"Change {number}".encode()
        time = f"{FIRST_COMMIT_S + number * 60} +0000"
        stream.append(
            b"commit refs/heads/main\ncommitter A U Thor <author@example.com> %s\ndata %d\n%s\n%s"
            % (time.encode(), len(message), message, b"".join(changes))
        )
    return b"".join(stream)


def packs(repository: Path) -> bytes:
    """All pack files of a repository, one after the other."""
    return b"".join(p.read_bytes() for p in sorted((repository / "objects/pack").glob("*.pack")))


class GitGc(RealProgram):
    """Most of the work is done by a child, pack-objects; memory is that child's."""

    name = "git"
    about = "gc of a repository of 900 commits, deltas computed anew, one thread"
    executable = Path("/usr/bin/git")
    packages = ("git",)

    def make_inputs(self, folder: Path) -> None:
        repository = str(folder / "repository.git")
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
        for words, text in (
            (["init", "--quiet", "--bare", "--initial-branch=main", repository], b""),
            (["-C", repository, "fast-import", "--quiet"], fast_import_stream(COMMITS)),
        ):
            subprocess.run(
                ["/usr/bin/git", *words], input=text, env=environment, check=True, timeout=120
            )

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        repository = execution.directory / "repository.git"
        shutil.copytree(inputs / "repository.git", repository)
        settings = {
            "pack.threads": "1",
            "gc.aggressiveWindow": str(scaled(WINDOW, scale)),
            "gc.aggressiveDepth": "20",
            "gc.autoDetach": "false",
        }
        words = [str(self.executable), "-C", str(repository)]
        words += [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        words += ["gc", "--quiet", "--aggressive", "--prune=now"]
        environment = {"GIT_CONFIG_NOSYSTEM": "1"}
        execution.command(words, environment=environment)
        return Outcome(COMMITS, "commits", packs(repository))
