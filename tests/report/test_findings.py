"""Each finding appears with its numbers when there is reason, and not without."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hakmem.inspect import findings as inspected
from hakmem.inspect import jsonform
from hakmem.inspect.findings import Finding, Severity, findings
from hakmem.inspect.model import Option, Origin, RunKind, Snapshot, Waterfall, WaterfallRow
from hakmem.inspect.text import render
from hakmem.render import Style
from tests.inspect.support.synthetic import make_snapshot

MIB = 1 << 20
ROOT = Path(__file__).resolve().parents[2]


def healthy() -> Snapshot:
    """A snapshot in which nothing stands out: every slab is full, everything else small."""
    made = make_snapshot()
    runs = made.runs.copy()
    runs["live"] = runs["block_count"]
    for name in ("free", "cached", "remote"):
        runs[name] = 0
    classes = tuple(
        replace(
            row,
            live_blocks=row.live_blocks + row.free_blocks + row.cached_blocks + row.remote_blocks,
            free_blocks=0,
            cached_blocks=0,
            remote_blocks=0,
            fullness=(0, 0, 0, 0, 0, row.slabs),
        )
        for row in made.classes
    )
    heaps = tuple(
        replace(heap, state="in use", cached_blocks=0, cached_bytes=0, remote_blocks=0)
        for heap in made.heaps
    )
    live = sum(row.live_bytes for row in classes)
    rows = waterfall(live=live, large=400_000, metadata=100_000, program=1 * MIB)
    return replace(
        made, runs=runs, classes=classes, heaps=heaps, huge=(), waterfall=rows, planes={}
    )


def waterfall(**rows: int) -> Waterfall:
    return Waterfall(
        tuple(WaterfallRow(name, count, "") for name, count in rows.items()), sum(rows.values())
    )


def of_kind(snapshot: Snapshot, kind: str) -> list[Finding]:
    return [finding for finding in findings(snapshot) if finding.kind == kind]


def test_nothing_stands_out_in_a_healthy_heap() -> None:
    found = findings(healthy())
    assert [finding.kind for finding in found] == ["efficiency"]
    assert found[0].severity is Severity.GOOD
    assert "the program uses 99 %" in found[0].text


def with_class_of(live: int, resident_bytes: int) -> tuple[Snapshot, int]:
    """Full slabs, but those of 48 bytes have so many live blocks of 1365; how many these are."""
    made = make_snapshot(superslab_count=24)
    runs = made.runs.copy()
    slabs = runs["kind"] == RunKind.SLAB
    runs["live"][slabs] = runs["block_count"][slabs]
    chosen = slabs & (runs["class_index"] == 2)
    runs["live"][chosen] = live
    runs["resident_bytes"][chosen] = resident_bytes
    return replace(made, runs=runs), int(chosen.sum())


def test_sparse_slabs_are_counted_and_weighed() -> None:
    snapshot, count = with_class_of(50, 65536)
    (found,) = of_kind(snapshot, "sparse_slabs")
    assert found.bytes == count * (65536 - 50 * 48)
    assert f"Class 48 B: {count} slabs" in found.text
    assert "hold 3.7 % live blocks" in found.text


def with_options(snapshot: Snapshot, *options: tuple[str, str]) -> Snapshot:
    return replace(
        snapshot, options=tuple(Option(name, 0, text, "environment") for name, text in options)
    )


def changed_class(snapshot: Snapshot, **changes: Any) -> Snapshot:
    first, *others = snapshot.classes
    return replace(snapshot, classes=(replace(first, **changes), *others))


def core(snapshot: Snapshot) -> Snapshot:
    """The same where nobody knows what was resident."""
    return replace(snapshot, waterfall=None, residency=False)


CASES: list[tuple[str, Callable[[Snapshot], Snapshot], str]] = [
    ("thread_caches", lambda s: replace(s, waterfall=waterfall(live=9 * MIB, cached=3 * MIB)),
     "hold 3.0 MiB ready, 25 % of all"),
    ("thread_caches", lambda s: changed_class(core(s), cached_blocks=200_000), "hold 3.1 MiB"),
    ("remote_frees", lambda s: replace(s, waterfall=waterfall(live=9 * MIB, remote=3 * MIB)),
     "3.0 MiB were freed by other threads"),
    ("remote_frees", lambda s: changed_class(core(s), remote_blocks=400_000), "6.1 MiB were"),
    ("quarantine", lambda s: replace(s, waterfall=waterfall(live=9 * MIB, quarantined=3 * MIB)),
     "3.0 MiB of freed blocks are held back"),
    ("quarantine", lambda s: changed_class(core(s), quarantined_blocks=400_000), "held back"),
    ("empty_slabs", lambda s: changed_class(core(s), slabs=99, slab_bytes=99 << 16,
                                            fullness=(99, 0, 0, 0, 0, 0)),
     "99 slabs without a live block hold 6.2 MiB"),
    ("slack", lambda s: changed_class(s, slack_bytes=3 * MIB, live_blocks=900_000),
     "Class 16 B: about 3.0 MiB of its 13.7 MiB"),
    ("dominant_class", lambda s: changed_class(s, live_blocks=9_000_000), "Class 16 B is 9"),
    ("dirty_pages", lambda s: replace(s, waterfall=waterfall(live=9 * MIB, dirty=2 * MIB)),
     "2.0 MiB of free pages"),
    ("huge_kept", lambda s: replace(s, waterfall=waterfall(live=9 * MIB, huge_kept=2 * MIB)),
     "2.0 MiB of freed huge blocks"),
    ("metadata", lambda s: replace(s, waterfall=waterfall(live=9 * MIB, metadata=2 * MIB)),
     "take 2.0 MiB, 18 % of all"),
    ("foreign_memory", lambda s: replace(s, waterfall=waterfall(live=9 * MIB, other=90 * MIB)),
     "91 % of the resident memory, 90.0 MiB"),
    ("unexplained", lambda s: replace(s, waterfall=waterfall(live=9 * MIB, unexplained=MIB)),
     "1.0 MiB, 10 % of the resident memory, are not explained"),
    ("unexplained", lambda s: replace(s, waterfall=waterfall(live=9 * MIB, unexplained=-MIB)),
     "were counted twice"),
    ("unsettled", lambda s: replace(s, unsettled_share=0.031), "at most 3.10 % of its blocks may"),
    ("incomplete", lambda s: replace(s, notes=("Two pages could not be read.",)),
     "Two pages could not be read."),
    ("failures", lambda s: replace(s, counters={"failures": 12}), "for want of memory: 12."),
    ("misuses", lambda s: replace(s, counters={"misuses": 1}), "and the process went on: 1."),
    ("os_failures", lambda s: replace(s, counters={"os_failures": 3}), "that failed: 3."),
]  # fmt: skip


def test_of_a_frozen_process_nothing_changed() -> None:
    snapshot = replace(healthy(), waterfall=waterfall(live=9 * MIB, unexplained=-MIB))
    for frozen in (False, True):
        (found,) = of_kind(replace(snapshot, origin=Origin.PROCESS, frozen=frozen), "unexplained")
        assert ("--freeze" in found.advice) is not frozen
        assert ("changed" in found.advice) is not frozen


@pytest.mark.parametrize(("kind", "change", "words"), CASES)
def test_finding_when_there_is_reason(
    kind: str, change: Callable[[Snapshot], Snapshot], words: str
) -> None:
    assert of_kind(healthy(), kind) == []
    found = of_kind(change(healthy()), kind)
    assert len(found) == 1
    assert words in found[0].text


@pytest.mark.parametrize("origin", list(Origin))
def test_how_far_the_counts_hold_is_said_alike(origin: Origin) -> None:
    """Only of a process that goes on is it said so, and only that one can be stopped."""
    snapshot = replace(healthy(), origin=origin, unsettled_share=0.031)
    (found,) = of_kind(snapshot, "unsettled")
    assert "at most 3.10 % of" in found.text
    is_process = origin is Origin.PROCESS
    assert ("It went on while it was read" in found.text) == is_process
    assert ("--freeze" in found.advice) == is_process
    assert found.text in render(snapshot, Style(io.StringIO(), {}))
    unexplained = replace(snapshot, waterfall=waterfall(live=9 * MIB, unexplained=MIB))
    (found,) = of_kind(unexplained, "unexplained")
    assert ("--freeze" in found.advice) == is_process


def test_empty_slabs_are_weighed_by_what_of_them_is_resident() -> None:
    snapshot, count = with_class_of(0, 60_000)
    (found,) = of_kind(snapshot, "empty_slabs")
    assert found.bytes == 60_000 * count
    assert f"{count} slabs without a live block" in found.text


def test_a_class_is_a_share_of_all_that_is_live() -> None:
    """Also in a line of a series, which has the totals of large blocks alone."""
    made = make_snapshot()
    runs = made.runs.copy()
    runs["large_bytes"][runs["kind"] == RunKind.LARGE] = 12 * MIB
    gauges = {**made.gauges, "large_blocks": 3, "large_bytes": 36 * MIB}
    blocks = 24 * MIB // 16
    whole = changed_class(replace(made, runs=runs, gauges=gauges), live_blocks=blocks)
    assert of_kind(whole, "dominant_class") == []
    totals = jsonform.decode(json.loads(json.dumps(jsonform.encode(whole, "totals"))))
    assert totals.live_bytes == whole.live_bytes
    assert of_kind(totals, "dominant_class") == []
    (found,) = of_kind(replace(totals, gauges={}), "dominant_class")
    assert "Class 16 B is 7" in found.text


def test_one_block_that_is_most_of_the_heap() -> None:
    snapshot = replace(healthy(), huge=make_snapshot().huge)
    (found,) = of_kind(snapshot, "dominant_block")
    assert "6.0 MiB at 0x7f3a80000000" in found.text


def test_heaps_of_ended_threads() -> None:
    made = make_snapshot(superslab_count=12)
    (found,) = of_kind(made, "ended_threads")
    heap = made.heaps[-1]
    assert found.bytes == heap.slab_bytes - heap.live_bytes


def test_advice_names_the_present_value_of_an_option() -> None:
    base = replace(healthy(), waterfall=waterfall(live=9 * MIB, dirty=2 * MIB))
    (found,) = of_kind(with_options(base, ("purge_delay_ms", "750")), "dirty_pages")
    assert "HAKMEM_PURGE_DELAY_MS (now 750)" in found.advice
    (found,) = of_kind(with_options(base), "dirty_pages")
    assert "HAKMEM_PURGE_DELAY_MS," in found.advice


def test_what_wants_attention_comes_first_and_then_the_largest() -> None:
    found = findings(replace(make_snapshot(superslab_count=12), counters={"failures": 1}))
    order = [list(Severity).index(finding.severity) for finding in found]
    assert order == sorted(order)
    notes = [finding.bytes for finding in found if finding.severity is Severity.NOTE]
    assert notes == sorted(notes, reverse=True)


def test_json_has_what_stands_out() -> None:
    """In the order of all that shows it, also of what was read from JSON; not in a series."""
    snapshot = replace(make_snapshot(superslab_count=12), counters={"failures": 1})
    facts = json.loads(json.dumps(jsonform.encode(snapshot, "runs")))
    assert facts["findings"] == [vars(finding) for finding in findings(snapshot)]
    assert facts["findings"][0]["kind"] == "failures"
    assert {each["severity"] for each in facts["findings"]} >= {"warn", "note"}
    assert jsonform.encode(jsonform.decode(facts), "runs")["findings"] == facts["findings"]
    assert "findings" not in jsonform.encode(snapshot, "totals")


def test_every_kind_is_documented() -> None:
    source = Path(inspected.__file__).read_text(encoding="utf-8")
    kinds = set(re.findall(r'Finding\(\s*"(\w+)"|^ +\(*"(\w+)", "[A-Z]', source, re.MULTILINE))
    named = {first or second for first, second in kinds}
    assert {"sparse_slabs", "os_failures", "efficiency"} <= named
    documented = (ROOT / "docs" / "OBSERVING.md").read_text(encoding="utf-8")
    _, _, table = documented.partition("\n| kinds | about |\n")
    assert set(re.findall(r"`(\w+)`", table.partition("\n\n")[0])) == named


def test_a_core_has_no_residency_and_still_findings() -> None:
    kinds = {finding.kind for finding in findings(core(with_class_of(50, 65536)[0]))}
    assert {"sparse_slabs", "ended_threads"} <= kinds
    assert not {"unexplained", "efficiency", "dirty_pages"} & kinds
