"""redis: SET, GET and LPUSH from redis-benchmark with two client threads."""

from __future__ import annotations

from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution

REQUESTS = 150_000
COMMANDS = ("set", "get", "lpush")
CLIENT_THREADS = 2


class Redis(RealProgram):
    """The server alone runs on the allocator; it serves from one thread."""

    name = "redis"
    about = "SET, GET, LPUSH; 20 connections in two client threads, pipelines of 16"
    executable = Path("/usr/bin/redis-server")
    packages = ("redis-server",)
    threads = 1 + CLIENT_THREADS
    quick = True

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        requests = scaled(REQUESTS, scale, least=100)

        def words(port: int) -> list[str]:
            options = {"port": str(port), "bind": "127.0.0.1", "save": "", "appendonly": "no"}
            options |= {"dir": str(execution.directory), "logfile": "log"}
            pairs = (word for key, value in options.items() for word in (f"--{key}", value))
            return [str(self.executable), *pairs]

        client = ["/usr/bin/redis-benchmark", "-q", "--threads", str(CLIENT_THREADS), "-c", "20"]
        client += ["-P", "16", "-d", "100", "-r", "50000", "-n", str(requests)]
        with execution.server(words) as server:
            client += ["-h", "127.0.0.1", "-p", str(server.port), "-t", ",".join(COMMANDS)]
            with execution.timed():
                execution.tool(client)
        return Outcome(len(COMMANDS) * requests, "requests")
