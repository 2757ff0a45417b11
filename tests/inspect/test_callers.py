"""Who allocated the guarded blocks that are live: told of a process, its core and its snapshot."""

from __future__ import annotations

import io
import json
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from hakmem.inspect import jsonform
from hakmem.inspect.model import Frame, GuardedSite, Snapshot
from hakmem.inspect.targets import take
from hakmem.inspect.text import render
from hakmem.render import Style
from hakmem.report.page import render as render_page
from tests.cli.support import library
from tests.guarded.support import function_names
from tests.inspect.support.synthetic import make_snapshot
from tests.inspect.support.targets import (
    archive,
    await_line,
    await_message,
    compile_program,
    inspect,
    make_core,
    preloaded,
    running,
)

PLAIN = Style(io.StringIO(), {})
HOW = ("process", "own writer", "snapshot")
FLAGS: dict[str, tuple[str | Path, ...]] = {
    "position independent": ("-pie",),
    "fixed": ("-no-pie",),
    "static": ("-static", archive()),
}


def functions(program: Path, site: GuardedSite) -> list[str]:
    """Those of the program's own that are known by a name."""
    offsets = [f"{frame.offset:#x}" for frame in site.frames if frame.module == str(program)]
    return [name for name in function_names(str(program), offsets) if name != "??"]


def require_keepers(program: Path, snapshot: Snapshot) -> None:
    """What the program keeps is said to be allocated by the functions that did, once for each way
    of calls; and nothing is said of what it freed."""
    sites = snapshot.guarded_sites
    live = [block.bytes for block in snapshot.guarded if block.state == "live"]
    assert sum(site.blocks for site in sites) == len(live)
    assert [site.bytes for site in sites] == sorted((s.bytes for s in sites), reverse=True)
    kept = {(1, 1000): "keep_one", (3, 300): "keep_small", (1, 1): "keep_one"}
    for (blocks, size), function in kept.items():
        (site,) = [each for each in sites if (each.blocks, each.bytes) == (blocks, size)]
        own = functions(program, site)
        assert own[own.index(function) + 1] == "main"
        assert str(library()) not in {frame.module for frame in site.frames}


@pytest.mark.parametrize("kind", FLAGS)
@pytest.mark.parametrize("how", HOW)
def test_the_functions_that_allocated(tmp_path: Path, how: str, kind: str) -> None:
    program = compile_program("keepers.c", tmp_path / "keepers", *FLAGS[kind])
    environment = preloaded(
        HAKMEM_GUARD_SAMPLE="1",
        HAKMEM_SNAPSHOT_SIGNAL=str(int(signal.SIGUSR2)),
        HAKMEM_SNAPSHOT_DIRECTORY=str(tmp_path),
    )
    with running([program], environment) as process:
        await_line(process, "ready")
        target = str(process.pid)
        if how == "snapshot":
            process.send_signal(signal.SIGUSR2)
            target = await_message(process).removeprefix("hakmem: snapshot: ").rstrip("\n")
        elif how != "process":
            target = str(make_core(how, process.pid, tmp_path))
        snapshot = take(target)
        again = inspect("--json", target)
    require_keepers(program, snapshot)
    assert snapshot.guarded_sites == jsonform.decode(json.loads(again.stdout)).guarded_sites
    # Of a snapshot only hakmem's own file has its notes.
    builds = {frame.build_id != "" for site in snapshot.guarded_sites for frame in site.frames}
    assert builds == {how != "snapshot" or kind == "static"}


def made_up(count: int, frame_count: int) -> Snapshot:
    """With so many sites, and a name that would be markup and move the cursor."""
    frames = tuple(
        Frame(0x1000 + at, f"/lib/<b>\x1b[2J{at}" if at else "", 16 * at, "ab" if at else "")
        for at in range(frame_count)
    )
    sites = tuple(GuardedSite(2, 4000 - at, frames) for at in range(count))
    return replace(make_snapshot(), guarded_sites=sites)


def section(said: str) -> list[str]:
    _, _, rest = said.partition("\nwho allocated the live guarded blocks\n")
    return rest.partition("\n\n")[0].splitlines()


def test_the_table_is_bounded() -> None:
    snapshot = made_up(10, 12)
    lines = section(render(snapshot, PLAIN))
    assert lines[:3] == ["  2 blocks of 3.9 KiB", "    #0 0x1000", "    #1 /lib/<b>?[2J1+0x10"]
    assert lines[9] == "    and 4 further out (--all)"
    assert lines[-1] == "  and 4 blocks of 7.8 KiB from 2 more places (--all)"
    assert len(lines) == 8 * 10 + 1
    whole = section(render(snapshot, PLAIN, everything=True))
    assert len(whole) == 10 * 13
    assert section(render(make_snapshot(), PLAIN)) == []


def test_the_page_names_them() -> None:
    page = render_page(made_up(101, 2))
    assert page.count("/lib/&lt;b&gt;") == 100
    assert '<span class="mono" title="build ab">/lib/&lt;b&gt;' in page
    assert "The 100 largest of 101 places are listed." in page
    assert "Who allocated" not in render_page(make_snapshot())


def test_a_line_of_a_series_has_none() -> None:
    assert jsonform.encode(made_up(2, 2), "totals")["guarded_sites"] == []
    facts = jsonform.encode(made_up(2, 2), "runs")
    assert jsonform.decode(facts).guarded_sites == made_up(2, 2).guarded_sites
    del facts["guarded_sites"]
    assert jsonform.decode(facts).guarded_sites == ()
