"""The queries of the dashboard for Grafana."""

from __future__ import annotations

import json
from typing import Any

from hakmem.project import find_project

DASHBOARD = find_project().root / "tools" / "hakmem" / "metrics" / "dashboard.json"


def queries() -> list[str]:
    """Of every panel and variable, as they stand in the file."""
    found: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            found.extend(str(value[name]) for name in ("expr", "definition") if name in value)
            for item in value.values():
                walk(item)
        elif isinstance(value, list):
            for item in value:
                walk(item)

    walk(json.loads(DASHBOARD.read_text(encoding="utf-8")))
    return found


def promql_queries() -> list[str]:
    """What Grafana sends to Prometheus for the panels when all processes are chosen."""
    return [
        query.replace("$__rate_interval", "10s").replace("$pid", ".*")
        for query in queries()
        if not query.startswith("label_values(")
    ]
