"""memcached with four threads, under several clients at once."""

import functools
import random
import socket
from dataclasses import dataclass

from apprun.compare import Comparison, Outputs, Run
from apprun.process import Server, in_threads

CLIENTS = 4
ROUNDS = 800
# A plan stays valid when it is carried out again: every value that it reads, it has written before.
REPETITIONS = 3
IDLE_CONNECTIONS = 200
# Counters that tell of the clients' doings, not of timing or memory.
COUNTERS = ("cmd_set", "get_hits", "get_misses", "delete_hits", "touch_hits", "evictions")


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
        self.connection.sendall(b"".join(step.requests))
        expected = b"".join(step.answers)
        found = self.answers.read(len(expected))
        assert found == expected, f"{found[:200]!r} instead of {expected[:200]!r}"

    def lines(self, request: bytes, end: bytes) -> list[bytes]:
        self.connection.sendall(request)
        found: list[bytes] = []
        while (line := self.answers.readline().rstrip(b"\r\n")) != end:
            assert line, "the server closed the connection"
            found.append(line)
        return found

    def close(self) -> None:
        self.answers.close()
        self.connection.close()


def plan(name: int) -> list[Step]:
    """Writes, reads, changes and deletes of one client's own keys, the same at every call."""
    chance = random.Random(name)
    values: dict[bytes, bytes] = {}
    steps = []
    for number in range(ROUNDS):
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


def exercise(server: Server, steps: list[Step]) -> None:
    client = Client(server)
    for _ in range(REPETITIONS):
        for step in steps:
            client.run(step)
    client.close()


def test_memcached(compare: Comparison) -> None:
    plans = [plan(name) for name in range(CLIENTS)]

    def workload(run: Run) -> Outputs:
        def words(port: int) -> list[str]:
            # As root it wants to be told whose rights to take.
            listen = ["-l", "127.0.0.1", "-p", str(port), "-U", "0", "-u", "root"]
            return ["memcached", *listen, "-t", str(CLIENTS), "-m", "256", "-I", "2m", "-c", "1024"]

        with run.server(words) as server:
            with run.timed():
                idle = [Client(server) for _ in range(IDLE_CONNECTIONS)]
                in_threads([functools.partial(exercise, server, steps) for steps in plans], 120)
                for client in idle:
                    client.run(Step([b"set idle 0 0 1\r\nx\r\n"], [b"STORED\r\n"]))
                    client.close()
            control = Client(server)
            counters = dict(line.split()[1:3] for line in control.lines(b"stats\r\n", b"END"))
            items = control.lines(b"lru_crawler metadump all\r\n", b"END")
            fields = [dict(field.split(b"=") for field in item.split()) for item in items]
            control.run(Step([b"flush_all\r\n"], [b"OK\r\n"]))
            control.close()
        return {
            "items": b"\n".join(sorted(f[b"key"] + b" " + f[b"size"] for f in fields)),
            "counters": b" ".join(counters[name.encode()] for name in COUNTERS),
        }

    compare.servers("memcached", workload, what="4 threads, values to 700 KB, 204 connections")
