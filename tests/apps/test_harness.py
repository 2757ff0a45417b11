"""The harness must fail when it should: a proof or a comparison that cannot fail proves nothing."""

import ctypes
import signal
import sys
import time
from pathlib import Path

import pytest
from apprun import activity
from apprun.compare import GLIBC, Comparison, Outputs, Run, Variant, assert_same
from apprun.record import Recorder
from programs.process import ProgramFailedError, status_kib

from harness.processes import process_tree
from tests.patience import HANG_SECONDS

ECHO_SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    listener.accept()[0].close()
"""


@pytest.fixture
def without_malloc() -> Path:
    """A library that every program can load and that defines no malloc."""
    ctypes.CDLL("libz.so.1")
    maps = Path("/proc/self/maps").read_text().split()
    return Path(next(word for word in maps if "/libz.so" in word))


def with_library(compare: Comparison, library: Path, tmp_path: Path) -> Comparison:
    """The same comparison for another library, with figures kept apart."""
    return Comparison(
        base=compare.base,
        launcher=compare.launcher,
        library=library,
        subject=Variant("preload", proves=True),
        rounds=1,
        share=1,
        recorder=Recorder(tmp_path / "times.json", library),
        known={},
        keep=False,
    )


@pytest.mark.parametrize(("share", "traced", "done"), [(1, False, 13), (3, False, 5), (3, True, 2)])
def test_a_share_of_the_work_is_rounded_up(
    compare: Comparison, tmp_path: Path, share: int, traced: bool, done: int
) -> None:
    run = Run(GLIBC, tmp_path, compare.launcher, compare.library, share, traced)
    assert run.size(13, 2) == done


def serve(run: Run) -> Outputs:
    words = ["/usr/bin/python3", "-c", ECHO_SERVER]
    with run.server(lambda port: [*words, str(port)], stop_signal=signal.SIGTERM) as server:
        server.connect().close()
    return {}


def serve_until_error(run: Run) -> Outputs:
    words = ["/usr/bin/python3", "-c", ECHO_SERVER]
    with run.server(lambda port: [*words, str(port)]) as server:
        run.write("pid", str(server.pid).encode())
        raise KeyError("the test went wrong")


def show_hello(run: Run) -> Outputs:
    return {"stdout": run.command(["sh", "-c", "echo hello; ls -d /"]).stdout}


def test_live_proof_accepts_the_library(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        words = ["/usr/bin/python3", "-c", ECHO_SERVER]
        with run.server(lambda port: [*words, str(port)], stop_signal=signal.SIGKILL) as server:
            assert activity.prove_live(server.pid, run.library) > 4
            library = activity.real(run.library)
            seen = {b.name for b in activity.live_bindings(server.pid) if b.target == library}
            assert seen >= activity.CORE_NAMES
        return {}

    # The server knows no orderly end: that it was killed is noticed too.
    with pytest.raises(ProgramFailedError, match="status -9 after SIGKILL"):
        compare.run("server", compare.subject, workload)


def test_live_proof_rejects_a_library_without_malloc(
    compare: Comparison, without_malloc: Path, tmp_path: Path
) -> None:
    other = with_library(compare, without_malloc, tmp_path)
    with pytest.raises(activity.NotActiveError, match=r"malloc of \S+ resolves to \S*libc"):
        other.run("server", other.subject, serve)


def test_live_proof_rejects_an_absent_library(compare: Comparison) -> None:
    with pytest.raises(activity.NotActiveError, match="is not mapped"):
        compare.run("server", Variant("nothing preloaded", proves=False), lambda run: prove(run))


def prove(run: Run) -> Outputs:
    words = ["/usr/bin/python3", "-c", ECHO_SERVER]
    with run.server(lambda port: [*words, str(port)]) as server:
        run.prove(server)
    return {}


def test_traced_proof_accepts_the_library(compare: Comparison) -> None:
    run, outputs = compare.run("hello", compare.subject, show_hello, traced=True)
    assert outputs["stdout"] == b"hello\n/\n"
    assert run.proofs == 2, "the shell and its child"


def test_traced_proof_rejects_a_library_without_malloc(
    compare: Comparison, without_malloc: Path, tmp_path: Path
) -> None:
    other = with_library(compare, without_malloc, tmp_path)
    with pytest.raises(activity.NotActiveError, match=r"malloc of \S+ resolves to \S*libc"):
        other.run("hello", other.subject, show_hello, traced=True)


def test_traced_proof_rejects_an_absent_library(compare: Comparison) -> None:
    with pytest.raises(activity.NotActiveError, match="resolves to"):
        compare.run("hello", GLIBC, show_hello, traced=True)


def test_comparison_notices_one_changed_byte(compare: Comparison, tmp_path: Path) -> None:
    def workload(run: Run) -> Outputs:
        return {"data": b"\x00" * 1000 + (b"1" if run.variant.proves else b"2")}

    other = with_library(compare, compare.library, tmp_path)
    with pytest.raises(AssertionError, match="first difference at byte 1000"):
        other.servers("changed", workload, what="-")


def test_comparison_notices_a_missing_output() -> None:
    with pytest.raises(AssertionError, match="became"):
        assert_same("program", {"a": b"", "b": b""}, {"a": b""})


def test_a_failed_status_is_noticed(compare: Comparison) -> None:
    with pytest.raises(ProgramFailedError, match=r"status 3 instead of 0: cd .* sh -c 'exit 3'"):
        compare.run("exit", GLIBC, lambda run: {"": run.command(["sh", "-c", "exit 3"]).stdout})


def test_a_crash_is_noticed(compare: Comparison) -> None:
    with pytest.raises(ProgramFailedError, match="status -11"):
        compare.run(
            "crash", GLIBC, lambda run: {"": run.command(["sh", "-c", "kill -SEGV $$"]).stdout}
        )


def test_a_hang_is_ended_with_its_children(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        run.command(["sh", "-c", "sleep 1000 & wait"], timeout_s=0.3)
        return {}

    with pytest.raises(ProgramFailedError, match="still running after"):
        compare.run("hang", GLIBC, workload)
    assert descendants() == set()


def test_a_server_dies_when_its_test_fails(compare: Comparison) -> None:
    with pytest.raises(KeyError):
        compare.run("server", GLIBC, serve_until_error)
    assert not Path("/proc", (compare.base / "work/pid").read_text()).exists()


def test_a_server_dies_with_the_launcher(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        words = ["/usr/bin/python3", "-c", ECHO_SERVER]
        with run.server(lambda port: [*words, str(port)]) as server:
            server.running._launcher.kill()
            deadline = time.monotonic() + HANG_SECONDS
            while status_kib(server.pid, "VmRSS") and time.monotonic() < deadline:
                time.sleep(0.01)
            assert status_kib(server.pid, "VmRSS") == 0
            raise KeyError("done")

    with pytest.raises(KeyError):
        compare.run("server", GLIBC, workload)


def test_peak_memory_is_the_programs_own(compare: Comparison) -> None:
    ballast = bytearray(200 << 20)
    run, _ = compare.run("true", GLIBC, lambda run: {"": run.command(["true"]).stdout})
    assert 200 < run.peak_kib < 20_000, f"{run.peak_kib} KiB, of a caller with {len(ballast)} bytes"
    big = "x = bytearray(64 << 20)"
    run, _ = compare.run(
        "big", GLIBC, lambda run: {"": run.command([sys.executable, "-c", big]).stdout}
    )
    assert run.peak_kib > 64 << 10


def test_figures_of_another_library_are_dropped(tmp_path: Path, library: Path) -> None:
    path = tmp_path / "times.json"
    first = Recorder(path, library)
    first.begin("program", "glibc", "-")
    first.add("program", "glibc", 1.25, 1.0, 100)
    first.save()
    assert Recorder(path, library).content == first.content
    assert Recorder(path, Path("/proc/self/exe").resolve()).content["programs"] == {}


def descendants() -> set[int]:
    """Living processes that this test run has started."""
    own = int(Path("/proc/self").resolve().name)
    return set(process_tree(own)) - {own}
