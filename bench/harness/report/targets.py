"""Judges the targets of bench/scorecard.toml: one function per kind of line."""

from __future__ import annotations

import glob
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ..cases import Case
from ..errors import BenchError
from ..figures import geometric_mean
from ..soak import CV_NAME, CV_PERCENT_MOST
from ..store import COUNTS, MANIFEST, REFUSED, read_manifest, read_rows
from . import standing
from .cells import KIB, MIB, bytes_text
from .results import CaseFacts, Results, Row, build_id, extra, machine_differs, short_id

PASS, FAIL, NOT_MEASURED = "PASS", "FAIL", "NOT MEASURED"
# A peer that has fewer of the rows than this is not the best single peer of a group.
SHARED_ROWS_LEAST = 0.8
# Results that do not tell have the program's default.
THREADS_OF_OLD_SOAKS = 2
DAY = re.compile(r"^\d{4}-\d\d-\d\d-")
Target = Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """One line's verdict, with the figure it rests on, and the folder beside the matrix that the
    figure is from, if it is not the matrix's own."""

    state: str
    measured: str
    beside: Path | None = None


@dataclass(frozen=True)
class Suite:
    """What a line about every row, or the best of all peers, is about, measured or not."""

    cases: Sequence[Case] = ()
    peers: Sequence[str] = ()


@dataclass(frozen=True)
class Evidence:
    """The matrix, and the further finished runs beside it: folders by kind, those of the matrix's
    library before others, the newest first."""

    results: Results
    others: Mapping[str, Sequence[Path]]
    suite: Suite


def gather(results: Results, suite: Suite | None = None) -> Evidence:
    """Finds the result folders beside the matrix that belong to it, of other days too, if machine,
    kernel and settings are the matrix's. Without a suite the matrix is taken for the whole."""
    found: dict[str, list[tuple[bool, str, Path]]] = {}
    for file in sorted(_beside(results.folder.absolute().parent)):
        manifest = read_manifest(file.parent)
        is_same = not machine_differs(results.sessions[0].manifest, manifest)
        if manifest.get("state") == "complete" and is_same:
            kind, at = str(manifest.get("kind", "")), str(manifest.get("at", ""))
            own = build_id(manifest, results.subject) in results.builds
            found.setdefault(kind, []).append((own, at, file.parent))
    newest_first = {kind: [folder for *_, folder in sorted(folders, reverse=True)]
                    for kind, folders in found.items()}  # fmt: skip
    return Evidence(results, newest_first, suite or Suite())


def _beside(day: Path) -> Iterator[Path]:
    """The manifests in a folder, and where its name is a date and a machine's, as
    store.fresh_folder has it, in those of the same machine."""
    machine = DAY.sub("", day.name)
    days = [day] if machine == day.name else day.parent.glob(f"????-??-??-{glob.escape(machine)}")
    for each in days:
        yield from each.glob(f"*/{MANIFEST}")


def _missing(why: str) -> Outcome:
    return Outcome(NOT_MEASURED, why)


def _verdict(good: bool, measured: str) -> Outcome:
    return Outcome(PASS if good else FAIL, measured)


def _matching(results: Results, patterns: Sequence[str]) -> list[CaseFacts]:
    return [case for case in results.cases if any(fnmatch(case.name, each) for each in patterns)]


def _absent(results: Results, target: Target) -> list[str]:
    """The cases a line names, by name or pattern, that were not measured on the subject; a pattern
    that nothing matches is one too."""
    found: list[str] = []
    for pattern in target.get("cases", ()):
        cases = [
            case
            for case in _matching(results, [pattern])
            if target.get("group") in (None, case.group)
        ]
        found += [case.name for case in cases if not results.of(case.name, results.subject)]
        found += [] if cases else [pattern]
    return sorted(set(found))


