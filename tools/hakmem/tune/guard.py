"""Ends what a run started where this process was killed, and cannot do so itself.

By a process beside the program, which sleeps meanwhile: a signal for the parent's death (prctl)
would reach the program alone and not what that started, and who sets it runs in the program's place
first, which would be measured with it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# Reads process groups, of which the last counts, and the word that all is over. Where that does not
# come before the end of the input, processes are found by their group and by what they were told to
# report to: one may have left the group, another changed its environment, and a third was started
# when its group could not be told yet.
SCRIPT = """
group=
echo ready
while read -r word; do
    [ "$word" != over ] || exit 0
    group=$word
done
[ -z "$group" ] || kill -s KILL -- "-$group"
while found=$(grep -lsxzF "HAKMEM_REPORT=$0" /proc/[0-9]*/environ); [ -n "$found" ]; do
    for file in $found; do
        file=${file#/proc/}
        kill -s KILL "${file%/environ}"
    done
    sleep 0.1
done
rm -rf "$0"
"""


@contextmanager
def guarded(reports: Path) -> Iterator[Callable[[int], None]]:
    """Inside, the end of this process ends all whose HAKMEM_REPORT is this folder, and the process
    group that was named to the function; the folder goes too. It is idle when this yields."""
    with subprocess.Popen(
        ["sh", "-c", SCRIPT, str(reports)],
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
