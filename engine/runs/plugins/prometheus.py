"""Prometheus metrics of a run, exported by the Ray cluster that it runs on.

Every Ray node exports the gauges that its processes set, under the names ``ray_rowsieve_...``, at the port
that ``ray.nodes()`` calls ``MetricsExportPort``.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, ClassVar

from engine.core.events import Event
from engine.runs.plugins.base import RunContext, RunPlugin

if TYPE_CHECKING:
    from ray.util.metrics import Gauge

DESCRIPTIONS = {
    "rowsieve_rows": "Rows that an operator has processed, including those of earlier runs",
    "rowsieve_rows_planned": "Rows of the plan",
    "rowsieve_shards_committed": "Shards that an operator has committed, including those of earlier runs",
    "rowsieve_shards_planned": "Shards of the plan",
    "rowsieve_rows_per_second": "Rows per second of an operator since it began",
    "rowsieve_rows_per_worker_second": "Rows per second of one worker of an operator while it computes",
    "rowsieve_rows_quarantined": "Rows that an operator has quarantined",
    "rowsieve_operator_seconds": "Seconds since an operator began",
    "rowsieve_fit_pass": "Number of the pass over the data in which the operator's fit is",
    "rowsieve_fit_pieces": "Finished pieces of work of this pass of the operator's fit",
}
TAGS = ("recipe", "version", "operator")


def values(event: Event) -> dict[str, float]:
    """Return the value of each metric by its name."""
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
        "rowsieve_fit_pieces": event.pieces,
    }


class Prometheus(RunPlugin):
    """Sets the gauges of each event. Without Ray there is no exporter, and nothing is set."""

    name: ClassVar[str] = "prometheus"

    def __init__(self) -> None:
        self._gauges: dict[str, Gauge] = {}

    def operator_started(self, run: RunContext, event: Event) -> None:
        """Set the gauges to the progress of the run."""
        self._set(run, event)

    def operator_progressed(self, run: RunContext, event: Event) -> None:
        """Set the gauges to the progress of the run."""
        self._set(run, event)

    def operator_finished(self, run: RunContext, event: Event) -> None:
        """Set the gauges to the progress of the run."""
        self._set(run, event)

    def _set(self, run: RunContext, event: Event) -> None:
        if not _ray_is_up() or event.unit != "rows":
            return
        tags = {"recipe": run.plan.recipe.name, "version": run.plan.version, "operator": event.operator}
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
