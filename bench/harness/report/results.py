"""Result folders read back: rows by case and allocator, counts, refusals, the manifest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import BenchError
from ..store import COUNTS, REFUSED, read_manifest, read_rows

Row = dict[str, Any]

METRICS = {"wall": "wall_ns", "cpu": "cpu_ns", "user": "user_ns", "system": "system_ns"}
# User and system time are shares of the processor time, which the kernel tells by ticks: of a short
# run one may be nothing, and there is no ratio of that.
LEAST_SHARE_NS = 4e6
METRIC_WORDS = {
    "wall": "wall time",
    "cpu": "CPU time of all threads",
    "user": "user time of all threads",
    "system": "system time of all threads",
}
# The floor hands out memory without keeping any books: a limit to look at, not an allocator.
FLOOR = "floor"
SUBJECT = "hakmem"
# What the manifests of one card agree in, or their rows do not compare.
ONE_MACHINE = ("machine", "cpu", "cpus", "architecture", "kernel", "libc", "huge_pages",
               "huge_pages_defrag", "aslr", "governor", "overcommit")  # fmt: skip
GROUPS = {"real": "real programs", "synthetic": "synthetic workloads"}


@dataclass(frozen=True)
class CaseFacts:
    """What the reports say about a row of the matrix."""

    name: str
    about: str = ""
    group: str = "synthetic"
    threads: int = 1


@dataclass(frozen=True)
class Session:
    """One run of the matrix or of a part of it, and the cases whose rows are taken from it."""

    folder: Path
    manifest: Mapping[str, Any]
    cases: frozenset[str]


@dataclass(frozen=True, eq=False)
class Results:
    """Everything that one session measured, or several of which the later replace whole cases of
    the earlier; `metric` chooses the time. The manifest is the first one's. Compared by identity,
    so that figures derived from it can be kept."""

    sessions: list[Session]
    metric: str
    manifest: Mapping[str, Any]
    cases: list[CaseFacts]
    allocators: list[str]
    rows: Mapping[tuple[str, str], list[Row]]
    counts: Mapping[tuple[str, str], Row] = field(default_factory=dict)
    refused: list[Row] = field(default_factory=list)
    lost: frozenset[tuple[str, str]] = frozenset()  # pairs that failed or were refused in a block

    @property
    def folder(self) -> Path:
        """Where the first session's rows lie."""
        return self.sessions[0].folder

    def case(self, name: str) -> CaseFacts:
        """The facts of one case."""
        return next(case for case in self.cases if case.name == name)

    def of(self, case: str, allocator: str) -> list[Row]:
        """The rows of a pair, by block; none when it was not measured."""
        return self.rows.get((case, allocator), [])

    def work(self, case: str, allocator: str) -> tuple[object, ...]:
        """How much of the case was run: two runs of the same work compare."""
        session = next(each for each in self.sessions if case in each.cases)
        arguments = self.of(case, allocator)[0].get("arguments") or ()
        return (session.manifest.get("scale", 1.0), *arguments)

    def values(self, case: str, allocator: str, what: str) -> list[float]:
        """Times in ns (`what` is "time") or bytes ("memory") of a pair, one per block."""
        return [self.value(row, what) for row in self.of(case, allocator)]

    def value(self, row: Row, what: str) -> float:
        """Time: of the chosen metric, user or system time a tick at least. Memory: the peak RSS,
        less what the workload's own frame holds for its books and says so."""
        if what == "time":
            time_ns = float(row[METRICS[self.metric]])
            return max(time_ns, LEAST_SHARE_NS) if self.metric in ("user", "system") else time_ns
        bytes_own = float(row["peak_rss_bytes"]) - float(extra(row, "frame_bytes") or 0)
        if bytes_own <= 0:
            raise BenchError(f"{row['case']} on {row['allocator']}: frame_bytes exceeds the peak")
        return bytes_own

    def paired(self, case: str, one: str, other: str, what: str) -> tuple[list[float], list[float]]:
        """The values of two allocators in the blocks that both have."""
        own = {int(row["block"]): self.value(row, what) for row in self.of(case, one)}
        base = {int(row["block"]): self.value(row, what) for row in self.of(case, other)}
        blocks = sorted(own.keys() & base.keys())
        return [own[block] for block in blocks], [base[block] for block in blocks]

    @property
    def subject(self) -> str:
        """The allocator whose losses are listed: hakmem, or the first when it took no part."""
        real = [name for name in self.allocators if name != FLOOR]
        return SUBJECT if SUBJECT in real else (real or self.allocators)[0]

    @property
    def baseline(self) -> str:
        """What the verdicts compare with: as the run was told, else glibc, else the first peer."""
        wanted = (self.manifest.get("baseline"), "glibc", *self.peers, self.allocators[0])
        return next(str(name) for name in wanted if name in self.allocators)

    @property
    def states(self) -> set[str]:
        """Of the sessions: complete, running, interrupted, unsound."""
        return {str(each.manifest.get("state", "complete")) for each in self.sessions}

    @property
    def builds(self) -> list[str]:
        """Of the subject's library, those that rows are of."""
        return sorted(
            {
                build_id(each.manifest, self.subject)
                for each in self.sessions
                if any(self.of(case, self.subject) for case in each.cases)
            }
        )

    @property
    def contenders(self) -> list[str]:
        """Among whom the best of a row is found: the subject and its peers, or all that there is.
        The subject's other modes and the floor stand beside."""
        return [name for name in self.allocators if name in (self.subject, *self.peers)]

    @property
    def peers(self) -> list[str]:
        """Whom the subject is compared with."""
        return peers_among(self.allocators, self.subject)


