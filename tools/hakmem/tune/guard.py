"""Ends what a run started where this process was killed, and cannot do so itself.

By a process beside the program, which sleeps meanwhile: a signal for the parent's death (prctl)
would reach the program alone and not what that started, and who sets it runs in the program's place
first, which would be measured with it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hakmem.folders import whole_of

# Reads process groups, of which the last counts, and the word that all is over. Where that does not
# come before the end of the input, processes are found by their group and by what they were told to
# report to: one may have left the group, another changed its environment, and a third was started
# when its group could not be told yet.
SCRIPT = r"""
group=
echo ready
while read -r word; do
    [ "$word" != over ] || exit 0
    group=$word
done
[ -z "$group" ] || kill -s KILL -- "-$group"
mark() { printf 'HAKMEM_REPORT=%s\n' "$reports"; }
while found=$(mark | grep -lsxzF -f - /proc/[0-9]*/environ); [ -n "$found" ]; do
    for file in $found; do
        file=${file#/proc/}
        kill -s KILL "${file%/environ}"
    done
    sleep 0.1
done
rm -rf "$folder"
"""


@contextmanager
def guarded(reports: Path) -> Iterator[Callable[[int], None]]:
    """Inside, the end of this process ends all whose HAKMEM_REPORT is this folder, and the process
    group that was named to the function; the folder goes too. It is idle when this yields."""
    with subprocess.Popen(
        ["sh", "-c", SCRIPT],
        # Everybody may read an argument; root's folder has a name that is to be known to nobody.
        env={**os.environ, "reports": str(reports), "folder": str(whole_of(reports))},
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        # A signal for our group is none for it.
        start_new_session=True,
    ) as guard:
        assert guard.stdin is not None and guard.stdout is not None
        say, hear = guard.stdin, guard.stdout
        hear.readline()

        def tell(word: str) -> None:
            # Nobody listens where it was killed itself.
            with suppress(BrokenPipeError):
                say.write(f"{word}\n".encode("ascii"))

        try:
            yield lambda group: tell(str(group))
        finally:
            tell("over")
