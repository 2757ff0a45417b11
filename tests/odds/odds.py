#!/usr/bin/env python3
"""Programs that check their own blocks, under options and in surroundings drawn at random, while
others look at them.

    tests/odds/odds.py [--seed N] [--runs N] [--verbose]

Each run is a number, which is printed when something is wrong: `--seed N --runs 1` draws the same
run again (threads and readers take turns as they like). Most runs are of `odd`, which does all at
once; others of tests/stress, of the model and of python3. No crash, no hang, no changed block, no
report, no picture that calls the heap damaged, and the exit status that was meant.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from hakmem.inspect.control import Control  # noqa: E402
from hakmem.inspect.errors import InspectError  # noqa: E402
from hakmem.inspect.process import ProcessSource  # noqa: E402
from hakmem.inspect.reading import Session  # noqa: E402
from hakmem.inspect.targets import take  # noqa: E402
from hakmem.options import Option, read_options  # noqa: E402

HANG_SECONDS = 300.0
LEAKS_STATUS = 77  # odd.c accepts it of its children
SHOWN = 12
OPTIONS = read_options(ROOT / "src/config/options.def").options
# What is written elsewhere, what goes without saying, and what ends a process in another way.
NOT_DRAWN = {
    *("mode", "verbose", "report", "snapshot_directory", "snapshot_signal"),
    *("abort", "leaks_exit_status"),
}
MODES = ("fast", "fast", "lean", "hardened", "research")
THINGS = ("cancel", "small", "children", "options", "look", "plugin", "interrupts")
REFUSED = ("madvise", "mremap", "membarrier", "process_madvise", "rseq", "prctl", "getrandom")
FLAKY = ("mmap", "munmap", "madvise", "mremap", "mprotect")
# With these, memory stays that `odd` would call lost.
KEPT = {"quarantine_blocks", "guard_sample", "guard_slots", "huge_pages"}
# Of tests/stress: those that hold the process to no amount of memory that an option decides.
PROGRAMS = (
    *("storm", "short_threads 400", "owner_exit", "fork_load", "fork_signal", "sigprof"),
    *("key_destructors", "small_stacks", "thread_local", "huge_blocks", "successors"),
    *("own_stacks", "late_rounds", "first_call", "exit_in_handler", "fork_streams", "fork_order"),
    *("dlclose_cycles PLUGIN", "model", "python3"),
)
PYTHON = """
import json, random, threading
def work(seed):
    draw, kept = random.Random(seed), {}
    for _ in range(20000):
        kept[draw.randrange(3000)] = "x" * draw.randrange(2000)
    assert json.loads(json.dumps(kept)) == {str(key): text for key, text in kept.items()}
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
# Lines that the options drawn ask for; stacks and sizes are indented.
TOLD = re.compile(r"hakmem: ( |leaks: |snapshot: |option |profile ')")


@dataclass
class Case:
    seed: int
    flavour: str
    program: str
    environment: dict[str, str] = field(default_factory=dict)
    around: list[str] = field(default_factory=list)
    things: set[str] = field(default_factory=set)
    beside: list[str] = field(default_factory=list)
    status: int = 0
    milliseconds: int = 1000

    @property
    def own(self) -> bool:
        return self.program == "odd"

    def statuses(self) -> set[int]:
        may_leak = "HAKMEM_LEAKS_EXIT_STATUS" in self.environment or "options" in self.things
        return {self.status, LEAKS_STATUS} if may_leak else {self.status}

    def __str__(self) -> str:
        options = [f"{name}={value}" for name, value in self.environment.items()]
        parts = [f"{self.seed}: {self.program} ({self.flavour})", *options, *self.around]
        return " ".join([*parts, *sorted(self.things), *(f"+{what}" for what in self.beside)])


def value_of(option: Option, chance: random.Random) -> str:
    if option.type == "ENUM":
        return chance.choice(option.choices).name
    if option.name == "check":
        return chance.choice("001")  # 2 takes minutes
    if option.name == "quarantine_blocks":
        return chance.choice(["0", "1", "63", "256", "1000"])  # more is memory that tests count
    way = chance.random()
    if way < 0.45:
        return str(option.min if way < 0.25 else option.max)
    bits = chance.randint(0, (option.max - option.min + 1).bit_length())
    return str(min(option.max, option.min + chance.getrandbits(bits)))


def drawn_options() -> list[Option]:
    return [option for option in OPTIONS if option.name not in NOT_DRAWN]


