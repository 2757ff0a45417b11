"""One workload, run under several mallocs, must give the same bytes every time."""

import contextlib
import difflib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from programs.process import Account, Finished, Program, Running, Server, serving
from programs.stage import Stage, nobody

from tests.patience import HANG_SECONDS

from . import activity
from .record import Recorder

Outputs = Mapping[str, bytes]
DIFFERENCE_LINES_MAX = 30

# Nothing of the caller's environment reaches a program: results must not depend on it.
BASE_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
}


@dataclass(frozen=True)
class Variant:
    """The malloc that a run uses, and how."""

    label: str
    preload: str | None = None
    proves: bool = False
    environment: Mapping[str, str] = field(default_factory=dict)


GLIBC = Variant("glibc")
# libc itself, preloaded, goes before a program's own allocator library.
FORCED_GLIBC = Variant("glibc", preload="libc.so.6")
AS_SHIPPED = Variant("as shipped")


class Run:
    """One execution of a workload: a fresh directory, always at the same path, and one malloc."""

    def __init__(
        self, variant: Variant, base: Path, launcher: Path, library: Path, share: int, traced: bool
    ) -> None:
        self.variant = variant
        self.library = library
        self.share = share
        self.traced = traced
        self.stage = Stage(base, launcher)
        self.directory = self.stage.directory
        self.wall_s = 0.0
        self.cpu_s = 0.0
        self.peak_kib = 0
        self.proofs = 0
        self._trace = base / "trace"
        self._trace.mkdir(mode=0o755)

    def size(self, full: int, traced: int) -> int:
        """How much to do: a traced run shows which malloc is bound, and can be short; the others do
        their share, rounded up."""
        return traced if self.traced else -(-full // self.share)

    def write(self, name: str, data: bytes) -> Path:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def unprivileged(self) -> Account | None:
        """An account for programs that refuse to run as root; hands the run's directory to it."""
        account = nobody()
        if account is None:
            return None
        for directory in (self.directory, self._trace):
            os.chown(directory, account.uid, account.gid)
        # The library may lie below a directory that only root can enter.
        copy = self.stage.scratch / Path(activity.real(self.library)).name
        if not copy.exists():
            shutil.copy(self.library, copy)
            copy.chmod(0o755)
        self.library = copy
        return account

    def command(
        self,
        words: Sequence[str],
        *,
        stdin: bytes | None = None,
        measured: bool = True,
        status: int = 0,
        timeout_s: float = HANG_SECONDS,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
        account: Account | None = None,
    ) -> Finished:
        """Run a program under the malloc of this run; `measured` adds it to the run's figures."""
        running = self.stage.start(self._program(words, environment, directory, account), stdin)
        done = self.stage.finish(running, status=status, timeout_s=timeout_s)
        if measured:
            self.wall_s += done.usage.wall_s
            self.cpu_s += done.usage.cpu_s
            self.peak_kib = max(self.peak_kib, done.usage.peak_kib)
        return done

    def tool(
        self, words: Sequence[str], *, stdin: bytes | None = None, status: int = 0
    ) -> Finished:
        """Run a helper on the system's own malloc: a client or a setting-up step."""
        program = Program(words, self.directory, self._environment(preloaded=False))
        running = self.stage.start(program, stdin)
        return self.stage.finish(running, status=status, timeout_s=HANG_SECONDS)

    @contextlib.contextmanager
    def server(
        self,
        words: Callable[[int], Sequence[str]],
        *,
        stop_signal: signal.Signals = signal.SIGTERM,
        environment: Mapping[str, str] | None = None,
        account: Account | None = None,
    ) -> Iterator[Server]:
        """A server under the malloc of this run; `words` gets the port it shall listen on.

        When the block ends well, every process of the server has been shown to use the library.
        """

        def start(port: int) -> Running:
            return self.stage.start(self._program(words(port), environment, None, account))

        with serving(start, stop_signal) as server:
            yield server
            if self.variant.proves:
                self.prove(server)
            self.peak_kib = max(self.peak_kib, server.peak_kib())
        if server.usage is not None:
            self.cpu_s += server.usage.cpu_s

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Adds the duration of the block, in which clients load a server, to the wall time."""
        start_s = time.monotonic()
        yield
        self.wall_s += time.monotonic() - start_s

    def prove(self, server: Server) -> None:
        """Every living process of the server calls the library's malloc."""
        self.proofs += activity.prove_live(server.pid, self.library)
        for pid in server.processes()[1:]:
            # A worker may end at any moment.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                self.proofs += activity.prove_live(pid, self.library)

    def close(self) -> None:
        """Check the loader's record, if there is one."""
        if self.traced:
            self.proofs += activity.prove_traced(self._trace, self.library)

    def _environment(self, preloaded: bool) -> dict[str, str]:
        environment = dict(BASE_ENVIRONMENT, HOME=str(self.directory), TMPDIR=str(self.directory))
        if preloaded:
            environment.update(self.variant.environment)
            if self.variant.proves:
                environment["LD_PRELOAD"] = str(self.library)
            elif self.variant.preload:
                environment["LD_PRELOAD"] = self.variant.preload
        return environment

    def _program(
        self,
        words: Sequence[str],
        environment: Mapping[str, str] | None,
        directory: Path | None,
        account: Account | None,
    ) -> Program:
        variables = self._environment(preloaded=True)
        variables.update(environment or {})
        if self.traced:
            variables.update(activity.trace_environment(self._trace))
        return Program(words, directory or self.directory, variables, account)


Workload = Callable[[Run], Outputs]


def differences(expected: bytes, actual: bytes) -> str:
    """Where two outputs part, for a reader."""
    text = expected + actual
    if text.isascii() and b"\0" not in text:
        lines = difflib.unified_diff(
            expected.decode().splitlines(), actual.decode().splitlines(), lineterm="", n=1
        )
        return "\n".join(line for line, _ in zip(lines, range(DIFFERENCE_LINES_MAX), strict=False))
    common = min(len(expected), len(actual))
    first = next((i for i in range(common) if expected[i] != actual[i]), common)
    return (
        f"{len(expected)} and {len(actual)} bytes, first difference at byte {first}: "
        f"{expected[first : first + 32]!r} and {actual[first : first + 32]!r}"
    )


def assert_same(what: str, expected: Outputs, actual: Outputs) -> None:
    if set(expected) != set(actual):
        raise AssertionError(f"{what}: outputs {sorted(expected)} became {sorted(actual)}")
    for key, value in expected.items():
        if value != actual[key]:
            raise AssertionError(f"{what}: '{key}' differs\n{differences(value, actual[key])}")


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Until a server has done what takes it a while: `what` ends the sentence of the failure."""
    deadline = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {HANG_SECONDS:.0f} s: {what}"
        time.sleep(0.01)


class Comparison:
    """Runs a workload on the baseline and on the library under test, and compares."""

    def __init__(
        self,
        base: Path,
        launcher: Path,
        library: Path,
        subject: Variant,
        rounds: int,
        share: int,
        recorder: Recorder,
        known: dict[str, Outputs],
        keep: bool,
    ) -> None:
        self.base = base
        self.launcher = launcher
        self.library = library
        self.subject = subject
        self.rounds = rounds
        self.share = share
        self.recorder = recorder
        self.known = known
        self.keep = keep

    def commands(self, name: str, workload: Workload, *, what: str) -> None:
        """A workload of programs that end: one more run, traced by the loader, is the proof."""
        self.run(name, self.subject, workload, traced=True)
        self._compare(name, workload, (GLIBC,), what)

    def servers(
        self, name: str, workload: Workload, *, what: str, baselines: Sequence[Variant] = (GLIBC,)
    ) -> None:
        """A workload with a server, which proves itself while it lives."""
        self._compare(name, workload, baselines, what)

    def run(
        self, name: str, variant: Variant, workload: Workload, traced: bool = False
    ) -> tuple[Run, Outputs]:
        """Run the workload once, in an empty directory that is removed afterwards."""
        for leftover in ("work", "scratch", "trace"):
            shutil.rmtree(self.base / leftover, ignore_errors=True)
        run = Run(variant, self.base, self.launcher, self.library, self.share, traced)
        try:
            outputs = workload(run)
            run.close()
        except AssertionError as error:
            error.add_note(f"{name} on {variant.label}{', traced' if traced else ''}")
            raise
        if not self.keep:
            for leftover in ("work", "scratch", "trace"):
                shutil.rmtree(self.base / leftover, ignore_errors=True)
        return run, outputs

    def _compare(
        self, name: str, workload: Workload, baselines: Sequence[Variant], what: str
    ) -> None:
        # The baseline's outputs and times hold for every mode of the library.
        variants = [self.subject] if name in self.known else [*baselines, self.subject]
        for variant in variants:
            self.recorder.begin(name, variant.label, what)
        for round_number in range(self.rounds):
            # The order turns round, so that a drift of the machine favours nobody.
            order = variants if round_number % 2 == 0 else variants[::-1]
            for variant in order:
                run, outputs = self.run(name, variant, workload)
                self.recorder.add(name, variant.label, run.wall_s, run.cpu_s, run.peak_kib)
                expected = self.known.setdefault(name, outputs)
                assert_same(f"{name} on {variant.label}", expected, outputs)
