"""MLflow tracking of a run. A server that does not answer never ends the run; see engine.publish.tracking."""

from __future__ import annotations

from typing import ClassVar

from engine.publish.tracking import Tracker
from engine.runs.plugins.base import RunContext, RunPlugin


class Tracking(RunPlugin):
    """Records one run on MLflow: inputs, parameters, metrics, the manifest, the report and the training."""

    name: ClassVar[str] = "tracking"

    def __init__(self) -> None:
        self._tracker: Tracker | None = None
        self._status = "FINISHED"

    def planned(self, run: RunContext) -> None:
        """Start the MLflow run."""
        if run.plan.recipe.tracking.enabled:
            self._tracker = Tracker.start(run.plan)
            run.mlflow_run_id = self._tracker.run_id

    def published(self, run: RunContext) -> None:
        """Record timings, metrics and the manifest, then what the other plugins have made of the version."""
        if self._tracker is not None:
            version = run.published_version
            self._tracker.finish(version.manifest, version.results, version.report)
            self._tracker.note(version.training)
            run.mlflow_run_id = self._tracker.run_id

    def failed(self, run: RunContext, error: BaseException) -> None:
        """Record that the run failed."""
        self._status = "FAILED"

    def closed(self, run: RunContext) -> None:
        """End the MLflow run."""
        if self._tracker is not None:
            self._tracker.end(self._status)
