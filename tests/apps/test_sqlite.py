"""sqlite3: tables, indices, full text, JSON, windows and VACUUM, with integrity checks."""

import pytest
from apprun.compare import Comparison, Outputs, Run
from programs.layout import INPUTS

TABLES = INPUTS / "tables.sql"


@pytest.mark.every_mode
def test_sqlite(compare: Comparison) -> None:
    def workload(run: Run) -> Outputs:
        script = f".parameter set :rows {run.size(250000, 1000)}\n".encode() + TABLES.read_bytes()
        done = run.command(["sqlite3", "-batch", "-bail", "base.db"], stdin=script)
        assert done.stderr == b""
        assert done.stdout.splitlines().count(b"ok") == 2, "integrity_check"
        return {"answers": done.stdout, "database": (run.directory / "base.db").read_bytes()}

    compare.commands("sqlite3", workload, what="joins, FTS5, JSON, VACUUM, integrity_check")
