"""redis: SET, GET and LPUSH from two clients (redis-benchmark) side by side."""

from __future__ import annotations

from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution

REQUESTS = 150_000
COMMANDS = ("set", "get", "lpush")
CLIENTS = 2
# Two processes of one thread: with threads of its own redis-benchmark notices the end of the work
# only in a timer of 250 ms, which would be most of what is timed.
SIDE_BY_SIDE = '"$@" & "$@" || exit; wait $!'


class Redis(RealProgram):
    """The server alone runs on the allocator; it serves from one thread."""

    name = "redis"
    about = "SET, GET, LPUSH; 20 connections of two clients, pipelines of 16"
    executable = Path("/usr/bin/redis-server")
    packages = ("redis-server",)
    threads = 1 + CLIENTS
    quick = True

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        requests = scaled(REQUESTS, scale, least=100)

        def words(port: int) -> list[str]:
            options = {"port": str(port), "bind": "127.0.0.1", "save": "", "appendonly": "no"}
            options |= {"dir": str(execution.directory), "logfile": "log"}
            pairs = (word for key, value in options.items() for word in (f"--{key}", value))
            return [str(self.executable), *pairs]

        client = ["/usr/bin/redis-benchmark", "-q", "-c", "10", "-P", "16", "-d", "100"]
        client += ["-r", "50000", "-n", str(requests // CLIENTS)]
        with execution.server(words) as server:
            client += ["-h", "127.0.0.1", "-p", str(server.port), "-t", ",".join(COMMANDS)]
            with execution.timed():
                execution.tool(["/bin/sh", "-c", SIDE_BY_SIDE, "sh", *client])
        return Outcome(len(COMMANDS) * CLIENTS * (requests // CLIENTS), "requests")
