"""What is proved of a run, and the controls: what another malloc served is never called active."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from hakmem.schema import read_reports
from tests.cli.support import (
    HAKMEM,
    Compile,
    Run,
    Summarise,
    call,
    clean_environment,
    core_archive,
    library,
)
from tests.patience import HANG_SECONDS

# ---- Active


@pytest.mark.parametrize(
    ("source", "flags"),
    [
        ("plain.c", []),
        ("plain.c", ["-Wl,-z,now"]),
        ("plain.c", ["-no-pie", "-fno-pic"]),
        ("plain.c", ["-fno-plt"]),
        ("uncalled.c", ["-Wl,-z,lazy"]),
        ("address.c", []),
        ("address.c", ["-no-pie", "-fno-pic"]),
        ("cpp.cc", []),
        ("cpp.cc", ["-no-pie", "-fno-pic"]),
    ],
)
def test_every_way_to_reach_malloc_is_proved(
    summarise: Summarise, build_program: Compile, source: str, flags: list[str]
) -> None:
    program = build_program(source, *flags)
    summary = summarise(program)
    assert summary.status == 0
    (process,) = summary.processes(program.name)
    assert process["strays"] == []
    assert process["verdict"] == summary.facts["verdict"] == "active"
    assert process["proved_at"] == "exit"
    assert process["books_moved"]


def test_program_itself_is_among_the_modules(build_program: Compile, tmp_path: Path) -> None:
    """The report file as the library writes it: the program and libc each lead to hakmem."""
    program = build_program("plain.c")
    reports = tmp_path / "reports"
    reports.mkdir()
    environment = clean_environment(LD_PRELOAD=str(library()), HAKMEM_REPORT=str(reports))
    assert call([program, "3"], environment=environment).status == 3
    (report,) = reports.iterdir()
    assert report.stat().st_mode & 0o777 == 0o600
    text = report.read_bytes()[16384:].split(b"\0")[0].decode()
    for phase in ("start", "exit"):
        for symbol in ("malloc", "free"):
            assert re.search(rf"^{phase}\t{program}\t{symbol}\t{library()}\t", text, re.MULTILINE)
            assert re.search(
                rf"^{phase}\t\S*/libc\.so\.6\t{symbol}\t{library()}\t", text, re.MULTILINE
            )


def test_report_directory_that_cannot_be_used_is_said_once(
    build_program: Compile, tmp_path: Path
) -> None:
    """One that is gone is not worth a word: the run that made it is over."""
    program = build_program("plain.c")
    no_directory = tmp_path / "file"
    no_directory.touch()
    for place, said in (
        (tmp_path / "gone", ""),
        (
            no_directory,
            f"hakmem: option HAKMEM_REPORT: no file can be made in '{no_directory}', "
            "no report is written\n",
        ),
    ):
        environment = clean_environment(LD_PRELOAD=str(library()), HAKMEM_REPORT=str(place))
        outcome = call([program, "3"], environment=environment)
        assert outcome.status == 3
        assert outcome.stderr == said


FORKS_ELSEWHERE = """
import os
os.chdir("/")
child = os.fork()
if child == 0:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def test_directory_is_the_one_of_the_start(tmp_path: Path) -> None:
    """One that is named from where the program starts, and the program goes elsewhere."""
    (tmp_path / "reports").mkdir()
    environment = clean_environment(LD_PRELOAD=str(library()), HAKMEM_REPORT="reports")
    command = ["/usr/bin/python3", "-c", FORKS_ELSEWHERE]
    outcome = call(command, environment=environment, cwd=tmp_path)
    assert (outcome.status, outcome.stderr) == (0, "")
    reports = read_reports(tmp_path / "reports")
    assert [report.forked for report in reports] == [False, True]
    assert reports[0].books["unreported_children"] == 0


def test_small_file_limit_does_not_kill_the_program(build_program: Compile, tmp_path: Path) -> None:
    environment = clean_environment(LD_PRELOAD=str(library()), HAKMEM_REPORT=str(tmp_path))
    command = ["bash", "-c", f"ulimit -f 1; exec {build_program('plain.c')} 3"]
    outcome = call(command, environment=environment)
    assert outcome.status == 3
    assert outcome.stderr == (
        "hakmem: option HAKMEM_REPORT: no file of 1 MiB can be made in "
        f"'{tmp_path}', the report is empty\n"
    )
    # The shell has a report.
    assert sorted(file.stat().st_size > 0 for file in tmp_path.iterdir()) == [False, True]


