"""From report files to verdicts, on made-up runs; damaged report files."""

from __future__ import annotations

import json
import os
import re
import struct
import sys
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hakmem import analysis, render, schema
from hakmem.analysis import Verdict
from hakmem.commands.run import reports_elsewhere
from hakmem.schema import REPORT_BYTES_MAX, ProofLine, Report, parse_report, read_reports, unwritten
from hakmem.spawn import Ended
from hakmem.watch import Image, file_name
from tests.cli.support import call, clean_environment, library

LIBRARY = "/lib/libhakmem.so"
LIBC = "/lib/libc.so.6"
PLAIN = render.Style(sys.stderr, {"NO_COLOR": "1"})
ENDED = Ended(pid=10, code=0, wall_s=1.0, user_s=0.5, system_s=0.1)


def line(
    module: str, symbol: str, provider: str, route: str = "call", phase: str = "start"
) -> ProofLine:
    return ProofLine(phase, module, symbol, provider, route)


GOOD = (line("/bin/p", "malloc", LIBRARY), line(LIBC, "malloc", LIBRARY))


def report(*proof: ProofLine, pid: int = 10, exe: str = "/bin/p", **books: int) -> Report:
    return Report(
        pid=pid,
        ppid=1,
        forked=False,
        start_ns=pid,
        mode="fast",
        profile=False,
        build_id="-",
        name=Path(exe).name,
        library=LIBRARY,
        exe=exe,
        books={"state": 2, "refreshed_ns": 1, "refills": 3, **books},
        classes=(),
        proof=proof,
    )


def image(pid: int, exe: str, parent: str | None = None) -> Image:
    return Image(pid, pid, parent, exe, None)


def summarise(
    reports: list[Report],
    images: list[Image],
    ended: Ended = ENDED,
    unwritten: Sequence[int] = (),
    unread: Sequence[int] = (),
) -> analysis.RunFacts:
    return analysis.summarise(
        reports,
        images,
        ended,
        program="/bin/p",
        is_alive=lambda pid: False,
        explain=lambda found: None if "limited" in found.exe else f"why {found.exe}",
        unwritten=unwritten,
        unread=unread,
    )


@pytest.mark.parametrize(
    ("proof", "verdict"),
    [
        (GOOD, Verdict.ACTIVE),
        ((*GOOD, line("/bin/p", "free_sized", "-")), Verdict.ACTIVE),
        ((*GOOD, line(LIBRARY, "__libc_malloc", LIBC)), Verdict.ACTIVE),
        ((*GOOD, line("/lib/x.so", "malloc", "/lib/x.so", "defines")), Verdict.ACTIVE),
        ((*GOOD, line("/lib/x.so", "malloc", "/lib/x.so")), Verdict.PARTIAL),
        ((*GOOD, line("/lib/x.so", "free", LIBC, "pointer", "exit")), Verdict.PARTIAL),
        ((*GOOD, line("/lib/x.so", "free", LIBC, "data")), Verdict.PARTIAL),
        ((line("/bin/p", "malloc", LIBC),), Verdict.INACTIVE),
        ((line(LIBRARY, "malloc", LIBRARY),), Verdict.UNPROVED),
        ((), Verdict.UNPROVED),
    ],
)
def test_verdict_of_one_process(proof: tuple[ProofLine, ...], verdict: Verdict) -> None:
    assert analysis.judge_report(report(*proof))[0] is verdict


def test_many_processes_are_summed_up_in_time() -> None:
    """Each report beside each image that was seen would take a minute."""
    pids = range(10, 6010)
    began_s = time.process_time()
    facts = summarise([report(*GOOD, pid=pid) for pid in pids], [image(n, "/bin/p") for n in pids])
    assert time.process_time() - began_s < 20
    assert (facts.process_count, facts.verdict) == (len(pids), Verdict.ACTIVE)


def test_variable_that_the_program_changed_counts_as_the_loader_set_it() -> None:
    changed = line("/bin/p", "free", "/bin/p", "data", "exit")
    assert analysis.strays([*GOOD, line("/bin/p", "free", LIBRARY, "data"), changed], LIBRARY) == ()
    assert len(analysis.strays([*GOOD, changed], LIBRARY)) == 1


