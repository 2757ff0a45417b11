"""Heaps as metrics: `hakmem export` and `hakmem serve-metrics`.

Modules, lowest first: families (a snapshot as metric families), collect (of processes, one look
each), text (OpenMetrics and JSON), server (HTTP). dashboard.json is for Grafana.
"""