def peers_among(names: Iterable[str], subject: str) -> list[str]:
    """Everyone but the subject, its own modes and builds, which are named after it, and the
    floor."""
    return [
        name
        for name in names
        if name not in (FLOOR, subject) and not name.startswith(f"{subject}_")
    ]


def extra(row: Row, name: str) -> float | None:
    """A figure that only some workloads have."""
    value = (row.get("extra") or {}).get(name)
    return None if value is None else float(value)


def build_id(manifest: Mapping[str, Any], allocator: str) -> str:
    """Of an allocator's library in a run of any kind; "" when the run does not say."""
    return str(((manifest.get("allocators") or {}).get(allocator) or {}).get("build_id") or "")


def short_id(text: object) -> str:
    """The beginning of a commit or of a build id, enough to find it."""
    return str(text or "-")[:12]


def load(
    folder: Path,
    metric: str = "wall",
    baseline: str | None = None,
    newer: Sequence[Path] = (),
) -> Results:
    """Reads a folder, finished or not. What a newer folder measured of a case replaces all that is
    known of it, of every allocator: figures of two sessions are never compared. BenchError where
    one named later is older, as if rows were chosen, or was measured on another machine."""
    if metric not in METRICS:
        raise BenchError(f"no metric '{metric}'; known: {', '.join(METRICS)}")
    sessions: list[Session] = []
    lines: list[Row] = []
    counts: list[Row] = []
    refused: list[Row] = []
    listed: dict[str, Any] = {}
    allocators: dict[str, Any] = {}
    for each in (folder, *newer):
        own, measured = read_manifest(each), read_rows(each)
        if not measured:
            raise BenchError(f"{each} holds no measured row")
        if any("case" not in row for row in measured):
            raise BenchError(f"{each} holds results of another kind: {own.get('kind', 'unknown')}")
        names = frozenset(str(row["case"]) for row in measured)
        for earlier in sessions:
            _require_in_order(earlier, each, own, names)
        lines = _without(lines, names) + measured
        counts = _without(counts, names) + read_rows(each, COUNTS)
        refused = _without(refused, names) + read_rows(each, REFUSED)
        sessions = [replace(old, cases=old.cases - names) for old in sessions]
        sessions.append(Session(each, own, names))
        listed |= {str(case["name"]): case for case in own.get("cases", [])
                   if len(sessions) == 1 or case["name"] in names}  # fmt: skip
        for name, facts in own.get("allocators", {}).items():
            allocators.setdefault(name, facts)
    # A pair that failed once is no longer run: what it had before is of fewer blocks than the
    # others, and of an allocator that does not work there.
    lost = frozenset(_pair(row) for row in refused if not row.get("counting"))
    lines = [row for row in lines if _pair(row) not in lost]
    if not lines:
        raise BenchError(f"{folder} holds no row of a pair that never failed")
    manifest = {**sessions[0].manifest, "cases": list(listed.values()), "allocators": allocators}
    if baseline is not None:
        manifest["baseline"] = baseline
        measured_names = sorted({name for _, name in map(_pair, lines)})
        if baseline not in measured_names:
            raise BenchError(f"no baseline '{baseline}'; measured: {', '.join(measured_names)}")
    rows: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(lines, key=lambda row: int(row["block"])):
        rows.setdefault(_pair(row), []).append(row)
    # The subject is the subject, even where nothing is left of it.
    own_losses = {name for _, name in lost} & {SUBJECT}
    return Results(
        sessions=sessions,
        metric=metric,
        manifest=manifest,
        cases=_cases(manifest, lines),
        allocators=_allocators(manifest, {name for _, name in rows} | own_losses),
        rows=rows,
        counts={_pair(row): row for row in counts if _pair(row) not in lost},
        refused=refused,
        lost=lost,
    )


def machine_differs(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What two manifests say differently of their machine and its settings."""
    both = [key for key in ONE_MACHINE if key in one and key in other]
    return [key for key in both if one[key] != other[key]]


def _require_in_order(
    earlier: Session, folder: Path, manifest: Mapping[str, Any], names: frozenset[str]
) -> None:
    if other := machine_differs(earlier.manifest, manifest):
        raise BenchError(
            f"{folder} was measured on another machine than {earlier.folder}, or on one that was "
            f"set up in another way: {', '.join(other)}"
        )
    at, before = str(manifest.get("at", "")), str(earlier.manifest.get("at", ""))
    again = sorted(earlier.cases & names)
    if again and at < before:
        raise BenchError(
            f"{folder} is older than {earlier.folder}, of which it would replace "
            f"{', '.join(again)}: name sessions in the order of their time"
        )


def _pair(row: Row) -> tuple[str, str]:
    return str(row.get("case")), str(row.get("allocator"))


def _without(rows: list[Row], cases: frozenset[str]) -> list[Row]:
    return [row for row in rows if str(row.get("case")) not in cases]


def _cases(manifest: Mapping[str, Any], lines: list[Row]) -> list[CaseFacts]:
    """The measured cases in the order of the matrix; those it does not list come last."""
    measured = {str(row["case"]): str(row.get("group", "synthetic")) for row in lines}
    listed = {str(case["name"]): case for case in manifest.get("cases", [])}
    names = [name for name in listed if name in measured]
    names += sorted(name for name in measured if name not in listed)
    return [
        CaseFacts(
            name=name,
            about=str(listed.get(name, {}).get("about", "")),
            group=measured[name],
            threads=int(listed.get(name, {}).get("threads", 1)),
        )
        for name in names
    ]


def _allocators(manifest: Mapping[str, Any], measured: Iterable[str]) -> list[str]:
    found = set(measured)
    order = manifest.get("allocator_order") or list(manifest.get("allocators", {}))
    return [name for name in order if name in found] + sorted(found - set(order))
