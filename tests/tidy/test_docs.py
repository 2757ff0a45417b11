"""The tables of src/config as Python reads them, and the documents derived from them."""

from __future__ import annotations

import math
import re
import subprocess
from pathlib import Path

import gen_docs
import pytest

from hakmem.cli import make_parser
from hakmem.manual import read_verbs, roff
from hakmem.options import read_counters, read_options
from hakmem.project import find_project
from hakmem.tune.format import read_format
from harness.figures import geometric_mean
from harness.report import results, standing

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ROOT / "src/config/options.def"
COUNTERS = ROOT / "src/config/counters.def"

PRINT_ROWS = """
#include <stdio.h>
#include "config/options.h"
#define KIB 1024ull
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)
int main(void) {
#define OPTION(name, type, initial, min, max, unit, when, help) \\
    printf("%s|%s|%llu|%llu|%s|%s|%s\\n", #name, #type, (unsigned long long)(min), \\
           (unsigned long long)(max), unit, #when, help);
#define CHOICE(option, name, number, help) printf("%s=%s=%d\\n", #option, #name, number);
#define MODE(mode, option, value) \\
    printf("%s:%s:%llu\\n", #mode, #option, (unsigned long long)(value));
#include "config/options.def"
}
"""


def test_python_reads_what_the_compiler_reads(tmp_path: Path) -> None:
    source, program = tmp_path / "print.c", tmp_path / "print"
    source.write_text(PRINT_ROWS, encoding="utf-8")
    subprocess.run(["cc", "-I", ROOT / "src", "-o", program, source], check=True)
    seen = subprocess.run([program], check=True, capture_output=True, text=True).stdout
    table = read_options(OPTIONS)
    expected = [
        f"{o.name}|{o.type}|{o.min}|{o.max}|{o.unit}|{o.when}|{o.help}" for o in table.options
    ]
    expected += [f"{o.name}={c.name}={c.number}" for o in table.options for c in o.choices]
    expected += [f"{p.mode}:{p.option}:{p.value}" for p in table.presets]
    assert sorted(seen.splitlines()) == sorted(expected)


def test_every_row_reaches_the_documents() -> None:
    table, counters = read_options(OPTIONS), read_counters(COUNTERS)
    assert len(table.options) > 20
    page = gen_docs.options_page(table, counters)
    manual = gen_docs.manual_page(table, "1.2.3")
    for option in table.options:
        assert f"\n| `{option.environment}` |" in page
        assert f"\n.B {option.environment}\n" in manual
        for choice in option.choices:
            assert f"\n| `{choice.name}` | {choice.help} |" in page
    for preset in table.presets:
        assert f"\n| `{preset.option}` |" in page.split("## What the modes preset")[1]
    for counter in counters:
        assert f"\n| `{counter.name}` | {counter.kind.lower()} |" in page


