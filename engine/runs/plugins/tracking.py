"""MLflow tracking of a run. A server that does not answer never ends the run; see engine.publish.tracking."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from importlib import import_module
from typing import ClassVar

from engine.core.digests import digest
from engine.plan.model import Plan
from engine.publish.mlflow_outbox import pending
from engine.publish.record_delivery import DirectSender, sender_for
from engine.publish.tracking import Tracker, tracking_uri
from engine.runs.plugins.base import RunContext, RunPlugin
from engine.runs.run_record import DONE, read_record
from engine.storage.manifest import is_published


class Tracking(RunPlugin):
    """Records one run on MLflow: inputs, parameters, metrics, the manifest, the report and the training.

    Importing MLflow and making its database takes seconds, so a process of its own does it while the
    operators work; where MLflow is imported already, a thread.
    """

    name: ClassVar[str] = "tracking"

    def __init__(self) -> None:
        self._starting: Future[Tracker] | None = None
        self._status = "FINISHED"

    def planned(self, run: RunContext) -> None:
        """Start the MLflow run, unless the same server has the run that published this version."""
        if not run.plan.recipe.tracking.enabled:
            return
        run.mlflow_server = digest(tracking_uri(run.plan.output))
        run.mlflow_run_id = recorded_run(run.plan, run.mlflow_server)
        if run.mlflow_run_id is None:
            sender = sender_for(run.plan.output)
            if isinstance(sender, DirectSender):
                _import_frames()
            threads = ThreadPoolExecutor(1, "mlflow")
            self._starting = threads.submit(Tracker.start, run.plan, sender)
            threads.shutdown(wait=False)

    def published(self, run: RunContext) -> None:
        """Record timings, metrics and the manifest, then the results of the other plugins."""
        if self._starting is not None:
            tracker, version = self._starting.result(), run.publication
            tracker.finish(version.manifest, version.results, version.report)
            tracker.record_descriptions(version.descriptions)
            tracker.record_training(version.training)
            run.mlflow_run_id = tracker.run_id

    def failed(self, run: RunContext, error: BaseException) -> None:
        """Record that the run failed."""
        self._status = "FAILED"

    def closed(self, run: RunContext) -> None:
        """End the MLflow run."""
        if self._starting is not None:
            self._starting.result().end(self._status)


def _import_frames() -> None:
    """Import the frame libraries that MLflow imports, as far as they are installed, before its thread does.

    scikit-learn looks them up in ``sys.modules`` and fails on one that another thread has imported by half.
    """
    for name in ("pandas", "polars"):
        with suppress(ImportError):
            import_module(name)


def recorded_run(plan: Plan, server: str) -> str | None:
    """Return the id of the MLflow run that published this version, if a repetition has nothing to add to it.

    Parameters
    ----------
    plan
        The plan of the present run.
    server
        Digest of the address of the MLflow server of the present run.

    Returns
    -------
    None if the version is not published, a step of its run is not done, the recipe trains a model, records
    wait for delivery, or the run is on another server: the present run is then recorded as one of its own.
    """
    record = read_record(plan.output, plan.version)
    done = all(step.get("status") == DONE for step in record.get("steps") or [{}])
    if plan.recipe.train is not None or not done or pending(plan.output):
        return None
    if record.get("mlflow_server") != server or not is_published(plan.output, plan.version):
        return None
    found = record.get("mlflow_run_id")
    return found if isinstance(found, str) else None
