"""gcc and g++ on this project's own sources and on a translation unit with heavy templates."""

import shutil
from pathlib import Path

import pytest
from apprun.compare import Comparison, Outputs, Run
from programs.layout import INPUTS

REPOSITORY = Path(__file__).resolve().parents[2]
CONTAINERS = INPUTS / "containers.cc"
SOURCES_MAX = 16


@pytest.fixture(scope="session")
def own_sources(base: Path) -> Path:
    """A copy of the project: nobody edits it between two runs that are compared."""
    copy = base / "project"
    for folder in ("src", "include"):
        shutil.copytree(REPOSITORY / folder, copy / folder)
    return copy


@pytest.mark.every_mode
def test_gcc(compare: Comparison, own_sources: Path) -> None:
    every = (own_sources / "src").glob("*/*.c")
    sources = sorted(every, key=lambda source: source.stat().st_size)[-SOURCES_MAX:]
    assert len(sources) == SOURCES_MAX, "the project has fewer sources"

    def workload(run: Run) -> Outputs:
        outputs = {}
        for source in sources[: run.size(len(sources), 2)]:
            target = f"{source.parent.name}-{source.stem}.o"
            words = ["gcc", "-std=gnu11", "-O2", "-g", "-fPIC", "-ftls-model=initial-exec", "-w"]
            words += ["-D_GNU_SOURCE", "-DHAKMEM_CHECKS=1", '-DHAKMEM_VERSION="0"']
            words += ['-DHAKMEM_LIBRARY_TO_PROFILES="profiles"', '-DHAKMEM_PROFILES="/profiles"']
            words += [f"-I{own_sources / 'src'}", f"-I{own_sources / 'include'}"]
            run.command([*words, "-c", str(source), "-o", target])
            outputs[target] = (run.directory / target).read_bytes()
        return outputs

    compare.commands("gcc", workload, what="the project's largest C sources, objects compared")


def test_gxx(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        source = run.write("unit.cc", CONTAINERS.read_bytes())
        if run.traced:
            source.write_text("#include <string>\nint main() { return std::string().size(); }\n")
        # Link-time optimisation reads and writes whole programs inside the linker's plugin; its
        # sections have random names unless told.
        compiler = ["g++", "-std=c++17", "-O1", "-g", "-flto", "-frandom-seed=1"]
        run.command([*compiler, "-ffat-lto-objects", "-c", "unit.cc", "-o", "unit.o"])
        run.command([*compiler, "-flto-partition=one", "unit.o", "-o", "program"])
        return {
            "unit.o": (run.directory / "unit.o").read_bytes(),
            "program": (run.directory / "program").read_bytes(),
            "stdout": run.command(["./program"]).stdout,
        }

    compare.commands("g++", workload, what="templates, link-time optimisation, the program itself")
