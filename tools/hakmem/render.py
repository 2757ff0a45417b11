"""The summary of a run and the tables, as text for people and as JSON for programs."""

from __future__ import annotations

import json
import os
import re
from collections import Counter as Tally
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from hakmem.analysis import OWN, Absent, Ending, ProcessFacts, RunFacts, Verdict, programs
from hakmem.options import Option, OptionTable
from hakmem.spawn import Ended

RUN_SCHEMA = "hakmem.run/1"
OPTIONS_SCHEMA = "hakmem.options/1"
DOCTOR_SCHEMA = "hakmem.doctor/1"
VERSION_SCHEMA = "hakmem.version/1"

LIST_MAX = 6
LABEL_WIDTH = 11
# A program that takes so long can be looked at while it runs.
LOOKED_AT_S = 5.0
# Whose default is a core file, of those that a program is likely to end by.
CORE_SIGNALS = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGTRAP", "SIGQUIT", "SIGSYS")
OS_CALL_PREFIX = "os_"
BOOK_NAMES = (
    ("refills", "refills"),
    ("flushes", "flushes"),
    ("remote_blocks", "remote frees"),
    ("slabs_created", "slabs made"),
    ("large_allocs", "large blocks"),
    ("huge_allocs", "huge blocks"),
    ("mallocs_seen", "calls counted"),
)

LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")
NO_ASCII = re.compile(r"[^\x00-\x7f]")

Json = dict[str, Any]


class Style:
    """Colours, when the user and the stream want them. NO_COLOR wins over FORCE_COLOR."""

    def __init__(self, stream: TextIO, environment: Mapping[str, str]) -> None:
        wanted = stream.isatty() and environment.get("TERM") != "dumb"
        if environment.get("FORCE_COLOR") not in (None, "", "0"):
            wanted = True
        if environment.get("NO_COLOR"):
            wanted = False
        self.colours = wanted

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colours else text

    def good(self, text: str) -> str:
        return self._paint("1;32", text)

    def bad(self, text: str) -> str:
        return self._paint("1;31", text)

    def strong(self, text: str) -> str:
        return self._paint("1", text)

    def faint(self, text: str) -> str:
        return self._paint("2", text)