def rows(evidence: Evidence, target: Target) -> Outcome:
    """Every row against the best peer of that row; one that the subject has not fails the line."""
    found = standing.standings(evidence.results, target["figure"])
    absent = [case.name for case in standing.absent(evidence.results)]
    if not found:
        return _missing("no row has a peer")
    count = len(found) + len(absent)
    within = sum(each.factor <= target["usual"] for each in found)
    above = [each for each in found if each.factor > target["most"]]
    worst = max(found, key=lambda each: each.factor)
    text = (
        f"{within} of {count} rows at most {target['usual']:.2f}x; "
        f"{len(above)} above {target['most']:.2f}x; "
        f"widest {worst.factor:.2f}x ({worst.case.name}, {worst.peer})"
    )
    if absent:
        text += f"; no figures of {evidence.results.subject}: {', '.join(absent)}"
    return _verdict(2 * within > count and not above and not absent, text)


def _best_single(results: Results, cases: Sequence[CaseFacts], what: str) -> str | None:
    """The peer against whom the subject's mean is the highest."""
    found = {}
    for peer in results.peers:
        mean = standing.mean_ratio(results, results.subject, peer, what, cases)
        if mean is not None and mean[1] >= SHARED_ROWS_LEAST * len(cases):
            found[peer] = mean[0]
    return max(found, key=lambda peer: found[peer]) if found else None


def mean(evidence: Evidence, target: Target) -> Outcome:
    """A geometric mean over the rows of a group, against one peer or the best of each row."""
    results, what = evidence.results, str(target["figure"])
    cases = [case for case in results.cases if case.group == target["group"]]
    against = str(target["against"])
    if against == "best of row":
        factors = {each.case.name: each.factor for each in standing.standings(results, what)
                   if each.case.group == target["group"]}  # fmt: skip
        name = "the best of each row"
    else:
        peer = _best_single(results, cases, what) if against == "best single peer" else against
        if peer is None:
            return _missing("no peer has enough of the rows")
        pairs = {case.name: standing.medians(results, case.name, what) for case in cases}
        factors = {case: found[results.subject] / found[peer] for case, found in pairs.items()
                   if results.subject in found and peer in found}  # fmt: skip
        name = peer
    if not factors:
        return _missing(f"no row of {target['group']}")
    value = geometric_mean(list(factors.values()))
    text = f"{value:.3f}x against {name}, {len(factors)} of {len(cases)} rows"
    good = value <= target["most"] and len(factors) == len(cases)
    if "row_most" in target:
        worst = max(factors, key=lambda case: factors[case])
        text += f"; widest row {factors[worst]:.2f}x ({worst})"
        good = good and factors[worst] <= target["row_most"]
    return _verdict(good, text)


def throughput(evidence: Evidence, target: Target) -> Outcome:
    """The subject's speed against the fastest of the named peers, in each of the cases."""
    results = evidence.results
    good, parts = True, []
    for case in _matching(results, target["cases"]):
        found = standing.medians(results, case.name, "time")
        rivals = {name: found[name] for name in results.peers
                  if name in found and fnmatch(name, target["against"])}  # fmt: skip
        if not rivals:
            return _missing(f"no {target['against']} in {case.name}")
        peer = min(rivals, key=lambda name: rivals[name])
        factor = rivals[peer] / found[results.subject]
        good = good and factor >= target["least"]
        parts.append(f"{case.name} {factor:.2f}x ({peer})")
    return _verdict(good, ", ".join(parts))


def _subjects(
    results: Results, target: Target, figure: Callable[[Row], float | None]
) -> dict[str, float | None]:
    """The median of a figure over the subject's rows, for each case of the line; None where no row
    has it."""
    found = {}
    for case in _matching(results, target["cases"]):
        values = [figure(row) for row in results.of(case.name, results.subject)]
        present = [value for value in values if value is not None]
        found[case.name] = statistics.median(present) if present else None
    return found


