"""`hakmem bench --quick`, as README has it, on as little as it can be asked for."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.support import HAKMEM, call


def test_a_quick_measurement(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    few = ["--workloads", "tiny_lifo", "--allocators", "glibc,floor", "--scale", "0.01"]
    done = call([*HAKMEM, "bench", "--quick", *few, "--output", folder])
    assert done.status == 0, done.stderr
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["kind"], manifest["state"]) == ("quick", "complete")
    assert "bench --quick --workloads tiny_lifo" in manifest["command"]
    assert [case["name"] for case in manifest["cases"]] == ["tiny_lifo"]
    assert list(manifest["allocators"]) == ["glibc", "floor"]
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    assert len(rows) == 2 * manifest["blocks"]
    assert {row["allocator"] for row in rows} == {"glibc", "floor"}
    assert done.stdout.startswith(b"## ")
    assert "tiny_lifo" in (folder / "table.md").read_text()
    assert "tiny_lifo" in (folder / "report.html").read_text()
