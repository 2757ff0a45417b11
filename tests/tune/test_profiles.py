"""`hakmem bench profiles`: its table of programs, its verdicts, and one measurement in pieces."""

from __future__ import annotations

import argparse
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness import profiles
from harness.errors import BenchError
from harness.layout import TOP
from harness.store import read_rows
from tests.cli.support import library

NO_PROGRAM = {"default", "lean", "latency", "throughput"}
MANIFEST = {"cpu": "made up", "cpus": 2, "at": "2026-01-01T00:00:00", "library": {"build_id": "0a"}}


def test_every_installed_profile_has_input_that_it_was_not_made_with() -> None:
    known = profiles.targets()
    installed = {file.stem for file in profiles.FOLDER.glob("*.profile")}
    assert installed - NO_PROGRAM <= set(known)
    for target in known.values():
        assert {True, False} == {each.used for each in target.inputs}
        abouts = [each.about for each in target.inputs]
        assert len(set(abouts)) == len(abouts)
        words = [word for each in target.inputs for word in each.command]
        files = [word for word in words if word.startswith(("profiles/", "bench/"))]
        assert files
        assert all((TOP / file).is_file() for file in files)
    assert {"redis", "python3", "ruby", "postgres", "lua", "rocksdb"} <= installed


INSTALLED = sorted(profiles.FOLDER.glob("*.profile"))


@pytest.mark.parametrize("file", INSTALLED, ids=lambda file: file.stem)
def test_every_installed_profile_is_taken_and_tells_its_reasons(file: Path) -> None:
    environment = {"HAKMEM_VERBOSE": "1", "HAKMEM_PROFILE": file.stem, "LD_PRELOAD": str(library())}
    shown = subprocess.run(["true"], env=environment, capture_output=True, text=True, check=True)
    profile = profiles.read_profile(file)
    assert "hakmem: profile '" not in shown.stderr
    for setting in profile.settings:
        assert re.search(rf"^hakmem: {setting.name} .*\(profile\)$", shown.stderr, re.MULTILINE)
    paragraphs = file.read_text().split("\n\n")
    assert all(paragraph.startswith("# ") for paragraph in paragraphs)
    if file.stem not in NO_PROGRAM:
        assert "Against the default" in paragraphs[0]


def row(profile: str, about: str, rss: float, time: float, *, used: bool = False) -> dict[str, Any]:
    """Five pairs without noise."""
    default = [{"peak_rss_bytes": 1e8, "cpu_s": 1.0, "wall_s": 2.0}] * 5
    ours = [{"peak_rss_bytes": 1e8 * rss, "cpu_s": time, "wall_s": 2.0} for _ in range(5)]
    return {"profile": profile, "input": about, "used": used, "metric": "cpu",
            "ours": ours, "default": default}  # fmt: skip


@pytest.mark.parametrize(
    ("rss", "time", "expected"),
    [
        (0.89, 1.02, "10 % leaner"),
        (0.89, 1.05, "worse"),
        (0.92, 1.0, "better"),
        (1.0, 0.94, "5 % faster"),
        (1.06, 0.94, "worse"),
        (0.95, 0.94, "5 % faster"),
        (1.0, 0.96, "better"),
        (1.0, 1.0, "equal"),
    ],
)
def test_verdicts(rss: float, time: float, expected: str) -> None:
    assert profiles.verdict(profiles.comparison(row("a", "b", rss, time))) == expected


def test_noise_is_unclear_and_no_gain_at_equal_time() -> None:
    noisy = row("a", "b", 0.8, 1.0)
    for run, time in zip(noisy["ours"], (0.9, 1.06, 1.06, 1.06, 0.9), strict=True):
        run["cpu_s"] = time
    assert profiles.verdict(profiles.comparison(noisy)) == "unclear"


def test_only_other_input_confirms() -> None:
    rows = [
        row("one", "learned", 0.8, 1.0, used=True),
        row("one", "other", 0.95, 1.0),
        row("two", "learned", 0.95, 1.0, used=True),
        row("two", "other", 0.8, 1.0),
    ]
    assert profiles.confirmed(rows) == ["two"]
    text = profiles.text(rows, MANIFEST)
    assert "1 of 2 programs are 10 % leaner or 5 % faster: two.\n" in text
    assert "| `two` | other | no | 95.4 MiB | -20.0 %" in text


def test_the_metric_is_the_rows() -> None:
    wall = {**row("a", "b", 1.0, 0.5), "metric": "wall"}
    assert profiles.comparison(wall).time.median == 1.0


def test_the_table_goes_between_the_marks(tmp_path: Path) -> None:
    document = tmp_path / "PROFILES.md"
    document.write_text(f"before\n{profiles.BEGIN}old\n{profiles.END}after\n")
    profiles.write("new\n", document)
    profiles.write("newer\n", document)
    assert document.read_text() == f"before\n{profiles.BEGIN}newer\n{profiles.END}after\n"
    document.write_text("no marks\n")
    with pytest.raises(BenchError, match="has no marks"):
        profiles.write("new\n", document)
    assert profiles.BEGIN in profiles.DOCUMENT.read_text()


def session(tmp_path: Path, *names: str, **more: Any) -> profiles.Session:
    options = {"names": names, "runs": 3, "metric": "cpu", "output": tmp_path / "r",
               "write": False, **more}  # fmt: skip
    return profiles.Session(argparse.Namespace(**options), "made up", tmp_path / "programs.toml")


def test_a_measurement_goes_on_where_it_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "programs.toml"
    lines = '[perl]\nlearn = "perl -e 1"\n[[perl.input]]\nabout = "first"\nused = true\n'
    table.write_text(lines)
    (tmp_path / "perl.profile").write_text("retain_slabs=3\n")
    assert session(tmp_path, "perl").run() in (0, 1)
    (first,) = read_rows(tmp_path / "r")
    assert (first["command"], first["used"], len(first["ours"])) == ("perl -e 1", True, 3)
    other = '[[perl.input]]\nabout = "second"\ncommand = "perl -e 2"\n'
    table.write_text(f'{lines}{other}[[perl.input]]\nabout = "third"\ncommand = "perl -e die"\n')
    assert session(tmp_path).run() == 1
    assert "FAILED perl on third: the program ended with status" in capsys.readouterr().err
    assert read_rows(tmp_path / "r")[0] == first
    assert [row["input"] for row in read_rows(tmp_path / "r")] == ["first", "second"]
    assert "| `perl` | second | no |" in (tmp_path / "r" / "table.md").read_text()


def test_what_cannot_be_measured_is_told(tmp_path: Path) -> None:
    (tmp_path / "programs.toml").write_text('[perl]\nlearn = "perl -e 1"\ninput = []\n')
    with pytest.raises(BenchError, match="no profile 'nonesuch'"):
        session(tmp_path, "nonesuch")
    with pytest.raises(BenchError, match="is not there"):
        session(tmp_path, "perl")
    with pytest.raises(BenchError, match="no profile was measured"):
        session(tmp_path).run()
    manifest = tmp_path / "r" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"sha256": "', '"sha256": "0'))
    with pytest.raises(BenchError, match="something else"):
        session(tmp_path).run()
