"""The metrics over HTTP: answers, endings, and a scrape by the real Prometheus."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hakmem.metrics.server import Answer
from tests.patience import HANG_SECONDS
from tests.top.dashboard import promql_queries

SERVER = Path(__file__).resolve().parent / "made_up_metrics.py"
FOREVER = "1000000000"


@contextmanager
def serving(
    looks_max: str = FOREVER, *client_s: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The process, and the address that it says it serves."""
    with subprocess.Popen(
        [sys.executable, SERVER, "0", looks_max, *client_s], stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.fullmatch(r"hakmem: serving (http://127\.0\.0\.1:\d+/metrics)\n", line)
            assert found is not None, line + process.stderr.read()
            yield process, found[1]
        finally:
            process.kill()


def fetch(url: str, accept: str = "") -> str:
    # No proxy, whatever the environment says: this is the loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(url, headers={"Accept": accept})
    with opener.open(request, timeout=HANG_SECONDS) as answer:
        text: str = answer.read().decode("utf-8")
    return text


def until(condition: Callable[[], Any], what: str) -> Any:
    end = time.monotonic() + HANG_SECONDS
    while time.monotonic() < end:
        try:
            result = condition()
        except urllib.error.URLError:
            result = None
        if result:
            return result
        time.sleep(0.2)
    raise AssertionError(f"never: {what}")


def test_each_scrape_is_a_look() -> None:
    with serving() as (_, url):
        first, second = fetch(url), fetch(url)
        assert 'hakmem_refills_total{name="server-10",pid="10"} 500.0' in first
        assert 'hakmem_refills_total{name="server-10",pid="10"} 1000.0' in second


def test_formats() -> None:
    with serving() as (_, url):
        assert fetch(url, "application/openmetrics-text; version=1.0.0").endswith("# EOF\n")
        assert "# EOF" not in fetch(url, "text/plain")


def test_other_paths_say_where_the_metrics_are() -> None:
    with serving() as (_, url):
        assert "hakmem_refills_total" in fetch(url.removesuffix("metrics"))
        with pytest.raises(urllib.error.HTTPError) as refused:
            fetch(f"{url}x")
        assert refused.value.code == 404
        assert refused.value.read() == b"hakmem: the metrics are at /metrics\n"


def test_process_that_ends_is_said_to_be_unreadable() -> None:
    with serving(looks_max="1") as (_, url):
        assert 'hakmem_readable{pid="11"} 1.0' in fetch(url)
        text = fetch(url)
        assert 'hakmem_readable{pid="11"} 0.0' in text
        assert 'name="server-11"' not in text and 'name="server-10"' in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_it(number: signal.Signals) -> None:
    with serving() as (process, url):
        fetch(url)
        process.send_signal(number)
        assert process.wait(HANG_SECONDS) == 0


def test_address_in_use_is_said() -> None:
    with serving() as (_, url):
        port = str(urllib.parse.urlparse(url).port)
        done = subprocess.run(
            [sys.executable, SERVER, port, FOREVER],
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
        )
        assert done.returncode != 0
        assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in done.stderr


# ---- Clients


def connect(url: str) -> socket.socket:
    place = urllib.parse.urlparse(url)
    assert place.hostname is not None and place.port is not None
    return socket.create_connection((place.hostname, place.port), timeout=HANG_SECONDS)


@pytest.mark.parametrize("said", [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\nHost: x\r\n"])
def test_client_that_says_nothing_more_is_given_up(said: bytes) -> None:
    with serving(FOREVER, "0.2") as (process, url):
        with connect(url) as client:
            client.sendall(said)
            assert client.recv(1) == b""
        assert "hakmem_refills_total" in fetch(url)
        assert end_of(process) == ""


def test_client_that_resets_is_not_told_of() -> None:
    with serving() as (process, url):
        threads = Path(f"/proc/{process.pid}/task")
        before = len(list(threads.iterdir()))
        for said in (b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n"):
            client = connect(url)
            client.sendall(said)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        assert "hakmem_refills_total" in fetch(url)
        # Its threads have met them.
        until(lambda: len(list(threads.iterdir())) == before, "they end")
        assert end_of(process) == ""


def end_of(process: subprocess.Popen[str]) -> str:
    """What it had still to say."""
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    said = process.stderr.read()
    assert process.wait(HANG_SECONDS) == 0
    return said


def test_client_that_does_not_take_its_answer_is_one_that_went() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.1)
        with pytest.raises(ConnectionAbortedError):
            Answer(ours).write(bytes(64 << 20))


# ---- Prometheus


@contextmanager
def prometheus(folder: Path, target: str) -> Iterator[str]:
    """The real one, on the loopback, which scrapes `target` every three seconds; its address."""
    config = {
        "global": {"scrape_interval": "3s", "scrape_timeout": "3s"},
        "scrape_configs": [{"job_name": "hakmem", "static_configs": [{"targets": [target]}]}],
    }
    file, log = folder / "prometheus.json", folder / "prometheus.log"
    file.write_text(json.dumps(config), encoding="utf-8")
    options = [
        f"--config.file={file}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--web.listen-address=127.0.0.1:0",
        "--log.level=info",
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["prometheus", *options], stdout=output, stderr=output, env={**os.environ, "GOGC": "50"}
        )
    try:

        def address() -> str | None:
            found = re.search(
                r'"?Listening on"? address=127\.0\.0\.1:(\d+)', log.read_text(encoding="utf-8")
            )
            return f"http://127.0.0.1:{found[1]}" if found is not None else None

        yield until(address, "Prometheus listens")
    finally:
        process.terminate()
        try:
            process.wait(HANG_SECONDS)
        finally:
            process.kill()


def ask(server: str, query: str) -> list[dict[str, Any]]:
    answer = json.loads(fetch(f"{server}/api/v1/query?{urllib.parse.urlencode({'query': query})}"))
    assert answer["status"] == "success"
    rows: list[dict[str, Any]] = answer["data"]["result"]
    return rows


def test_prometheus_scrapes_and_answers_the_dashboard(tmp_path: Path) -> None:
    with serving() as (_, url), prometheus(tmp_path, urllib.parse.urlparse(url).netloc) as server:
        until(lambda: ask(server, 'up{job="hakmem"} == 1'), "the scrape succeeds")
        rate = 'rate(hakmem_refills_total{pid="10"}[1m]) > 0'
        until(lambda: ask(server, rate), "a counter has a rate")
        (row,) = until(lambda: ask(server, 'hakmem_process_info{pid="11"}'), "a process is told of")
        assert (row["metric"]["name"], row["metric"]["mode"]) == ("server-11", "fast")
        classes = 'count(hakmem_class_live_bytes{pid="10"})'
        (row,) = until(lambda: ask(server, classes), "classes are told of")
        assert float(row["value"][1]) > 5
        # The made-up processes have no counters but these, and no class above 1 MiB of slabs.
        until(
            lambda: sum(bool(ask(server, query)) for query in promql_queries()) >= 8,
            "the dashboard's queries are answered",
        )
        metadata = json.loads(fetch(f"{server}/api/v1/metadata?metric=hakmem_live_bytes"))
        (facts,) = metadata["data"]["hakmem_live_bytes"]
        assert (facts["type"], facts["unit"]) == ("gauge", "bytes")
        assert facts["help"] == "Bytes of blocks the program holds, rounding included"
