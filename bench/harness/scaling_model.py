"""What hakmem does on more processors than here: counts of harness.scaling in a queueing model.

    PYTHONPATH=bench python3 -m harness.scaling_model [--update]

prints the tables of docs/SCALING.md, or writes them there. Every core runs one thread that does
nothing but call malloc and free. A call costs time of its own, and what others have a part in:

- stations: what one thread at a time can use. A lock for as long as it is held; a cache line that
  all threads write for as long as it takes to reach the next core. Threads wait for each other
  there, solved by exact mean value analysis of a closed network (Reiser and Lavenberg, "Mean-value
  analysis of closed multichain queuing networks", Journal of the ACM 27, 1980).
- transfers: cache lines last written by some other core, but not by all of them. They take time,
  and nobody waits in line.

All times are in nanoseconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import scaling, store
from .errors import BenchError
from .layout import TOP
from .scaling import Row

DOCUMENT = TOP / "docs" / "SCALING.md"

# Assumptions, each with its reason in docs/SCALING.md.
PROGRAM_NS = 10.0  # the program's own work between two calls, the calls included
FAST_PATH_NS = 15.5 / (2 * 3.0)  # instructions of malloc and free, two in a cycle, at 3 GHz
LOCK_LINES = 3  # that travel with a lock all threads take: its own, and of what it protects
PUBLISH_LINES = 2  # read by who publishes, last written by the owner: descriptor and bitmap
VISIT_LINES = (
    4  # of a visit to another's heap: lock, activity, lists; the owner fetches the lock back
)
KERNEL_NS, KERNEL_CORE_NS = (
    4000.0,
    60.0,
)  # a change of the address space: and for each core told of it
SHARD_CORES = 8  # that would share an arena
TICK_NS = 10e6  # between two ticks of a thread
TICK_VISITS = 64  # HARVEST_VISITS of src/thread/maintenance.c
# Longer holds are those of a thread that did not run, here where threads outnumber cores.
HELD_BITS_MAX = 17
HELD_SAMPLES_MIN = 200


@dataclass(frozen=True)
class Machine:
    """Cores in clusters that share a cache, in sockets; what a line takes from core to core."""

    name: str
    cores: int
    sockets: int
    cluster_cores: int
    cluster_ns: float
    socket_ns: float
    across_ns: float

    @property
    def line_ns(self) -> float:
        """From any core to any other, each as likely."""
        cluster = min(self.cluster_cores, self.cores)
        socket = self.cores // self.sockets
        nanoseconds = (
            (cluster - 1) * self.cluster_ns
            + (socket - cluster) * self.socket_ns
            + (self.cores - socket) * self.across_ns
        )
        return nanoseconds / (self.cores - 1)


def chiplets(cores: int) -> Machine:
    """As AMD's EPYC 7R13, with as many clusters of 8 as it takes; two sockets above 128 cores."""
    return Machine("chiplets", cores, 2 if cores > 128 else 1, 8, 23.0, 107.0, 197.0)


def mesh(cores: int) -> Machine:
    """As Intel's Xeon 8375C, likewise."""
    return Machine("mesh", cores, 2 if cores > 128 else 1, cores, 51.0, 51.0, 108.0)


@dataclass(frozen=True)
class Station:
    """What one thread at a time can use: visits of a call, and how long each takes."""

    name: str
    visits: float
    service_ns: float
    count: int = 1  # so many of them, each with its part of the visits

    @property
    def demand_ns(self) -> float:
        """Time of a call at each of them."""
        return self.visits * self.service_ns / self.count


@dataclass(frozen=True)
class Load:
    """A call: its own time and transfers, and its stations."""

    think_ns: float
    stations: tuple[Station, ...]


@dataclass(frozen=True)
class Prediction:
    """What comes out for a machine."""

    call_ns: float  # of one core
    busiest: Station
    utilisation: float
    saturates_at: float  # cores at which the busiest station would be busy all the time


def solve(load: Load, threads: int) -> Prediction:
    """Exact mean value analysis: so many threads that think, then visit each station."""
    waiting = [0.0] * len(load.stations)
    cycle = load.think_ns
    for present in range(1, threads + 1):
        times = [
            station.demand_ns * (1 + queue)
            for station, queue in zip(load.stations, waiting, strict=True)
        ]
        cycle = load.think_ns + sum(
            station.count * time for station, time in zip(load.stations, times, strict=True)
        )
        waiting = [present / cycle * time for time in times]
    busiest = max(load.stations, key=lambda station: station.demand_ns)
    alone = load.think_ns + sum(each.count * each.demand_ns for each in load.stations)
    demand = busiest.demand_ns
    return Prediction(
        call_ns=cycle,
        busiest=busiest,
        utilisation=threads / cycle * demand,
        saturates_at=alone / demand if demand else float("inf"),
    )


