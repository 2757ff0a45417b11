"""Fixtures for running real programs under a preloaded malloc.

The library comes from HAKMEM_LIBRARY; HAKMEM_* options of the caller are passed on to the programs.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
# The benchmark's real programs: processes, servers, clients and inputs are shared with it.
sys.path.insert(0, str(REPOSITORY / "bench"))

from apprun import activity  # noqa: E402
from apprun.compare import Comparison, Outputs, Run, Variant  # noqa: E402
from apprun.record import Recorder  # noqa: E402
from programs.layout import LAUNCHER_SOURCE  # noqa: E402

# What each mode adds to a program's environment; "checked" is the default one with internal checks.
MODES: dict[str, dict[str, str]] = {
    "fast": {},
    "lean": {"HAKMEM_MODE": "lean"},
    "hardened": {"HAKMEM_MODE": "hardened"},
    "research": {"HAKMEM_MODE": "research"},
    "checked": {"HAKMEM_CHECK": "1"},
}


def library_path() -> Path:
    default = REPOSITORY / "build" / "release" / "libhakmem.so"
    return Path(os.environ.get("HAKMEM_LIBRARY", default)).absolute()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("real programs")
    group.addoption(
        "--rounds", type=int, default=1, help="interleaved runs of each program (default 1)"
    )
    group.addoption(
        "--share",
        type=int,
        default=1,
        metavar="N",
        help="each program does an Nth of its work (default 1: all of it)",
    )
    group.addoption(
        "--modes",
        default=",".join(MODES),
        help="modes of the library to run in; all but 'fast' run the tests marked every_mode",
    )
    group.addoption(
        "--times",
        type=Path,
        default=REPOSITORY / "build" / "apps-times.json",
        help="where the figures go",
    )
    group.addoption(
        "--no-times",
        dest="times",
        action="store_const",
        const=None,
        help="keep no figures: beside other tests they mean nothing",
    )
    group.addoption(
        "--keep", action="store_true", help="keep the directory of the last run, and print it"
    )


def pytest_configure(config: pytest.Config) -> None:
    # Ended from outside, it still removes its directory and writes the figures it has.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    config.addinivalue_line("markers", "every_mode: runs in every mode of the library")
    library = library_path()
    if not library.is_file():
        raise pytest.UsageError(f"no library at {library}: run 'make lib' or set HAKMEM_LIBRARY")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with the parameter `mode` runs in the default mode, a marked one in all."""
    if "mode" not in metafunc.fixturenames:
        return
    # Only this library has modes; another one, measured for comparison, runs as it is.
    has_modes = "hakmem_version" in activity.exported_names(activity.real(library_path()))
    every = has_modes and metafunc.definition.get_closest_marker("every_mode") is not None
    metafunc.parametrize("mode", list(MODES) if every else ["fast"])


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out the modes that were not asked for."""
    chosen = set(config.getoption("--modes").split(","))
    if not chosen <= set(MODES):
        raise pytest.UsageError(f"unknown modes: {', '.join(sorted(chosen - set(MODES)))}")
    left_out = [item for item in items if mode_of(item) not in chosen]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if mode_of(item) in chosen]


def mode_of(item: pytest.Item) -> str:
    """The mode that a test runs in; those of the harness itself belong to the default one."""
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get("mode", "fast")) if callspec else "fast"


@pytest.fixture(scope="session")
def library() -> Path:
    return library_path()


@pytest.fixture(scope="session")
def base(request: pytest.FixtureRequest) -> Iterator[Path]:
    """The directory of the whole session; other accounts may enter it."""
    directory = Path(tempfile.mkdtemp(prefix="hakmem-apps-"))
    directory.chmod(0o755)
    yield directory
    if request.config.getoption("--keep"):
        print(f"\nkept: {directory}")
    else:
        shutil.rmtree(directory)


@pytest.fixture(scope="session")
def launcher(base: Path) -> Path:
    """The launcher, compiled: the compiler is one of the programs under test and thus installed."""
    target = base / "launch"
    words = ["gcc", "-std=gnu11", "-O2", "-o", str(target), str(LAUNCHER_SOURCE)]
    subprocess.run(words, check=True)
    return target


@pytest.fixture(scope="session")
def recorder(request: pytest.FixtureRequest, library: Path) -> Iterator[Recorder]:
    recorder = Recorder(request.config.getoption("--times"), library)
    yield recorder
    recorder.save()


@pytest.fixture(scope="session")
def known() -> dict[str, Outputs]:
    """What each program gave on its baseline, once a session."""
    return {}


@pytest.fixture
def compare(
    request: pytest.FixtureRequest,
    base: Path,
    launcher: Path,
    library: Path,
    recorder: Recorder,
    known: dict[str, Outputs],
    mode: str,
) -> Comparison:
    label = "preload" if mode == "fast" else f"preload:{mode}"
    options = {
        name: value
        for name, value in os.environ.items()
        if name.startswith("HAKMEM_") and name != "HAKMEM_LIBRARY"
    }
    subject = Variant(label, proves=True, environment=options | MODES[mode])
    comparison = Comparison(
        base=base,
        launcher=launcher,
        library=library,
        subject=subject,
        rounds=request.config.getoption("--rounds"),
        share=request.config.getoption("--share"),
        recorder=recorder,
        known=known,
        keep=request.config.getoption("--keep"),
    )
    if mode != "fast":
        require_mode(comparison, mode)
    return comparison


def require_mode(comparison: Comparison, mode: str) -> None:
    """A mode that the library does not take on would pass every test without being tested."""

    def workload(run: Run) -> Outputs:
        return {"stderr": run.command(["true"], environment={"HAKMEM_VERBOSE": "1"}).stderr}

    _, outputs = comparison.run(f"mode {mode}", comparison.subject, workload)
    taken = {tuple(line.split()[1:3]) for line in outputs["stderr"].decode().splitlines()}
    for variable, value in MODES[mode].items():
        wanted = (variable.removeprefix("HAKMEM_").lower(), value)
        assert wanted in taken, f"{wanted} is not in effect:\n{outputs['stderr'].decode()}"
