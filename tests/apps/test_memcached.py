"""memcached with four threads, under several clients at once."""

import functools

from apprun.compare import Comparison, Outputs, Run
from programs.memcached import CLIENTS, IDLE_CONNECTIONS, Client, Step, exercise, plan, server_words
from programs.process import in_threads

ROUNDS = 800
REPETITIONS = 3
# Counters that tell of the clients' doings, not of timing or memory.
COUNTERS = ("cmd_set", "get_hits", "get_misses", "delete_hits", "touch_hits", "evictions")


def test_memcached(compare: Comparison) -> None:
    plans = [plan(name, ROUNDS) for name in range(CLIENTS)]

    def workload(run: Run) -> Outputs:
        with run.server(server_words) as server:
            with run.timed():
                idle = [Client(server) for _ in range(IDLE_CONNECTIONS)]
                in_threads(
                    [functools.partial(exercise, server, steps, REPETITIONS) for steps in plans],
                    120,
                )
                for client in idle:
                    client.run(Step([b"set idle 0 0 1\r\nx\r\n"], [b"STORED\r\n"]))
                    client.close()
            control = Client(server)
            counters = dict(line.split()[1:3] for line in control.lines(b"stats\r\n", b"END"))
            # Not by the lists of recent use: its own thread moves items from one to another.
            items = control.lines(b"lru_crawler metadump hash\r\n", b"END")
            fields = [dict(field.split(b"=") for field in item.split()) for item in items]
            control.run(Step([b"flush_all\r\n"], [b"OK\r\n"]))
            control.close()
        return {
            "items": b"\n".join(sorted(f[b"key"] + b" " + f[b"size"] for f in fields)),
            "counters": b" ".join(counters[name.encode()] for name in COUNTERS),
        }

    compare.servers("memcached", workload, what="4 threads, values to 700 KB, 204 connections")
