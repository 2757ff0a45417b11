"""Pages that a start makes the process's own, and those it must leave alone."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

# What the loader relocates and what the library writes: pages of its own data, exact whatever the
# addresses are. Not among them: thread cache and page map, which are mappings of their own.
DIRTY_PAGES_MAX = 9


COPIES_A_FILE = ("/bin/cat", "/proc/self/smaps")
DOES_NOTHING = ("/bin/true",)
# Preloaded behind the library: prints the mappings after the library's own end (last_words.c).
LAST_WORDS = os.environ["HAKMEM_LAST_WORDS"]
# With a second thread, and blocks of many sizes.
WORKS = (
    "/usr/bin/python3",
    "-c",
    "import threading\n"
    "held = []\n"
    "work = lambda: held.extend(bytearray(size) for size in range(1, 200_000, 997))\n"
    "other = threading.Thread(target=work)\n"
    "other.start()\n"
    "other.join()\n"
    "print(open('/proc/self/smaps').read())\n",
)
# Comes and goes in waves, so that free memory is given back, and forks.
GOES_ON = (
    "/usr/bin/python3",
    "-c",
    "import os, time\n"
    "for wave in range(20):\n"
    "    held = [bytearray(size) for size in range(1, 200_000, 97)]\n"
    "    del held\n"
    "    time.sleep(0.04)\n"
    "    held = [bytearray(64) for _ in range(20_000)]\n"
    "    child = os.fork()\n"
    "    if child == 0:\n"
    "        os._exit(0)\n"
    "    os.waitpid(child, 0)\n"
    "print(open('/proc/self/smaps').read())\n",
)
# Asks for its own totals, as who measures a program from inside does.
COUNTS = (
    "/usr/bin/python3",
    "-c",
    "import ctypes\n"
    "ctypes.CDLL(None).hakmem_totals(ctypes.create_string_buffer(4096))\n"
    "print(open('/proc/self/smaps').read())\n",
)


def mappings(
    library: Path, settings: dict[str, str], command: tuple[str, ...] = COPIES_A_FILE
) -> list[tuple[str, str, dict[str, int]]]:
    """The library's mappings and those of no file that follow one of them, in a process that prints
    its own, or does nothing and has them printed at its end: access, file or "", KiB by name."""
    preload = f"{library}:{LAST_WORDS}" if command == DOES_NOTHING else str(library)
    done = subprocess.run(
        command,
        env={"LD_PRELOAD": preload, "LC_ALL": "C", **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[tuple[str, str, dict[str, int]]] = []
    end_of_own = ""
    is_own = False
    for line in done.stdout.splitlines():
        head = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S{4}) \S+ \S+ \S+ *(.*)", line)
        if head:
            start, end, access, file = head.groups()
            is_own = library.name in file or (file == "" and start == end_of_own)
            if is_own:
                end_of_own = end
                found.append((access, file, {}))
        elif is_own and (figure := re.match(r"(\w+): +(\d+) kB", line)):
            found[-1][2][figure[1]] = int(figure[2])
    assert found, "the library is not loaded"
    return found


def dirty_kib(library: Path, settings: dict[str, str]) -> int:
    """KiB of the library's data that are the process's own; pages of the file that a build has just
    written, and nobody else maps, would count as private and dirty as well."""
    return sum(figures["Anonymous"] for _, _, figures in mappings(library, settings))


def test_a_start_dirties_few_pages(library: Path) -> None:
    assert dirty_kib(library, {}) * 1024 <= DIRTY_PAGES_MAX * os.sysconf("SC_PAGE_SIZE")


def test_a_page_more_is_noticed(library: Path) -> None:
    """A path among the options is copied: one page more, and the parser's variables."""
    assert dirty_kib(library, {"HAKMEM_SNAPSHOT_DIRECTORY": "/tmp"}) > dirty_kib(library, {})


@pytest.mark.parametrize(
    "command",
    [COPIES_A_FILE, WORKS, GOES_ON, COUNTS, DOES_NOTHING],
    ids=["copies", "works", "goes_on", "counts", "ends"],
)
def test_what_is_seldom_needed_stays_away(library: Path, command: tuple[str, ...]) -> None:
    """Segments of their own (cmake/layout.ld.in): code of reports and options, constants of that
    code with unwinding tables, and tables for readers outside, of which the loader writes the last
    page. If the code is touched, a function is missing in cmake/ordinary_functions.txt, and
    `perf record -e page-faults:u -c 1 -d` names it."""
    resident: dict[str, list[int]] = {"r-xp": [], "r--p": [], "rw-p": [], "---p": []}
    for access, file, figures in mappings(library, {}, command):
        if file:
            resident[access].append(figures["Rss"])
    (_, code), (_, constants, _), (_, tables), _ = resident.values()
    assert (code, constants) == (0, 0)
    assert tables * 1024 == os.sysconf("SC_PAGE_SIZE")
