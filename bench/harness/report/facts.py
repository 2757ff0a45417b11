"""The tables of a report about everything else: latency, OS calls, rest, refusals, provenance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..figures import spread
from ..layout import display
from ..store import read_manifest
from . import standing
from .cells import Cell, Table, bytes_text, cells
from .results import CaseFacts, Results, Session, build_id, extra, short_id

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


def _whole(
    results: Results,
    table: Table,
    value: Callable[[str, str], float | None],
    text: Callable[[float], str],
) -> Table | None:
    """Fills a table of all rows and allocators with one figure, shaded by the multiple of the best;
    none when nobody has the figure."""
    for case in results.cases:
        found = {name: figure for name in results.allocators
                 if (figure := value(case.name, name)) is not None}  # fmt: skip
        if not found:
            continue
        least = max(1.0, standing.best(results, found))
        line = [Cell(case.name, hint=case.about)]
        for name in results.allocators:
            ratio = max(1.0, found.get(name, 0.0) / least)
            line.append(Cell(text(found[name]), ratio=ratio) if name in found else Cell("-"))
        table.rows.append(line)
    return table if table.rows else None


def os_calls(results: Results) -> Table | None:
    """The total of memory calls of all allocators on all rows, from the counted runs."""

    def calls(case: str, name: str) -> float | None:
        counted = results.counts.get((case, name))
        return None if counted is None else float(sum((counted.get("syscalls") or {}).values()))

    note = f"Calls of {', '.join(CALLS)} in one separate, untimed run of each pair."
    table = Table("OS calls", note, ["row", *results.allocators], anchor="os-calls")
    return _whole(results, table, calls, lambda value: f"{value:,.0f}")


def idle_memory(results: Results) -> Table | None:
    """What is still resident two seconds after the work, without a further call."""

    def resident(case: str, name: str) -> float | None:
        readings = [
            idle - (extra(row, "frame_bytes") or 0.0)
            for row in results.of(case, name)
            if (idle := extra(row, "idle_rss_bytes")) is not None
        ]
        counted = results.counts.get((case, name), {})
        if not readings and counted.get("idle_rss_bytes") is not None:
            readings = [float(counted["idle_rss_bytes"]) - float(counted.get("frame_bytes") or 0)]
        return spread(readings).median if readings else None

    note = (
        "RSS of the living process, without any further call of malloc or free, less what the "
        "workload's frame maps for its books."
    )
    title = "Memory two seconds after the work"
    table = Table(title, note, ["row", *results.allocators], anchor="idle")
    return _whole(results, table, resident, bytes_text)


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
        build = str(facts.get("build") or facts.get("package") or "-")
        settings = [f"{key}={value}" for key, value in (facts.get("environment") or {}).items()]
        rows.append(
            cells(
                name,
                str(facts.get("version") or "-"),
                " ".join([build, *settings]),
                str(facts.get("compiler") or "-"),
                str(facts.get("library") or "-"),
                str(facts.get("build_id") or "-")[:12],
                str(facts.get("sha256") or "-")[:12],
            )
        )
    return Table(
        "Allocators",
        "Compare builds with care: two builds of one allocator differ by up to 10 %.",
        ["name", "version", "build and settings", "compiler", "file", "build id", "SHA-256"],
        rows,
        text_columns=7,
        anchor="allocators",
    )


MACHINE = (
    ("cpu", "processor"), ("cpus", "CPUs"), ("memory_bytes", "memory"), ("kernel", "kernel"),
    ("libc", "C library"), ("huge_pages", "transparent huge pages"),
    ("huge_pages_defrag", "huge page defragmentation"), ("aslr", "address randomisation"),
    ("governor", "frequency governor"), ("overcommit", "overcommit"),
    ("pinned_cpu", "CPU of one-thread rows"),
    ("blocks", "repetitions"), ("scale", "scale"), ("order_seed", "seed of the order"),
    ("load_average", "load at the start"),
    ("seconds", "duration"), ("at", "at"), ("state", "state"), ("commit", "commit"),
    ("workload_compiler", "compiler of the workloads"), ("command", "command"),
)  # fmt: skip


def _loads(results: Results, session: Session) -> str:
    """Over all rows of a session; the threads of the rows themselves are in it."""
    loads = [float(row["load_average"]) for (case, _), rows in results.rows.items()
             if case in session.cases for row in rows]  # fmt: skip
    found = spread(loads) if loads else None
    return f"{found.median:.1f}, {found.high:.1f}" if found else "-"


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
        if key == "load_average":
            rows.append(
                cells("load while it ran: median, highest", _loads(results, results.sessions[0]))
            )
    return Table("Machine and run", "", ["", ""], rows, text_columns=2, anchor="machine")


def _command(manifest: Mapping[str, Any]) -> str:
    """What measures this kind of results."""
    kind = str(manifest.get("kind", ""))
    return kind if kind == "soak" else f"bench {kind}"


def sessions(results: Results, beside: Sequence[Path] = ()) -> Table | None:
    """Which rows come from which run, where there is more than one; and what was not measured by
    the matrix but beside it."""
    if len(results.sessions) == 1 and not beside:
        return None
    first = results.sessions[0].manifest.get("allocators") or {}
    rows = []
    for each in results.sessions:
        names = [case.name for case in results.cases if case.name in each.cases]
        own = each.manifest.get("allocators") or {}
        changed = [
            name
            for name, facts in own.items()
            if name in first and facts.get("sha256") != first[name].get("sha256")
        ]
        rows.append(
            cells(
                display(each.folder.absolute()),
                "the others" if each is results.sessions[0] else " ".join(names),
                f"{float(each.manifest.get('scale') or 1.0):g}",
                str(each.manifest.get("blocks", "-")),
                f"{float(each.manifest.get('load_average') or 0.0):.1f}",
                _loads(results, each),
                short_id(each.manifest.get("commit")),
                short_id(build_id(each.manifest, results.subject)),
                " ".join(changed) or "-",
            )
        )
    for folder in dict.fromkeys(beside):
        manifest = read_manifest(folder)
        rows.append(
            cells(
                display(folder.absolute()),
                f"`hakmem {_command(manifest)}`",
                "-",
                "-",
                f"{float(manifest.get('load_average') or 0.0):.1f}",
                "-",
                short_id(manifest.get("commit")),
                short_id(build_id(manifest, results.subject)),
                "-",
            )
        )
    return Table(
        "Sessions",
        "What a session named later measured of a row replaces all of the row, so that its figures "
        "come from one session; a mean over rows is of several. Starts, calls and soaks are "
        "measured by commands of their own, named in place of rows.",
        ["results", "rows", "scale", "repetitions", "load at the start",
         "load while it ran: median, highest", "commit", f"build of {results.subject}",
         "other builds than the first session's"],
        rows,
        text_columns=9,
        anchor="sessions",
    )  # fmt: skip
