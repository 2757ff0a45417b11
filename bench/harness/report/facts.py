"""The tables of a report about everything else: latency, OS calls, rest, refusals, provenance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..figures import spread
from . import standing
from .cells import Cell, Table, bytes_text, cells
from .results import CaseFacts, Results, extra

LATENCY_POINTS = ("p50", "p90", "p99", "p99_9", "p99_99", "p99_999", "max")


def latency(results: Results) -> list[Table]:
    """Percentiles of single calls, one table per row and call."""
    tables = []
    for case in results.cases:
        for call in ("malloc", "free"):
            rows = []
            for name in results.allocators:
                own = [row["latency"][call] for row in results.of(case.name, name)
                       if call in (row.get("latency") or {})]  # fmt: skip
                if own:
                    rows.append((name, {point: spread([float(each[point]) for each in own]).median
                                        for point in LATENCY_POINTS}))  # fmt: skip
            if rows:
                tables.append(_latency_table(results, case, call, rows))
    return tables


def _latency_table(
    results: Results, case: CaseFacts, call: str, rows: Sequence[tuple[str, dict[str, float]]]
) -> Table:
    best = {
        point: standing.best(results, {name: found[point] for name, found in rows})
        for point in LATENCY_POINTS
    }
    return Table(
        f"{case.name}: {call}",
        "Nanoseconds per call, medians of the repetitions; shaded by the multiple of the best.",
        ["allocator", *(point.replace("_", ".") for point in LATENCY_POINTS)],
        [
            [Cell(name)]
            + [
                Cell(
                    f"{found[point]:,.0f}",
                    ratio=found[point] / max(best[point], 1e-9),
                    first=name in results.contenders and found[point] <= best[point],
                )
                for point in LATENCY_POINTS
            ]
            for name, found in rows
        ],
        anchor=f"latency-{case.name}-{call}",
    )


CALLS = ("mmap", "munmap", "madvise", "mremap", "brk", "mprotect", "futex")


def counts(results: Results) -> list[Table]:
    """OS calls and memory after two seconds of rest, one table per row of the matrix."""
    tables = []
    for case in results.cases:
        rows = []
        for name in results.allocators:
            found = results.counts.get((case.name, name))
            if found is None:
                continue
            calls = found.get("syscalls") or {}
            per_op = found.get("instructions_per_op")
            rows.append(
                cells(
                    name,
                    *(f"{calls.get(call, 0):,}" for call in CALLS),
                    f"{found.get('calls_total', sum(calls.values())):,}",
                    _optional(found.get("end_rss_bytes"), bytes_text),
                    _optional(found.get("idle_rss_bytes"), bytes_text),
                    _optional(per_op, lambda value: f"{value:.1f}"),
                )
            )
        if rows:
            tables.append(
                Table(
                    case.name,
                    case.about,
                    ["allocator", *CALLS, "all calls", "RSS at end", "RSS 2 s later",
                     "instructions/op"],
                    rows,
                    anchor=f"counts-{case.name}",
                )
            )  # fmt: skip
    return tables


def _optional(value: Any, text: Callable[[float], str]) -> str:
    return "-" if value is None else text(float(value))


def os_calls(results: Results) -> Table | None:
    """The total of memory calls of all allocators on all rows, from the counted runs."""
    rows = []
    for case in results.cases:
        found = {
            name: sum((results.counts[case.name, name].get("syscalls") or {}).values())
            for name in results.allocators
            if (case.name, name) in results.counts
        }
        if not found:
            continue
        least = max(1.0, standing.best(results, found))
        rows.append(
            [Cell(case.name, hint=case.about)]
            + [
                Cell(f"{found[name]:,}", ratio=max(1.0, found[name] / least))
                if name in found
                else Cell("-")
                for name in results.allocators
            ]
        )
    if not rows:
        return None
    return Table(
        "OS calls",
        f"Calls of {', '.join(CALLS)} in one separate, untimed run of each pair.",
        ["row", *results.allocators],
        rows,
        anchor="os-calls",
    )


def idle_memory(results: Results) -> Table | None:
    """What is still resident two seconds after the work, without a further call."""
    rows = []
    for case in results.cases:
        found: dict[str, float] = {}
        for name in results.allocators:
            readings = [extra(row, "idle_rss_bytes") for row in results.of(case.name, name)]
            own = [value for value in readings if value is not None]
            counted = results.counts.get((case.name, name), {}).get("idle_rss_bytes")
            if own or counted is not None:
                found[name] = spread(own).median if own else float(str(counted))
        if found:
            least = standing.best(results, found)
            rows.append(
                [Cell(case.name, hint=case.about)]
                + [
                    Cell(bytes_text(found[name]), ratio=max(1.0, found[name] / least))
                    if name in found
                    else Cell("-")
                    for name in results.allocators
                ]
            )
    if not rows:
        return None
    return Table(
        "Memory two seconds after the work",
        "RSS of the living process, without any further call of malloc or free; the workload's own "
        "memory included.",
        ["row", *results.allocators],
        rows,
        anchor="idle",
    )


def refused(results: Results) -> Table | None:
    """Runs that do not count, and why."""
    seen: dict[tuple[str, str, str, str], int] = {}
    for row in results.refused:
        key = tuple(str(row.get(name, "")) for name in ("case", "allocator", "kind", "why"))
        seen[key[0], key[1], key[2], key[3]] = seen.get((key[0], key[1], key[2], key[3]), 0) + 1
    if not seen:
        return None
    return Table(
        "Refused and failed runs",
        "A pair that was refused or failed once is not run again and has no figures here.",
        ["row", "allocator", "kind", "why"],
        [cells(*key) for key in seen],
        text_columns=4,
        anchor="refused",
    )


def allocators(results: Results) -> Table:
    """Which build of which version each name stands for."""
    rows = []
    for name in results.allocators:
        facts = (results.manifest.get("allocators") or {}).get(name, {})
        package = " ".join(str(facts[key]) for key in ("package", "crate") if facts.get(key))
        rows.append(
            cells(
                name,
                str(facts.get("version") or "-"),
                package or "-",
                str(facts.get("build") or "-"),
                str(facts.get("compiler") or "-"),
                str(facts.get("library") or "-"),
                str(facts.get("build_id") or "-")[:12],
                str(facts.get("sha256") or "-")[:12],
            )
        )
    return Table(
        "Allocators",
        "Compare builds with care: two builds of one allocator differ by up to 10 %.",
        ["name", "version", "package", "build", "compiler", "file", "build id", "SHA-256"],
        rows,
        text_columns=8,
        anchor="allocators",
    )


MACHINE = (
    ("cpu", "processor"), ("cpus", "CPUs"), ("memory_bytes", "memory"), ("kernel", "kernel"),
    ("libc", "C library"), ("huge_pages", "transparent huge pages"),
    ("overcommit", "overcommit"), ("pinned_cpu", "CPU of one-thread rows"),
    ("blocks", "repetitions"), ("scale", "scale"), ("order_seed", "seed of the order"),
    ("load_average", "load at the start"),
    ("seconds", "duration"), ("at", "at"), ("state", "state"), ("commit", "commit"),
    ("workload_compiler", "compiler of the workloads"), ("command", "command"),
)  # fmt: skip


def machine(results: Results) -> Table:
    """Where and how it was measured."""
    rows = []
    for key, words in MACHINE:
        value = results.manifest.get(key)
        if value is None or value == "":
            continue
        if key == "memory_bytes":
            value = bytes_text(float(value))
        elif key in ("seconds", "load_average"):
            value = f"{float(value):.1f}" + (" s" if key == "seconds" else "")
        rows.append(cells(words, str(value)))
    return Table("Machine and run", "", ["", ""], rows, text_columns=2, anchor="machine")
