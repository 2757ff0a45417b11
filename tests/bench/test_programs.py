"""Real programs: what is measured of them, what is refused, and that nothing stays behind.

Programs whose packages only `hakmem bench setup` installs are marked `needs_bench_setup`.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import programs
import pytest
from programs import witness
from programs.base import Outcome, RealProgram, scaled
from programs.execution import Execution
from programs.process import Program, ProgramFailedError, status_kib

from harness import peers, proof
from harness.environment import CLEAN_ENVIRONMENT, run_alone
from harness.errors import MeasureError, RefusedError
from harness.layout import TOP
from harness.processes import process_tree
from tests.patience import HANG_SECONDS

Compile = Callable[..., Path]
MIB = 1 << 20
TINY = 0.02
PATHS = {"PATH": "/usr/bin:/bin"}
GLIBC = peers.known()["glibc"]
OTHER = peers.known()["mimalloc2_deb"]

ALLOCATES = """
#include <stdlib.h>
#include <string.h>
int main(void) {
    for (int i = 1; i < 2000; i++) { char *volatile p = malloc(i); memset(p, 1, i); free(p); }
    return 0;
}
"""

OWN_MALLOC = """
#include <stddef.h>
#include <string.h>
static char pool[1 << 22]; static size_t used;
VISIBILITY void *malloc(size_t n) { used += (n + 15) & ~15ul; return pool + used - n; }
VISIBILITY void free(void *p) { (void)p; }
VISIBILITY void *calloc(size_t a, size_t b) { return memset(malloc(a * b), 0, a * b); }
VISIBILITY void *realloc(void *p, size_t n) { (void)p; return malloc(n); }
int main(void) {
    for (int i = 1; i < 2000; i++) { char *volatile p = malloc(i); memset(p, 1, i); free(p); }
    return 0;
}
"""


def packages(file: str) -> set[str]:
    """The names of a list of Debian packages; redis-server brings redis-tools."""
    names = {line.split("#")[0].strip() for line in (TOP / file).read_text().splitlines()} - {""}
    return names | ({"redis-tools"} if "redis-server" in names else set())


def packages_of_tests() -> set[str]:
    """What every machine that runs the tests has installed."""
    return packages("scripts/packages.txt") | packages("scripts/packages-apps.txt")


def parameters() -> list[Any]:
    """All programs; those that need more packages carry a mark."""
    common = packages_of_tests()
    marks = {False: [], True: [pytest.mark.needs_bench_setup]}
    return [
        pytest.param(program, id=program.name, marks=marks[not set(program.packages) <= common])
        for program in programs.known()
    ]


class One(RealProgram):
    """A program of the test's own."""

    name = "one"
    about = "made for a test"
    packages = ()

    def __init__(self, file: Path, *arguments: str) -> None:
        self.words = [str(file), *arguments]

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        return Outcome(1, "runs", execution.command(self.words).stdout)