def bounded(evidence: Evidence, target: Target) -> Outcome:
    """Peak RSS as a multiple of what the workload holds at most."""

    def share(row: Row) -> float | None:
        live = extra(row, "live_bytes")
        return evidence.results.value(row, "memory") / live if live else None

    good, parts = True, []
    for name, value in _subjects(evidence.results, target, share).items():
        if value is None:
            return _missing(f"{name} does not say how much is live")
        good = good and value <= target["most"]
        parts.append(f"{name} {value:.2f}x")
    return _verdict(good, ", ".join(parts))


def idle(evidence: Evidence, target: Target) -> Outcome:
    """Resident memory two seconds after a spike, beyond what is live. Of a smaller spike than the
    line's only a failure counts."""

    def beyond(row: Row) -> float | None:
        resident, live = extra(row, "idle_rss_bytes"), extra(row, "live_bytes")
        if resident is None or live is None:
            return None
        return resident - live - (extra(row, "frame_bytes") or 0.0)

    spikes = _subjects(evidence.results, target, lambda row: extra(row, "spike_bytes"))
    good, whole, parts = True, True, []
    for name, value in _subjects(evidence.results, target, beyond).items():
        spike = spikes[name]
        if value is None or spike is None:
            return _missing(f"{name} does not say what is resident and live, and what was")
        good = good and value <= target["most_mib"] * MIB
        whole = whole and spike >= target["spike_least_mib"] * MIB
        parts.append(f"{name}: {bytes_text(value)} beyond what is live, of {bytes_text(spike)}")
    measured = ", ".join(parts)
    return _verdict(good, measured) if whole or not good else _missing(measured)


def lowest(evidence: Evidence, target: Target) -> Outcome:
    """No peer has less in any of the cases."""
    results = evidence.results
    found = [
        each
        for case in _matching(results, target["cases"])
        if (each := standing.standing(results, case, target["figure"])) is not None
    ]
    if not found:
        return _missing("no peer has the row")
    parts = [f"{each.case.name} {each.factor:.2f}x of {each.peer}'s" for each in found]
    return _verdict(all(each.first for each in found), ", ".join(parts))


def latency(evidence: Evidence, target: Target) -> Outcome:
    """No peer has a lower percentile, of malloc and of free, in any of the cases."""
    results, point = evidence.results, str(target["point"])
    good, parts = True, []
    for case in _matching(results, target["cases"]):
        for call in ("malloc", "free"):
            found = {
                name: statistics.median(values)
                for name in results.contenders
                if (values := [float(row["latency"][call][point])
                               for row in results.of(case.name, name)
                               if call in (row.get("latency") or {})])
            }  # fmt: skip
            own = found.pop(results.subject, None)
            if own is None or not found:
                return _missing(f"no latencies of {call} in {case.name}, or no peer's")
            peer = min(found, key=lambda name: found[name])
            good = good and own <= found[peer]
            parts.append(f"{case.name} {call} {own:,.0f} ns ({peer} {found[peer]:,.0f})")
    return _verdict(good, ", ".join(parts))


def metadata(evidence: Evidence, target: Target) -> Outcome:
    """The allocator's own structures against the heap they describe, over all rows together."""
    results = evidence.results
    shares: dict[str, tuple[float, float]] = {}
    silent: list[str] = []
    for case in _matching(results, target["cases"]):
        if target.get("group") not in (None, case.group):
            continue
        pairs = [(own, heap) for row in results.of(case.name, results.subject)
                 if (own := extra(row, "metadata_bytes")) is not None
                 and (heap := extra(row, "heap_bytes"))]  # fmt: skip
        if pairs:
            shares[case.name] = (
                statistics.median(own for own, _ in pairs),
                statistics.median(heap for _, heap in pairs),
            )
        else:
            silent.append(case.name)
    if not shares:
        return _missing("no row says how much metadata there is")
    percent = (
        100 * sum(own for own, _ in shares.values()) / sum(heap for _, heap in shares.values())
    )
    found = _verdict(percent <= target["most_percent"], f"{percent:.3f} % over {len(shares)} rows")
    if not silent:
        return found
    state = NOT_MEASURED if found.state == PASS else found.state
    return Outcome(state, f"{found.measured}; without it: {', '.join(silent)}")


