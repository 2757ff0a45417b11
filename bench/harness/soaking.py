"""The verb `hakmem soak`: runs, keeps, judges, prints."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from hakmem.interruption import like_ctrl_c

from . import identity, machine, peers, setup, soak, workshop
from .errors import BenchError, MeasureError, RefusedError
from .layout import display
from .peers import Allocator
from .report import markdown, plots
from .session import say
from .store import Store

EXIT_STATUS = {soak.PASS: 0, soak.FAIL: 1, soak.INCONCLUSIVE: 3}
EXIT_USAGE = 2
CONTROLS = ("leak", "slowdown")
# Without a terminal.
LINE_SECONDS_LEAST, LINES_MOST = 60, 20


def main(options: argparse.Namespace, command: str) -> int:
    """0 all thresholds hold, 1 one does not, 2 wrong usage, 3 too noisy to tell."""
    try:
        with like_ctrl_c():
            return _main(options, command)
    except (RefusedError, MeasureError) as error:
        say(f"hakmem soak: {error}")
        return EXIT_STATUS[soak.FAIL]
    except BenchError as error:
        say(f"hakmem soak: {error}")
        return EXIT_USAGE
    except KeyboardInterrupt:
        say("interrupted")
        return EXIT_STATUS[soak.FAIL]


def _choose(name: str) -> Allocator:
    """A name of bench/allocators.toml, or NAME=PATH."""
    if "=" in name:
        return peers.read_own(name)
    setup.build_needed([name], quick=False)
    chosen, _ = peers.choose([name], [])
    return chosen[0]


def _main(options: argparse.Namespace, command: str) -> int:
    allocator = _choose(options.allocator)
    floor = peers.known()["floor"]
    seconds = options.minutes * 60
    least = soak.seconds_least(options.interval_ms)
    if seconds < least:
        raise BenchError(
            f"with --interval-ms {options.interval_ms} it takes --minutes {least / 60:.3g} at least"
        )
    # Before it is noted what the floor is, and not while the workload is held.
    folder = workshop.build()
    controls = {name: value for name in CONTROLS if (value := getattr(options, name))}
    arguments = {"seed": options.seed, "threads": options.threads}
    kept = Store(options.output, "soak")
    manifest: dict[str, Any] = {
        "kind": "soak",
        "command": command,
        **machine.describe(),
        "controls": controls,
        "allocators": {each.name: identity.identity(each) for each in (allocator, floor)},
    }
    kept.manifest({"state": "running", **manifest})

    turns: list[list[soak.Sample]] = []
    progress = Progress(allocator.name, seconds)

    def keep(which: Allocator, sample: soak.Sample) -> None:
        kept.row({"allocator": which.name, **asdict(sample)}, file="samples.jsonl")

    def keep_own(sample: soak.Sample) -> None:
        keep(allocator, sample)
        progress.show(sample)

    def measure_floor(ms: int) -> None:
        length = soak.turn_intervals(options.interval_ms) * options.interval_ms / 1000
        turn = soak.run(
            floor,
            seconds=length,
            interval_ms=options.interval_ms,
            folder=folder,
            arguments=arguments,
        )
        counted = soak.beside_at(ms, turn)
        for sample in counted:
            keep(floor, sample)
        turns.append(counted)

    stretch = soak.stretch_intervals(seconds, options.interval_ms)
    found = soak.run(allocator, seconds=seconds, interval_ms=options.interval_ms, folder=folder,
                     arguments={**arguments, **controls}, on_sample=keep_own,
                     pauses=soak.Pauses(stretch, measure_floor))  # fmt: skip
    kept.row({"case": "soak", "allocator": allocator.name, "block": 0, **found.row})
    noise = soak.noise_of(turns)
    verdicts = soak.judge(found.samples, noise)
    facts = soak.summary(allocator, found, verdicts, noise)
    changed = identity.changed((allocator, floor), manifest["allocators"])
    state = "unsound" if changed else "complete"
    kept.manifest({"state": state, **manifest, "soak": facts})
    text = markdown.table(
        ["what", "state", "measured", "limit"],
        [[each.name, each.state, each.text, f"{each.limit:.3g}"] for each in verdicts],
        text_columns=3,
    )
    kept.text("table.md", f"    {command}\n\n{text}")
    kept.text(
        "soak.svg",
        plots.soak(allocator.name, found.samples, [sample for turn in turns for sample in turn]),
    )
    print(json.dumps(facts, indent=2) if options.json else text)
    say(f"samples and plot: {display(kept.folder)}")
    if changed:
        say(f"FAILED {', '.join(changed)}: the library changed during the run")
        return EXIT_STATUS[soak.FAIL]
    return EXIT_STATUS[soak.overall(verdicts)]


class Progress:
    """A line that rewrites itself on a terminal; elsewhere, as in the log of a CI, a line now and
    then."""

    def __init__(self, name: str, seconds: float) -> None:
        self.name = name
        self.seconds = seconds
        self._due_ms = 0.0

    def show(self, sample: soak.Sample) -> None:
        is_live = sys.stderr.isatty()
        if not is_live and sample.ms < self._due_ms:
            return
        self._due_ms = sample.ms + 1000 * max(LINE_SECONDS_LEAST, self.seconds / LINES_MOST)
        left = max(0.0, self.seconds - sample.ms / 1000)
        line = (
            f"{self.name}: {left / 60:.1f} min left, {sample.rss_bytes / 2**20:.1f} MiB, "
            f"{sample.ops_per_second / 1e6:.2f} M/s, {sample.mappings} mappings"
        )
        if is_live:
            print(f"\r{line}   ", end="\n" if left == 0 else "", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)