@pytest.fixture
def run_one(built: Path, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Runs one file, on the C library or another allocator."""
    del built

    def run(file: Path, *arguments: str, allocator: peers.Allocator = GLIBC, **more: Any) -> Any:
        environment = {**CLEAN_ENVIRONMENT, **allocator.settings()}
        return One(file, *arguments).run(environment, tmp_path / "inputs", **more)

    return run


@pytest.fixture
def execution(built: Path, tmp_path: Path) -> Execution:
    """An empty run on the C library."""
    del built
    base = tmp_path / "run"
    base.mkdir()
    return Execution(CLEAN_ENVIRONMENT, base)


# ---- every program


@pytest.mark.parametrize("program", parameters())
def test_program_does_the_same_on_two_allocators(
    built: Path, tmp_path: Path, program: RealProgram
) -> None:
    assert program.installed, f"missing: {', '.join(program.packages)} (hakmem bench setup)"
    assert OTHER.installed, f"missing: {OTHER.package} (hakmem bench setup)"
    results = set()
    for allocator in (GLIBC, OTHER):
        environment = {**CLEAN_ENVIRONMENT, **allocator.settings()}
        row = program.run(environment, tmp_path / "inputs", TINY)
        proof.verify(row["proof"], allocator)
        assert row["ops"] > 0 and row["unit"]
        assert 0 < row["wall_ns"] < HANG_SECONDS * 1e9
        assert row["cpu_ns"] == row["user_ns"] + row["system_ns"] > 0
        assert MIB < row["end_rss_bytes"] <= row["peak_rss_bytes"]
        assert row["minor_faults"] > 0 and row["voluntary_switches"] >= 0
        assert row["extra"]["processes"] >= 1
        results.add((row["ops"], row["checksum"]))
    assert len(results) == 1


def test_names_and_packages_are_complete() -> None:
    known = programs.known()
    assert len({program.name for program in known}) == len(known) >= 17
    wanted = {package for program in known for package in program.packages}
    assert wanted | {"redis-tools"} == packages("bench/programs/packages.txt")
    assert OTHER.package in packages_of_tests()
    assert sum(program.quick for program in known) >= 3


# ---- what is measured


def test_memory_is_the_programs_own(run_one: Any, tmp_path: Path, compile_c: Compile) -> None:
    """Peak and end of a program that is small at its end, started by a process that is larger than
    its end; and how much it gave back while it stood idle."""
    source = """
    #include <stdlib.h>
    #include <string.h>
    int main(int c, char **v) {
        size_t n = atoi(v[1]) * 1048576ul;
        char *volatile p = malloc(n); memset(p, 1, n); free(p);
        p = malloc(n / 4); memset(p, 1, n / 4);
        return c < 2;
    }"""
    file = compile_c(tmp_path / "sizes", source, "-fno-builtin")
    row = run_one(file, "64", idle_ms=50)
    assert 64 * MIB < row["peak_rss_bytes"] < 72 * MIB
    assert 16 * MIB < row["end_rss_bytes"] < 24 * MIB
    assert abs(row["extra"]["idle_rss_bytes"] - row["end_rss_bytes"]) < MIB
    assert row["minor_faults"] >= 80 * MIB / 4096 * 0.9
    small = run_one(compile_c(tmp_path / "small", ALLOCATES))
    assert small["peak_rss_bytes"] < status_kib(os.getpid(), "VmRSS") * 1024
    assert small["peak_rss_bytes"] < 4 * MIB


def test_memory_over_time_is_seen(execution: Execution, tmp_path: Path, compile_c: Compile) -> None:
    """Of a program that takes 4 MiB more each time when it is told that the last ones were seen."""
    source = """
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    int main(void) {
        char told;
        for (int i = 0; i < 4 && read(0, &told, 1) == 1; i++) memset(malloc(4 << 20), 1, 4 << 20);
        return read(0, &told, 1) != 1;
    }"""
    file = compile_c(tmp_path / "grows", source, "-fno-builtin")
    fifo = tmp_path / "told"
    os.mkfifo(fifo)
    told = os.open(fifo, os.O_RDWR)

    def tell() -> None:
        deadline = time.monotonic() + HANG_SECONDS
        for step in range(5):
            while not any(size >= 4 * MIB * step for _, size in list(execution._series)):
                if time.monotonic() > deadline:
                    break
                time.sleep(0.002)
            os.write(told, b"x")

    teller = threading.Thread(target=tell)
    teller.start()
    execution.command(["/bin/sh", "-c", f"exec {file} < {fifo}"])
    teller.join()
    os.close(told)
    row = execution.row()
    times, sizes = zip(*row["rss_series"], strict=True)
    whole_ns = row["wall_ns"] + row["extra"]["witness_wall_ns"]
    assert list(times) == sorted(times) and times[-1] < whole_ns / 1e6
    assert sizes[0] < 4 * MIB
    assert all(any(size >= 4 * MIB * step for size in sizes) for step in (1, 2, 3))
    assert 16 * MIB <= sizes[-1] <= row["peak_rss_bytes"] + MIB


def test_times_are_those_of_the_program(run_one: Any) -> None:
    row = run_one(Path("/bin/sh"), "-c", "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
    assert row["cpu_ns"] > 20e6
    waiting = run_one(Path("/bin/sh"), "-c", "sleep 0.2; exit 0")
    assert waiting["wall_ns"] > 200e6 > 50e6 > waiting["cpu_ns"]


def test_the_end_of_a_client_is_not_waited_for_in_steps(
    execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sleeps(seconds: float) -> None:
        raise AssertionError(f"looked again after {seconds} s")

    monkeypatch.setattr("time.sleep", sleeps)
    with execution.timed():
        execution.tool(["/bin/sleep", "0.2"])
    assert execution.wall_ns > 200e6


COSTLY = """
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static char pool[1 << 24]; static size_t used;
static void burn_100_ms(void) {
    struct timespec now, from;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - from.tv_sec) * 1000000000L + now.tv_nsec - from.tv_nsec < 100000000L);
}
void *malloc(size_t n) {
    if (used == 0) { used = 16; burn_100_ms(); }
    used += (n + 15) & ~15ul;
    return pool + used - n;
}
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return memset(malloc(a * b), 0, a * b); }
void *realloc(void *p, size_t n) { (void)p; return malloc(n); }
void hakmem_totals(uint64_t *totals) {
    char *pages = mmap(0, 2000 * 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(pages, 2000 * 4096, MADV_NOHUGEPAGE);
    memset(pages, 1, 2000 * 4096);
    munmap(pages, 2000 * 4096);
    burn_100_ms();
    usleep(500000);
    totals[0] = used;
}
"""


def test_what_the_witness_costs_is_taken_off(
    run_one: Any, tmp_path: Path, compile_c: Compile
) -> None:
    """The cost of reading the allocator's counter, 0.1 s of processor time, 0.5 s of sleep and 2000
    faults each time; not what the allocator does at its first call, another 0.1 s."""
    library = compile_c(tmp_path / "costly.so", COSTLY, "-shared", "-fPIC", "-fno-builtin")
    program = compile_c(tmp_path / "plain", ALLOCATES, "-fno-builtin")
    began_ns = time.monotonic_ns()
    row = run_one(program, allocator=peers.Allocator("costly", library))
    whole_ns = time.monotonic_ns() - began_ns
    assert row["extra"]["witness_wall_ns"] >= 1.2e9
    assert 0.2e9 <= row["extra"]["witness_cpu_ns"] < 0.3e9
    assert 0.1e9 <= row["wall_ns"] <= whole_ns - 1.2e9
    assert 0.1e9 <= row["cpu_ns"] == row["user_ns"] + row["system_ns"] < 0.2e9
    assert row["minor_faults"] < 2000


def test_reading_an_allocators_data_has_a_limit(
    run_one: Any, tmp_path: Path, compile_c: Compile
) -> None:
    """Of a library with 16 MiB of variables in memory, 64 pages are read each time; it moves."""
    source = """
    #include <stddef.h>
    #include <string.h>
    static char many[1 << 24]; static char pool[1 << 24]; static size_t used = 16;
    void *malloc(size_t n) {
        if (used == 16) memset(many, 1, sizeof many);
        used += (n + 15) & ~15ul;
        return pool + used - n;
    }
    void free(void *p) { (void)p; }
    void *calloc(size_t a, size_t b) { return memset(malloc(a * b), 0, a * b); }
    void *realloc(void *p, size_t n) { (void)p; return malloc(n); }
    """
    library = compile_c(tmp_path / "wide.so", source, "-shared", "-fPIC", "-fno-builtin")
    program = compile_c(tmp_path / "plain", ALLOCATES, "-fno-builtin")
    row = run_one(program, allocator=peers.Allocator("wide", library), count_calls=True)
    assert row["proof"]["moved"]["counter"] == "data_hash"
    assert row["syscalls"]["pread64"] < 200


def test_a_child_made_by_fork_states_its_own_cost(
    execution: Execution, tmp_path: Path, compile_c: Compile
) -> None:
    """The witness worked twice in the parent, and once, at its end, in the child."""
    source = """
    #include <stdlib.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {
        if (fork() != 0) wait(0);
        free(malloc(1000));
        return 0;
    }"""
    execution.command([str(compile_c(tmp_path / "forks", source, "-fno-builtin"))])
    child, parent = witness.read(execution._statements)
    assert [len(child.own_spans_ns), len(parent.own_spans_ns)] == [1, 2]
    assert parent.own_spans_ns[0][1] <= child.own_spans_ns[0][0]
    assert all(start < end for each in (child, parent) for start, end in each.own_spans_ns)


def test_time_of_the_witness_counts_once_where_processes_overlap() -> None:
    one = statement(1, own_spans_ns=[[10, 20], [50, 60]])
    other = statement(2, own_spans_ns=[[15, 25], [90, 99]])
    assert witness.own_wall_ns([one, other], 0, 80) == 15 + 10
    assert witness.own_wall_ns([one, other], 18, 92) == 7 + 10 + 2


@pytest.fixture(params=["with its descriptor", "without"])
def awaited(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A filter of system calls may refuse a descriptor of the process whose end is awaited."""

    def refused(pid: int) -> int:
        raise OSError(errno.ENOSYS, f"no descriptor of {pid}")

    if request.param == "without":
        monkeypatch.setattr("os.pidfd_open", refused)