def test_lost_proof_proves_nothing() -> None:
    verdict, reason = analysis.judge_report(report(*GOOD, proof_lost=2))
    assert verdict is Verdict.UNPROVED
    assert reason == "2 lines of its proof did not fit the report"


def test_verdict_of_a_run() -> None:
    good, bad = report(*GOOD), report(line("/bin/q", "malloc", LIBC), pid=11, exe="/bin/q")
    assert summarise([good], []).verdict is Verdict.ACTIVE
    mixed = summarise([good, bad], [])
    assert mixed.verdict is Verdict.PARTIAL and not mixed.served_nothing
    nothing = summarise([bad], [])
    assert nothing.verdict is Verdict.INACTIVE and nothing.served_nothing
    empty = summarise([], [])
    assert empty.served_nothing
    assert empty.absent == (analysis.Absent(ENDED.pid, "/bin/p", "why /bin/p"),)
    child_only = summarise([replace(good, pid=12)], [])
    assert child_only.verdict is Verdict.PARTIAL and child_only.served_nothing


def test_absent_programs() -> None:
    good = report(*GOOD)
    child = image(11, "/bin/static", "/bin/p")
    facts = summarise([good], [image(10, "/bin/p"), child])
    assert [absent.exe for absent in facts.absent] == ["/bin/static"]
    assert facts.process_count == 2
    # Between vfork and exec a child runs its parent's program on its parent's heap.
    assert summarise([good], [image(10, "/bin/p"), image(11, "/bin/p", "/bin/p")]).absent == ()
    # In a pid namespace of its own a process knows itself by another number.
    inner = Image(4711, 10, None, "/bin/p", None)
    assert summarise([good], [inner]).absent == ()


def test_program_that_may_not_be_looked_into() -> None:
    """It may be what its process ran before, unless that was its parent's, between vfork and exec,
    where the parent's library is seen."""
    good, program, hidden = report(*GOOD), image(10, "/bin/p"), image(11, "", "/bin/q")
    own, borrowed = image(11, "/bin/q", "/bin/p"), image(11, "/bin/p", "/bin/p")
    own.has_library = borrowed.has_library = True
    assert summarise([good], [program, own, hidden]).absent == ()
    absent = (analysis.Absent(11, "", "why "),)
    assert summarise([good], [program, borrowed, hidden]).absent == absent
    assert summarise([good, report(*GOOD, pid=11)], [program, borrowed, hidden]).absent == ()
    # Nothing is known of what a hidden process started.
    assert summarise([good], [program, image(11, "", "")]).absent == ()


def told(facts: analysis.RunFacts) -> list[tuple[int, str]]:
    assert all(row.reason == analysis.UNWRITTEN for row in facts.unwritten)
    return [(row.pid, row.exe) for row in facts.unwritten]


def test_report_that_could_not_be_written_is_no_other_malloc() -> None:
    alone = summarise([], [], unwritten=[10])
    assert (alone.verdict, alone.served_nothing) == (Verdict.UNPROVED, False)
    assert told(alone) == [(10, "/bin/p")] and alone.absent == ()
    assert analysis.UNWRITTEN in render.summary_text(alone, ENDED, PLAIN)
    good, child = report(*GOOD), image(11, "/bin/limited", "/bin/p")
    beside = summarise([good], [image(10, "/bin/p"), child], unwritten=[11])
    assert beside.verdict is Verdict.UNPROVED and not beside.served_nothing
    assert told(beside) == [(11, "/bin/limited")] and beside.absent == ()
    assert "1 proved, 1 NOT proved" in render.summary_text(beside, ENDED, PLAIN)
    # Without its file the same child had another malloc.
    assert summarise([good], [child]).verdict is Verdict.PARTIAL