def held_ns(rows: Sequence[Row], rank: str, ticks_per_ns: float) -> float:
    """Mean time for which locks of a rank were held in these rows."""
    bits = [sum(row.held_by_bits[rank][i] for row in rows) for i in range(HELD_BITS_MAX + 1)]
    if not any(bits):
        return 0.0
    # A number of n bits is 3/4 of 2^n in the middle.
    ticks = sum(count * 0.75 * 2.0**i for i, count in enumerate(bits))
    return ticks / sum(bits) / ticks_per_ns


# Lines that all threads write: what they are called, and which operations write them.
SHARED_LINES: Mapping[str, str] = {
    "decision log": "&decision_log.",
    "event ring": "&events.next",
    "capacity total": "&capacity_total",
    "process counters": "&process_counters.",
    "system call counters": "&os_call_counters.",
}
PUBLISH = "or_acq_rel &remote_bits"
REMOTE = (PUBLISH, "&slab->remote_bits", "&slab->remote_summary", "&heap->remote_slabs")


class Counts:
    """One row, per call; what it says too little about is taken from all rows."""

    def __init__(self, row: Row, rows: Sequence[Row], ticks_per_ns: float) -> None:
        self.row = row
        self._rows = rows
        self._ticks_per_ns = ticks_per_ns

    def operations(self, *parts: str) -> float:
        """Atomic operations whose name has one of these parts; all without any."""
        found = self.row.operations.items()
        chosen = [count for name, count in found if any(part in name for part in parts or ("",))]
        return sum(chosen) / self.row.calls

    def lock(self, rank: str, *fields: str) -> float:
        """Events of a rank's locks."""
        return sum(self.row.locks[rank][name] for name in fields) / self.row.calls

    def all_locks(self, field: str) -> float:
        """The same of all ranks."""
        return sum(self.lock(rank, field) for rank in self.row.locks)

    def held_ns(self, rank: str) -> float:
        """How long a lock of the rank is held."""
        enough = sum(self.row.held_by_bits[rank]) >= HELD_SAMPLES_MIN
        return held_ns([self.row] if enough else self._rows, rank, self._ticks_per_ns)


@dataclass(frozen=True)
class Change:
    """Something to build, as the model sees it."""

    name: str
    variant: str | None = None  # of the counts; without one what a machine of so many cores has
    sharded: tuple[str, ...] = ()  # locks of which each SHARD_CORES have one of their own
    private_lines: bool = False  # what all threads count in one place, each heap counts for itself


# What cache_total_bytes comes to where there are as many processors as threads, and here.
LARGE, HERE = "1 MiB a thread", "default"
CHANGES = (
    Change("32 MiB for all caches", HERE),
    Change("as it is"),
    Change("lines private", private_lines=True),
    Change("and metadata sharded", sharded=("metadata",), private_lines=True),
    Change(
        "and arena, registry sharded",
        sharded=("metadata", "arena", "registry"),
        private_lines=True,
    ),
)
AS_IT_IS = CHANGES[1]


