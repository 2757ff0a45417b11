"""CPython's own tests, every object a block of malloc's."""

import re

import pytest
from apprun.compare import Comparison, Outputs, Run

# Debian's interpreter: its own test package is at hand on every machine (libpython3.11-testsuite).
PYTHON = "/usr/bin/python3"
PYTHON_TESTS = {
    "python3": [
        "test_list",
        "test_dict",
        "test_set",
        "test_bytes",
        "test_array",
        "test_memoryview",
        "test_json",
        "test_re",
        "test_gc",
        "test_struct",
        "test_zlib",
        "test_itertools",
        "test_unicode",
    ],
    "python3 threads": ["test_thread", "test_threading"],
}
PYTHON_TESTS_IN_MODES = ["test_list", "test_dict", "test_json", "test_thread"]


def python_tests(compare: Comparison, name: str, tests: list[str]) -> None:
    def workload(run: Run) -> Outputs:
        # All of them whatever the share: each is about something else.
        chosen = tests[:1] if run.traced else tests
        words = [PYTHON, "-m", "unittest", "-v", *(f"test.{test}" for test in chosen)]
        environment = {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}
        # Standard error has a line for each test with its outcome. What thread tests print on
        # standard output tells of their timing.
        outcomes = run.command(words, environment=environment).stderr
        assert outcomes.splitlines()[-1].startswith(b"OK")
        outcomes = re.sub(rb" in [0-9.]+s\b", b" in TIME", outcomes)
        return {"outcomes": re.sub(rb"0x[0-9a-f]{6,}", b"ADDRESS", outcomes)}

    compare.commands(name, workload, what=f"{len(tests)} of its own tests, PYTHONMALLOC=malloc")


@pytest.mark.parametrize("name", PYTHON_TESTS)
def test_python(compare: Comparison, name: str) -> None:
    python_tests(compare, name, PYTHON_TESTS[name])


@pytest.mark.every_mode
def test_python_part(compare: Comparison) -> None:
    python_tests(compare, "python3, part", PYTHON_TESTS_IN_MODES)