def draw(seed: int, flavours: tuple[str, ...] = ("release",)) -> Case:
    chance = random.Random(seed)
    program = "odd" if chance.random() < 0.75 else chance.choice(PROGRAMS)
    case = Case(seed, chance.choice(flavours), program)
    _draw_options(case, chance)
    _draw_surroundings(case, chance)
    if case.own:
        _draw_things(case, chance)
    case.beside = [what for what in BESIDE if chance.random() < 0.3]
    if "snapshot" in case.beside:
        if case.own:
            case.environment["HAKMEM_SNAPSHOT_SIGNAL"] = str(int(signal.SIGUSR2))
        else:
            case.beside.remove("snapshot")
    return case


def _draw_options(case: Case, chance: random.Random) -> None:
    case.environment["HAKMEM_MODE"] = chance.choice(MODES)
    if chance.random() < 0.2:
        profiles = sorted((ROOT / "profiles").glob("*.profile"))
        case.environment["HAKMEM_PROFILE"] = str(chance.choice(profiles))
    count = chance.choice([0, 1, 1, 2, 3, 5, 10, 25])
    for option in chance.sample(drawn_options(), count):
        case.environment[option.environment] = value_of(option, chance)
        if option.name in KEPT:
            case.things.add("kept")
    if case.own and chance.random() < 0.2:
        case.environment |= {"HAKMEM_LEAKS": "1", "HAKMEM_LEAKS_EXIT_STATUS": str(LEAKS_STATUS)}


def _draw_surroundings(case: Case, chance: random.Random) -> None:
    case.around += [n for n in ("thp", "norandom", "compat", "unshare") if chance.random() < 0.2]
    if chance.random() < 0.3:
        for call in chance.sample(REFUSED, chance.randint(1, 3)):
            case.around.append(f"refuse={call}:{chance.choice(['EPERM', 'ENOSYS'])}")
            if call == "madvise":
                case.things.add("kept")
    if chance.random() < 0.1:
        case.around.append(f"memlock={chance.choice([0, 64, 8192])}")
    if chance.random() < 0.2:
        case.around.append(f"stack={chance.choice([64, 256, 100000])}")


def _draw_things(case: Case, chance: random.Random) -> None:
    case.status = chance.choice([0, 1, 42])
    case.milliseconds = chance.choice([300, 1000, 2000])
    case.things |= {thing for thing in THINGS if chance.random() < 0.5}
    if chance.random() < 0.25:
        limit = chance.choice([24, 64, 128, 400])
        case.around.append(f"{chance.choice(['as', 'data'])}={limit}")
        case.things.add("null")
    if chance.random() < 0.3:
        for call in chance.sample(FLAKY, chance.randint(1, 3)):
            case.around.append(f"flaky={call}:{chance.choice([2, 10, 100])}:{case.seed}")
        case.things |= {"null", "kept"}
    if chance.random() < 0.15:
        case.things |= {"locked", "kept"}
    if chance.random() < 0.2:
        case.things.add("check")
    if "null" in case.things:
        # It has libgcc_s loaded, which ends the process where there is no memory for that.
        case.things.discard("cancel")


# ---- What others do to the process: each returns what is wrong with what it saw
def damage_in(notes: Sequence[str]) -> list[str]:
    """No lock is waited for by a look, or by who writes a snapshot: what may have moved is none."""
    return [note for note in notes if not note.startswith("moved just then")]


def _look(pid: int, _: random.Random) -> list[str]:
    return damage_in(take(str(pid), events=True, decisions=True).notes)


def _freeze(pid: int, _: random.Random) -> list[str]:
    return list(take(str(pid), freeze=True, events=True, decisions=True).notes)


def _still(pid: int, chance: random.Random) -> list[str]:
    """Stopped wherever it was, in the middle of anything."""
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(0.02)
        return _look(pid, chance)
    finally:
        os.kill(pid, signal.SIGCONT)


def _set(pid: int, chance: random.Random) -> list[str]:
    source = ProcessSource(pid)
    with Session(source) as session:
        control = Control(source, session.layout)
        for option in chance.sample([o for o in drawn_options() if o.live], 4):
            control.set_option(option.name, option.number_of(value_of(option, chance)) or 0)
        control.ask_events(chance.random() < 0.5)
        if chance.random() < 0.3:
            control.purge(0.05)
    return []