def os_calls(evidence: Evidence, target: Target) -> Outcome:
    """OS calls over a long steady run of `hakmem bench syscalls`, the first beside the matrix."""
    found = [(row, folder) for folder in evidence.others.get("syscalls", ())
             for row in (*read_rows(folder, COUNTS), *read_rows(folder, REFUSED))
             if row["allocator"] == evidence.results.subject]  # fmt: skip
    if not found:
        return _missing("no results of hakmem bench syscalls beside these")
    row, folder = found[0]
    if "why" in row:
        return replace(_missing(f"the run was refused: {row['why']}"), beside=folder)
    ops, calls = int(row["ops"]), int(row["calls_total"])
    if ops < target["ops_least"]:
        return _missing(f"only {ops:,} operations were counted")
    by_name = Counter(row.get("syscalls") or {}) + Counter(row.get("other_syscalls") or {})
    named = ", ".join(f"{name} {count}" for name, count in by_name.most_common())
    text = f"{calls} calls in {ops:,} operations: {calls / ops:.1e}"
    text += f" ({named})" if named else ""
    return replace(_verdict(calls / ops < target["below"], text), beside=folder)


def startup(evidence: Evidence, target: Target) -> Outcome:
    """What preloading adds to /bin/true, against glibc."""
    folders = evidence.others.get("startup", ())
    if not folders:
        return _missing("no results of hakmem bench startup beside these")

    def middle(name: str) -> float | None:
        values = [float(row[target["figure"]]) for row in _startup_rows(folders[0], target["rows"])
                  if row["allocator"] == name]  # fmt: skip
        return statistics.median(values) if values else None

    own, base = middle(evidence.results.subject), middle("glibc")
    if own is None or base is None:
        return _missing("no such rows of both")
    added = own - base
    text = (
        f"{added / KIB:+,.0f} KiB ({own / KIB:,.0f} against {base / KIB:,.0f})"
        if target["rows"] == "memory"
        else f"{added / 1e3:+,.0f} us ({own / 1e3:,.0f} against {base / 1e3:,.0f})"
    )
    return replace(_verdict(added <= target["most"], text), beside=folders[0])


def _startup_rows(folder: Path, kind: str) -> list[Row]:
    rows_of_true = [row for row in read_rows(folder) if row.get("program") == "true"]
    return [row for row in rows_of_true if row.get("kind") == kind]


def soak(evidence: Evidence, target: Target) -> Outcome:
    """The newest soak of the matrix's library, or of any where it has none, without any control:
    its own thresholds decide, and one of the same library that failed fails the line, so that no
    soak is run until one passes. Of one thread no block passes to another, which is half of what a
    server's heap does."""
    results = evidence.results
    runs = [(manifest, folder) for folder in evidence.others.get("soak", ())
            if not (manifest := read_manifest(folder))["controls"]
            and manifest["soak"]["allocator"] == results.subject]  # fmt: skip
    if not runs:
        return _missing("no results of hakmem soak beside these")
    of_matrix = [run for run in runs if build_id(run[0], results.subject) in results.builds]
    soaks = [(manifest["soak"], folder) for manifest, folder in of_matrix or runs[:1]]
    whole = [run for run in soaks if run[0]["minutes"] >= target["minutes_least"]]
    if not whole:
        return _missing(f"the newest soak lasted {soaks[0][0]['minutes']:g} minutes only")
    whole = [run for run in whole if run[0].get("threads", THREADS_OF_OLD_SOAKS) >= 2]
    if not whole:
        return _missing("the newest soak had one thread")

    states = [_soak_state(found) for found, _ in whole]
    found, folder = whole[states.index(FAIL) if FAIL in states else 0]
    text = "; ".join(f"{each['name']} {each['text']}" for each in found["verdicts"])
    if len(whole) > 1:
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        text += f" (of {len(whole)} soaks of this library: {counts})"
    return Outcome(FAIL if FAIL in states else states[0], text, folder)