def test_program_that_had_hakmem_and_left_no_file_is_no_other_malloc() -> None:
    good, child = report(*GOOD), image(11, "/bin/sandboxed", "/bin/p")
    seen = replace(child, has_library=True)
    beside = summarise([good], [image(10, "/bin/p"), seen])
    assert (beside.verdict, beside.absent) == (Verdict.UNPROVED, ())
    assert [(row.pid, row.reason) for row in beside.unwritten] == [(11, analysis.MADE_NO_REPORT)]
    alone = summarise([], [replace(image(10, "/bin/p"), has_library=True)])
    assert (alone.verdict, alone.served_nothing) == (Verdict.UNPROVED, False)
    # A child between vfork and exec; one that has a report; one that could write none.
    for quiet in (replace(seen, exe="/bin/p"), replace(seen, pid=10, inner_pid=10, exe="/bin/p")):
        assert summarise([good], [quiet]).verdict is Verdict.ACTIVE
    assert told(summarise([good], [seen], unwritten=[11])) == [(11, "/bin/sandboxed")]


def test_program_that_reports_elsewhere_is_no_other_malloc() -> None:
    """Whether it was seen with its libraries, or was over before: nothing speaks against it."""
    good, child = report(*GOOD), image(11, "/bin/limited", "/bin/p")
    for seen in (child, replace(child, has_library=True)):
        facts = analysis.summarise(
            [good],
            [image(10, "/bin/p"), seen],
            ENDED,
            program="/bin/p",
            is_alive=lambda pid: False,
            explain=lambda found: None,
            elsewhere=lambda found: found.exe == "/bin/limited",
        )
        assert (facts.verdict, facts.absent) == (Verdict.UNPROVED, ())
        rows = [(row.pid, row.reason) for row in facts.unwritten]
        assert rows == [(11, analysis.REPORTS_ELSEWHERE)]


@pytest.mark.parametrize(
    ("preload", "given", "expected"),
    [
        (LIBRARY, "/reports", False),
        (LIBRARY, "", True),
        (LIBRARY, "/other", True),
        # What was given is not known; it was not given hakmem.
        (LIBRARY, None, False),
        (None, "", False),
        ("", "", False),
        ("/lib/other.so", "/other", False),
    ],
)
def test_place_of_reports_that_a_program_was_given(
    preload: str | None, given: str | None, expected: bool
) -> None:
    program = Image(11, 11, None, "/bin/sh", preload, given)
    assert reports_elsewhere(program, LIBRARY, Path("/reports")) is expected


def test_report_that_could_not_be_written_hides_nothing_else() -> None:
    good = report(*GOOD)
    static = image(11, "/bin/static", "/bin/p")
    facts = summarise([good], [static, image(12, "/bin/limited", "/bin/p")], unwritten=[12])
    assert facts.verdict is Verdict.PARTIAL
    assert [row.exe for row in facts.absent] == ["/bin/static"]
    assert told(facts) == [(12, "/bin/limited")]
    # It became a static program by exec.
    facts = summarise([good], [image(11, "/bin/limited"), static], unwritten=[11])
    assert [row.exe for row in facts.absent] == ["/bin/static"]
    assert told(facts) == [(11, "/bin/limited")]
    other = report(line("/bin/p", "malloc", LIBC))
    assert summarise([other], [], unwritten=[11]).verdict is Verdict.PARTIAL


def test_report_that_could_not_be_written_of_a_program_nobody_saw() -> None:
    """After exec the first program has a report, and the second is not known by name."""
    assert told(summarise([report(*GOOD)], [], unwritten=[10])) == [(10, "")]
    # In a pid namespace of its own a process knows itself by another number.
    inner = Image(4711, 7, "/bin/p", "/bin/limited", None)
    assert told(summarise([report(*GOOD)], [inner], unwritten=[7])) == [(4711, "/bin/limited")]


def test_files_without_contents(tmp_path: Path) -> None:
    for name in ("12.0abc", "7.1", "12.1", "libhakmem.so", "x.1", "13.1.2"):
        (tmp_path / name).touch()
    (tmp_path / "8.1").write_text("x")
    (tmp_path / "9.1").mkdir()
    (tmp_path / "10.1").symlink_to("7.1")
    assert unwritten(tmp_path) == [7, 12]


