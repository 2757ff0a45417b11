"""What the command does with a verdict: only a profile that was proved is written, and shown."""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from hakmem.commands import tune
from hakmem.options import read_options
from hakmem.project import find_project
from hakmem.tune import session, trial
from hakmem.tune.execution import Command, Run
from hakmem.tune.format import read_format
from hakmem.tune.profile_file import Profile, parse, read, render
from hakmem.tune.proposal import Change, Goal, compose
from hakmem.tune.recording import Moment, Recording
from hakmem.tune.report import measured_about
from hakmem.tune.trial import Comparison, ProgramRunner, compare
from tests.cli.support import library

CHANGE = Change("leaner", "takes less", {"retain_slabs": "3"})
MOMENT = Moment(0.5, np.array([0, 0, 100]), {}, 1 << 20)
RECORDING = Recording(
    program="made-up", exe="/made/up", seconds=1.0, size_classes=(), moments=(MOMENT,), exact=True,
    threads=1, heaps_per_class=1.0, allocations=100, remote_share=0.0, half_life_ns=None,
    allocations_by_class=(), version=find_project().version,
)  # fmt: skip


def measured(rss: float) -> Comparison:
    """Pairs without noise."""

    def once(profile: Profile) -> Run:
        return Run(1.0, 1.0, int(1e8 if profile.is_empty else 1e8 * rss), 100, ())

    return compare(once, compose([CHANGE]), 5, "cpu")


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Comparison | None, bool], int]:
    """`hakmem tune -o a.profile --json -- true` that comes to this verdict."""
    parser = argparse.ArgumentParser()
    tune.add(parser.add_subparsers())
    file = str(tmp_path / "a.profile")
    words = ["tune", "--library", str(library()), "-o", file, "--json", "--", "true"]

    def with_verdict(found: Comparison | None, better: bool) -> int:
        def made_up(_: Command, _plan: session.Plan) -> session.Outcome:
            profile = compose([CHANGE], build_id="0a", version=RECORDING.version)
            return session.Outcome(RECORDING, [CHANGE], [], found, profile, better)

        monkeypatch.setattr(session, "tune", made_up)
        status = tune.run(parser.parse_args(words))
        assert isinstance(status, int)
        return status

    return with_verdict


Call = Callable[[Comparison | None, bool], int]


def test_what_is_proved_is_written(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(measured(0.8), True) == 0
    text = (tmp_path / "a.profile").read_text()
    profile = read(
        tmp_path / "a.profile", read_options(find_project().options_table),
        read_format(find_project()),
    )  # fmt: skip
    assert [(each.name, each.value) for each in profile.settings] == [("retain_slabs", "3")]
    assert profile.version == find_project().version
    assert profile.build_id == "0a"
    assert "5 interleaved pairs" in text
    assert "-20.0 %" in text
    facts = json.loads(capsys.readouterr().out)
    assert facts["better"] is True
    assert (facts["profile"], facts["output"]) == (text, str(tmp_path / "a.profile"))


def test_half_a_profile_does_not_take_the_place_of_a_good_one(
    call: Call, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of one is a profile too, which nobody measured. A limit of the file's size stands for a
    full disk."""
    profile = tmp_path / "a.profile"
    profile.write_text("profile_format=1\nrefill_blocks=9\n", encoding="utf-8")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (32, before[1]))
    try:
        status = call(measured(0.8), True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    said = capsys.readouterr()
    assert status == 2
    assert f"{profile}: File too large; the profile is on standard output" in said.err
    assert profile.read_text(encoding="utf-8") == "profile_format=1\nrefill_blocks=9\n"
    assert list(tmp_path.iterdir()) == [profile]


@pytest.mark.parametrize("rss", [None, 1.0])
def test_what_is_not_proved_is_neither_written_nor_shown(
    call: Call, rss: float | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call(measured(rss) if rss is not None else None, False) == tune.EXIT_NOT_BETTER
    said = capsys.readouterr()
    facts = json.loads(said.out)
    assert facts["better"] is False
    assert facts["profile"] is facts["output"] is None
    assert [each["name"] for each in facts["proposed"]] == ["leaner"]
    assert "no profile is written" in said.err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words", [["ld", *(f"objects/{n:06}.o" for n in range(6000))], ["app", "caf\udce9"]]
)
def test_any_command_leaves_a_profile_that_can_be_used(words: list[str]) -> None:
    about = measured_about(RECORDING, measured(0.8), words, Goal.MEMORY, "cpu")
    text = render(compose([CHANGE]).with_about(about)).encode()
    project = find_project()
    found = parse(text.decode(), read_options(project.options_table), read_format(project))
    assert [each.name for each in found.settings] == ["retain_slabs"]


def test_what_was_recorded_is_what_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it is known: not whoever is larger."""
    judged: list[str] = []

    @contextmanager
    def runner(*_: object) -> Iterator[ProgramRunner]:
        def once(profile: Profile, exe: str = "") -> Run:
            judged.append(exe)
            return Run(1.0, 1.0, int(1e8 if profile.is_empty else 8e7), 100, ())

        yield once

    monkeypatch.setattr(trial, "runner", runner)
    reports = [SimpleNamespace(exe=exe) for exe in ("/bin/load", RECORDING.exe)]
    done = SimpleNamespace(reports=reports)
    monkeypatch.setattr(
        session, "record_command", lambda *_: (replace(RECORDING, build_id=RECORDING.exe), done)
    )
    monkeypatch.setattr(session, "build_id", lambda exe: exe)
    monkeypatch.setattr(session, "changes", lambda *_: [CHANGE])
    outcome = session.tune(
        Command("/bin/sh", ("sh",), "/none"), session.Plan(Goal.MEMORY, 5, "cpu", 10.0, False)
    )
    assert outcome.is_better
    assert outcome.profile.version == RECORDING.version
    assert judged[:2] == ["", ""] and set(judged[2:]) == {RECORDING.exe}