def _soak_state(found: Mapping[str, Any]) -> str:
    """By what a soak found. Where the machine's noise explains a CV it was kept as PASS once."""
    states = {each["state"] for each in found["verdicts"]}
    above = any(each["name"] == CV_NAME and float(each.get("value", 0)) > CV_PERCENT_MOST
                for each in found["verdicts"])  # fmt: skip
    if FAIL in states:
        return FAIL
    return PASS if states == {PASS} and not above else NOT_MEASURED


KINDS: Mapping[str, Callable[[Evidence, Target], Outcome]] = {
    judge.__name__: judge
    for judge in (rows, mean, throughput, bounded, idle, lowest, latency, metadata, os_calls,
                  startup, soak)
}  # fmt: skip

OF_ALL_PEERS = (rows.__name__, mean.__name__, lowest.__name__, latency.__name__)
# Of what lies beside the matrix.
OF_NO_ROW = (os_calls.__name__, startup.__name__, soak.__name__)


def _with_build(results: Results, found: Outcome) -> Outcome:
    """What lies beside the matrix, and was measured with a library that none of its rows is of,
    says so, and passes nothing."""
    if found.beside is None:
        return found
    own = build_id(read_manifest(found.beside), results.subject)
    if own in results.builds:
        return found
    state = NOT_MEASURED if found.state == PASS else found.state
    measured = f"{found.measured} (library {short_id(own)}, not the matrix's)"
    return replace(found, state=state, measured=measured)


def _took_part(results: Results, case: str, allocator: str) -> bool:
    """Or was refused, or failed, and so said what it does there."""
    return bool(results.of(case, allocator)) or (case, allocator) in results.lost


def _of_the_suite(evidence: Evidence, target: Target, found: Outcome) -> Outcome:
    """A line about a group of rows, or those that match a pattern, is not passed by a part of them,
    nor one about the best peer, or the best of some, without one of these."""
    results, suite = evidence.results, evidence.suite
    measured = {case.name for case in results.cases}
    wanted = [
        case.name
        for case in suite.cases
        if target.get("group") in (None, case.group)
        and any(fnmatch(case.name, pattern) for pattern in target.get("cases", ["*"]))
    ]
    lacking = [name for name in wanted if name not in measured]
    kind, against = str(target["kind"]), target.get("against")
    rivals = [
        peer
        for peer in suite.peers
        if (kind in OF_ALL_PEERS and against not in suite.peers)
        or (kind == throughput.__name__ and fnmatch(peer, str(against)))
    ]
    lacking += [peer for peer in rivals if peer not in results.peers]
    lacking += [
        f"{peer} on {case}"
        for case in wanted
        if case in measured
        for peer in rivals
        if peer in results.peers and not _took_part(results, case, peer)
    ]
    if not lacking:
        return found
    state = NOT_MEASURED if found.state == PASS else found.state
    return replace(found, state=state,
                   measured=f"{found.measured}; not measured: {', '.join(lacking)}")  # fmt: skip


def judge(evidence: Evidence, target: Target) -> Outcome:
    """One line of the scorecard."""
    kind = str(target["kind"])
    if kind not in KINDS:
        raise BenchError(f"bench/scorecard.toml: no kind '{kind}'; known: {', '.join(KINDS)}")
    absent = _absent(evidence.results, target)
    if absent:
        return _missing(f"no row {', '.join(absent)}")
    found = _with_build(evidence.results, KINDS[kind](evidence, target))
    return _of_the_suite(evidence, target, found) if kind not in OF_NO_ROW else found