def test_sandbox_that_kills_lets_a_program_end(
    summarise: Summarise, build_program: Compile
) -> None:
    """As that of sshd before a login: the report asks for nothing more than malloc does."""
    program = build_program("sandboxed.c")
    summary = summarise(program)
    assert summary.status == 3
    (process,) = summary.processes(program.name)
    assert process["verdict"] == "active"
    assert process["proved_at"] == "exit"
    assert process["strays"] == []


@pytest.mark.parametrize("option", [{}, {"HAKMEM_MODE": "hardened", "HAKMEM_GUARD_SAMPLE": "1"}])
def test_sandbox_that_kills_lets_a_thread_allocate(
    build_program: Compile, option: dict[str, str]
) -> None:
    """As that of chronyd, which lets nobody ask for the number of a thread that has its heap."""
    environment = clean_environment(LD_PRELOAD=str(library()), **option)
    assert call([build_program("sandboxed.c")], environment=environment).status == 3


@pytest.mark.parametrize("option", ["HAKMEM_STATS_AT_EXIT", "HAKMEM_LEAKS"])
def test_sandbox_that_kills_lets_figures_be_told(build_program: Compile, option: str) -> None:
    """It must allow fstat for these, as docs/OPERATING.md says."""
    environment = clean_environment(LD_PRELOAD=str(library()), **{option: "1"})
    outcome = call([build_program("sandboxed.c"), "fstat"], environment=environment)
    assert outcome.status == 3
    assert "hakmem" in outcome.stderr


@pytest.mark.parametrize("limit_bytes", [0, 4096])
def test_program_whose_files_are_limited_is_not_proved(
    run: Run, build_program: Compile, limit_bytes: int
) -> None:
    """It runs on hakmem, which cannot write so much of it: its status is its own."""
    program = build_program("plain.c")
    outcome = run(
        program,
        "3",
        options=["--json"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes)),
    )
    warning, _, summary = outcome.stderr.partition("\n")
    assert warning.startswith("hakmem: option HAKMEM_REPORT: no file of 1 MiB can be made in")
    facts = json.loads(summary)
    assert (outcome.status, facts["exit_status"], facts["verdict"]) == (3, 3, "unproved")
    (row,) = facts["unwritten"]
    assert row["exe"] == str(program)
    assert "its files are limited (ulimit -f)" in row["reason"]
    assert facts["absent"] == []


def test_child_whose_files_are_limited_is_not_proved(
    summarise: Summarise, build_program: Compile
) -> None:
    nap = build_program("nap.c")
    summary = summarise("sh", "-c", f"(ulimit -f 0; exec {nap} 500); exit 4")
    assert (summary.status, summary.facts["verdict"]) == (4, "unproved")
    assert "hakmem: not proved" in summary.stderr
    (row,) = summary.facts["unwritten"]
    assert row["exe"] == str(nap)
    assert summary.facts["absent"] == []


def test_program_that_may_make_no_file_is_not_proved(
    summarise: Summarise, build_program: Compile
) -> None:
    """As what man runs in its sandbox: it runs on hakmem, and not on another malloc."""
    fileless, nap = build_program("fileless.c"), build_program("nap.c")
    for command in ([fileless, nap, "500"], ["sh", "-c", f"{fileless} {nap} 500"]):
        summary = summarise(*command)
        assert (summary.status, summary.facts["verdict"]) == (0, "unproved")
        (row,) = summary.facts["unwritten"]
        assert row["exe"] == str(nap)
        assert row["reason"].startswith("hakmem was loaded, but made no report")
        assert summary.facts["absent"] == []


@pytest.mark.parametrize("change", ["-u HAKMEM_REPORT", "HAKMEM_REPORT=/proc"])
def test_program_with_another_place_for_reports_is_not_proved(
    summarise: Summarise, build_program: Compile, change: str
) -> None:
    """As the CGI programs of lighttpd, which keeps LD_PRELOAD for them and little else."""
    nap = build_program("nap.c")
    summary = summarise("sh", "-c", f"env {change} {nap} 500; exit 4")
    assert (summary.status, summary.facts["verdict"]) == (4, "unproved")
    (row,) = summary.facts["unwritten"]
    assert row["exe"] == str(nap)
    assert row["reason"].startswith("was started without this run's HAKMEM_REPORT")
    assert summary.facts["absent"] == []


