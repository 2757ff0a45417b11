"""PostgreSQL: initdb, pgbench with one and with several clients, a dump of the result."""

import re
import signal

from apprun.compare import Comparison, Outputs, Run
from programs.postgres import BINARIES, CLUSTER, PLACE, server_words, wait_started

# Work for the executor's memory contexts: sorts and hashes in memory, aggregates, JSON, workers.
QUERIES = """
-- A scan would begin where another one was last: VACUUM FULL and the dump then had another order.
SET synchronize_seqscans = off;
SET work_mem = '16MB';
SET max_parallel_workers_per_gather = 2;
SET min_parallel_table_scan_size = 0;
SET parallel_setup_cost = 0;
CREATE TABLE word AS
    SELECT i AS id, md5(i::text) AS text, i % 97 AS grade FROM generate_series(1, 60000) AS i;
CREATE INDEX ON word (text);
ANALYZE word;
SELECT grade, count(*), min(text), max(text) FROM word GROUP BY grade ORDER BY grade;
SELECT count(*), sum(a.id) FROM word a JOIN word b ON a.text = md5(b.id::text);
SELECT md5(string_agg(text, ',' ORDER BY text DESC)) FROM word;
SELECT length(jsonb_agg(jsonb_build_object('id', id, 'text', text) ORDER BY id)::text) FROM word;
SELECT md5(array_agg(regexp_replace(text, '[a-f](\\d)', '<\\1>', 'g') ORDER BY id)::text) FROM word;
DO $$
DECLARE
    list text[] := '{}';
BEGIN
    FOR i IN 1..2000 LOOP
        list := list || repeat('x', i % 50);
    END LOOP;
    RAISE NOTICE '%', length(array_to_string(list, ','));
END $$;
UPDATE word SET text = text || repeat('y', grade * 20) WHERE grade % 5 = 0;
VACUUM FULL word;
SELECT sum(length(text)) FROM word;
"""


def test_postgres(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        # It refuses to run as root.
        account = run.unprivileged()

        def tool(name: str, *words: str, stdin: bytes | None = None) -> bytes:
            done = run.command(
                [str(BINARIES / name), *words], stdin=stdin, measured=False, account=account
            )
            return done.stdout + done.stderr

        outputs = {}
        with run.timed():
            outputs["initdb"] = tool("initdb", "-D", "data", *CLUSTER)

        def ask(query: str) -> bytes:
            place = [*PLACE, "-p", str(server.port), "-d", "postgres"]
            options = ["-X", "-q", "-A", "-v", "ON_ERROR_STOP=1", "-f", "-"]
            return tool("psql", *place, *options, stdin=query.encode())

        # SIGINT: a fast shutdown, which ends sessions in order.
        with run.server(server_words, stop_signal=signal.SIGINT, account=account) as server:
            bench = [*PLACE, "-p", str(server.port)]
            wait_started(run.tool, bench)
            with run.timed():
                tool("pgbench", *bench, "-i", "-s", "3", "-q", "postgres")
                tool("pgbench", *bench, "-c", "1", "-t", "1500", "--random-seed=5", "postgres")
                outputs["queries"] = ask(QUERIES)
                outputs["one client"] = ask(
                    "SELECT tid, bid, aid, delta FROM pgbench_history ORDER BY 1, 2, 3, 4"
                )
                # Clients at once mix their transactions by chance; the sums must agree in the end.
                # With -n the history of the first client stays.
                mixed = ["-n", "-c", "6", "-j", "2", "-t", "400"]
                tool("pgbench", *bench, *mixed, "--random-seed=6", "postgres")
                selects = ["-n", "-S", "-M", "prepared", "-c", "4", "-j", "2", "-t", "4000"]
                tool("pgbench", *bench, *selects, "--random-seed=7", "postgres")
                outputs["six clients"] = ask(
                    "SELECT (SELECT count(*) FROM pgbench_history),"
                    " (SELECT sum(abalance) FROM pgbench_accounts),"
                    " (SELECT sum(tbalance) FROM pgbench_tellers),"
                    " (SELECT sum(bbalance) FROM pgbench_branches),"
                    " (SELECT sum(delta) FROM pgbench_history)"
                )
            outputs["dump"] = tool("pg_dump", *bench, "-t", "word", "postgres")
            outputs["checked"] = tool("pg_amcheck", *bench, "--install-missing", "-d", "postgres")
        sums = set(outputs["six clients"].splitlines()[1].split(b"|")[1:])
        assert len(sums) == 1, f"accounts, tellers, branches and history disagree: {sums!r}"
        outputs["dump"] = re.sub(rb"\\(un)?restrict \w+", b"KEY", outputs["dump"])
        return outputs

    compare.servers("postgres", workload, what="initdb, pgbench, parallel queries, dump, amcheck")