@pytest.mark.usefixtures("awaited")
def test_a_program_that_ends_is_awaited(execution: Execution) -> None:
    with execution.timed():
        execution.tool(["/bin/sleep", "0.2"])
    assert execution.wall_ns > 200e6


@pytest.mark.usefixtures("awaited")
def test_a_program_that_hangs_is_ended(execution: Execution) -> None:
    before = descendants()
    running = execution.stage.start(Program(["/bin/sleep", "63"], execution.directory, PATHS, None))
    with pytest.raises(ProgramFailedError, match=r"still running after 1 s: .*sleep 63"):
        running.finish(1.0)
    assert descendants() <= before


def test_calls_are_counted_in_children_too(
    run_one: Any, tmp_path: Path, compile_c: Compile
) -> None:
    source = """
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <sys/wait.h>
    #include <unistd.h>
    int main(void) {
        char *p = mmap(0, 4096, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        int child = fork() == 0;
        for (int i = 0; i < 150; i++) madvise(p, 4096, MADV_DONTNEED);
        if (!child) wait(0);
        free(malloc(child + 1000));
        return 0;
    }"""
    row = run_one(compile_c(tmp_path / "calls", source, "-fno-builtin"), count_calls=True)
    assert row["syscalls"]["madvise"] == 300
    assert row["extra"]["processes"] == 2


