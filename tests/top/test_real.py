"""top, export and serve-metrics on real processes, by the command as a user types it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from hakmem.inspect import jsonform
from tests.cli.support import call, clean_environment
from tests.inspect.support.targets import (
    HAKMEM,
    ROOT,
    await_line,
    compile_program,
    go_on,
    read_truth,
    running,
)
from tests.patience import HANG_SECONDS
from tests.top.terminal import Terminal
from tests.top.test_serve import fetch

THREADS, BLOCKS = 3, 400


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_program("truth.c", tmp_path_factory.mktemp("programs") / "truth")


@contextmanager
def working(program: Path, folder: Path, *more: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds what its file says; with "churn" it works on."""
    command: list[str | Path] = [program, str(THREADS), str(BLOCKS), folder / "truth", *more]
    with running(command) as process:
        await_line(process, "started")
        go_on(process)
        await_line(process, "ready")
        yield process


def top_once(*words: object) -> dict[str, Any]:
    command = [*HAKMEM, "top", "--once", "--json", "--interval", "100ms", *map(str, words)]
    outcome = call(command)
    assert outcome.status == 0, outcome.stderr
    facts: dict[str, Any] = json.loads(outcome.stdout)
    return facts


def test_one_frame_has_the_figures_of_the_process(program: Path, tmp_path: Path) -> None:
    with working(program, tmp_path) as process:
        (facts,) = top_once(process.pid)["processes"]
    truth = read_truth(tmp_path / "truth")
    snapshot = jsonform.decode(facts["snapshot"])
    assert (facts["pid"], facts["state"], snapshot.name) == (process.pid, "live", "truth")
    # Beside what the program tells of there are its threads' and its streams' blocks.
    assert len(truth) <= snapshot.gauges["live_blocks"] <= len(truth) + 50
    assert facts["rss_bytes"] > 1 << 20
    assert len([heap for heap in snapshot.heaps if heap.state == "in use"]) >= THREADS
    assert facts["rates"]["refills"] == 0


def test_rates_of_a_process_that_works(program: Path, tmp_path: Path) -> None:
    with working(program, tmp_path, "churn") as process:
        (facts,) = top_once(process.pid)["processes"]
        assert facts["rates"]["refills"] > 0


def test_processes_are_found(program: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "1", tmp_path / "2"
    first.mkdir()
    second.mkdir()
    with working(program, first) as one, working(program, second) as two:
        pids = {process["pid"] for process in top_once()["processes"]}
        assert {one.pid, two.pid} <= pids and os.getpid() not in pids
        text = call([*HAKMEM, "top", "--once", "--interval", "100ms"]).stdout.decode()
        assert all(re.search(rf"^ *{p.pid} +truth +live", text, re.MULTILINE) for p in (one, two))


def test_frame_in_characters(program: Path, tmp_path: Path) -> None:
    with working(program, tmp_path) as process:
        command = [*HAKMEM, "top", "--once", "--interval", "100ms", str(process.pid)]
        text = call(command).stdout.decode()
        plain = call(command, environment=clean_environment(PYTHONIOENCODING="ascii")).stdout
    for word in ("CLASS", "HEAP", "COUNTER", "a page each"):
        assert word in text
    assert plain.isascii() and b"a page each" in plain
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--once", "2147483646"], "there is no process 2147483646"),
        (["--once", str(os.getpid())], "does not use hakmem"),
        (["--once", "x1"], "'x1' is not the number of a process"),
        (["--once", "--interval", "1ms", "1"], "'1ms' is not a time from 50ms to 60m"),
        (["--json", "1"], "--json needs --once"),
        (["1"], "top needs a terminal"),
    ],
)
def test_wrong_use(words: list[str], said: str) -> None:
    outcome = call([*HAKMEM, "top", *words])
    assert outcome.status == 2
    assert outcome.stdout == b""
    assert said in outcome.stderr and "Traceback" not in outcome.stderr


def test_screen_of_a_process_until_it_ends(program: Path, tmp_path: Path) -> None:
    """Also frozen: it goes on afterwards."""
    with working(program, tmp_path, "churn") as process:
        words = ["--interval", "100ms", "--output", str(tmp_path), str(process.pid)]
        command = [*HAKMEM, "top", *words]
        with Terminal(command) as terminal:
            terminal.until_shown(f"{process.pid} truth, hakmem")
            terminal.press("3")
            terminal.until(
                lambda screen: re.search(r"refills +[1-9]", screen) is not None, "a rate of refills"
            )
            terminal.press("f")
            terminal.until_shown("frozen: exact")
            terminal.press("w")
            terminal.until_shown("saved")
            (saved,) = tmp_path.glob("hakmem-*.json")
            outcome = call([*HAKMEM, "inspect", str(saved)])
            assert outcome.status == 0, outcome.stderr
            terminal.press("p")
            terminal.until(lambda screen: "PAUSED" not in screen, "an end of the pause")
            state = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8")
            assert state.rpartition(")")[2].split()[0] in "RS"
            process.kill()
            process.wait(HANG_SECONDS)
            terminal.until_shown("ENDED: its last picture")
            terminal.press("q")
            terminal.until_shown("status=0")


