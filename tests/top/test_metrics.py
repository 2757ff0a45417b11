"""Metric families: names, units and figures; and the same through promtool's eyes."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from hakmem.metrics import collect, text
from hakmem.metrics.collect import PROCESSES_MAX, HeapCollector
from hakmem.metrics.families import HEAPS_MAX, Look, families, metric_name
from hakmem.options import Counter, read_counters
from hakmem.project import find_project
from tests.inspect.support.synthetic import make_snapshot
from tests.patience import HANG_SECONDS
from tests.top.dashboard import DASHBOARD, promql_queries, queries
from tests.top.support import MadeUpSession, made_up_sampler

ROWS = read_counters(find_project().counters_table)


def samples(looks: list[Look]) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample, by name and labels; none may come twice."""
    found: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
    for metric in families(looks, ROWS):
        for sample in metric.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            found[key] = sample.value
    return found


def key(sample: str, **labels: str) -> tuple[str, frozenset[tuple[str, str]]]:
    return sample, frozenset(labels.items())


SERVER = {"pid": "4242", "name": "server"}


def test_figures_are_those_of_the_snapshot() -> None:
    snapshot = make_snapshot()
    found = samples([Look(4242, snapshot)])
    assert found[key("hakmem_refills_total", **SERVER)] == snapshot.counters["refills"]
    assert found[key("hakmem_live_bytes", **SERVER)] == snapshot.gauges["live_bytes"]
    for row in snapshot.classes:
        labels = {**SERVER, "class": str(row.block_bytes)}
        assert found[key("hakmem_class_live_blocks", **labels)] == row.live_blocks
    for heap in snapshot.heaps:
        labels = {**SERVER, "heap": str(heap.id)}
        assert found[key("hakmem_heap_live_bytes", **labels)] == heap.live_bytes
    assert snapshot.waterfall is not None
    parts = [value for (name, _), value in found.items() if name == "hakmem_resident_bytes"]
    assert sum(parts) == snapshot.waterfall.rss_bytes


def test_process_that_cannot_be_read_has_one_sample() -> None:
    assert samples([Look(7, None)]) == {key("hakmem_readable", pid="7"): 0.0}


def test_unit_is_last_in_a_name() -> None:
    assert metric_name(Counter("GAUGE", "mapped_bytes_max", "bytes", "")) == (
        "hakmem_mapped_max_bytes"
    )
    for metric in families([], ROWS):
        assert "bytes" not in metric.name or metric.name.endswith("_bytes")
        assert metric.unit == "" or metric.name.endswith(f"_{metric.unit}")
        assert metric.documentation


def test_every_row_of_the_table_is_a_metric() -> None:
    names = {metric.name for metric in families([], ROWS)}
    assert {metric_name(row) for row in ROWS} <= names
    assert len(names) == len(families([], ROWS))


def test_heaps_are_bounded() -> None:
    snapshot = make_snapshot()
    heaps = tuple(replace(snapshot.heaps[0], id=number, live_bytes=3) for number in range(1000))
    found = samples([Look(4242, replace(snapshot, heaps=heaps))])
    labels = [dict(pairs)["heap"] for name, pairs in found if name == "hakmem_heap_live_bytes"]
    assert len(labels) == HEAPS_MAX + 1
    other = key("hakmem_heap_live_bytes", **SERVER, heap="other")
    assert found[other] == 3 * (1000 - HEAPS_MAX)


def test_processes_are_bounded_and_the_largest_stay() -> None:
    sessions = {pid: MadeUpSession(10) for pid in range(100, 100 + PROCESSES_MAX + 5)}
    sampler = made_up_sampler(sessions, given=False)
    collector = HeapCollector(sampler, ROWS, PROCESSES_MAX)
    pids = [view.pid for view in collector.look()]
    assert pids == sorted(sessions, reverse=True)[:PROCESSES_MAX]