def test_calls_are_counted_in_servers_of_another_account(built: Path, tmp_path: Path) -> None:
    row = programs.postgres.Postgres().run(
        CLEAN_ENVIRONMENT, tmp_path / "inputs", TINY, count_calls=True
    )
    assert row["syscalls"]["accept"] + row["syscalls"]["mmap"] > row["extra"]["processes"] > 3


def test_a_program_that_leaves_early_still_speaks(
    run_one: Any, tmp_path: Path, compile_c: Compile
) -> None:
    early = "#include <unistd.h>\n" + ALLOCATES.replace("return 0", "_exit(0)")
    proof.verify(run_one(compile_c(tmp_path / "early", early))["proof"], GLIBC)


def test_fixed_addresses_do_not_hide_who_serves(
    run_one: Any, tmp_path: Path, compile_c: Compile
) -> None:
    """The address of malloc is a stub in such a program; the file behind it is what counts."""
    taken = ALLOCATES.replace("return 0", "return (void *)malloc == 0")
    file = compile_c(tmp_path / "fixed", taken, "-no-pie", "-fno-pie", "-fno-builtin")
    proof.verify(run_one(file, allocator=OTHER)["proof"], OTHER)


# ---- what is refused


@pytest.mark.parametrize("flag", ["-static", "-static-pie"])
def test_static_program_is_refused(
    run_one: Any, tmp_path: Path, compile_c: Compile, flag: str
) -> None:
    file = compile_c(tmp_path / "static", ALLOCATES, flag)
    with pytest.raises(RefusedError, match="made no statement: is the program linked statically"):
        run_one(file, allocator=OTHER)


