"""A plug-in in C++ brings the runtime into a program in C, when hakmem has long been loaded."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.abi.support import CC, CXX, ROOT, run

SOURCE = ROOT / "tests/abi/plugin.cc"
CASES = re.findall(r'^extern "C" int (\w+)\(', SOURCE.read_text(encoding="utf-8"), re.MULTILINE)
CTYPES = "import ctypes, sys; sys.exit(getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])() != 0)"
NO_RUNTIME = (
    "hakmem: operator new failed, and no C++ runtime was found to throw std::bad_alloc with\n"
)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("host") / "host"
    run(CC, "-O2", "-o", program, ROOT / "tests/abi/plugin_host.c", "-ldl")
    return program


def built_plugin(directory: Path, *options: str) -> Path:
    plugin = directory / "plugin.so"
    run(CXX, "-std=gnu++17", "-O2", "-shared", "-fPIC", *options, "-o", plugin, SOURCE)
    return plugin


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_plugin(tmp_path_factory.mktemp("plugin"))


def allocator(build: Path, name: str) -> dict[str, str]:
    """What glibc does is the reference."""
    return {"LD_PRELOAD": str(build / "libhakmem.so")} if name == "hakmem" else {}


@pytest.mark.parametrize("name", ["hakmem", "glibc"])
@pytest.mark.parametrize("case", CASES)
def test_operators_in_a_plugin_of_a_c_program(
    build: Path, host: Path, plugin: Path, case: str, name: str
) -> None:
    run(host, plugin, case, **allocator(build, name))


@pytest.mark.parametrize("case", ["without_handler", "nothrow_handler_may_throw"])
def test_operators_in_an_extension_of_python(build: Path, plugin: Path, case: str) -> None:
    run(sys.executable, "-c", CTYPES, plugin, case, **allocator(build, "hakmem"))


def test_plugin_with_its_own_runtime(build: Path, host: Path, tmp_path: Path) -> None:
    """It shows nobody what it has: nothing is thrown, and nothrow forms return NULL."""
    plugin = built_plugin(tmp_path, "-static-libstdc++", "-static-libgcc")
    run(host, plugin, "nothrow_without_handler", **allocator(build, "hakmem"))
    done = subprocess.run(
        [host, plugin, "without_handler"], capture_output=True, text=True,
        env={**os.environ, **allocator(build, "hakmem")},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (-signal.SIGABRT, NO_RUNTIME)


def test_all_cases_are_known() -> None:
    assert len(CASES) == 9