@pytest.mark.parametrize("kept_bytes", [0, 4096, 5000])
def test_report_cut_short_does_not_kill_the_program(tmp_path: Path, kept_bytes: int) -> None:
    """As what rotates logs does to a file that it keeps."""
    script = f"""
import os, time
(name,) = os.listdir({str(tmp_path)!r})
path = os.path.join({str(tmp_path)!r}, name)
os.truncate(path, {kept_bytes})
lists = []
for round in range(30):
    lists.append([bytes(100) for n in range(2000)])
    time.sleep(0.01)
child = os.fork()
if child == 0:
    lists.append([bytes(200) for n in range(20000)])
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert os.path.getsize(path) == {kept_bytes}
"""
    environment = clean_environment(LD_PRELOAD=str(library()), HAKMEM_REPORT=str(tmp_path))
    outcome = call(["/usr/bin/python3", "-c", script], environment=environment)
    assert outcome.status == 0, outcome.stderr
    assert outcome.stderr == ""


# ---- Children


def test_every_child_is_proved_however_it_ends(
    summarise: Summarise, build_program: Compile
) -> None:
    program = build_program("family.c")
    summary = summarise(program)
    assert summary.status == 0
    assert summary.facts["verdict"] == "active"
    assert summary.facts["process_count"] == 5
    processes = summary.processes(program.name)
    assert [process["forked"] for process in processes] == [False, True, True, True, True]
    assert [process["ending"] for process in processes] == [
        "exit", "exit", "no exit", "no exit", "exec",
    ]  # fmt: skip
    parent, *children = processes
    assert {child["ppid"] for child in children} == {parent["pid"]}
    assert len(summary.processes("true")) == 1
    # The child that ended through exit has the parent's 5,000 blocks and 5,000 of its own.
    assert 5000 <= parent["books"]["live_blocks"] < 10000
    assert children[0]["books"]["live_blocks"] >= 10000
    # Counters are each process's own.
    assert 0 < children[0]["books"]["slabs_created"] <= parent["books"]["slabs_created"]


def test_child_of_a_process_with_threads_does_not_wait_for_the_loader(
    run: Run, summarise: Summarise, build_program: Compile
) -> None:
    """Another thread may have had the loader's lock, which the child never gets."""
    program = build_program("loader_lock.c", "-pthread")
    summary = summarise(program)
    assert summary.status == 0
    assert summary.facts["verdict"] == "active"
    _, *children = summary.processes(program.name)
    assert [child["ending"] for child in children] == ["exit"] * 10
    assert {child["proved_at"] for child in children} == {"start"}
    assert "10 forked beside other threads" in run(program).stderr


def test_exit_is_told_while_other_threads_write_the_books(
    summarise: Summarise, build_program: Compile
) -> None:
    program = build_program("crowd.c", "-pthread")
    for _ in range(5):
        (process,) = summarise(program).processes(program.name)
        assert (process["ending"], process["proved_at"]) == ("exit", "exit")


def test_peak_that_could_not_be_read_at_the_exit_is_not_exact(summarise: Summarise) -> None:
    script = (
        "import resource, subprocess\n"
        "block = b'1' * (200 << 20)\n"
        "del block\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
    )
    summary = summarise("/usr/bin/python3", "-c", script)
    (process,) = summary.facts["processes"]
    assert process["ending"] == "exit"
    assert process["peak_rss_bytes"] >= 200 << 20 or not process["peak_rss_exact"]


def test_a_childs_books_lie_where_its_parents_were(tmp_path: Path) -> None:
    """A handler that forks may have interrupted who writes there, and the child returns to that."""
    script = """
import os
def books():
    with open("/proc/self/maps") as lines:
        return [(l.split("-")[0], l.split()[1], l.split()[-1]) for l in lines if "/books/" in l]
[(place, access, path)] = books()
assert "/%d." % os.getpid() in path
child = os.fork()
if child == 0:
    [(found, access, path)] = books()
    os._exit(7 if found == place and "w" in access and "/%d." % os.getpid() in path else 8)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
"""
    (tmp_path / "books").mkdir()
    environment = clean_environment(
        LD_PRELOAD=str(library()), HAKMEM_REPORT=str(tmp_path / "books")
    )
    outcome = call(["/usr/bin/python3", "-c", script], environment=environment)
    assert outcome.status == 0, outcome.stderr


CHILDREN_OUT_OF_REACH = """
import os, resource
if os.fork() == 0:  # can make a file
    os._exit(0)
os.wait()
resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
for _ in range(3):
    if os.fork() == 0:
        os._exit(0)
    os.wait()
"""


