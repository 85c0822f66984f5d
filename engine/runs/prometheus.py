"""How far a run is, as Prometheus metrics of the Ray cluster it runs on.

Every Ray node exports what its processes set: under ``ray_rowsieve_...`` at the port that ``ray.nodes()``
calls ``MetricsExportPort``. Without Ray there is nobody to export anything, and nothing is done.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from engine.core.events import Event, Listener

if TYPE_CHECKING:
    from ray.util.metrics import Gauge

DESCRIPTIONS = {
    "rowsieve_rows": "Rows that an operator is done with, those of earlier runs too",
    "rowsieve_rows_planned": "Rows of the plan",
    "rowsieve_shards_committed": "Shards that an operator has committed, those of earlier runs too",
    "rowsieve_shards_planned": "Shards of the plan",
    "rowsieve_rows_per_second": "Rows per second of an operator since it began",
    "rowsieve_rows_per_worker_second": "Rows per second of one of its workers while it works",
    "rowsieve_rows_quarantined": "Rows that an operator has set aside",
    "rowsieve_operator_seconds": "Seconds since an operator began",
    "rowsieve_fit_pass": "Number of the pass over the data in which the operator's fit is",
}
TAGS = ("recipe", "version", "operator")


def values(event: Event) -> dict[str, float]:
    """Each metric's value by its name."""
    return {
        "rowsieve_rows": event.rows,
        "rowsieve_rows_planned": event.total_rows,
        "rowsieve_shards_committed": event.shards,
        "rowsieve_shards_planned": event.total_shards,
        "rowsieve_rows_per_second": event.rows_per_second,
        "rowsieve_rows_per_worker_second": event.rows_per_worker_second,
        "rowsieve_rows_quarantined": event.quarantined,
        "rowsieve_operator_seconds": event.seconds,
        "rowsieve_fit_pass": event.fit_pass,
    }


class Gauges:
    """A listener that sets them, and passes every event on."""

    def __init__(self, listener: Listener, recipe: str, version: str) -> None:
        self._listener = listener
        self._tags = {"recipe": recipe, "version": version}
        self._gauges: dict[str, Gauge] = {}

    def __call__(self, event: Event) -> None:
        """Pass an event on and set what it says."""
        self._listener(event)
        if not _ray_is_up():
            return
        tags = self._tags | {"operator": event.operator}
        for name, value in values(event).items():
            self._gauge(name).set(float(value), tags=tags)

    def _gauge(self, name: str) -> Gauge:
        if name not in self._gauges:
            from ray.util.metrics import Gauge

            self._gauges[name] = Gauge(name, description=DESCRIPTIONS[name], tag_keys=TAGS)
        return self._gauges[name]


def _ray_is_up() -> bool:
    ray = sys.modules.get("ray")
    return bool(ray and ray.is_initialized())
