"""memcached: four threads, values of many sizes, under several clients at once."""

from __future__ import annotations

import functools
import random
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .base import Outcome, RealProgram, scaled
from .execution import Execution
from .process import ProgramFailedError, Server, in_threads

CLIENTS = 4
ROUNDS = 150
# Each client carries out its plan so many times.
REPETITIONS = 4
IDLE_CONNECTIONS = 200
CLIENT_SECONDS_MAX = 120.0
# Of a round: writes, reads and the five that follow.
ROUND_REQUESTS = 50 + 60 + 5


@dataclass(frozen=True)
class Step:
    """Requests to send at once, and what must come back, in parts that share memory."""

    requests: list[bytes]
    answers: list[bytes]


class Client:
    """One connection that speaks the text protocol."""

    def __init__(self, server: Server) -> None:
        self.connection = server.connect()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = self.connection.makefile("rb")

    def run(self, step: Step) -> None:
        """Sends, reads, compares."""
        self.connection.sendall(b"".join(step.requests))
        expected = b"".join(step.answers)
        found = self.answers.read(len(expected))
        if found != expected:
            raise ProgramFailedError(f"{found[:200]!r} instead of {expected[:200]!r}")

    def lines(self, request: bytes, end: bytes) -> list[bytes]:
        """Sends, and reads lines up to the one that ends the answer."""
        self.connection.sendall(request)
        found: list[bytes] = []
        while (line := self.answers.readline().rstrip(b"\r\n")) != end:
            if not line:
                raise ProgramFailedError("memcached closed the connection")
            found.append(line)
        return found

    def close(self) -> None:
        """Ends the connection."""
        self.answers.close()
        self.connection.close()


def plan(name: int, rounds: int) -> list[Step]:
    """Writes, reads, changes and deletes of one client's own keys, the same at every call.

    A plan stays valid when it is carried out again: every value that it reads, it has written.
    """
    chance = random.Random(name)
    values: dict[bytes, bytes] = {}
    steps = []
    for number in range(rounds):
        requests: list[bytes] = []
        answers: list[bytes] = []
        for _ in range(50):
            key = b"client%d-%d" % (name, chance.randrange(1500))
            # A few values are larger than a slab page and are stored in chunks.
            size = int(2 ** chance.uniform(0, 13)) if chance.random() < 0.998 else 700_000
            values[key] = bytes([97 + number % 26]) * size
            requests += (b"set %s 0 0 %d noreply\r\n" % (key, size), values[key], b"\r\n")
        keys = chance.sample(sorted(values), min(60, len(values)))
        requests += (b"get ", b" ".join(keys), b" missing\r\n")
        for key in keys:
            answers += (b"VALUE %s 0 %d\r\n" % (key, len(values[key])), values[key], b"\r\n")
        answers.append(b"END\r\n")
        gone, touched, longer = keys[:3]
        del values[gone]
        values[longer] += b"tail"
        requests += (
            b"delete %s\r\n" % gone,
            b"touch %s 0\r\n" % touched,
            b"append %s 0 0 4\r\ntail\r\n" % longer,
            b"set counter%d 0 0 2\r\n41\r\n" % name,
            b"incr counter%d 1\r\n" % name,
        )
        answers.append(b"DELETED\r\nTOUCHED\r\nSTORED\r\nSTORED\r\n42\r\n")
        steps.append(Step(requests, answers))
    return steps


def server_words(port: int) -> list[str]:
    """A server with a thread for each client."""
    # As root it wants to be told whose rights to take.
    listen = ["-l", "127.0.0.1", "-p", str(port), "-U", "0", "-u", "root"]
    sizes = ["-t", str(CLIENTS), "-m", "256", "-I", "2m", "-c", "1024"]
    return ["/usr/bin/memcached", *listen, *sizes]


def exercise(server: Server, steps: Sequence[Step], repetitions: int) -> None:
    """One client carries out its plan."""
    client = Client(server)
    for _ in range(repetitions):
        for step in steps:
            client.run(step)
    client.close()


class Memcached(RealProgram):
    """Values lie in slabs of its own, which are large blocks; connections and their buffers are
    small ones."""

    name = "memcached"
    about = "4 threads, values to 700 KB, 204 connections"
    executable = Path("/usr/bin/memcached")
    packages = ("memcached",)
    threads = CLIENTS

    def exercise(self, execution: Execution, inputs: Path, scale: float) -> Outcome:
        rounds = scaled(ROUNDS, scale)
        plans = [plan(name, rounds) for name in range(CLIENTS)]
        with execution.server(server_words) as server, execution.timed():
            idle = [Client(server) for _ in range(IDLE_CONNECTIONS)]
            tasks = [functools.partial(exercise, server, steps, REPETITIONS) for steps in plans]
            in_threads(tasks, CLIENT_SECONDS_MAX)
            for client in idle:
                client.run(Step([b"set idle 0 0 1\r\nx\r\n"], [b"STORED\r\n"]))
                client.close()
        return Outcome(CLIENTS * rounds * REPETITIONS * ROUND_REQUESTS, "requests")