def test_library_without_malloc_is_refused(
    run_one: Any, tmp_path: Path, compile_c: Compile
) -> None:
    library = compile_c(tmp_path / "nothing.so", "int nothing;\n", "-shared", "-fPIC")
    impostor = peers.Allocator("impostor", library)
    row = run_one(compile_c(tmp_path / "plain", ALLOCATES), allocator=impostor)
    with pytest.raises(RefusedError, match=r"malloc is served by .*libc"):
        proof.verify(row["proof"], impostor)


def test_wrong_library_is_refused(run_one: Any, tmp_path: Path, compile_c: Compile) -> None:
    row = run_one(compile_c(tmp_path / "plain", ALLOCATES), allocator=OTHER)
    proof.verify(row["proof"], OTHER)
    with pytest.raises(RefusedError, match=r"malloc is served by .*libmimalloc"):
        proof.verify(row["proof"], GLIBC)


def test_program_with_a_malloc_of_its_own_is_refused(
    run_one: Any, tmp_path: Path, compile_c: Compile
) -> None:
    """Whether or not others see it: the preloaded library is there, complete and unused."""
    hidden = OWN_MALLOC.replace("VISIBILITY", '__attribute__((visibility("hidden")))')
    with pytest.raises(RefusedError, match="no part of it calls the malloc that others see"):
        run_one(compile_c(tmp_path / "hidden", hidden, "-fno-builtin"), allocator=OTHER)
    shown = OWN_MALLOC.replace("VISIBILITY", "")
    file = compile_c(tmp_path / "shown", shown, "-fno-builtin", "-rdynamic")
    with pytest.raises(RefusedError, match=r"malloc is served by .*shown"):
        proof.verify(run_one(file, allocator=OTHER)["proof"], OTHER)


def test_part_that_is_bound_elsewhere_is_refused(
    run_one: Any, tmp_path: Path, compile_c: Compile
) -> None:
    """RTLD_DEEPBIND gives a library another malloc than the rest of its process has."""
    part = compile_c(
        tmp_path / "part.so",
        "#include <stdlib.h>\nvoid *volatile keep; void work(void) { keep = malloc(100); }\n",
        "-shared", "-fPIC",
    )  # fmt: skip
    opener = """
    #define _GNU_SOURCE
    #include <dlfcn.h>
    #include <stdlib.h>
    int main(int c, char **v) {
        void *part = dlopen(v[1], RTLD_NOW | RTLD_DEEPBIND);
        if (c < 2 || part == 0) return 1;
        free(malloc(10));
        ((void (*)(void))dlsym(part, "work"))();
        return 0;
    }"""
    file = compile_c(tmp_path / "opener", opener)
    with pytest.raises(RefusedError, match=r"some calls go elsewhere: part\.so: malloc of libc"):
        run_one(file, str(part), allocator=OTHER)


def test_program_that_fails_or_is_killed_gives_no_row(
    run_one: Any, tmp_path: Path, compile_c: Compile
) -> None:
    with pytest.raises(MeasureError, match="status 3"):
        run_one(Path("/bin/sh"), "-c", "echo sorry >&2; exit 3")
    killed = compile_c(tmp_path / "killed", "#include <stdlib.h>\nint main(void) { abort(); }\n")
    with pytest.raises(MeasureError, match="status -6"):
        run_one(killed)


def statement(pid: int, **changes: Any) -> witness.Statement:
    """A sound statement, but for the changes."""
    files = {name: {"loader": "/a.so", "map": "/a.so"} for name in witness.FUNCTIONS}
    counter = {"counter": "n", "before": 1, "after": 2}
    fields: dict[str, Any] = {
        "pid": pid, "exe": f"/program{pid}", "peak_rss_bytes": 2, "end_rss_bytes": 1,
        "idle_rss_bytes": None, "strays": [], "importers": 1,
        "proof": {**files, "build_id": "00", "moved": counter},
        "own_spans_ns": [], "own_cpu_ns": 0, "own_minor_faults": 0, "own_major_faults": 0,
        "own_voluntary_switches": 0, "own_involuntary_switches": 0,
    }  # fmt: skip
    return witness.Statement(**{**fields, **changes})