def _snapshot(pid: int, _: random.Random) -> list[str]:
    # Not before the library has its handler.
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace")
    caught = re.search(r"SigCgt:\s*(\w+)", status)
    if caught is not None and int(caught[1], 16) >> (signal.SIGUSR2 - 1) & 1:
        os.kill(pid, signal.SIGUSR2)
    return []


BESIDE: dict[str, Callable[[int, random.Random], list[str]]] = {
    "look": _look,
    "freeze": _freeze,
    "still": _still,
    "set": _set,
    "snapshot": _snapshot,
}


def be_beside(what: str, pid: int, chance: random.Random) -> list[str]:
    try:
        return [f"{what}: {wrong}" for wrong in BESIDE[what](pid, chance)]
    except (InspectError, OSError):
        return []  # it has ended, has not begun, or does not react


# ---- One run
def command(case: Case, build: Path) -> list[str]:
    tests = build / case.flavour / "tests"
    plugin = str(tests / "stress/libstress_plugin.so")
    name, *arguments = case.program.replace("PLUGIN", plugin).split()
    if case.own:
        own = [str(tests / "odds/odd"), str(case.seed), str(case.milliseconds), str(case.status)]
        own += [",".join(sorted(case.things)), plugin]
    elif name == "model":
        own = [str(tests / "model/model"), "--threads", "3", "--operations", "60000"]
        own += ["--seed", str(case.seed + 1)]
    elif name == "python3":
        own = ["/usr/bin/python3", "-c", PYTHON]
    else:
        own = [str(tests / "stress" / f"stress_{name}"), *arguments]
    library = (build / case.flavour / "libhakmem.so").resolve()
    return [str(tests / "odds/around"), *case.around, str(library), *own]


def _environment(case: Case) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HAKMEM_")}
    own = {"BEHAVIOUR_ALLOCATOR": "hakmem", "BEHAVIOUR_SEED": str(case.seed)}
    return kept | own | case.environment


def _program(started: int, case: Case, said: Path) -> int:
    """Where calls fail now and then, what was started is who lets them; 0: none yet."""
    if not any(item.startswith("flaky") for item in case.around):
        return started
    found = re.search(rb"around: started (\d+)", said.read_bytes())
    return int(found[1]) if found else 0


def run(case: Case, build: Path) -> list[str]:
    """What is wrong."""
    chance = random.Random(case.seed + 1)
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="hakmem-odds-") as scratch:
        said = Path(scratch) / "said"
        with said.open("wb") as output:
            process = subprocess.Popen(
                command(case, build),
                env=_environment(case),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=scratch,
                start_new_session=True,
            )
        deadline = time.monotonic() + HANG_SECONDS
        time.sleep(0.05)
        while process.poll() is None and time.monotonic() < deadline:
            pid = _program(process.pid, case, said)
            if case.beside and pid:
                wrong += be_beside(chance.choice(case.beside), pid, chance)
            time.sleep(chance.random() * 0.1)
        is_over = process.poll() is not None
        if not is_over:
            # All of its session, which is this run's own.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        lines = said.read_text(encoding="utf-8", errors="replace").splitlines()
        for file in Path(scratch).glob("*.snapshot"):
            try:
                notes = damage_in(take(str(file)).notes)
                wrong += [f"snapshot: {note}" for note in notes] if is_over else []
            except InspectError as error:
                wrong.append(f"snapshot: {error}")
    wrong += [line for line in lines if line.startswith("hakmem: ") and not TOLD.match(line)]
    if not is_over:
        wrong.append("hangs")
    elif process.returncode not in case.statuses():
        wrong += [f"ended with {process.returncode}, not {case.status}", *lines[-4:]]
    return list(dict.fromkeys(wrong))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="the number of the first run")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="of all flavours")
    parser.add_argument("--flavours", default="release", help="release,debug; a run draws one")
    parser.add_argument("--verbose", action="store_true", help="show each run")
    arguments = parser.parse_args()
    failed = 0
    for seed in range(arguments.seed, arguments.seed + arguments.runs):
        case = draw(seed, tuple(arguments.flavours.split(",")))
        if arguments.verbose:
            print(case, flush=True)
        wrong = run(case, arguments.build.resolve())
        if wrong:
            failed += 1
            print(f"FAILED {case}", *wrong[:SHOWN], sep="\n    ", flush=True)
    print(f"odds: {arguments.runs} runs from {arguments.seed} on, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
