"""From the reports of a run to what can be said of it: pure functions, tested on made-up runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from hakmem.bundled import Bundled, find_bundled
from hakmem.preload import CARRIES, carries_hakmem
from hakmem.schema import ProofLine, Report, SizeClass, told
from hakmem.spawn import Ended
from hakmem.watch import Image, file_name

NOWHERE = "-"
# new and delete, as compilers call them.
OPERATORS = ("_Zn", "_Zd")
UNWRITTEN = (
    "hakmem was loaded, but could not write its report: its files are limited (ulimit -f), or the"
    " disk is full"
)
MADE_NO_REPORT = (
    "hakmem was loaded, but made no report: it may make no files (a sandbox, a root of its own), or"
    " was ended at its start"
)
REPORTS_ELSEWHERE = "was started without this run's HAKMEM_REPORT (its environment was changed)"
LEFT_NO_REPORT = "left no report: it did not load hakmem, or ended before it could"
# Files that every process brings a malloc or the C++ operators with, there to be replaced.
SYSTEM_ALLOCATORS = ("libc.so.", "ld-linux", "libstdc++.so.", "libc++.so.", "libc++abi.so.")
# Any of these moves as soon as hakmem hands out its first block.
BOOKS_OF_SERVICE = (
    "refills",
    "large_allocs",
    "huge_allocs",
    "late_operations",
    "mallocs_seen",
    "live_blocks",
)


class Verdict(StrEnum):
    ACTIVE = "active"  # every malloc symbol of every loaded module leads to hakmem
    PARTIAL = "partial"  # some do
    INACTIVE = "inactive"  # none does
    UNPROVED = "unproved"  # it cannot be said


class Ending(StrEnum):
    EXIT = "exit"
    NO_EXIT = "no exit"  # _exit, or killed
    EXEC = "exec"
    RUNNING = "running"


@dataclass(frozen=True)
class Stray:
    """A symbol that leads to another file than hakmem."""

    module: str
    symbol: str
    provider: str


@dataclass(frozen=True)
class ProcessFacts:
    """What one program image of one process proved."""

    report: Report
    verdict: Verdict
    reason: str | None
    ending: Ending
    proved_at: str | None
    modules: int
    symbols: int
    strays: tuple[Stray, ...]
    own_allocators: tuple[str, ...]
    bundled: tuple[Bundled, ...]
    books_moved: bool
    peak_rss_bytes: int
    peak_is_exact: bool  # otherwise it was seen now and then: it may have been more


@dataclass(frozen=True)
class Absent:
    """A program that ran but left no report."""

    pid: int
    exe: str
    reason: str


@dataclass(frozen=True)
class RunFacts:
    verdict: Verdict
    library: str
    processes: tuple[ProcessFacts, ...]
    absent: tuple[Absent, ...]
    unwritten: tuple[Absent, ...]  # hakmem was loaded there: they are not among the absent
    unread_reports: int  # one run left too many: no total has what these tell
    process_count: int
    root_loaded: bool
    totals: dict[str, int]
    largest: ProcessFacts | None
    top_classes: tuple[SizeClass, ...]

    @property
    def unreported_children(self) -> int:
        """Children that their parents forked and that could make no file; what these forked in turn
        nobody counted."""
        return self.totals.get("unreported_children", 0)

    @property
    def has_operators_alone(self) -> bool:
        """All that did not lead to hakmem are the C++ operators that a file defines itself."""
        found = [stray for process in self.processes for stray in process.strays]
        inactive = any(process.verdict is Verdict.INACTIVE for process in self.processes)
        return (
            not self.absent
            and not inactive
            and all(stray.symbol.startswith(OPERATORS) for stray in found)
        )

    @property
    def served_nothing(self) -> bool:
        """The program never loaded hakmem, or ran on another malloc altogether."""
        return not self.root_loaded or self.verdict is Verdict.INACTIVE


def _violates(line: ProofLine, library: str) -> bool:
    return line.provider not in (library, NOWHERE) and line.module != library


def strays(proof: Sequence[ProofLine], library: str) -> tuple[Stray, ...]:
    """A pointer variable counts as the loader set it: what the program stores there later is its
    own business."""
    calls = [line for line in proof if line.route != "defines"]
    at_start = {(line.module, line.symbol) for line in calls if line.phase == "start"}
    found: dict[Stray, None] = {}
    for line in calls:
        changed_since = (
            line.route == "data" and line.phase == "exit" and (line.module, line.symbol) in at_start
        )
        if _violates(line, library) and not changed_since:
            found[Stray(line.module, line.symbol, line.provider)] = None
    return tuple(found)


# What such a module has.
OWN = "a malloc or operator new"


def own_allocators(proof: Sequence[ProofLine], library: str) -> tuple[str, ...]:
    """Modules with an allocator of their own, which they may call without asking anybody."""
    found = {
        line.module: None
        for line in proof
        if line.route == "defines"
        and line.module != library
        and not Path(line.module).name.startswith(SYSTEM_ALLOCATORS)
    }
    return tuple(found)


def judge(proof: Sequence[ProofLine], library: str) -> tuple[Verdict, str | None]:
    """What the lines of a process prove of its `library`."""
    imports = [line for line in proof if line.route != "defines" and line.module != library]
    if not imports:
        return Verdict.UNPROVED, "no loaded module imports a malloc symbol"
    if not any(line.provider == library for line in imports):
        return Verdict.INACTIVE, "no malloc symbol of any module leads to hakmem"
    if strays(proof, library):
        return Verdict.PARTIAL, "some malloc symbols lead to another file"
    return Verdict.ACTIVE, None


def judge_report(report: Report) -> tuple[Verdict, str | None]:
    if report.proof_lost:
        return Verdict.UNPROVED, f"{report.proof_lost} lines of its proof did not fit the report"
    return judge(report.proof, report.library)


def books_moved(report: Report) -> bool:
    return any(report.books.get(name, 0) for name in BOOKS_OF_SERVICE)


Program = tuple[int, str]  # a process, and the file that it ran


def _of_report(report: Report) -> Program:
    return report.pid, file_name(report.exe)


def _of_image(image: Image) -> Program:
    """As its report would tell it."""
    return image.inner_pid, told(image.exe)


def _reported(reports: Iterable[Report]) -> set[Program]:
    """A program that may not be looked into is any that its process ran."""
    return {program for report in reports for program in (_of_report(report), (report.pid, ""))}


def _by_program(images: Iterable[Image]) -> dict[Program, list[Image]]:
    found: dict[Program, list[Image]] = {}
    for image in images:
        found.setdefault(_of_image(image), []).append(image)
    return found


def _with_kernels_peak(
    processes: Sequence[ProcessFacts], images: Sequence[Image], ended: Ended
) -> tuple[ProcessFacts, ...]:
    """A program that did not come to its exit wrote its peak now and then only; of the one that was
    started the kernel has told it. What it tells is also that of programs that ran before in the
    same process and of children: good if there are none."""
    known = {_of_report(process.report) for process in processes}
    pids = {pid for pid, _ in known}
    known |= {_of_image(image) for image in images if image.exe or image.inner_pid not in pids}
    is_alone = len(known) == 1 and len(programs(processes)) == 1
    return tuple(
        replace(
            process,
            peak_rss_bytes=max(process.peak_rss_bytes, ended.peak_rss_bytes),
            peak_is_exact=True,
        )
        if is_alone
        and ended.peak_rss_bytes
        and process.report.pid == ended.pid
        and process.ending is Ending.NO_EXIT
        else process
        for process in processes
    )


def _are_of_one_program(one: Report, other: Report) -> bool:
    """A program with a hakmem in itself, preloaded as well: one report is of each hakmem."""
    owns = (one.library == one.exe, other.library == other.exe)
    return (one.pid, one.exe) == (other.pid, other.exe) and sorted(owns) == [False, True]


def programs(processes: Sequence[ProcessFacts]) -> tuple[ProcessFacts, ...]:
    """Each program once: what was preloaded into it speaks for it."""
    of_program: dict[Program, list[Report]] = {}
    for process in processes:
        of_program.setdefault((process.report.pid, process.report.exe), []).append(process.report)
    return tuple(
        process
        for process in processes
        if process.report.library != process.report.exe
        or not any(
            _are_of_one_program(process.report, other)
            for other in of_program[process.report.pid, process.report.exe]
        )
    )


def _ending(
    report: Report,
    later: Iterable[Report],
    own_images: Iterable[Image],
    is_alive: Callable[[int], bool],
) -> Ending:
    """`later`: of the same process."""
    if report.exited:
        return Ending.EXIT
    if any(not other.forked and not _are_of_one_program(report, other) for other in later):
        return Ending.EXEC
    # Its own number may be another process's here, in another namespace.
    numbers = [image.pid for image in own_images] or [report.pid]
    return Ending.RUNNING if any(map(is_alive, numbers)) else Ending.NO_EXIT


def _facts(
    report: Report,
    later: Iterable[Report],
    own_images: Sequence[Image],
    is_alive: Callable[[int], bool],
) -> ProcessFacts:
    verdict, reason = judge_report(report)
    if verdict is Verdict.INACTIVE and carries_hakmem(report.exe):
        reason = CARRIES
    ending = _ending(report, later, own_images, is_alive)
    phases = [line.phase for line in report.proof]
    imports = [line for line in report.proof if line.route != "defines"]
    own = own_allocators(report.proof, report.library)
    modules = {report.exe, *(line.module for line in report.proof)} - {report.library}
    return ProcessFacts(
        report=report,
        verdict=verdict,
        reason=reason,
        ending=ending,
        proved_at=phases[-1] if phases else None,
        modules=len({line.module for line in imports}),
        symbols=len({(line.module, line.symbol) for line in imports}),
        strays=strays(report.proof, report.library),
        own_allocators=own,
        bundled=find_bundled({module: Path(module) for module in sorted(modules)}, own),
        books_moved=books_moved(report),
        peak_rss_bytes=max(
            [report.peak_rss_bytes, *(image.peak_rss_bytes for image in own_images)]
        ),
        # 0: the kernel's word could not be read at the exit.
        peak_is_exact=ending is Ending.EXIT and report.peak_rss_bytes != 0,
    )


def find_absent(
    reports: Sequence[Report],
    images: Sequence[Image],
    explain: Callable[[Image], str | None],
    unwritten: Collection[int] = (),
    elsewhere: Callable[[Image], bool] = lambda image: False,
) -> tuple[Absent, ...]:
    """A child between vfork and exec runs its parent's program on its parent's heap, and a program
    seen once may have been seen before its loader was done: neither counts as absent unless the
    program differs from its parent's and left no report by the end. One that may not be looked into
    may also be what its process ran before.

    `explain` has no reason for a program that should have loaded hakmem: it did where the process
    is `unwritten`, and nothing says otherwise of one that reports `elsewhere`."""
    reported = _reported(reports)
    loaded = [image for image in images if image.exe != image.parent_exe]
    reported |= {(row.inner_pid, "") for row in loaded if row.has_library or elsewhere(row)}
    found = [
        (image, explain(image))
        for image in images
        if _of_image(image) not in reported and image.exe != (image.parent_exe or "")
    ]
    return tuple(
        Absent(image.pid, image.exe, reason or LEFT_NO_REPORT)
        for image, reason in found
        if not image.has_library
        and (reason is not None or not (image.inner_pid in unwritten or elsewhere(image)))
    )


def find_mute(
    reports: Sequence[Report],
    images: Sequence[Image],
    unwritten: Collection[int],
    elsewhere: Callable[[Image], bool],
) -> tuple[Absent, ...]:
    """Programs in which hakmem was seen, and that could not even make a file to write to; those
    that were told of no file, or of one `elsewhere`."""
    reported = _reported(reports)
    return tuple(
        Absent(image.pid, image.exe, REPORTS_ELSEWHERE if elsewhere(image) else MADE_NO_REPORT)
        for image in images
        if (image.has_library or elsewhere(image))
        and _of_image(image) not in reported
        and image.exe != image.parent_exe
        and image.inner_pid not in unwritten
    )


def find_unwritten(
    unwritten: Iterable[int],
    images: Sequence[Image],
    reports: Sequence[Report],
    absent: Sequence[Absent],
    root: Image,
) -> tuple[Absent, ...]:
    """One row for each process; of several programs that it ran the last one that could be meant,
    if one was seen."""
    reported = _reported(reports)
    root_reported = any(report.pid == root.pid and not report.forked for report in reports)
    missing = {(program.pid, program.exe) for program in absent}
    last = {
        image.inner_pid: image
        for image in images
        if image.exe and _of_image(image) not in reported and (image.pid, image.exe) not in missing
    }
    if not root_reported:
        last.setdefault(root.pid, root)
    rows = []
    for pid in unwritten:
        image = last.get(pid) or Image(pid, pid, None, "", None)
        rows.append(Absent(image.pid, image.exe, UNWRITTEN))
    return tuple(rows)


def _all_facts(
    reports: Sequence[Report], images: Iterable[Image], is_alive: Callable[[int], bool]
) -> tuple[ProcessFacts, ...]:
    seen = _by_program(images)
    later: dict[int, list[Report]] = {}
    found = []
    for report in reversed(reports):
        same = later.setdefault(report.pid, [])
        found.append(_facts(report, same, seen.get(_of_report(report), ()), is_alive))
        same.append(report)
    return tuple(reversed(found))


def summarise(
    reports: Sequence[Report],
    images: Sequence[Image],
    ended: Ended,
    *,
    program: str,
    is_alive: Callable[[int], bool],
    explain: Callable[[Image], str | None],
    unwritten: Collection[int] = (),
    unread: Sequence[int] = (),
    elsewhere: Callable[[Image], bool] = lambda image: False,
    top_count: int = 5,
) -> RunFacts:
    """`program` is the file that was started as process `ended.pid`; `explain` says why a program
    did not load hakmem, if that can be told; `unwritten` could not write their reports; one
    that reports `elsewhere` was given hakmem, but not the place of this run's reports. `unread`:
    the process of each report that is not among `reports`, one of too many; nothing that such a
    process ran counts as absent."""
    processes = _with_kernels_peak(_all_facts(reports, images, is_alive), images, ended)
    unread_pids = set(unread)
    images = [image for image in images if image.inner_pid not in unread_pids]
    unwritten = dict.fromkeys(unwritten)  # in this order, and looked up in often
    absent = list(find_absent(reports, images, explain, unwritten, elsewhere))
    root = Image(ended.pid, ended.pid, None, program, None)
    mute = find_mute(reports, images, unwritten, elsewhere)
    root_loaded = (
        ended.pid in unwritten
        or ended.pid in unread_pids
        or any(program.pid == ended.pid for program in mute)
        or any(report.pid == ended.pid and not report.forked for report in reports)
    )
    if not root_loaded and not any(image.pid == ended.pid for image in absent):
        # It was gone before the first look.
        absent.insert(0, Absent(root.pid, root.exe, explain(root) or LEFT_NO_REPORT))
    silent = find_unwritten(unwritten, images, reports, absent, root) + mute
    verdicts = {process.verdict for process in processes}
    if not silent and not unread and (not processes or verdicts == {Verdict.INACTIVE}):
        verdict = Verdict.INACTIVE
    elif absent or verdicts & {Verdict.PARTIAL, Verdict.INACTIVE}:
        verdict = Verdict.PARTIAL
    elif Verdict.ACTIVE in verdicts and Verdict.UNPROVED not in verdicts and not (silent or unread):
        verdict = Verdict.ACTIVE
    else:
        verdict = Verdict.UNPROVED
    totals: dict[str, int] = {}
    for report in reports:
        for name, value in report.books.items():
            totals[name] = totals.get(name, 0) + value
    largest = max(processes, key=lambda process: process.peak_rss_bytes, default=None)
    classes = largest.report.classes if largest is not None else ()
    top = sorted(classes, key=lambda row: row.live_bytes, reverse=True)[:top_count]
    return RunFacts(
        verdict=verdict,
        library=reports[0].library if reports else "",
        processes=processes,
        absent=tuple(absent),
        unwritten=silent,
        unread_reports=len(unread),
        process_count=len(
            {report.pid for report in reports}
            | {image.pid for image in (*absent, *silent)}
            | unread_pids
        ),
        root_loaded=root_loaded,
        totals=totals,
        largest=largest,
        top_classes=tuple(row for row in top if row.live_blocks),
    )