def test_reports_beyond_the_bound_are_said_to_be_unread(
    real_report: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which programs they are of is known by their names, so that these are not absent."""
    for name in ("10.1", "11.1"):
        pid = name.partition(".")[0].encode()
        (tmp_path / name).write_bytes(re.sub(rb"(?m)^pid .*$", b"pid " + pid, real_report, count=1))
    (tmp_path / "libhakmem.so").symlink_to(library())
    images = [image(row.pid, row.exe) for row in read_reports(tmp_path)]
    # Hakmem was seen in one: it did make a report.
    images[1].has_library = True
    whole = summarise(read_reports(tmp_path), images, unread=schema.unread(tmp_path))
    assert (whole.verdict, whole.unread_reports) == (Verdict.ACTIVE, 0)
    monkeypatch.setattr(schema, "REPORTS_MAX", 1)
    reports, unread = read_reports(tmp_path), schema.unread(tmp_path)
    assert ([row.pid for row in reports], unread) == ([10], [11])
    for seen in (images, [*images, image(11, "/bin/limited")], []):
        facts = summarise(reports, seen, unread=unread)
        assert (facts.absent, facts.unwritten, facts.process_count) == ((), (), 2)
        assert (facts.verdict, facts.served_nothing) == (Verdict.UNPROVED, False)
    text = render.summary_text(facts, ENDED, PLAIN)
    assert "1 report was not read, after 1 that were: what ran there is not proved" in text
    assert "2 processes; 1 proved, 1 NOT proved" in text
    # Nothing is said of the program that was started by a report that was not read.
    assert not summarise([], images[:1], unread=[10]).served_nothing
    # One that left none is absent as ever.
    others = summarise(reports, [*images, image(12, "/bin/static")], unread=unread)
    assert [row.pid for row in others.absent] == [12]


def test_number_of_another_namespace_is_not_looked_up_here() -> None:
    """Its 1 is long gone where ours runs on."""
    facts = analysis.summarise(
        [report(*GOOD, pid=1, state=1)],
        [Image(4711, 1, None, "/bin/p", None)],
        ENDED,
        program="/bin/p",
        is_alive=lambda pid: pid == 1,
        explain=lambda found: "",
    )
    assert [process.ending for process in facts.processes] == [analysis.Ending.NO_EXIT]


def test_peak_that_the_kernel_tells() -> None:
    """Of the started program alone, and where it is nobody else's."""
    killed = replace(ENDED, code=-9, peak_rss_bytes=80 << 20)
    one = report(*GOOD, state=1, peak_rss_bytes=30 << 20)
    child = report(*GOOD, state=1, pid=11, peak_rss_bytes=20 << 20)

    def peaks(reports: list[Report], images: list[Image]) -> list[tuple[int, bool]]:
        facts = summarise(reports, images, killed)
        return [(each.peak_rss_bytes >> 20, each.peak_is_exact) for each in facts.processes]

    assert peaks([one], []) == [(80, True)]
    assert peaks([one, child], []) == [(30, False), (20, False)]
    assert peaks([one], [image(10, "/bin/p"), image(12, "/bin/static")]) == [(30, False)]
    assert peaks([report(*GOOD, peak_rss_bytes=30 << 20)], []) == [(30, True)]
    text = render.summary_text(summarise([one, child], [], killed), killed, PLAIN)
    assert "peak RSS at least 30.0 MiB" in text


def test_totals_and_text_add_up() -> None:
    reports = [report(*GOOD, os_mmap=2, os_failures=1), report(*GOOD, pid=11, os_mmap=3)]
    facts = summarise(reports, [])
    text = render.summary_text(facts, ENDED, PLAIN)
    assert "2 processes, all proved: p x 2" in text
    assert "mmap 5 · failures 1" in text
    assert "refills 6" in text
    assert len(text.splitlines()) <= 10
    facts_json = render.summary_json(facts, ENDED, ["p"], 0)
    assert facts_json["os_calls"] == {"mmap": 5, "failures": 1}


def test_program_with_a_hakmem_in_itself_is_one_program() -> None:
    """Two reports are of it; it was replaced by another only where there is a third."""
    preloaded = report(line(LIBC, "malloc", "/bin/p"), state=1)
    linked = replace(preloaded, library="/bin/p")
    facts = summarise([preloaded, linked], [])
    assert {process.ending for process in facts.processes} == {analysis.Ending.NO_EXIT}
    assert "1 process; 0 proved, 1 NOT proved" in render.summary_text(facts, ENDED, PLAIN)
    again = summarise([preloaded, linked, preloaded, linked], [])
    assert again.processes[0].ending is analysis.Ending.EXEC
    assert "1 process ran 2 programs (exec)" in render.summary_text(again, ENDED, PLAIN)


def test_own_operators_are_not_called_another_malloc() -> None:
    """Nor is anything that is another malloc called an operator."""
    own = [line("/bin/p", "_Znwm", "/bin/p"), line("/bin/p", "_Znwm", "/bin/p", "defines")]
    text = render.summary_text(summarise([report(*GOOD, *own)], []), ENDED, PLAIN)
    assert "used operators new and delete that are not hakmem's:" in text
    assert "/bin/p has a malloc or operator new of its own" in text
    another = "used another malloc:"
    inactive = report(line("/bin/q", "_Znwm", LIBC), pid=11, exe="/bin/q")
    for reports, images in (
        ([report(*GOOD, *own, line("/bin/p", "free", LIBC))], []),
        ([report(*GOOD, *own), inactive], []),
        ([report(*GOOD, *own)], [image(12, "/bin/static", "/bin/p")]),
    ):
        assert another in render.summary_text(summarise(reports, images), ENDED, PLAIN)


@pytest.mark.parametrize(
    ("mode", "changes", "said"),
    [
        ("fast", {}, "--mode lean for less memory, --json for every process; hakmem options for"),
        ("lean", {"wall_s": 60.0}, "every process; while it runs: hakmem top, inspect, report"),
        ("fast", {"code": -11, "left_core": True}, "hakmem inspect CORE shows the heap in the"),
        ("fast", {"code": -11}, "HAKMEM_SNAPSHOT_SIGNAL=11 leaves a snapshot for hakmem inspect"),
        ("fast", {"code": -9}, "hakmem options for more"),
    ],
)
def test_what_to_try_next(mode: str, changes: dict[str, Any], said: str) -> None:
    ended = replace(ENDED, **changes)
    facts = summarise([replace(report(*GOOD), mode=mode)], [], ended)
    *_, last = render.summary_text(facts, ended, PLAIN).splitlines()
    assert last.split()[0] == "next" and said in last


def test_long_lists_of_problems_are_cut() -> None:
    stray = [line(f"/lib/{number}.so", "malloc", LIBC) for number in range(50)]
    facts = summarise([report(*GOOD, *stray)], [])
    text = render.summary_text(facts, ENDED, PLAIN)
    assert "and 38 more; --json lists all of them" in text
    assert len(text.splitlines()) < 25


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 40, "5120.0 GiB"),
    ],
)
def test_sizes(count: int, text: str) -> None:
    assert render.size(count) == text