def test_every_verb_reaches_the_manual_and_the_completion() -> None:
    verbs = read_verbs(make_parser())
    assert {"run", "top", "inspect", "export", "doctor"} < {verb.name for verb in verbs}
    manual = gen_docs.manual_page(read_options(OPTIONS), "1.2.3")
    for verb in verbs:
        assert f"\n.B hakmem {roff(verb.name)}\n" in manual
        section = manual.partition(f"\n.SS hakmem {roff(verb.name)}\n")[2].partition("\n.SS ")[0]
        for option in verb.options:
            assert all(f"\\fB{roff(flag)}\\fR" in section for flag in option.flags)
            assert roff(option.help) in section
    assert "%(" not in manual and "%%" not in manual


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["hakmem", "doc"], ["doctor"]),
        (["hakmem", "top", "--in"], ["--interval"]),
        (["hakmem", "export", "--"], ["--help", "--json"]),
        (["hakmem", "top", "nothing-like-it"], []),
    ],
)
def test_completion_offers_what_fits(typed: list[str], offered: list[str]) -> None:
    words = " ".join(f"'{word}'" for word in typed)
    script = f"""
        source {ROOT}/docs/hakmem.bash
        compopt() {{ :; }}  # works only while readline completes
        COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}
        _hakmem; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    done = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.split() == offered and done.stderr == ""


def test_numbers_are_shown_as_users_write_them() -> None:
    table = read_options(OPTIONS)
    option = table.find("cache_heap_bytes")
    assert option is not None
    shown = {value: gen_docs.show(option, value) for value in (0, 1023, 1024, 1536, 3 << 20)}
    assert shown == {0: "0", 1023: "1023", 1024: "1K", 1536: "1536", 3 << 20: "3M"}


def test_documents_know_how_many_size_classes_there_are() -> None:
    told = []
    for name in ("OBSERVING", "PROFILES"):
        text = (ROOT / f"docs/{name}.md").read_text(encoding="utf-8")
        told += re.findall(r"only classes with slabs, at most (\d+)|[aA]t most (\d+) classes", text)
    most = read_format(find_project()).classes_max
    assert [int(one or other) for one, other in told] == [most] * 3


def test_stale_document_is_noticed_and_renewed(tmp_path: Path) -> None:
    # The generator finds the tree from its own path, so this tree has a copy of it.
    (tmp_path / "docs").mkdir()
    (tmp_path / "tools").mkdir()
    for name in ("src", "include", "CMakeLists.txt", "tools/hakmem"):
        (tmp_path / name).symlink_to(ROOT / name)
    script = tmp_path / "tools/gen_docs.py"
    script.write_text((ROOT / "tools/gen_docs.py").read_text(encoding="utf-8"), encoding="utf-8")
    generate = ["python3", str(script)]

    assert subprocess.run([*generate, "--check"], capture_output=True).returncode == 1
    assert subprocess.run(generate, capture_output=True).returncode == 0
    assert subprocess.run([*generate, "--check"], capture_output=True).returncode == 0
    page = tmp_path / "docs/OPTIONS.md"
    page.write_text(page.read_text(encoding="utf-8").replace("500", "501"), encoding="utf-8")
    stale = subprocess.run([*generate, "--check"], capture_output=True, text=True)
    assert stale.returncode == 1
    assert stale.stderr == "docs/OPTIONS.md is out of date: run make docs\n"


def test_every_declaration_reaches_the_library_page() -> None:
    header = (ROOT / "include/hakmem.h").read_text(encoding="utf-8")
    page = gen_docs.library_page(header, "1.2.3")
    names = re.findall(r"^\w[\w *]*\b(hakmem_\w+)\(", header, re.MULTILINE)
    assert len(names) > 3
    synopsis, description = page.split(".SH DESCRIPTION")
    for name in names:
        assert f"{name}(" in synopsis
        assert f"\n.B {name}()\n" in description
    assert "#if" not in page


@pytest.mark.parametrize("name", ["hakmem.1", "hakmem.3"])
def test_manual_pages_are_valid_roff(name: str) -> None:
    page = ROOT / "docs" / name
    command = ["groff", "-man", "-Tutf8", "-ww", "-z", str(page)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    assert said == ""


def test_the_readmes_modes_are_those_of_the_scorecard() -> None:
    """Its table, and the widest rows named below it, by the results that the scorecard is of."""
    card = (ROOT / "docs/SCORECARD.md").read_text(encoding="utf-8")
    folders = re.findall(r"`(bench/results/\S+)`", card.partition("\n## Targets")[0])
    measured = results.load(ROOT / folders[0], newer=[ROOT / each for each in folders[1:]])
    real = [case.name for case in measured.cases if case.group == "real"]

    def ratios(allocator: str, what: str) -> list[float]:
        medians = [standing.medians(measured, case, what) for case in real]
        return [each[allocator] / each["glibc"] for each in medians]

    means = {
        mode: tuple(f"{geometric_mean(ratios(name, what)):.2f}" for what in ("memory", "time"))
        for mode, name in (("fast", "hakmem"), ("lean", "hakmem_lean"),
                           ("hardened", "hakmem_hardened"))
    }  # fmt: skip
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    shown = re.findall(r"^\| `(\w+)` \|.*\| ([\d.]+) \| ([\d.]+) \|$", readme, re.MULTILINE)
    assert {mode: (memory, time) for mode, memory, time in shown} == means
    # "At most" is not rounded down.
    widest = {name: f"{math.ceil(100 * max(ratios(name, 'memory'))) / 100:.2f}"
              for name in ("hakmem_lean", "hakmem")}  # fmt: skip
    text = " ".join(readme.split())
    assert f"means over {len(real)} real programs" in text
    assert "`lean` takes at most {hakmem_lean} of".format(**widest) in text
    assert "in a row, `fast` {hakmem}.".format(**widest) in text
    (told,) = re.findall(r"real programs, against glibc \|.*\| ([\d.]+)x against glibc", card)
    assert f"{float(told):.2f}" == means["fast"][0]


def test_each_row_that_a_peer_wins_has_its_cause() -> None:
    """GAPS names every row that the scorecard lists as more than 5 % behind; what is said there of
    the time of real programs is of all of them."""
    card = (ROOT / "docs/SCORECARD.md").read_text(encoding="utf-8")
    gaps = (ROOT / "docs/GAPS.md").read_text(encoding="utf-8")
    for what, title in (("time", "## Time"), ("memory", "## Memory")):
        table = card.partition(f"## Where hakmem is not first in {what}")[2].partition("\n## ")[0]
        behind = re.findall(r"^\| (\S+) \| (\w+) \w+ \| \w+ \| ([\d.]+) \|", table, re.MULTILINE)
        wanted = {name for name, group, factor in behind
                  if float(factor) > 1.05 and (what, group) != ("time", "real")}  # fmt: skip
        assert len(wanted) > 5
        told = gaps.partition(f"\n{title}\n")[2].partition("\n## ")[0]
        heads = [line.partition(" | ")[0] for line in told.splitlines() if line.startswith("| ")]
        listed = {name for head in heads for name in re.findall(r"[\w+]+", head)}
        assert sorted(wanted - listed) == []
