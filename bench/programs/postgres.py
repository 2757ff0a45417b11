"""PostgreSQL: pgbench with two clients on a small database."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from harness.environment import CLEAN_ENVIRONMENT

from .base import Outcome, RealProgram, scaled
from .execution import Execution
from .process import READY_SECONDS_MAX, ProgramFailedError

BINARIES = Path("/usr/lib/postgresql/15/bin")
PLACE = ("-h", "127.0.0.1", "-U", "tester")
CLUSTER = ("-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
CLIENTS = 2
TRANSACTIONS = 600
# One transaction in eight: sorts, hashes, strings and JSON, for the executor's memory contexts.
QUERY = """
SELECT grade, count(*), md5(string_agg(text, ',' ORDER BY text DESC)), jsonb_agg(text)
    FROM (SELECT md5(i::text) AS text, i % 97 AS grade FROM generate_series(1, 1000) AS i) AS word
    GROUP BY grade ORDER BY grade;
"""


def server_words(port: int) -> list[str]:
    """A server on the cluster `data` that forces nothing to the disk."""
    options = {"port": port, "listen_addresses": "127.0.0.1", "fsync": "off"}
    options |= {"unix_socket_directories": "", "shared_buffers": "16MB"}
    options |= {"autovacuum": "off", "jit": "off", "max_connections": 20}
    settings = [word for key, value in options.items() for word in ("-c", f"{key}={value}")]
    return [str(BINARIES / "postgres"), "-D", "data", *settings]


def wait_started(tool: Callable[[Sequence[str]], object], place: Sequence[str]) -> None:
    """The port is open a while before the server takes connections. `tool` runs a command."""
    deadline = time.monotonic() + READY_SECONDS_MAX
    while True:
        try:
            tool([str(BINARIES / "pg_isready"), "-q", *place])
        except ProgramFailedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


class Postgres(RealProgram):
    """It refuses root, and is then run as nobody. Memory is that of its largest process."""

    name = "postgres"
    about = "pgbench: two clients, one transaction in eight with sorts, strings and JSON"
    executable = BINARIES / "postgres"
    packages = ("postgresql-15",)
    threads = 2 * CLIENTS

    def make_inputs(self, folder: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="hakmem-bench-") as base:
            execution = Execution(CLEAN_ENVIRONMENT, Path(base))
            account = execution.unprivileged()
            initdb = [str(BINARIES / "initdb"), "-D", "data", *CLUSTER]
            execution.tool(initdb, account=account)
            with execution.server(
                server_words, stop_signal=signal.SIGINT, account=account
            ) as server:
                place = [*PLACE, "-p", str(server.port)]
                wait_started(execution.tool, place)
                execution.tool([str(BINARIES / "pgbench"), *place, "-i", "-q", "postgres"])
            shutil.copytree(execution.directory / "data", folder / "data")

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        transactions = scaled(TRANSACTIONS, scale, least=10)
        shutil.copytree(inputs / "data", execution.directory / "data")
        (execution.directory / "query.sql").write_text(QUERY)
        account = execution.unprivileged()
        pgbench = [str(BINARIES / "pgbench"), *PLACE, "-n", "--random-seed=5"]
        pgbench += ["-b", "tpcb-like@7", "-f", "query.sql@1"]
        pgbench += ["-c", str(CLIENTS), "-j", str(CLIENTS), "-t", str(transactions)]
        # SIGINT: a fast shutdown, which ends sessions in order.
        with execution.server(server_words, stop_signal=signal.SIGINT, account=account) as server:
            wait_started(execution.tool, [*PLACE, "-p", str(server.port)])
            with execution.timed():
                execution.tool([*pgbench, "-p", str(server.port), "postgres"])
        return Outcome(CLIENTS * transactions, "transactions")
