"""MLflow as the record: one run, made once in the driver, its id passed on explicitly."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from engine.errors import InputError
from engine.plan import Plan

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput
    from mlflow.tracking import MlflowClient

    from engine.results import OperatorResult

VERSION_TAG = "winnow.version"
OUTPUT_TAG = "winnow.output"


def tracking_uri(output: Path) -> str:
    """MLFLOW_TRACKING_URI, else a SQLite file in the output folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{(output / 'mlflow.db').resolve()}"


def client(output: Path) -> MlflowClient:
    """A client of the server that serves this output; quiet, and without telemetry."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
    import logging

    from mlflow.tracking import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return MlflowClient(tracking_uri(output))


class Tracker:
    """Writes one MLflow run. With tracking off, every method does nothing."""

    def __init__(self, plan: Plan, mlflow_client: MlflowClient | None, run_id: str | None) -> None:
        self._plan, self._client, self.run_id = plan, mlflow_client, run_id

    @classmethod
    @contextmanager
    def open(cls, plan: Plan) -> Iterator[Tracker]:
        """Start a run; it ends as FAILED if the block raises."""
        if not plan.recipe.tracking.enabled:
            yield cls(plan, None, None)
            return
        output = plan.output
        found = client(output)
        tracker = cls(plan, found, _start(plan, found, output))
        try:
            yield tracker
        except BaseException:
            found.set_terminated(str(tracker.run_id), "FAILED")
            raise
        found.set_terminated(str(tracker.run_id), "FINISHED")

    def finish(
        self, manifest: dict[str, Any], results: Sequence[OperatorResult], report: Path | None
    ) -> None:
        """Record timings, metrics, and what the version holds."""
        if self._client is None or self.run_id is None:
            return
        from mlflow.entities import Metric

        values = _metrics(manifest, results)
        self._client.log_batch(
            self.run_id, metrics=[Metric(metric_key(key), value, 0, 0) for key, value in values.items()]
        )
        self._client.log_dict(self.run_id, manifest, "manifest.json")
        if report is not None:
            self._client.log_artifact(self.run_id, str(report))


def _start(plan: Plan, mlflow_client: MlflowClient, output: Path) -> str:
    from mlflow.entities import Param
    from mlflow.exceptions import MlflowException

    recipe = plan.recipe
    tags = {VERSION_TAG: plan.version, OUTPUT_TAG: str(output.resolve())}
    try:
        run = mlflow_client.create_run(
            experiment_id(mlflow_client, recipe.tracking.experiment, output), tags=tags
        )
    except MlflowException as error:
        raise InputError(
            f"MLflow at {tracking_uri(output)} does not answer: {error}. Check MLFLOW_TRACKING_URI, or "
            f"record nothing with --set tracking.enabled=false."
        ) from None
    run_id: str = run.info.run_id
    mlflow_client.update_run(run_id, name=f"{recipe.name} {plan.version}")
    params = {"seed": recipe.seed, "rows": plan.n_rows, "shards": len(plan.shards)}
    for planned in plan.operators:
        params |= {f"{planned.name}.{key}": value for key, value in planned.params.items()}
    entries = [Param(key, param_text(value)) for key, value in params.items()]
    mlflow_client.log_batch(run_id, params=entries)
    mlflow_client.log_inputs(run_id, [dataset_input(plan)])
    mlflow_client.log_text(
        run_id, yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False), "recipe.yaml"
    )
    mlflow_client.log_dict(run_id, plan.to_dict(), "plan.json")
    return run_id


def experiment_id(mlflow_client: MlflowClient, name: str, output: Path) -> str:
    """The experiment of that name, made if there is none."""
    found = mlflow_client.get_experiment_by_name(name)
    if found is not None:
        known: str = found.experiment_id
        return known
    remote = bool(os.environ.get("MLFLOW_TRACKING_URI"))
    location = None if remote else (output / "mlartifacts").resolve().as_uri()
    made: str = mlflow_client.create_experiment(name, artifact_location=location)
    return made


def dataset_input(plan: Plan) -> DatasetInput:
    """The source as an MLflow input: its digest covers every byte that was read."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    from engine.fingerprint import digest

    source = {"path": plan.recipe.source.path, "files": plan.listing.identities}
    schema = {"columns": [{"name": field.name, "type": str(field.type)} for field in plan.listing.schema]}
    dataset = Dataset(
        name=plan.recipe.name,
        digest=digest(plan.listing.identities),
        source_type="winnow",
        source=json.dumps(source),
        schema=json.dumps(schema),
        profile=json.dumps({"num_rows": plan.n_rows, "num_shards": len(plan.shards)}),
    )
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "curation")])


def _metrics(manifest: dict[str, Any], results: Sequence[OperatorResult]) -> dict[str, float]:
    summary = manifest["summary"]
    found = {
        "rows": float(manifest["rows"]),
        "outlier_share": summary["outliers"] / max(manifest["rows"], 1),
        "effective_sample_size": summary["effective_sample_size"],
    }
    for result in results:
        found[f"{result.name}.seconds"] = result.seconds
        found[f"{result.name}.shards_computed"] = float(result.computed)
        found[f"{result.name}.shards_reused"] = float(result.reused)
        if result.rows_per_worker_second:
            found[f"{result.name}.rows_per_worker_second"] = result.rows_per_worker_second
        found |= {f"{result.name}.{key}": value for key, value in result.metrics.items()}
    return found


def metric_key(name: str) -> str:
    """MLflow allows few characters in the name of a metric."""
    return re.sub(r"[^\w\-. /]", "_", name, flags=re.ASCII)


def param_text(value: Any) -> str:
    """MLflow keeps 6000 characters of a parameter."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 6000 else text[:5997] + "..."