# ---- Report files


@pytest.fixture(scope="module")
def real_report(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    directory = tmp_path_factory.mktemp("report")
    environment = clean_environment(LD_PRELOAD=str(library()), HAKMEM_REPORT=str(directory))
    call(["ls", "/"], environment=environment)
    (file,) = directory.iterdir()
    return file.read_bytes()


def test_real_report_reads_back(real_report: bytes) -> None:
    found = parse_report(real_report)
    assert found is not None
    assert Path(found.exe).name == found.name == "ls" and found.library == str(library())
    assert found.exited and found.refreshed and found.proof_lost == 0
    assert re.fullmatch(r"[0-9a-f]{40}", found.build_id)
    sizes = [row.block_bytes for row in found.classes]
    assert sizes == sorted(sizes) and sizes[0] == 16 and sizes[-1] == 65536
    live = sum(row.live_bytes for row in found.classes)
    large = found.books["large_bytes"] + found.books["huge_bytes"]
    assert found.books["live_bytes"] == live + large


def test_inherited_counters_are_taken_off(real_report: bytes) -> None:
    header = real_report[:4096].split(b"\0")[0].decode()
    names = re.search(r"^fields (.*)$", header, re.MULTILINE)[1].split()  # type: ignore[index]
    class_fields = re.search(r"^class_fields (.*)$", header, re.MULTILINE)[1].split()  # type: ignore[index]
    classes = int(re.search(r"^classes (\d+)$", header, re.MULTILINE)[1])  # type: ignore[index]
    first = names.index("peak_rss_bytes") + 1
    counter = names.index("refills")
    data = bytearray(real_report)
    struct.pack_into("=Q", data, 4096 + 8 * counter, 100)
    inherited = len(names) + classes * len(class_fields) + counter - first
    struct.pack_into("=Q", data, 4096 + 8 * inherited, 40)
    found = parse_report(bytes(data))
    assert found is not None and found.books["refills"] == 60


def test_what_is_not_written_costs_nothing(real_report: bytes) -> None:
    """Zeros to the end of the file, in a run of thousands of processes in each of thousands."""
    whole = real_report.ljust(REPORT_BYTES_MAX, b"\0")
    tracemalloc.start()
    found = parse_report(whole)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is not None and found.proof
    assert peak_bytes < 3 * REPORT_BYTES_MAX


@pytest.mark.parametrize("length", [0, 1, 100, 1000, 4095, 4096, 5000, 16384, 16500])
def test_truncated_report_is_no_report_or_a_shorter_one(real_report: bytes, length: int) -> None:
    found = parse_report(real_report[:length])
    if length < 8192:
        assert found is None
    else:
        assert found is not None and len(found.proof) < 20


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_report_never_raises(real_report: bytes, data: st.DataObject) -> None:
    changed = bytearray(real_report[:20000])
    for _ in range(data.draw(st.integers(1, 20))):
        position = data.draw(st.integers(0, len(changed) - 1))
        changed[position] = data.draw(st.integers(0, 255))
    parse_report(bytes(changed))


@settings(max_examples=200, deadline=None)
@given(text=st.binary(max_size=3000))
def test_arbitrary_file_is_no_report(text: bytes) -> None:
    assert parse_report(text) is None
    assert parse_report(b"hakmem-report 1\n" + text) is None


def test_directory_with_foreign_things(real_report: bytes, tmp_path: Path) -> None:
    (tmp_path / "1.a").write_bytes(real_report)
    (tmp_path / "junk").write_bytes(b"junk")
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "1.a")
    os.mkfifo(tmp_path / "pipe")
    assert len(read_reports(tmp_path)) == 1


