"""Metrics as text: OpenMetrics for Prometheus, JSON for everybody else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from hakmem.render import Json

METRICS_SCHEMA = "hakmem.metrics/1"


class _Ready(Collector):
    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def openmetrics(metrics: Sequence[Metric]) -> str:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Ready(metrics))
    data: bytes = generate_latest(registry)
    return data.decode("utf-8")


def metrics_json(metrics: Iterable[Metric]) -> Json:
    """The same families; a sample's name is that of OpenMetrics."""
    return {
        "schema": METRICS_SCHEMA,
        "metrics": [
            {
                "name": metric.name,
                "type": metric.type,
                "unit": metric.unit or None,
                "help": metric.documentation,
                "samples": [
                    {"name": sample.name, "labels": sample.labels, "value": sample.value}
                    for sample in metric.samples
                ],
            }
            for metric in metrics
        ],
    }
