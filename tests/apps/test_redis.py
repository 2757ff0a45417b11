"""redis-server under load, with its data reloaded from both kinds of file while it runs."""

import random
from collections.abc import Iterator

import pytest
from apprun.compare import AS_SHIPPED, FORCED_GLIBC, Comparison, Outputs, Run, wait_for
from programs.process import Server

BENCHMARK_TESTS = "set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset"
BENCHMARK_REQUESTS = 20000


def commands(count: int) -> Iterator[bytes]:
    """Writes to values of every type and of many sizes, the same at every call."""
    chance = random.Random(3)
    for number in range(count):
        key = f"{chance.randrange(count // 8)}"
        text = "v" * int(2 ** chance.uniform(0, 12)) + str(number)
        yield chance.choice(
            (
                f"SET string:{key} {text}",
                f"APPEND string:{key} {text[-60:]}",
                f"HSET hash:{key} field{number % 40} {text}",
                f"RPUSH list:{key} {text} {number} {text[-9:]}",
                f"LTRIM list:{key} 0 30",
                f"SADD set:{key} {number} {text[-40:]}",
                f"ZADD zset:{key} {number % 1000} {text[-70:]}",
                f"XADD stream:{number % 50} {number + 1}-1 field {text[-200:]}",
                f"SETRANGE string:{key} {len(text)} tail",
                f"PFADD log:{number % 10} {text[-30:]}",
                f"DEL string:{key} list:{key}",
                f"UNLINK hash:{key} zset:{key}",
            )
        ).encode()


def script() -> bytes:
    """A Lua script that fills tables inside the server and leaves a sorted result."""
    body = (
        "local t={} for i=1,20000 do t[i]=tostring(i*7919%20011) end table.sort(t) "
        "return redis.call('SET','script',table.concat(t,',',1,3000))"
    )
    return b'EVAL "%s" 0' % body.encode()


def load(run: Run, server: Server) -> Outputs:
    client = ["redis-cli", "-p", str(server.port)]

    def ask(*words: str) -> bytes:
        return run.tool([*client, "-e", *words]).stdout.strip()

    count = 24000
    # The protocol's inline form: one command a line.
    stream = b"".join(command + b"\r\n" for command in [*commands(count), script()])
    outputs = {}
    with run.timed():
        piped = run.tool([*client, "--pipe"], stdin=stream).stdout
        assert b"errors: 0, replies: %d" % (count + 1) in piped, piped
        outputs["written"] = ask("DEBUG", "DIGEST")
        assert ask("DEBUG", "RELOAD") == b"OK"
        assert ask("DEBUG", "DIGEST") == outputs["written"], "DEBUG RELOAD changed the data"

        requests = ["-n", str(BENCHMARK_REQUESTS), "-r", "20000", "-c", "20", "-P", "8"]
        words = ["redis-benchmark", "-p", str(server.port), "--dbnum", "5", "-q"]
        run.tool([*words, *requests, "-d", "100", "-t", BENCHMARK_TESTS])
        # How the benchmark's clients take turns is chance: its data is compared with itself.
        busy = ask("DEBUG", "DIGEST")
        assert busy != outputs["written"]
        assert ask("DEBUG", "RELOAD") == b"OK"
        assert ask("DEBUG", "DIGEST") == busy, "DEBUG RELOAD changed the benchmark's data"

        # The log is rewritten by a forked child, and read back.
        assert ask("CONFIG", "SET", "appendonly", "yes") == b"OK"
        assert ask("-n", "5", "FLUSHDB", "ASYNC") == b"OK"
        wait_for(
            lambda: b"aof_rewrite_in_progress:0" in ask("INFO", "persistence"),
            "redis-server has rewritten its log",
        )
        assert b"aof_last_bgrewrite_status:ok" in ask("INFO", "persistence")
        assert ask("DEBUG", "LOADAOF") == b"OK"
        outputs["at the end"] = ask("DEBUG", "DIGEST")
    for kind in ("string", "hash", "list", "set", "zset"):
        outputs[kind] = ask("EVAL", f"return #redis.call('KEYS', '{kind}:*')", "0")
    outputs["script"] = ask("GET", "script")
    assert outputs["at the end"] == outputs["written"]
    return outputs


@pytest.mark.every_mode
def test_redis(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        def words(port: int) -> list[str]:
            options = {"port": str(port), "bind": "127.0.0.1", "save": ""}
            options |= {"dir": str(run.directory), "enable-debug-command": "local"}
            options |= {"logfile": str(run.directory / "log"), "databases": "16"}
            return ["redis-server", *(word for k, v in options.items() for word in (f"--{k}", v))]

        with run.server(words) as server:
            return load(run, server)

    # Debian links redis-server to jemalloc: as shipped it does not run on glibc's malloc.
    compare.servers(
        "redis-server",
        workload,
        what="all types, redis-benchmark, DEBUG RELOAD, AOF rewrite and load",
        baselines=(AS_SHIPPED, FORCED_GLIBC),
    )