def test_children_that_cannot_make_a_file_are_told(summarise: Summarise) -> None:
    summary = summarise("/usr/bin/python3", "-c", CHILDREN_OUT_OF_REACH)
    assert summary.status == 0
    assert summary.facts["process_count"] == 2
    assert summary.facts["unreported_children"] == 3
    told = call([*HAKMEM, "run", "--", "/usr/bin/python3", "-c", CHILDREN_OUT_OF_REACH])
    assert "3 forked children left no report, and count nowhere" in told.stderr


def test_shell_with_several_programs(summarise: Summarise) -> None:
    summary = summarise("sh", "-c", "ls / | sort | wc -l; perl -e 'exit 3'")
    assert summary.status == 3
    assert summary.facts["verdict"] == "active"
    for name in ("ls", "sort", "wc", "perl"):
        (process,) = summary.processes(name)
        assert process["verdict"] == "active" and process["ending"] == "exit"


def test_chain_of_execs_keeps_the_last_status(summarise: Summarise) -> None:
    summary = summarise("sh", "-c", "exec env A=1 nice perl -e 'exit 6'")
    assert summary.status == 6
    assert summary.facts["process_count"] == 1
    programs = [Path(process["exe"]).name for process in summary.facts["processes"]]
    assert programs[-3:] == ["env", "nice", "perl"]
    endings = [process["ending"] for process in summary.facts["processes"]]
    assert endings == ["exec"] * (len(programs) - 1) + ["exit"]


def test_children_that_still_run_are_named(
    summarise: Summarise, build_program: Compile, tmp_path: Path
) -> None:
    nap, said, number = build_program("nap.c"), tmp_path / "said", tmp_path / "number"
    start = f"{nap} 600000 {said} >/dev/null 2>&1 & echo $! >{number}"
    try:
        script = f"{start}; until [ -e {said} ]; do sleep 0.05; done; exit 2"
        summary = summarise("sh", "-c", script)
    finally:
        os.kill(int(number.read_text()), signal.SIGKILL)
    assert summary.status == 2
    (process,) = summary.processes(nap.name)
    assert process["ending"] == "running" and process["proved_at"] == "start"


def test_static_child_is_named(summarise: Summarise, build_program: Compile) -> None:
    static = build_program("nap.c", "-static")
    summary = summarise("sh", "-c", f"{static} 5000; exit 4")
    assert summary.status == 4
    assert summary.facts["verdict"] == "partial"
    (absent,) = summary.facts["absent"]
    assert absent["exe"] == str(static)
    assert absent["reason"] == "statically linked: nothing can be preloaded"
    assert summary.stderr.startswith("hakmem: NOT fully active")


def test_program_with_the_archive_is_told_so(
    run: Run, summarise: Summarise, build_program: Compile
) -> None:
    """What is preloaded does not serve it; what it was linked with does, and reports as well."""
    archive = ["-Wl,--undefined=malloc", str(library().with_name("libhakmem.a")), "-lpthread"]
    program = build_program("plain.c", *archive)
    processes = summarise(program).processes(program.name)
    told = {process["verdict"]: process["reason"] or "" for process in processes}
    assert told["inactive"].startswith("it was linked with libhakmem.a")
    # The program was started once, and replaced by no other.
    assert "1 process; 0 proved, 1 NOT proved" in run(program).stderr


def test_program_whose_file_goes_while_it_runs(
    summarise: Summarise, build_program: Compile, tmp_path: Path
) -> None:
    """As when it is built anew: it is the program that has a report."""
    nap = Path(shutil.copy(build_program("nap.c"), tmp_path / "gone"))
    facts = summarise("sh", "-c", f"{nap} 900 & sleep 0.4; rm {nap}; wait").facts
    assert facts["absent"] == []
    assert facts["verdict"] == "active"


def test_exec_of_a_static_program_is_named(summarise: Summarise, build_program: Compile) -> None:
    static = build_program("nap.c", "-static")
    summary = summarise("sh", "-c", f"exec {static} 5000")
    assert summary.status == 0
    assert summary.facts["verdict"] == "partial"
    assert [absent["exe"] for absent in summary.facts["absent"]] == [str(static)]


def test_child_without_the_environment_is_named(
    summarise: Summarise, build_program: Compile
) -> None:
    nap = build_program("nap.c")
    summary = summarise("sh", "-c", f"env -i {nap} 5000")
    assert summary.facts["verdict"] == "partial"
    (absent,) = summary.facts["absent"]
    assert absent["exe"] == str(nap)
    assert absent["reason"].startswith("was started without LD_PRELOAD")