def test_every_process_must_agree() -> None:
    main, child = statement(1), statement(2)
    witness.check([main, child], main)
    other = {**child.proof, "free": {"loader": "/b.so", "map": "/b.so"}}
    built_anew = {**child.proof, "build_id": "01"}
    still = {**main.proof, "moved": {"counter": "n", "before": 1, "after": 1}}
    for statements, complaint in (
        ([main, statement(2, proof=other)], "program2"),
        ([main, statement(2, proof=built_anew)], "program2"),
        ([main, statement(2, strays=["x: free of y"])], "x: free of y"),
        ([main, statement(2, importers=0)], "no part of it"),
        ([statement(1, proof=still), child], "n stood still"),
    ):
        with pytest.raises(RefusedError, match=complaint):
            witness.check(statements, statements[0])
    with pytest.raises(RefusedError, match="process 3 made no statement"):
        witness.main_of([main, child], 3)


# ---- nothing stays behind


@pytest.fixture
def interrupt() -> Iterator[Callable[[float], None]]:
    """Ctrl-C after so many seconds: to the process, so that its main thread is woken."""
    timers = []

    def after(seconds: float) -> None:
        timers.append(threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGINT]))
        timers[-1].start()

    yield after
    for timer in timers:
        timer.cancel()


def descendants() -> set[int]:
    """Living processes that this one started, by whatever way."""
    return set(process_tree(os.getpid())[1:])


def test_interrupted_command_is_ended(
    execution: Execution, interrupt: Callable[[float], None]
) -> None:
    before = descendants()
    interrupt(0.3)
    with pytest.raises(KeyboardInterrupt):
        execution.command(["/bin/sh", "-c", "sleep 61 & sleep 62"])
    assert descendants() <= before


def test_interrupted_server_is_ended(
    built: Path, tmp_path: Path, interrupt: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of its clients' work; its directory goes as well."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = descendants()
    interrupt(0.5)
    with pytest.raises(KeyboardInterrupt):
        programs.nginx.Nginx().run(CLEAN_ENVIRONMENT, tmp_path / "inputs", 20.0)
    assert descendants() <= before
    assert not list(tmp_path.glob("hakmem-bench-*"))


def test_interruption_while_a_program_starts_leaves_nothing(
    execution: Execution, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at the very moment when the process is there and nobody holds it yet."""
    before = descendants()
    popen = subprocess.Popen

    def interrupted(*words: Any, **settings: Any) -> Any:
        started = popen(*words, **settings)
        signal.raise_signal(signal.SIGINT)
        return started

    monkeypatch.setattr(subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        execution.command(["/bin/sleep", "63"])
    assert descendants() <= before


def test_another_account_needs_no_way_through_the_callers_folders(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The repository may lie below a folder that only its owner enters, such as /root."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    for name in ("LAUNCHER", "WITNESS"):
        copy = shutil.copy(getattr(programs.execution, name), private)
        monkeypatch.setattr(programs.execution, name, Path(copy))
    with tempfile.TemporaryDirectory() as base:
        run = Execution(CLEAN_ENVIRONMENT, Path(base))
        account = run.unprivileged()
        witness_file = run._variables({}, preloaded=True)["LD_PRELOAD"].split(":")[0]
        seen = run.tool(["/usr/bin/cksum", witness_file], account=account).stdout.split()[0]
    assert seen == run_alone(["/usr/bin/cksum", str(private / "libwitness.so")],
                             CLEAN_ENVIRONMENT, 60).split()[0].encode()  # fmt: skip


def test_server_that_refuses_to_start_is_reported(execution: Execution) -> None:
    with (
        pytest.raises(ProgramFailedError, match="status 7 at start"),
        execution.server(lambda port: ["/bin/sh", "-c", f"echo {port} >&2; exit 7"]),
    ):
        pass


def test_scaled_work_is_never_nothing() -> None:
    assert scaled(100, 0.5) == 50
    assert scaled(100, 1e-9) == 1
    assert scaled(100, 1e-9, least=7) == 7
