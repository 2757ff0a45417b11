"""hakmem options, version, doctor and help; the table reader against the library itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hakmem.cli import make_parser
from hakmem.errors import HakmemError
from hakmem.inspect import jsonform
from hakmem.manual import read_verbs
from hakmem.options import read_counters, read_options, read_rows
from tests.cli.support import HAKMEM, ROOT, call, clean_environment, library, named_json
from tests.inspect.support.synthetic import make_snapshot

OPTIONS = ROOT / "src" / "config" / "options.def"
COUNTERS = ROOT / "src" / "config" / "counters.def"
VERBS = read_verbs(make_parser())


def test_library_has_exactly_the_options_of_the_table() -> None:
    """HAKMEM_VERBOSE prints what the compiled library has: the same names, in the same order, with
    the same defaults."""
    environment = clean_environment(LD_PRELOAD=str(library()), HAKMEM_VERBOSE="1")
    outcome = call(["/bin/true"], environment=environment)
    table = read_options(OPTIONS)
    printed = re.findall(
        r"^hakmem: (\w+) +(\S*) +\((default|environment)\)$", outcome.stderr, re.MULTILINE
    )
    assert printed == [
        (option.name, "1", "environment")
        if option.name == "verbose"
        else (option.name, option.initial_text(), "default")
        for option in table.options
    ]


def test_options_json() -> None:
    outcome = call([*HAKMEM, "options", "--json"])
    assert (outcome.status, outcome.stderr) == (0, "")
    facts = json.loads(outcome.stdout)
    assert facts["schema"] == "hakmem.options/1"
    options = {option["name"]: option for option in facts["options"]}
    assert list(options) == [option.name for option in read_options(OPTIONS).options]
    purge = options["purge_delay_ms"]
    assert (purge["default"], purge["min"], purge["max"]) == (500, 0, 3_600_000)
    assert purge["live"] is True and purge["presets"]["lean"] == 50
    assert options["cache_class_bytes"]["default"] == 256 * 1024
    assert options["mode"]["default"] == "fast"
    assert [choice["name"] for choice in options["mode"]["choices"]] == [
        "fast", "lean", "hardened", "research",
    ]  # fmt: skip


def test_options_as_text() -> None:
    outcome = call([*HAKMEM, "options"])
    text = outcome.stdout.decode()
    for option in read_options(OPTIONS).options:
        assert f"{option.environment}=" in text
        assert option.help in text
    chosen = call([*HAKMEM, "options", "HAKMEM_MODE", "purge_delay_ms"]).stdout.decode()
    assert re.findall(r"^HAKMEM_\w+", chosen, re.MULTILINE) == [
        "HAKMEM_MODE",
        "HAKMEM_PURGE_DELAY_MS",
    ]
    assert "Preset by mode: lean 50." in chosen
    other = call([*HAKMEM, "options", "prewarm_blocks", "HAKMEM_DEBUG_TIMING"]).stdout.decode()
    assert re.findall(r"^HAKMEM_\w+", other, re.MULTILINE) == ["HAKMEM_RESEARCH", "HAKMEM_PREWARM"]
    unknown = call([*HAKMEM, "options", "nonsense"])
    assert (unknown.status, unknown.stdout) == (2, b"")


def test_every_row_of_the_tables_is_read() -> None:
    for path, kinds in ((OPTIONS, "OPTION|CHOICE|MODE"), (COUNTERS, "COUNTER|GAUGE")):
        text = path.read_text(encoding="utf-8")
        expected = re.findall(rf"^({kinds})\(", text, re.MULTILINE)
        assert expected
        assert [kind for kind, _ in read_rows(path)] == expected
    for option in read_options(OPTIONS).options:
        assert option.help and option.when in ("START", "LIVE")
        if isinstance(option.initial, int):
            assert option.min <= option.initial <= option.max
    assert all(row.help and row.unit for row in read_counters(COUNTERS))


def test_table_with_a_mistake_is_named_with_its_line(tmp_path: Path) -> None:
    table = tmp_path / "options.def"
    table.write_text('// fine\nOPTION(a, UINT, 1, 0, 9, "", LIVE, "help")\nOPTION(b; UINT)\n')
    with pytest.raises(HakmemError, match=r"options\.def:3: unexpected ';'"):
        read_options(table)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("verbose", ["0", "1", "on", "No", "TRUE"], ["2", "", "maybe"]),
        ("huge_cache_bytes", ["0", "64m", "1G", "4096"], ["64q", "-1", "m", "1T"]),
        ("huge_cache_bytes", ["0" * 5000 + "1K"], ["1" * 5000, "1" * 5000 + "K"]),
        ("check", ["0" * 5000 + "1"], ["1" * 5000]),
        ("check", ["1"], ["1 ", " 1", "1\t", "1\n"]),
        ("huge_cache_bytes", ["1k"], ["1\u212a", " 1K", "1K ", "1 K"]),
        ("mode", ["Lean"], ["lean ", " lean"]),
        ("report", ["", "/nowhere/caf\udce9", "\udce9" * 4095], ["\udce9" * 4096]),
        ("refill_blocks", ["1", "63"], ["0", "64", "1K", "¹"]),
        ("mode", ["lean", "FAST"], ["", "quick", "1"]),
    ],
)
def test_values_are_judged_as_the_library_does(name: str, good: list[str], bad: list[str]) -> None:
    option = read_options(OPTIONS).find(name)
    assert option is not None
    for value, expected in [(value, True) for value in good] + [(value, False) for value in bad]:
        assert (option.problem(value) is None) is expected, value
        environment = clean_environment(LD_PRELOAD=str(library()))
        environment[option.environment] = value
        warned = (
            f"option {option.environment}: value"
            in call(["/bin/true"], environment=environment).stderr
        )
        assert warned is not expected, value


def test_version() -> None:
    text = call([*HAKMEM, "version"]).stdout.decode()
    assert re.match(r"hakmem \d+\.\d+\.\d+\n/.*libhakmem\.so", text)
    facts = json.loads(call([*HAKMEM, "version", "--json"]).stdout)
    assert facts["schema"] == "hakmem.version/1"
    assert text.startswith(f"hakmem {facts['version']}\n")


# What measures has the schemas of its JSON looked at where it is tested: tests/bench, tests/tune.
MEASURES = {"tune", "soak", "bench"}


def test_json_of_every_verb_names_its_schema(tmp_path: Path) -> None:
    saved = tmp_path / "heap.json"
    saved.write_text(json.dumps(jsonform.encode(make_snapshot(superslab_count=1), "totals")))
    with subprocess.Popen(
        ["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=clean_environment(LD_PRELOAD=str(library()))
    ) as process:  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"ready\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"ready\n"
        words: dict[str, list[str | int | Path]] = {
            "run": ["--summary-file", tmp_path / "summary", "--library", library(), "--", "true"],
            "inspect": [process.pid],
            "diff": [saved, saved],
            "set": [process.pid, "purge_delay_ms=400"],
            "top": ["--once", process.pid],
            "export": [process.pid],
            "options": [],
            "doctor": [],
            "version": [],
        }
        said = {}
        for verb, more in words.items():
            outcome = call([*HAKMEM, verb, "--json", *map(str, more)])
            assert outcome.status == 0, outcome.stderr
            said[verb] = outcome.stdout
        process.stdin.close()
    said["run"] = (tmp_path / "summary").read_bytes()
    assert len({named_json(text)["schema"] for text in said.values()}) == len(words)
    verbs = [verb for verb in VERBS if any("--json" in each.flags for each in verb.options)]
    assert {verb.name.split()[0] for verb in verbs} == words.keys() | MEASURES


@pytest.mark.parametrize("verb", ["", *(verb.name for verb in VERBS)])
def test_help_has_examples(verb: str) -> None:
    outcome = call([*HAKMEM, *verb.split(), "--help"])
    assert outcome.status == 0
    assert b"examples:\n  hakmem" in outcome.stdout
    assert outcome.stderr == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["set", "1", "=1"], "'=1': write it as NAME=VALUE"),
        (["set", "1", "research"], "'research': write it as NAME=VALUE"),
        (["diff", "--fail-above", "9" * 400, "1", "1"], "9' is no size; write 4096, 64K or 1M"),
        (["inspect", "9" * 5000], "999: File name too long\n"),
        (["doctor", "9" * 5000], "999: File name too long\n"),
        (["top", "9" * 5000], "999' is not the number of a process\n"),
        (["soak", "--minutes", "x"], "x is not a positive number"),
        (["soak", "--threads", "x"], "x is not a positive number"),
    ],
)
def test_wrong_words_are_told_in_a_sentence(words: list[str], said: str) -> None:
    outcome = call([*HAKMEM, *words])
    assert outcome.status == 2
    assert said in outcome.stderr and "_positive" not in outcome.stderr


def test_version_as_an_option() -> None:
    outcome = call([*HAKMEM, "--version"])
    (line, *_) = call([*HAKMEM, "version"]).stdout.splitlines()
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, line + b"\n", "")


def test_wrong_use_of_other_verbs_is_2() -> None:
    for words in ([], ["dance"], ["options", "--nonsense"], ["version", "extra"]):
        outcome = call([*HAKMEM, *words])
        assert outcome.status == 2, words
        assert outcome.stdout == b""


def test_doctor() -> None:
    outcome = call([*HAKMEM, "doctor", "--json"])
    facts = json.loads(outcome.stdout)
    assert facts["schema"] == "hakmem.doctor/1"
    findings = {finding["name"]: finding for finding in facts["findings"]}
    assert outcome.status == 0, facts
    assert facts["healthy"] is True
    assert findings["active"]["text"].startswith("/bin/sh is served by ")
    for tool in ("cmake", "gcc", "g++", "make"):
        assert findings[tool]["ok"] is True


def test_doctor_tells_of_a_setting_that_is_ignored() -> None:
    environment = clean_environment(HAKMEM_NO_SUCH="1", HAKMEM_MODE="lean")
    outcome = call([*HAKMEM, "doctor"], environment=environment)
    text = outcome.stdout.decode()
    assert outcome.status == 1
    assert re.search(r"^note variable +HAKMEM_MODE=lean$", text, re.MULTILINE)
    assert re.search(
        r"^BAD  variable +HAKMEM_NO_SUCH=1: ignored, because there is no such option$",
        text,
        re.MULTILINE,
    )


def test_doctor_names_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "python3").symlink_to(sys.executable)
    outcome = call([*HAKMEM, "doctor"], environment=clean_environment(PATH=str(tmp_path)))
    assert outcome.status == 1
    assert re.search(
        r"^BAD  cmake +missing; on Debian: sudo apt-get install cmake$",
        outcome.stdout.decode(),
        re.MULTILINE,
    )