def test_paths_that_a_report_cuts(summarise: Summarise, run: Run, tmp_path: Path) -> None:
    folder = tmp_path.joinpath(*["d" * 250] * 5)
    folder.mkdir(parents=True)
    program = shutil.copy("/bin/sleep", folder / "sleep")
    facts = summarise(program, "1").facts
    assert (facts["verdict"], facts["absent"], facts["process_count"]) == ("active", [], 1)
    (folder / "libhakmem.so").symlink_to(library())
    outcome = run("true", options=["--library", folder / "libhakmem.so"])
    assert outcome.stderr.startswith("hakmem: active")


# ---- Controls: another malloc


def test_library_that_is_no_malloc_is_not_active(tmp_path: Path, build_program: Compile) -> None:
    empty = build_program("plain.c", "-shared", "-fPIC")
    summary_file = tmp_path / "summary"
    outcome = call(
        [*HAKMEM, "run", "--library", empty, "--summary-file", summary_file, "--", "ls", "/"]
    )
    assert outcome.status == 125
    assert outcome.stdout != b""
    assert outcome.stderr.startswith("hakmem: NOT ACTIVE")
    assert "left no report" in summary_file.read_text(encoding="utf-8")


def test_library_without_the_names_of_malloc_is_not_active(tmp_path: Path) -> None:
    """All of hakmem is loaded and reports, but nothing leads to it."""
    nameless = tmp_path / "libhakmem.so"
    whole = ["-Wl,--whole-archive", str(core_archive()), "-Wl,--no-whole-archive"]
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", nameless, *whole], check=True, timeout=HANG_SECONDS
    )
    outcome = call([*HAKMEM, "run", "--library", nameless, "--", "sh", "-c", "exit 0"])
    assert outcome.status == 125
    assert outcome.stderr.startswith("hakmem: NOT ACTIVE")
    assert "no malloc symbol of any module leads to hakmem" in outcome.stderr
    assert re.search(r"libc\.so\.6 \(in \w+\): .*malloc.* -> \S*libc\.so\.6", outcome.stderr)


def test_program_with_its_own_malloc_is_not_active(
    summarise: Summarise, build_program: Compile
) -> None:
    program = build_program("own_malloc.c")
    summary = summarise(program)
    assert summary.facts["child_status"] == 4
    assert summary.status == 125
    assert summary.facts["verdict"] == "inactive"
    (process,) = summary.processes(program.name)
    assert process["own_allocators"] == [str(program)]
    strays = {(Path(row["module"]).name, row["symbol"]) for row in process["strays"]}
    assert ("libc.so.6", "malloc") in strays
    assert {row["provider"] for row in process["strays"]} == {str(program)}
    assert not process["books_moved"] or process["books"]["refills"] == 0


def test_program_with_its_own_operators_is_not_wholly_active(
    summarise: Summarise, build_program: Compile
) -> None:
    program = build_program("own_operators.cc")
    summary = summarise(program)
    assert summary.status == 0
    assert summary.facts["verdict"] == "partial"
    (process,) = summary.processes(program.name)
    assert {row["provider"] for row in process["strays"]} == {str(program)}
    assert {row["symbol"] for row in process["strays"]} <= {"_Znwm", "_ZdlPv", "_ZdlPvm"}
    said = "NOT fully active: part of what ran used operators new and delete that are not hakmem's:"
    assert said in summary.stderr


def test_another_malloc_preloaded_in_front_is_not_active(
    summarise: Summarise, build_program: Compile
) -> None:
    jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"
    program = build_program("plain.c")
    summary = summarise(program, "4", environment=clean_environment(LD_PRELOAD=jemalloc))
    assert summary.facts["verdict"] == "inactive"
    assert summary.facts["child_status"] == 4 and summary.status == 125
    (process,) = summary.processes(program.name)
    assert {row["provider"] for row in process["strays"]} == {jemalloc}


def test_hook_in_front_is_named_though_it_passes_calls_on(
    summarise: Summarise, build_program: Compile
) -> None:
    hook = build_program("hook.c", "-shared", "-fPIC")
    program = build_program("plain.c")
    summary = summarise(program, "4", environment=clean_environment(LD_PRELOAD=str(hook)))
    assert summary.facts["verdict"] == "partial"
    assert summary.status == 4
    (process,) = summary.processes(program.name)
    assert {(row["symbol"], row["provider"]) for row in process["strays"]} == {
        ("malloc", str(hook))
    }
    assert process["books_moved"]
    assert "part of what ran used another malloc:" in summary.stderr