def test_of_processes_that_were_named_each_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many; above all those that cannot be read."""
    sessions = {pid: MadeUpSession(10) for pid in range(100, 100 + PROCESSES_MAX + 5)}
    sessions[104] = MadeUpSession(10, looks_max=0)
    monkeypatch.setattr(collect, "ProcessSession", sessions.__getitem__)
    with collect.collecting(list(sessions), ROWS) as collector:
        problems = {view.pid: view.problem for view in collector.look()}
    assert problems.keys() == sessions.keys()
    assert [pid for pid, problem in problems.items() if problem is not None] == [104]


def test_ended_process_has_no_old_figures() -> None:
    collector = HeapCollector(made_up_sampler({10: MadeUpSession(10, looks_max=1)}), ROWS)
    assert any(
        metric.name == "hakmem_live_bytes" and metric.samples for metric in collector.collect()
    )
    assert not any(
        metric.name == "hakmem_live_bytes" and metric.samples for metric in collector.collect()
    )


def test_openmetrics_reads_back() -> None:
    made = families([Look(4242, make_snapshot())], ROWS)
    back = list(text_string_to_metric_families(text.openmetrics(made)))
    assert [metric.name for metric in back] == [metric.name for metric in made]
    assert sum(len(metric.samples) for metric in back) > 100


def test_names_are_escaped() -> None:
    snapshot = replace(make_snapshot(), name='a"b\\c\nd' + "x" * 1000)
    made = families([Look(1, snapshot)], ROWS)
    (live,) = (
        metric
        for metric in text_string_to_metric_families(text.openmetrics(made))
        if metric.name == "hakmem_live_bytes"
    )
    assert live.samples[0].labels["name"] == ('a"b\\c\nd' + "x" * 1000)[:64]


def test_json_has_the_same_samples() -> None:
    made = families([Look(4242, make_snapshot())], ROWS)
    facts = json.loads(json.dumps(text.metrics_json(made)))
    assert facts["schema"] == "hakmem.metrics/1"
    (live,) = (metric for metric in facts["metrics"] if metric["name"] == "hakmem_live_bytes")
    assert (live["type"], live["unit"]) == ("gauge", "bytes")
    assert live["samples"][0]["labels"] == SERVER


# ---- The dashboard


def exported_names() -> set[str]:
    looks = [Look(4242, make_snapshot())]
    with_all = {sample.name for metric in families(looks, ROWS) for sample in metric.samples}
    # The made-up snapshot has not every counter.
    names = {
        metric.name + ("_total" if metric.type == "counter" else "")
        for metric in families([], ROWS)
    }
    return with_all | names


def test_every_query_of_the_dashboard_names_an_exported_metric() -> None:
    exported = exported_names()
    assert len(queries()) > 20
    for query in queries():
        named = set(re.findall(r"\bhakmem_\w+", query))
        assert named and named <= exported, query


def test_dashboard_is_whole() -> None:
    facts = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    panels = facts["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert all(panel["title"] and panel["description"] and panel["targets"] for panel in panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        area = {
            (column, row)
            for column in range(place["x"], place["x"] + place["w"])
            for row in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & area
        cells |= area


def test_promtool_understands_every_query(tmp_path: Path) -> None:
    def check(expressions: list[str]) -> subprocess.CompletedProcess[str]:
        rules = [{"record": f"r{i}", "expr": query} for i, query in enumerate(expressions)]
        file = tmp_path / "rules.json"  # JSON is YAML
        file.write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}), encoding="utf-8")
        return subprocess.run(
            ["promtool", "check", "rules", file],
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
        )

    wanted = promql_queries()
    done = check(wanted)
    assert done.returncode == 0, done.stderr
    assert check([*wanted, "sum by (pid hakmem_live_bytes"]).returncode != 0


@pytest.mark.parametrize("spoilt", [False, True])
def test_promtool_has_nothing_to_say_about_the_metrics(spoilt: bool) -> None:
    """In the classic format, which promtool reads. The control: a unit that is none."""
    from prometheus_client import CollectorRegistry, generate_latest

    sessions = {10: MadeUpSession(10), 11: MadeUpSession(11)}
    registry = CollectorRegistry()
    registry.register(HeapCollector(made_up_sampler(sessions), ROWS))
    data = generate_latest(registry)
    if spoilt:
        data += b"# HELP hakmem_kept_kilobytes Kept.\n# TYPE hakmem_kept_kilobytes counter\n"
        data += b"hakmem_kept_kilobytes 1\n"
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=data, capture_output=True, timeout=HANG_SECONDS
    )
    said = (done.stdout + done.stderr).decode()
    assert (done.returncode != 0 or said != "") == spoilt, said
