"""The documents that name a test for each claim: every test named is there, none is left out."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
DOCUMENTS = ("CONFORMANCE.md", "RELIABILITY.md")
STATES = ("proven", "partly", "not yet")
TEST_FILE = re.compile(r"(?P<path>[\w/.-]+\.(?:c|cc|py|txt))(?::(?P<name>\w+))?")
CTEST_NAME = re.compile(r"\w+(\.[\w*]+)*")


class Row:
    """One row of a table, by its column titles."""

    def __init__(self, document: str, number: int, cells: dict[str, str]) -> None:
        self.place = f"docs/{document}:{number}"
        self.cells = cells

    def tests(self) -> list[str]:
        return re.findall(r"`([^`]+)`", self.cells["Test"])


def rows_of(document: str, text: str) -> Iterator[Row]:
    titles: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            titles = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not titles:
            titles = cells
        elif not set(cells[0]) <= set("-: "):
            assert len(cells) == len(titles), f"docs/{document}:{number}: columns"
            yield Row(document, number, dict(zip(titles, cells, strict=True)))


def problem_with(test: str, ctest_names: set[str]) -> str | None:
    """Why the tests have no such thing; None when they do."""
    if found := TEST_FILE.fullmatch(test):
        file = TESTS / found["path"]
        if not file.is_file():
            return "no such file"
        name = found["name"]
        if name and not re.search(rf"\b{name}\b\s*\(", file.read_text(encoding="utf-8")):
            return "no such function"
        return None
    if not CTEST_NAME.fullmatch(test):
        return "neither a file of tests/ nor the name of a test"
    if any(fnmatchcase(name, test) or fnmatchcase(name, f"{test}.*") for name in ctest_names):
        return None
    return "ctest has no such test"


@pytest.fixture(scope="module")
def ctest_names() -> set[str]:
    build = os.environ.get("HAKMEM_BUILD", str(ROOT / "build/release"))
    command = ["ctest", "--test-dir", build, "--show-only=json-v1"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    names = {test["name"] for test in json.loads(shown)["tests"]}
    assert len(names) > 100, f"the tests of {build} are not configured"
    return names


def read(document: str) -> str:
    return (ROOT / "docs" / document).read_text(encoding="utf-8")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_test_named_exists(document: str, ctest_names: set[str]) -> None:
    rows = list(rows_of(document, read(document)))
    assert len(rows) > 40
    problems = []
    for row in rows:
        tests = row.tests()
        if not tests and row.cells.get("State") != "not yet":
            problems.append(f"{row.place}: names no test")
        for test in tests:
            if problem := problem_with(test, ctest_names):
                problems.append(f"{row.place}: `{test}`: {problem}")
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("test", "problem"),
    [
        ("api/test_sizes.c", None),
        ("api/test_sizes.c:free_preserves_errno", None),
        ("stress.early_late", None),
        ("api.sizes.libc", None),
        ("misuse.double_free_*", None),
        ("misuse.treble_free_*", "ctest has no such test"),
        ("api/test_sizes.c:free_preserves", "no such function"),
        ("api/test_none.c:main", "no such file"),
        ("api.size", "ctest has no such test"),
        ("somehow tested", "neither a file of tests/ nor the name of a test"),
    ],
)
def test_a_name_that_is_none_is_noticed(
    test: str, problem: str | None, ctest_names: set[str]
) -> None:
    assert problem_with(test, ctest_names) == problem


def test_a_claim_that_is_not_proven_says_what_is_missing() -> None:
    rows = list(rows_of("RELIABILITY.md", read("RELIABILITY.md")))
    wrong = [
        row.place
        for row in rows
        if row.cells["State"] not in STATES
        or (row.cells["State"] != "proven" and not row.cells["Missing"])
    ]
    assert not wrong


def test_a_row_without_a_test_and_a_torn_table_are_noticed() -> None:
    text = "| Case | Test |\n|---|---|\n| a | `x.y` |\n| b | none |\n\ntext | more\n"
    assert [row.tests() for row in rows_of("X.md", text)] == [["x.y"], []]
    with pytest.raises(AssertionError, match=r"docs/X\.md:3: columns"):
        list(rows_of("X.md", "| Case | Test |\n|---|---|\n| a |\n"))


def test_every_test_of_the_conformance_suite_has_a_row() -> None:
    named = {
        test for row in rows_of("CONFORMANCE.md", read("CONFORMANCE.md")) for test in row.tests()
    }
    missing = []
    for file in sorted((TESTS / "api").glob("test_*.c*")):
        functions = re.findall(r"\bcmocka_unit_test\((\w+)\)", file.read_text(encoding="utf-8"))
        path = file.relative_to(TESTS).as_posix()
        assert functions or path in {test.split(":")[0] for test in named}
        missing += [f"{path}:{name}" for name in functions if f"{path}:{name}" not in named]
    assert not missing, f"docs/CONFORMANCE.md has no row for {', '.join(missing)}"


def test_every_exported_name_of_malloc_is_in_the_table() -> None:
    lines = (TESTS / "abi/exports.txt").read_text(encoding="utf-8").splitlines()
    exported = {line for line in lines if line and not line.startswith("#")}
    assert "malloc" in exported
    named = set(re.findall(r"`(\w+)`", read("CONFORMANCE.md")))
    missing = {name for name in exported if not name.startswith("hakmem_")} - named
    assert not missing