def test_library_loaded_later_with_its_own_malloc(
    summarise: Summarise, build_program: Compile
) -> None:
    """Bound to hakmem it is active, with a note; preferring its own symbols it is not."""
    plugin = build_program("plugin.c", "-shared", "-fPIC")
    host = build_program("host.c")
    bound = summarise(host, plugin)
    assert bound.status == 0
    assert bound.facts["verdict"] == "active"
    (process,) = bound.processes(host.name)
    assert process["own_allocators"] == [str(plugin)]
    deep = summarise(host, plugin, "deep")
    assert deep.status == 1
    assert deep.facts["verdict"] == "partial"
    (process,) = deep.processes(host.name)
    assert {(row["module"], row["provider"]) for row in process["strays"]} == {
        (str(plugin), str(plugin))
    }


def test_variable_that_a_library_set_anew_before_it_was_looked_at(
    summarise: Summarise, build_program: Compile
) -> None:
    """Loaded later, its variables were never seen as the loader had set them."""
    changed = build_program("variable.c", "-shared", "-fPIC")
    host = build_program("host.c")
    summary = summarise(host, changed)
    assert (summary.status, summary.facts["verdict"]) == (7, "active")
    (process,) = summary.processes(host.name)
    assert process["strays"] == []


def test_library_in_a_namespace_of_its_own(summarise: Summarise, build_program: Compile) -> None:
    """It has a C library of its own, whose malloc is nobody else's."""
    auditor = build_program("lodger.c", "-shared", "-fPIC")
    program = build_program("plain.c")
    summary = summarise(program, "4", environment=clean_environment(LD_AUDIT=str(auditor)))
    assert summary.status == 4
    assert summary.facts["verdict"] == "partial"
    (process,) = summary.processes(program.name)
    strays = {(row["module"], row["symbol"], row["provider"]) for row in process["strays"]}
    assert (str(auditor), "malloc", "[another namespace]") in strays


def with_headers_elsewhere(library: Path) -> Path:
    """A copy whose program headers lie at its end, in a segment far behind the others."""
    header = struct.Struct("<IIQQQQQQ")
    note, load = 4, 1
    text = bytearray(library.read_bytes())
    (at,) = struct.unpack_from("<Q", text, 32)
    (count,) = struct.unpack_from("<H", text, 56)
    rows = [list(row) for row in header.iter_unpack(text[at : at + count * header.size])]
    text += bytes(-len(text) % 4096)
    address = len(text) + (1 << 20)
    size = count * header.size
    index = next(i for i, row in enumerate(rows) if row[0] == note)
    rows[index] = [load, 4, len(text), address, address, size, size, 4096]
    rows.sort(key=lambda row: (row[0] != load, row[3]))
    struct.pack_into("<Q", text, 32, len(text))
    text += b"".join(header.pack(*row) for row in rows)
    copy = library.with_suffix(".moved")
    copy.write_bytes(text)
    return copy


def test_library_elsewhere_whose_headers_are_not_at_its_beginning(
    summarise: Summarise, build_program: Compile
) -> None:
    """As tools leave them that change files. It is named without being read."""
    auditor = with_headers_elsewhere(build_program("lodger.c", "-shared", "-fPIC"))
    program = build_program("plain.c")
    summary = summarise(program, "4", environment=clean_environment(LD_AUDIT=str(auditor)))
    assert summary.status == 4
    (process,) = summary.processes(program.name)
    assert (str(auditor), "malloc", "[another namespace]") in {
        (row["module"], row["symbol"], row["provider"]) for row in process["strays"]
    }


def test_statically_linked_jemalloc_is_not_active(summarise: Summarise, tmp_path: Path) -> None:
    """The real thing: Debian's libjemalloc.a in the program."""
    source = Path(__file__).parent / "programs" / "plain.c"
    program = tmp_path / "jemalloc"
    subprocess.run(
        ["gcc", "-o", program, source, "-l:libjemalloc.a", "-lm", "-lpthread", "-lstdc++"],
        check=True,
        timeout=HANG_SECONDS,
    )
    summary = summarise(program)
    assert summary.facts["verdict"] != "active"
    (process,) = summary.processes("jemalloc")
    assert str(program) in process["own_allocators"]