def size(count: int) -> str:
    """Bytes as people read them; exact below 1 KiB."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


def _plural(count: int, word: str, plural: str | None = None) -> str:
    return f"{count:,} {word if count == 1 else plural or word + 's'}"


def _program(path: str) -> str:
    return Path(path).name or path


def _few(items: Sequence[str]) -> str:
    shown = ", ".join(items[:LIST_MAX])
    return shown if len(items) <= LIST_MAX else f"{shown} and {len(items) - LIST_MAX} more"


# ---- The summary of a run


def headline(facts: RunFacts, style: Style) -> str:
    match facts.verdict:
        case Verdict.ACTIVE:
            return style.good("active") + (
                f": every malloc symbol of every loaded module resolves to {facts.library}"
            )
        case Verdict.PARTIAL:
            what = "another malloc"
            if facts.has_operators_alone:
                # Whether these call malloc only their code could tell.
                what = "operators new and delete that are not hakmem's"
            return style.bad("NOT fully active") + f": part of what ran used {what}:"
        case Verdict.UNPROVED:
            return style.bad("not proved") + ": hakmem was loaded, but cannot show that it served:"
        case _:
            return style.bad("NOT ACTIVE") + ": the program ran on another malloc:"


def _problem_lines(facts: RunFacts) -> list[str]:
    lines = []
    if facts.unread_reports:
        lines.append(_unread_line(facts))
    for absent in (*facts.absent, *facts.unwritten):
        lines.append(f"pid {absent.pid} {absent.exe or '(unknown program)'}: {absent.reason}")
    groups: dict[tuple[str, str, str], dict[str, None]] = {}
    for process in facts.processes:
        for stray in process.strays:
            key = (process.report.exe, stray.module, stray.provider)
            groups.setdefault(key, {})[stray.symbol] = None
        if process.verdict in (Verdict.INACTIVE, Verdict.UNPROVED):
            report = process.report
            lines.append(f"pid {report.pid} {report.exe}: {process.reason}")
    for (exe, module, provider), symbols in groups.items():
        inside = "" if module == exe else f" (in {_program(exe)})"
        lines.append(f"{module}{inside}: {_few(list(symbols))} -> {provider}")
    unique = list(dict.fromkeys(lines))
    if len(unique) > 2 * LIST_MAX:
        rest = len(unique) - 2 * LIST_MAX
        unique = [*unique[: 2 * LIST_MAX], f"and {rest} more; --json lists all of them"]
    return unique


def _process_line(facts: RunFacts) -> str:
    told = programs(facts.processes)
    proved = [process for process in told if process.verdict is Verdict.ACTIVE]
    names = Tally(process.report.name for process in proved)
    listed = _few([f"{name} x {count}" if count > 1 else name for name, count in names.items()])
    untold = len(facts.absent) + len(facts.unwritten) + facts.unread_reports
    others = len(told) - len(proved) + untold
    text = f"{_plural(facts.process_count, 'process', 'processes')}"
    program_count = len(told) + untold
    if program_count > facts.process_count:
        text += f" ran {_plural(program_count, 'program')} (exec)"
    text += ", all proved" if not others else f"; {len(proved)} proved, {others} NOT proved"
    if proved:
        text += f": {listed}"
    start_only = Tally(
        process.ending
        for process in proved
        if process.ending is not Ending.EXIT or process.proved_at != "exit"
    )
    notes = {
        Ending.EXIT: "forked beside other threads",
        Ending.NO_EXIT: "ended by a signal, _exit or exec",
        Ending.RUNNING: "still running",
        Ending.EXEC: "replaced by exec",
    }
    endings = [f"{count} {notes[ending]}" for ending, count in start_only.items()]
    return text + (f" (proved at their start: {', '.join(endings)})" if endings else "")


def _unreported_line(count: int) -> str:
    children = _plural(count, "forked child", "forked children")
    return (
        f"{children} left no report, and count nowhere: no file could be made there"
        " (a root of its own, a limit of files, a full disk)"
    )


def _unread_line(facts: RunFacts) -> str:
    left = _plural(facts.unread_reports, "report was", "reports were")
    return (
        f"{left} not read, after {len(facts.processes):,} that were: what ran there is not proved,"
        " and the figures below are without it"
    )


def _book_line(facts: RunFacts) -> str:
    if not any(process.books_moved for process in facts.processes):
        if all(process.ending is Ending.EXIT for process in facts.processes):
            return "did not move: the program asked for no memory"
        return "had not moved when last written, which is now and then and at exit"
    parts = [
        f"{title} {facts.totals[name]:,}"
        for name, title in BOOK_NAMES
        if facts.totals.get(name) or name == "refills"
    ]
    return " · ".join(parts)


def _memory_line(process: ProcessFacts) -> str:
    report = process.report
    peak = size(process.peak_rss_bytes) if process.peak_rss_bytes else "unknown"
    if process.peak_rss_bytes and not process.peak_is_exact:
        peak = f"at least {peak}"
    text = f"peak RSS {peak} ({report.name}, pid {report.pid})"
    if report.refreshed:
        when = "at exit" if report.exited else "when last seen"
        live = size(report.books.get("live_bytes", 0))
        cached = size(report.books.get("cached_bytes", 0))
        text += f" · {when} live {live}, cached {cached}"
        if "dirty_bytes" in report.books:
            text += f", free in slabs {size(report.books.get('slab_free_bytes', 0))}"
            text += f", dirty {size(report.books['dirty_bytes'])}"
    return text


def _os_calls(totals: Mapping[str, int]) -> list[tuple[str, int]]:
    calls = [
        (name.removeprefix(OS_CALL_PREFIX), count)
        for name, count in totals.items()
        if name.startswith(OS_CALL_PREFIX) and count
    ]
    return sorted(calls, key=lambda call: (call[0] == "failures", -call[1]))


def summary_text(facts: RunFacts, ended: Ended, style: Style) -> str:
    """About ten lines, each beginning with "hakmem:" or a label."""
    rows: list[tuple[str, str]] = []
    rows.extend(("", line) for line in _problem_lines(facts))
    how = ended.signal_name or f"exit status {ended.code}"
    cpu = f"user {ended.user_s:.2f} s, system {ended.system_s:.2f} s"
    rows.append(("program", f"{how} after {ended.wall_s:.2f} s ({cpu})"))
    if facts.processes:
        mode = facts.processes[0].report.mode
        rows.append(("processes", _process_line(facts)))
        rows.append(("books", f"{_book_line(facts)} · mode {mode}"))
    if facts.largest is not None:
        rows.append(("memory", _memory_line(facts.largest)))
    if facts.top_classes:
        classes = [
            f"{size(row.block_bytes)} x {row.live_blocks:,} ({size(row.live_bytes)})"
            for row in facts.top_classes
        ]
        rows.append(("classes", " · ".join(classes)))
    if facts.processes:
        calls = _os_calls(facts.totals)
        listed = " · ".join(f"{name} {count:,}" for name, count in calls) or "none"
        rows.append(("OS calls", listed))
    if facts.unreported_children:
        rows.append(("note", _unreported_line(facts.unreported_children)))
    own = dict.fromkeys(line for process in facts.processes for line in _own_lines(process))
    rows.extend(("note", line) for line in list(own)[:LIST_MAX])
    rows.append(("next", _hint(facts, ended)))
    lines = [f"hakmem: {headline(facts, style)}"]
    lines.extend(f"  {style.faint(label.ljust(LABEL_WIDTH))} {text}" for label, text in rows)
    return "\n".join(lines) + "\n"


def _own_lines(process: ProcessFacts) -> Iterable[str]:
    """Of allocators beside hakmem."""
    for module in process.own_allocators:
        yield f"{module} has {OWN} of its own"
    for bundled in process.bundled:
        yield f"{bundled.module} has {bundled}"


def _hint(facts: RunFacts, ended: Ended) -> str:
    if facts.verdict is not Verdict.ACTIVE:
        return "hakmem doctor checks this machine; run --json lists every module and symbol"
    if ended.left_core:
        return "hakmem inspect CORE shows the heap in the core file, hakmem report CORE draws it"
    if ended.signal_name in CORE_SIGNALS:
        return f"HAKMEM_SNAPSHOT_SIGNAL={-ended.code} leaves a snapshot for hakmem inspect"
    mode = facts.processes[0].report.mode
    python = any(_program(process.report.exe).startswith("python") for process in facts.processes)
    if python and not os.environ.get("PYTHONMALLOC"):
        return "python3 serves small objects itself: with PYTHONMALLOC=malloc, hakmem serves all"
    other = "lean for less memory" if mode == "fast" else "fast to compare"
    is_long = ended.wall_s >= LOOKED_AT_S
    more = "while it runs: hakmem top, inspect, report" if is_long else "hakmem options for more"
    return f"run --mode {other}, --json for every process; {more}"


def _process_json(process: ProcessFacts) -> Json:
    report = process.report
    return {
        "pid": report.pid,
        "ppid": report.ppid,
        "forked": report.forked,
        "name": report.name,
        "exe": report.exe,
        "library": report.library,
        "build_id": report.build_id,
        "mode": report.mode,
        "verdict": str(process.verdict),
        "reason": process.reason,
        "ending": str(process.ending),
        "proved_at": process.proved_at,
        "modules": process.modules,
        "symbols": process.symbols,
        "strays": [
            {"module": stray.module, "symbol": stray.symbol, "provider": stray.provider}
            for stray in process.strays
        ],
        "own_allocators": list(process.own_allocators),
        "bundled_allocators": [
            {"module": bundled.module, "allocator": bundled.allocator}
            for bundled in process.bundled
        ],
        "books_moved": process.books_moved,
        "peak_rss_bytes": process.peak_rss_bytes or None,
        "peak_rss_exact": process.peak_is_exact,
        "books": {
            name: value
            for name, value in report.books.items()
            if name not in ("state", "refreshed_ns", "peak_rss_bytes")
        },
        "classes": [
            {
                "block_bytes": row.block_bytes,
                "slab_bytes": row.slab_bytes,
                "live_blocks": row.live_blocks,
                "cached_blocks": row.cached_blocks,
                "free_blocks": row.free_blocks,
                "live_bytes": row.live_bytes,
            }
            for row in report.classes
            if row.slab_bytes or row.live_blocks or row.cached_blocks or row.free_blocks
        ],
    }


def _absent_json(rows: Iterable[Absent]) -> list[Json]:
    return [{"pid": row.pid, "exe": row.exe or None, "reason": row.reason} for row in rows]


def summary_json(facts: RunFacts, ended: Ended, command: Sequence[str], exit_status: int) -> Json:
    peaks = [process.peak_rss_bytes for process in facts.processes]
    return {
        "schema": RUN_SCHEMA,
        "command": list(command),
        "pid": ended.pid,
        "exit_status": exit_status,
        "child_status": ended.code if ended.code >= 0 else None,
        "child_signal": ended.signal_name,
        "wall_s": round(ended.wall_s, 6),
        "user_s": ended.user_s,
        "system_s": ended.system_s,
        "verdict": str(facts.verdict),
        "active": facts.verdict is Verdict.ACTIVE,
        "library": facts.library or None,
        "process_count": facts.process_count,
        "unreported_children": facts.unreported_children,
        "unread_reports": facts.unread_reports,
        "peak_rss_bytes": max(peaks, default=0) or None,
        "os_calls": dict(_os_calls(facts.totals)),
        "processes": [_process_json(process) for process in facts.processes],
        "absent": _absent_json(facts.absent),
        "unwritten": _absent_json(facts.unwritten),
    }


# ---- The options


def _range(option: Option) -> str:
    if option.choices:
        return " | ".join(choice.name for choice in option.choices)
    if option.type == "STRING":
        return "a path"
    if option.type == "BYTES":
        return f"{_short_size(option.min)}..{_short_size(option.max)}"
    if option.type == "BOOL":
        return "0 | 1"
    return f"{option.min}..{option.max}"


def _short_size(count: int) -> str:
    for shift, suffix in ((30, "G"), (20, "M"), (10, "K")):
        if count and count % (1 << shift) == 0:
            return f"{count >> shift}{suffix}"
    return str(count)


def _initial(option: Option) -> str:
    if option.type == "BYTES" and isinstance(option.initial, int):
        return _short_size(option.initial)
    return option.initial_text() or "-"


def options_text(table: OptionTable, options: Iterable[Option], style: Style) -> str:
    lines = []
    for option in options:
        unit = f" {option.unit}" if option.unit and option.type in ("UINT", "MS") else ""
        when = "live" if option.live else "at start-up"
        lines.append(
            f"{style.strong(option.environment)}={_initial(option)}  "
            f"{style.faint(f'({_range(option)}{unit}, {when})')}"
        )
        lines.append(f"    {option.help}")
        lines.extend(f"      {choice.name:<10} {choice.help}" for choice in option.choices)
        modes = [
            f"{preset.mode} {_preset_text(option, preset.value)}"
            for preset in table.presets
            if preset.option == option.name
        ]
        if modes:
            lines.append(f"    Preset by mode: {', '.join(modes)}.")
    return "\n".join(lines) + "\n"


def _preset_text(option: Option, value: int) -> str:
    return _short_size(value) if option.type == "BYTES" else str(value)


def options_json(table: OptionTable, options: Iterable[Option]) -> Json:
    return {
        "schema": OPTIONS_SCHEMA,
        "options": [
            {
                "name": option.name,
                "environment": option.environment,
                "type": option.type.lower(),
                "default": option.initial_text() if option.choices else option.initial,
                "min": None if option.choices else option.min,
                "max": None if option.choices else option.max,
                "unit": option.unit or None,
                "live": option.live,
                "help": option.help,
                "choices": [
                    {"name": choice.name, "number": choice.number, "help": choice.help}
                    for choice in option.choices
                ],
                "presets": {
                    preset.mode: preset.value
                    for preset in table.presets
                    if preset.option == option.name
                },
            }
            for option in options
        ],
    }


def environment_style(stream: TextIO) -> Style:
    return Style(stream, os.environ)


def json_text(facts: Json, indent: int | None = 2) -> str:
    """In ASCII, for any terminal; without `indent` one line. Of a name that is no UTF-8 the odd
    bytes are replaced: as numbers of their own, which Python has for them, other readers refuse
    all of it."""
    text = LONE_SURROGATE.sub("\ufffd", json.dumps(facts, indent=indent, ensure_ascii=False))
    return NO_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], text) + "\n"