def load(counts: Counts, machine: Machine, change: Change) -> Load:
    """A call of that workload on that machine."""
    line = machine.line_ns
    stations = []
    for rank in ("registry", "huge", "arena", "page map", "metadata"):
        sharded = rank in change.sharded
        held = counts.held_ns(rank) + LOCK_LINES * (machine.cluster_ns if sharded else line)
        count = max(1, machine.cores // SHARD_CORES) if sharded else 1
        stations.append(Station(rank, counts.lock(rank, "taken"), held, count))
    if not change.private_lines:
        stations += [
            Station(name, counts.operations(part), line) for name, part in SHARED_LINES.items()
        ]
    lines = (
        counts.operations(*REMOTE)
        + PUBLISH_LINES * counts.operations(PUBLISH)
        + VISIT_LINES * counts.lock("heap", "tried", "refused")
    )
    own = (
        PROGRAM_NS
        + FAST_PATH_NS
        + counts.lock("heap", "taken", "tried") * counts.held_ns("heap")
        + lines * line
    )
    ticks = min(TICK_VISITS, machine.cores - 1) * VISIT_LINES * line / TICK_NS
    return Load(own / (1 - ticks), tuple(stations))


def _require_names(rows: Sequence[Row]) -> None:
    """An operation that is called otherwise in the source by now would count as none at all."""
    names = {name for row in rows for name in row.operations}
    for part in (*SHARED_LINES.values(), PUBLISH, *REMOTE):
        if not any(part in name for name in names):
            message = f"no atomic operation is called {part!r} in these counts"
            raise ValueError(message)


class Model:
    """Counts of a result folder, and what follows from them."""

    def __init__(self, folder: Path) -> None:
        counted = scaling.read(folder)
        self._rows = {(row.workload, row.variant, row.threads): row for row in counted.rows}
        self._ticks_per_ns = float(counted.manifest["ticks_per_ns"])
        _require_names(counted.rows)
        self.workloads = list(dict.fromkeys(row.workload for row in counted.rows))
        self.threads = sorted({row.threads for row in counted.rows})

    def counts(self, workload: str, variant: str, threads: int) -> Counts:
        """One row."""
        rows = list(self._rows.values())
        return Counts(self._rows[workload, variant, threads], rows, self._ticks_per_ns)

    def predict(
        self,
        workload: str,
        machine: Machine,
        change: Change = AS_IT_IS,
    ) -> Prediction:
        """A core for each thread."""
        is_large = (workload, LARGE, machine.cores) in self._rows
        variant = change.variant or (LARGE if is_large else HERE)
        counts = self.counts(workload, variant, machine.cores)
        return solve(load(counts, machine, change), machine.cores)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _thousand(value: float) -> str:
    """So many of a thousand calls."""
    return f"{1000 * value:.2f}" if 1000 * value < 10 else f"{1000 * value:.0f}"


def counts_table(model: Model) -> str:
    """What was counted, of a thousand calls."""
    head = (
        "workload", "threads", "atomic operations", "own heap's lock", "other heaps, tried",
        "arena", "metadata", "registry", "found held", "words published", "shared lines",
    )  # fmt: skip
    rows = []
    for workload in model.workloads:
        for threads in model.threads:
            counts = model.counts(workload, HERE, threads)
            values = (
                counts.operations(),
                counts.lock("heap", "taken"),
                counts.lock("heap", "tried", "refused"),
                counts.lock("arena", "taken"),
                counts.lock("metadata", "taken"),
                counts.lock("registry", "taken"),
                counts.all_locks("found_held"),
                counts.operations(PUBLISH),
                counts.operations(*SHARED_LINES.values()),
            )
            rows.append([workload, str(threads), *map(_thousand, values)])
    return _table(head, rows)


CORES = (2, 16, 64, 256)


def predictions_table(model: Model) -> str:
    """As it is, on chiplets."""
    head = (
        "workload", "cores", "ns a call", "per core against 2 cores", "busiest", "busy",
        "saturates at",
    )  # fmt: skip
    rows = []
    for workload in model.workloads:
        two = model.predict(workload, chiplets(2)).call_ns
        for cores in CORES:
            found = model.predict(workload, chiplets(cores))
            limit = found.saturates_at
            rows.append([
                workload,
                str(cores),
                f"{found.call_ns:.1f}",
                f"{two / found.call_ns:.2f}",
                found.busiest.name,
                f"{100 * found.utilisation:.0f} %",
                f"{limit:.0f} cores" if limit < 10_000 else "-",
            ])  # fmt: skip
    return _table(head, rows)


def changes_table(model: Model) -> str:
    """Nanoseconds of a call with one change after the other."""
    machines = (chiplets(64), chiplets(256), mesh(256))
    head = ("workload", "machine", *(change.name for change in CHANGES), "then busiest")
    rows = []
    for workload in model.workloads:
        for machine in machines:
            found = [model.predict(workload, machine, change) for change in CHANGES]
            last = found[-1]
            rows.append([
                workload,
                f"{machine.cores}, {machine.name}",
                *(f"{each.call_ns:.1f}" for each in found),
                f"{last.busiest.name}, {100 * last.utilisation:.0f} %",
            ])  # fmt: skip
    return _table(head, rows)


TABLES: Mapping[str, Callable[[Model], str]] = {
    "counts": counts_table,
    "predictions": predictions_table,
    "changes": changes_table,
}


def with_tables(text: str, model: Model) -> str:
    """The document with its tables made anew, each between two comments that name it."""
    for name, make in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise BenchError(f"{DOCUMENT.name} has no one place for the table of {name}")
        before, _, rest = text.partition(begin)
        after = rest.partition(end)[2]
        text = f"{before}{begin}{make(model)}{end}{after}"
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables, or writes them into the document."""
    parser = argparse.ArgumentParser(prog="harness.scaling_model")
    parser.add_argument("--counts", type=Path, help="result folder; the newest by default")
    parser.add_argument("--update", action="store_true", help=f"write them into {DOCUMENT.name}")
    options = parser.parse_args(arguments)
    try:
        model = Model(options.counts or store.newest(scaling.KIND))
        if options.update:
            DOCUMENT.write_text(with_tables(DOCUMENT.read_text(), model))
        else:
            print("\n".join(make(model) for make in TABLES.values()))
    except BenchError as error:
        print(f"harness.scaling_model: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