def test_program_whose_name_has_a_line_feed_is_its_reports() -> None:
    assert file_name("/x/a\nb (deleted)") == "/x/a?b"
    odd = report(*GOOD, exe="/bin/a?b")
    assert summarise([odd], [image(10, file_name("/bin/a\nb"))]).verdict is Verdict.ACTIVE


def test_a_path_may_hold_what_ends_a_line_elsewhere(real_report: bytes) -> None:
    odd = "/tmp/a\u2028b\u0085c/x.so"
    header = real_report[:4096].split(b"\0")[0]
    header = re.sub(rb"^exe .*$", f"exe {odd}".encode(), header, flags=re.MULTILINE)
    proof = real_report[16384:].split(b"\0")[0]
    proof += f"start\t{odd}\tmalloc\t{LIBC}\tcall\n".encode()
    found = parse_report(header.ljust(4096, b"\0") + real_report[4096:16384] + proof)
    assert found is not None and found.exe == odd
    assert analysis.judge_report(found)[0] is Verdict.PARTIAL


def test_names_that_are_no_text_are_replaced_in_json() -> None:
    """Numbers of half a letter, which Python has for their bytes, are an error to other readers."""
    odd = os.fsdecode(b"caf\xe9")
    text = render.json_text({odd: [odd, "caf\u00e9 \U0001f600\x1b"]})
    assert text.isascii()
    assert json.loads(text) == {"caf\ufffd": ["caf\ufffd", "caf\u00e9 \U0001f600\x1b"]}
