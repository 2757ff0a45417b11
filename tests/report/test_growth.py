"""hakmem diff: what grew, and the verdict, on made-up snapshots and on real processes."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hakmem.inspect import jsonform
from hakmem.inspect.model import Snapshot
from hakmem.render import Style
from hakmem.report import series
from hakmem.report.growth import (
    GREW,
    INCONCLUSIVE,
    PASSED,
    Limits,
    compare,
    is_same_process,
    judge,
)
from hakmem.report.growthtext import render
from tests.cli.support import HAKMEM, Outcome, call
from tests.inspect.support.synthetic import make_snapshot
from tests.inspect.support.targets import (
    await_line,
    compile_program,
    inspect,
    preloaded,
    running,
)
from tests.report.support.grower import Grower

MIB = 1 << 20
PLAIN = Style(io.StringIO(), {})


def grown(snapshot: Snapshot, blocks: int) -> Snapshot:
    """The same with more live blocks of the first class (16 bytes), in the first heap."""
    first, *others = snapshot.classes
    heap, *heaps = snapshot.heaps
    return replace(
        snapshot,
        classes=(replace(first, live_blocks=first.live_blocks + blocks), *others),
        heaps=(
            replace(
                heap,
                live_blocks=heap.live_blocks + blocks,
                live_bytes=heap.live_bytes + 16 * blocks,
            ),
            *heaps,
        ),
    )


def diff(*arguments: str | Path) -> Outcome:
    return call([*HAKMEM, "diff", *arguments])


def facts(*arguments: str | Path) -> dict[str, Any]:
    outcome = diff("--json", *arguments)
    assert outcome.stderr == ""
    found: dict[str, Any] = json.loads(outcome.stdout)
    assert found["schema"] == "hakmem.diff/1"
    return found


def written(file: Path, snapshot: Snapshot, detail: str = "blocks") -> Path:
    file.write_text(json.dumps(jsonform.encode(snapshot, detail)))
    return file


# ---- Made-up snapshots


def test_nothing_grows_between_equals() -> None:
    snapshot = make_snapshot()
    growth = compare(snapshot, snapshot)
    assert growth.live.bytes_growth == growth.live.count_growth == 0
    rows = [*growth.classes, *growth.heaps, *growth.others, *growth.runs, *growth.memory]
    assert rows and not any(change.is_changed for change in rows)
    assert growth.new_blocks == ()
    assert judge(growth, Limits(bytes=0)) == PASSED


def test_growth_is_found_where_it_is() -> None:
    before = make_snapshot()
    growth = compare(before, grown(before, 1000))
    assert (growth.live.count_growth, growth.live.bytes_growth) == (1000, 16_000)
    (row,) = [change for change in growth.classes if change.is_changed]
    assert (row.name, row.count_growth, row.bytes_growth) == ("16 B", 1000, 16_000)
    (heap,) = [change for change in growth.heaps if change.is_changed]
    assert (heap.name, heap.bytes_growth) == ("1 server", 16_000)


def test_live_memory_is_all_that_the_program_holds() -> None:
    snapshot = make_snapshot()
    small = sum(row.live_bytes for row in snapshot.classes)
    large = int(snapshot.large["large_bytes"].sum())
    growth = compare(snapshot, snapshot)
    assert growth.live.bytes_after == small + large + (6 << 20) + 64
    totals = jsonform.decode(json.loads(json.dumps(jsonform.encode(snapshot, "totals"))))
    with_gauges = replace(totals, gauges={"large_blocks": 3, "large_bytes": large})
    assert compare(with_gauges, with_gauges).live.bytes_after == growth.live.bytes_after


def test_classes_of_one_size_are_one() -> None:
    """A profile of few size classes has its last one in all places behind it, without a slab."""
    made = make_snapshot()
    last = made.classes[-1]
    unused = replace(last, index=last.index + 1, live_blocks=0, slabs=0, slab_bytes=0)
    snapshot = replace(made, classes=(*made.classes, unused))
    live = compare(made, made).live.bytes_after
    assert last.live_blocks > 0
    assert compare(snapshot, snapshot).live.bytes_after == live
    facts = json.loads(json.dumps(jsonform.encode(snapshot, "totals")))
    assert series.point_of(facts).live_bytes[last.block_bytes] == last.live_bytes


def test_a_leak_of_the_last_class_of_a_profile(tmp_path: Path) -> None:
    profile = tmp_path / "few.profile"
    profile.write_text("size_class=1024\nsize_class=65536\n", encoding="ascii")
    program = compile_program("many.c", tmp_path / "many")
    for blocks in (1, 40):
        environment = preloaded(HAKMEM_PROFILE=str(profile))
        with running([program, str(blocks), "60000", "1"], environment) as process:
            await_line(process, "ready")
            done = inspect("--json", "--freeze", process.pid)
        (tmp_path / f"{blocks}.json").write_text(done.stdout, encoding="ascii")
    files = [tmp_path / "1.json", tmp_path / "40.json"]
    outcome = call([*HAKMEM, "diff", *files, "--fail-above", "1M"])
    assert outcome.status == GREW, outcome.stdout


def test_new_blocks_are_named_and_kept_mappings_are_none() -> None:
    after = make_snapshot()
    before = replace(after, huge=(), runs=after.slabs)
    growth = compare(before, after)
    assert growth.new_blocks is not None
    assert [(block.kind, block.start) for block in growth.new_blocks] == [
        ("huge", after.huge[0].start),
        *(("large", int(run["start"])) for run in after.large),
    ]


def test_blocks_of_another_process_are_not_told_by_their_addresses() -> None:
    before, other = make_snapshot(), make_snapshot(pid=77)
    moved = tuple(replace(block, start=block.start + MIB) for block in other.huge)
    another_program = replace(before, exe="/usr/bin/other", huge=moved)
    for after in (replace(other, huge=moved), another_program):
        growth = compare(before, after)
        assert growth.new_blocks is None
        assert growth.live.bytes_growth == 0
        said = render(before, after, growth, Limits(), PLAIN)
        assert "of two processes" in said and "are new" not in said
    assert "server" in {change.name for change in compare(before, another_program).heaps}
    for exe in ("/usr/bin/server (deleted)", ""):
        after = replace(before, exe=exe, huge=moved)
        growth = compare(before, after)
        assert growth.new_blocks is not None and len(growth.new_blocks) == 1
        assert "of two processes" not in render(before, after, growth, Limits(), PLAIN)


def test_who_is_the_same_process() -> None:
    """By its numbers outside and inside of its PID namespace, and where its library lies."""
    outside = replace(make_snapshot(pid=9000), inner_pid=1, root_address=1 << 20)
    inside = replace(outside, pid=1, inner_pid=None)
    assert is_same_process(inside, outside) and is_same_process(outside, inside)
    assert is_same_process(inside, replace(outside, exe="/srv/root/usr/bin/server (deleted)"))
    assert is_same_process(inside, replace(outside, root_address=None))
    for other in (
        replace(outside, inner_pid=2),
        replace(outside, root_address=2 << 20),
        replace(outside, exe="/usr/bin/other"),
        replace(outside, root_address=None, exe="/srv/root/usr/bin/server"),
    ):
        assert not is_same_process(inside, other)
    assert not is_same_process(inside, replace(inside, root_address=2 << 20))


def test_other_process_is_compared_by_names_of_threads() -> None:
    before = make_snapshot()
    after = replace(
        make_snapshot(pid=77),
        heaps=tuple(replace(heap, id=heap.id + 100) for heap in before.heaps),
    )
    growth = compare(before, after)
    assert not any(change.is_changed for change in growth.heaps)
    assert "server" in {change.name for change in growth.heaps}


@pytest.mark.parametrize(
    ("limits", "blocks", "status"),
    [
        (Limits(), 1_000_000, PASSED),
        (Limits(bytes=16_000), 1000, PASSED),
        (Limits(bytes=15_999), 1000, GREW),
        (Limits(bytes=0), -1000, PASSED),
        (Limits(percent=1.0), 1000, PASSED),
        (Limits(percent=1.0), 50_000, GREW),
        (Limits(bytes=MIB, percent=0.0), 1, GREW),
    ],
)
def test_verdict(limits: Limits, blocks: int, status: int) -> None:
    before = make_snapshot()
    assert judge(compare(before, grown(before, blocks)), limits) == status


def test_uncertain_counts_are_no_verdict_near_the_limit() -> None:
    before = replace(make_snapshot(), unsettled_share=0.01)
    off = round(0.01 * sum(row.slab_bytes for row in before.classes))
    settled = grown(make_snapshot(), 10_000)
    growth = compare(before, settled)
    assert growth.uncertain_bytes == off > 16
    assert judge(growth, Limits(bytes=160_000)) == INCONCLUSIVE
    assert judge(growth, Limits(bytes=160_000 + off)) == PASSED
    assert judge(growth, Limits(bytes=159_999 - off)) == GREW


def test_uncertainty_is_what_the_reader_says_of_bytes() -> None:
    before = replace(make_snapshot(), unsettled_share=0.0001, unsettled_bytes=3 * MIB)
    growth = compare(before, grown(make_snapshot(), 10_000))
    assert growth.uncertain_bytes == 3 * MIB
    assert judge(growth, Limits(bytes=1000)) == INCONCLUSIVE
    said = render(before, before, growth, Limits(bytes=1000), PLAIN)
    # diff itself cannot stop a process.
    assert "INCONCLUSIVE" in said and "`hakmem inspect --freeze --json`" in said
    again = jsonform.decode(json.loads(json.dumps(jsonform.encode(before, "totals"))))
    assert again.unsettled_bytes == 3 * MIB
    earlier = jsonform.encode(before, "totals")
    del earlier["unsettled_bytes"]
    assert jsonform.decode(json.loads(json.dumps(earlier))).unsettled_bytes is None


def test_growth_from_nothing_passes_every_percentage() -> None:
    made = make_snapshot()
    nothing = replace(made, classes=(), heaps=(), huge=(), guarded=(), runs=made.runs[:0])
    assert judge(compare(nothing, made), Limits(percent=1000.0)) == GREW


# ---- The command


def test_diff_of_files(tmp_path: Path) -> None:
    before = make_snapshot()
    a = written(tmp_path / "a.json", before)
    b = written(tmp_path / "b.json", replace(grown(before, 1000), taken_ns=before.taken_ns + 10**9))
    outcome = diff(a, b, "--fail-above", "1K")
    assert outcome.status == 1
    text = outcome.stdout.decode()
    assert "+15.6 KiB" in text and "GREW" in text and "in 1.0 s" in text
    assert diff(a, b, "--fail-above", "1M").status == 0
    assert diff(a, b).status == 0
    found = facts(a, b, "--fail-above-percent", "0")
    assert found["status"] == 1
    assert [row["bytes_growth"] for row in found["classes"]] == [16_000]
    assert found["live"]["count_growth"] == 1000


def test_the_later_picture_as_the_first(tmp_path: Path) -> None:
    """Nothing grew, it says of what grew: it is refused, except between two processes."""
    first = make_snapshot()
    later = replace(grown(first, 1000), taken_ns=first.taken_ns + 10**9)
    a, b = written(tmp_path / "a.json", first), written(tmp_path / "b.json", later)
    outcome = diff(b, a, "--fail-above", "1K")
    assert (outcome.status, outcome.stdout) == (2, b"")
    assert f"A is of process {first.pid} later than B" in outcome.stderr
    assert diff(a, b).status == 0
    other = written(tmp_path / "other.json", replace(later, pid=later.pid + 1))
    assert diff(other, a).status == 0


def test_names_cannot_move_the_cursor(tmp_path: Path) -> None:
    made = make_snapshot()
    heaps = tuple(replace(heap, thread_name="\x1b[2Jx\r\n") for heap in made.heaps)
    a = written(tmp_path / "a.json", replace(made, heaps=heaps, name="\x1b[31m"))
    b = written(tmp_path / "b.json", replace(grown(made, 9), heaps=grown(made, 9).heaps))
    for outcome in (diff(a, b), diff(b, a)):
        assert outcome.status == 0
        assert b"\x1b" not in outcome.stdout and b"\r" not in outcome.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "the following arguments are required"),
        (["1"], "give B as well"),
        (["nowhere.json", "nowhere.json"], "No such file"),
        (["{json}", "{json}", "--fail-above", "much"], "no size"),
        (["{json}", "{json}", "--fail-above-percent", "-3"], "no percentage"),
        (["{json}", "{text}"], "is neither"),
        (["{json}", "{broken}"], "no whole snapshot"),
        (["{newer}"], "'hakmem.series/9'"),
        (["{empty}"], "no snapshot"),
    ],
)
def test_wrong_use_is_one_sentence_and_2(tmp_path: Path, arguments: list[str], words: str) -> None:
    files = {
        "json": written(tmp_path / "a.json", make_snapshot(superslab_count=1), "totals"),
        "text": tmp_path / "text",
        "broken": tmp_path / "broken.json",
        "newer": tmp_path / "newer.jsonl",
        "empty": tmp_path / "empty.jsonl",
    }
    files["text"].write_text("nothing of the kind")
    files["broken"].write_text('{"schema": "hakmem.inspect/1", "origin": "process"}')
    files["newer"].write_text('{"schema":"hakmem.series/9"}\n')
    files["empty"].write_text('{"schema":"hakmem.series/1","pid":1,"every_s":1}\n{"half')
    outcome = diff(*(argument.format(**files) for argument in arguments))
    assert (outcome.status, outcome.stdout) == (2, b"")
    assert words in outcome.stderr.replace("--fail-above: ", "")
    assert "Traceback" not in outcome.stderr


# ---- A real process


def test_growth_of_a_real_process(grower: Grower, tmp_path: Path) -> None:
    grower.grow(1000, 100)
    before = tmp_path / "before.json"
    before.write_bytes(call([*HAKMEM, "inspect", "--json", "--freeze", grower.pid]).stdout)
    grower.grow(5000, 100)
    grower.grow(3, 200_000)
    grower.grow(2, 3 << 20)
    found = facts(before, grower.pid, "--fail-above", "6M")
    rows = {row["name"]: row for row in found["classes"]}
    assert rows["112 B"]["count_growth"] == 5000
    others = {row["name"]: row["count_growth"] for row in found["others"]}
    assert others == {"large blocks": 3, "huge blocks": 2}
    assert [block["kind"] for block in found["new_blocks"]] == ["huge"] * 2 + ["large"] * 3
    assert found["status"] == 1
    again = facts(grower.pid, grower.pid, "--fail-above", "0")
    assert again["live"]["bytes_growth"] == 0 and again["status"] == 0
