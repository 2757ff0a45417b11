"""memcached with four threads, under several clients at once."""

import hashlib
import random
import socket

from apprun.compare import Comparison, Outputs, Run
from apprun.process import Server, in_threads

CLIENTS = 4
IDLE_CONNECTIONS = 200
# Counters that tell of the clients' doings, not of timing or memory.
COUNTERS = ("cmd_set", "get_hits", "get_misses", "delete_hits", "touch_hits", "evictions")


class Client:
    """One connection that speaks the text protocol."""

    def __init__(self, server: Server) -> None:
        self.connection = server.connect()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.answers = self.connection.makefile("rb")

    def send(self, *parts: bytes) -> None:
        self.connection.sendall(b"".join(parts))

    def line(self) -> bytes:
        return self.answers.readline().rstrip(b"\r\n")

    def lines(self, end: bytes) -> list[bytes]:
        found = []
        while (line := self.line()) != end:
            assert line, "the server closed the connection"
            found.append(line)
        return found

    def values(self) -> dict[bytes, bytes]:
        """The items of one answer to a get."""
        found = {}
        while (line := self.line()) != b"END":
            _, key, _, length = line.split()
            found[key] = self.answers.read(int(length))
            self.answers.read(2)
        return found

    def close(self) -> None:
        self.answers.close()
        self.connection.close()


def exercise(server: Server, name: int, rounds: int, digests: dict[int, bytes]) -> None:
    """Writes, reads, changes and deletes the keys of one client; every answer is checked."""
    chance = random.Random(name)
    client = Client(server)
    digest = hashlib.sha256()
    expected: dict[bytes, bytes] = {}
    for number in range(rounds):
        batch = []
        for _ in range(50):
            key = b"client%d-%d" % (name, chance.randrange(1500))
            # A few values are larger than a slab page and are stored in chunks.
            size = int(2 ** chance.uniform(0, 13)) if chance.random() < 0.998 else 700_000
            value = bytes([97 + number % 26]) * size
            expected[key] = value
            batch.append(b"set %s 0 0 %d noreply\r\n%s\r\n" % (key, size, value))
        client.send(*batch)
        keys = chance.sample(sorted(expected), min(60, len(expected)))
        client.send(b"get ", b" ".join(keys), b" missing\r\n")
        found = client.values()
        assert found == {key: expected[key] for key in keys}
        digest.update(b"".join(found[key] for key in keys))
        gone = keys[0]
        del expected[gone]
        client.send(b"delete %s\r\n" % gone, b"touch %s 0\r\n" % keys[1])
        assert (client.line(), client.line()) == (b"DELETED", b"TOUCHED")
        expected[keys[2]] += b"tail"
        client.send(b"append %s 0 0 4\r\ntail\r\n" % keys[2])
        assert client.line() == b"STORED"
        client.send(b"set counter%d 0 0 2\r\n41\r\nincr counter%d 1\r\n" % (name, name))
        assert (client.line(), client.line()) == (b"STORED", b"42")
    client.close()
    digests[name] = digest.digest()


def test_memcached(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        def words(port: int) -> list[str]:
            # As root it wants to be told whose rights to take.
            listen = ["-l", "127.0.0.1", "-p", str(port), "-U", "0", "-u", "root"]
            return ["memcached", *listen, "-t", str(CLIENTS), "-m", "256", "-I", "2m", "-c", "1024"]

        digests: dict[int, bytes] = {}
        with run.server(words) as server:
            with run.timed():
                idle = [Client(server) for _ in range(IDLE_CONNECTIONS)]
                tasks = [
                    lambda name=name: exercise(server, name, 500, digests)
                    for name in range(CLIENTS)
                ]
                in_threads(tasks, 120)
                for client in idle:
                    client.send(b"version\r\n")
                versions = {client.line() for client in idle}
                for client in idle:
                    client.close()
            control = Client(server)
            control.send(b"stats\r\n")
            counters = dict(line.split()[1:3] for line in control.lines(b"END"))
            control.send(b"lru_crawler metadump all\r\n")
            fields = [dict(f.split(b"=") for f in line.split()) for line in control.lines(b"END")]
            control.send(b"flush_all\r\n")
            assert control.line() == b"OK"
            control.close()
        return {
            "values": b"".join(digests[name] for name in sorted(digests)),
            "items": b"\n".join(sorted(f[b"key"] + b" " + f[b"size"] for f in fields)),
            "counters": b" ".join(counters[name.encode()] for name in COUNTERS),
            "versions": b" ".join(versions),
        }

    compare.servers("memcached", workload, what="4 threads, values to 700 KB, 204 connections")