def test_what_only_some_verbs_need_is_imported_by_them_alone() -> None:
    code = "import hakmem.cli, sys; print([m for m in sys.argv[1:] if m in sys.modules])"
    heavy = ["textual", "rich", "numpy", "prometheus_client", "elftools"]
    outcome = call([sys.executable, "-c", code, *heavy], cwd=ROOT / "tools")
    assert outcome.stdout == b"[]\n", outcome.stderr


def test_terminal_that_cannot_draw(tmp_path: Path) -> None:
    with Terminal([*HAKMEM, "top", "1"], environment={"TERM": "dumb"}) as terminal:
        screen = terminal.until_shown("status=2")
        assert "top needs a terminal; --once prints one frame without one" in screen


# ---- Metrics


def test_export(program: Path, tmp_path: Path) -> None:
    with working(program, tmp_path) as process:
        outcome = call([*HAKMEM, "export", "openmetrics", str(process.pid)])
        as_json = call([*HAKMEM, "export", "json", str(process.pid)])
    assert outcome.status == as_json.status == 0, outcome.stderr
    families = list(text_string_to_metric_families(outcome.stdout.decode()))
    values = {
        (sample.name, sample.labels.get("part") or sample.labels.get("class")): sample.value
        for family in families
        for sample in family.samples
    }
    truth = read_truth(tmp_path / "truth")
    live = values["hakmem_live_blocks", None]
    assert len(truth) <= live <= len(truth) + 50
    assert values["hakmem_resident_bytes", "live"] > 0
    assert values["hakmem_readable", None] == 1
    facts = json.loads(as_json.stdout)
    (same,) = (row for row in facts["metrics"] if row["name"] == "hakmem_live_blocks")
    assert [sample["value"] for sample in same["samples"]] == [live]
    assert same["samples"][0]["labels"] == {"pid": str(process.pid), "name": "truth"}


def test_export_of_nothing_is_said() -> None:
    outcome = call([*HAKMEM, "export", "openmetrics", "2147483646"])
    assert outcome.status == 2 and outcome.stdout == b""
    assert outcome.stderr == "hakmem: there is no process 2147483646\n"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "name the format first: openmetrics or json"),
        (["1"], "name the format first: openmetrics or json"),
        (["json", "x"], "'x' is not the number of a process"),
        (["--json", "2147483646"], "there is no process 2147483646"),
    ],
)
def test_words_of_export(words: list[str], complaint: str) -> None:
    """The format is not asked for a second time, and no PID is."""
    outcome = call([*HAKMEM, "export", *words])
    assert (outcome.status, outcome.stdout) == (2, b"")
    assert outcome.stderr.splitlines()[-1] == f"hakmem: {complaint}"


def test_metrics_are_served(program: Path, tmp_path: Path) -> None:
    with working(program, tmp_path) as process:
        command = [*HAKMEM, "serve-metrics", "--listen", "127.0.0.1:0", str(process.pid)]
        with subprocess.Popen(
            command, stderr=subprocess.PIPE, text=True, env=clean_environment()
        ) as server:
            try:
                assert server.stderr is not None
                url = server.stderr.readline().removeprefix("hakmem: serving ").strip()
                live = rf'hakmem_live_blocks{{name="truth",pid="{process.pid}"}} [1-9]'
                assert re.search(live, fetch(url))
                process.kill()
                process.wait(HANG_SECONDS)
                text = fetch(url)
                assert f'hakmem_readable{{pid="{process.pid}"}} 0.0' in text
                assert not re.search(live, text)
                server.send_signal(signal.SIGTERM)
                assert server.wait(HANG_SECONDS) == 0
            finally:
                server.kill()


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:x", ":99999", "a b:1", "127.0.0.1:"])
def test_wrong_address(address: str) -> None:
    outcome = call([*HAKMEM, "serve-metrics", "--listen", address])
    assert outcome.status == 2
    assert f"{address!r} is not HOST:PORT" in outcome.stderr


@pytest.mark.parametrize("host", ["127.0.0..1", "x" * 70])
def test_host_that_can_be_no_name(host: str) -> None:
    outcome = call([*HAKMEM, "serve-metrics", "--listen", f"{host}:0"])
    assert (outcome.status, outcome.stdout) == (2, b"")
    assert outcome.stderr.startswith(f"hakmem: cannot listen on {host}:0: ")


@pytest.mark.parametrize("verb", ["top", "export"])
def test_more_processes_than_files_that_may_be_open_at_first(
    verb: str, program: Path, tmp_path: Path
) -> None:
    """Where the user may have more, the tools take more."""
    count = 40
    command: list[str | Path] = [program, str(THREADS), str(BLOCKS), tmp_path / "truth"]
    with ExitStack() as stack:
        processes = [stack.enter_context(running(command)) for _ in range(count)]
        for process in processes:
            await_line(process, "started")
        pids = [str(process.pid) for process in processes]
        limit = ["sh", "-c", 'ulimit -S -n 32; exec "$@"', "sh", *HAKMEM, verb]
        outcome = call([*limit, *(["--once"] if verb == "top" else ["openmetrics"]), *pids])
    assert outcome.status == 0, outcome.stderr
    text = outcome.stdout.decode()
    assert "Too many open files" not in text
    if verb == "export":
        assert len(re.findall(r"^hakmem_readable\{.*\} 1", text, re.MULTILINE)) == count
