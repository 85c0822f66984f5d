"""MLflow as the record: one run, made once in the driver, its id passed on explicitly."""

from __future__ import annotations

import json
import logging
import os
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from connectors.storage import Place
from engine.core.digests import digest
from engine.core.errors import InputError
from engine.core.redaction import redact, redact_all
from engine.plan.model import Plan
from engine.publish.mlflow_outbox import RUNNING, Record, deliver, pending_folder, sync

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

    from engine.publish.results import OperatorResult

_log = logging.getLogger("rowsieve")
VERSION_TAG = "rowsieve.version"
OUTPUT_TAG = "rowsieve.output"


def tracking_uri(output: Place) -> str:
    """MLFLOW_TRACKING_URI, else a SQLite file in the output folder; empty where that is an object store."""
    named = os.environ.get("MLFLOW_TRACKING_URI", "")
    local = f"sqlite:///{(output / 'mlflow.db').resolve()}" if isinstance(output, Path) else ""
    return named or local


def client(output: Place) -> MlflowClient:
    """A client of the server that serves this output; quiet, and without telemetry. Or InputError."""
    if not tracking_uri(output):
        raise InputError(
            f"{output} cannot hold MLflow's database: set MLFLOW_TRACKING_URI to a server, or "
            f"tracking.enabled to false."
        )
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    # A server that is away must not hold a run up for minutes.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "15")
    from mlflow.tracking import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return MlflowClient(tracking_uri(output))


class Tracker:
    """Writes one MLflow run. A server that is away stops nothing: the record waits in the output folder."""

    def __init__(self, output: Place, record: Record | None) -> None:
        """``record`` None: tracking is off, and every method does nothing."""
        self._output, self._record = output, record
        self._away = False

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run; None until the server has it."""
        return self._record.run_id if self._record else None

    @classmethod
    @contextmanager
    def open(cls, plan: Plan) -> Iterator[Tracker]:
        """Start a run; it ends as FAILED if the block raises. The caller holds the output's lease."""
        if not plan.recipe.tracking.enabled:
            yield cls(plan.output, None)
            return
        tracker = cls(plan.output, started(plan))
        tracker._send(first=True)
        status = "FAILED"
        try:
            yield tracker
            status = "FINISHED"
        finally:
            tracker._end(status)

    def finish(
        self, manifest: dict[str, Any], results: Sequence[OperatorResult], report: Place | None
    ) -> None:
        """Record timings, metrics, and what the version holds."""
        record = self._record
        if record is None:
            return
        record.metrics = {metric_key(key): value for key, value in _metrics(manifest, results).items()}
        record.texts["manifest.json"] = _json(manifest)
        if report is not None:
            record.files = [f"{report.parent.name}/{report.name}"]

    def note(self, training: Mapping[str, Any] | None) -> None:
        """Record whether the published version was trained on, and why; None where that was no question."""
        if self._record is not None and training is not None:
            self._record.texts["training.json"] = _json(training)
            self._record.metrics["train.trained"] = float(training["trained"])

    def _end(self, status: str) -> None:
        if self._record is not None:
            self._record.status, self._record.end_ms = status, _now()
            self._send()

    def _send(self, *, first: bool = False) -> None:
        """Keep the record, then try to deliver it, and first of all what waits from before."""
        record = self._record
        if record is None:
            return
        try:
            mlflow_client = client(self._output)
            if first:
                sync(mlflow_client, self._output, holding=True)
            record.write(self._output)
            deliver(record, mlflow_client, self._output)
            if record.status != RUNNING:
                record.forget(self._output)
            else:
                record.write(self._output)  # with the run's id
        except Exception as error:  # whatever it is, the run matters more
            with suppress(OSError):
                record.write(self._output)
            if not self._away:
                _log.warning("%s", redact(_away(self._output, error)))
            self._away = True


def started(plan: Plan) -> Record:
    """The record of a run that starts now."""
    recipe = plan.recipe
    params: dict[str, Any] = {"seed": recipe.seed, "rows": plan.n_rows, "shards": len(plan.shards)}
    for planned in plan.operators:
        params |= {f"{planned.name}.{key}": value for key, value in planned.params.items()}
    described = redact_all(recipe.model_dump(mode="json"))
    return Record(
        id=uuid.uuid4().hex,
        experiment=recipe.tracking.experiment,
        name=f"{recipe.name} {plan.version}",
        start_ms=_now(),
        tags={VERSION_TAG: plan.version, OUTPUT_TAG: str(plan.output.resolve())},
        params={key: redact(param_text(value)) for key, value in params.items()},
        dataset=dataset_of(plan),
        texts={
            "recipe.yaml": yaml.safe_dump(described, sort_keys=False),
            "plan.json": _json(plan.to_dict()),
        },
    )


def dataset_of(plan: Plan) -> dict[str, str]:
    """The source as an MLflow dataset: its digest covers every byte that was read."""
    source = {"path": plan.recipe.source.path, "files": plan.listing.identities}
    schema = {"columns": [{"name": field.name, "type": str(field.type)} for field in plan.listing.schema]}
    return {
        "name": plan.recipe.name,
        "digest": digest(plan.listing.identities),
        "source_type": "rowsieve",
        "source": json.dumps(redact_all(source)),
        "schema": json.dumps(schema),
        "profile": json.dumps({"num_rows": plan.n_rows, "num_shards": len(plan.shards)}),
    }


def _away(output: Place, error: Exception) -> str:
    reason, uri = " ".join(str(error).split())[:300], tracking_uri(output)
    away = f"MLflow at {uri} does not answer ({reason})" if uri else reason.rstrip(".")
    return (
        f"{away}. The run goes on; its record waits in "
        f"{pending_folder(output)} and is delivered by the next run, or by `rowsieve lineage --sync --output "
        f"{output}`."
    )


def _json(value: Any) -> str:
    return json.dumps(redact_all(value), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _now() -> int:
    return int(time.time() * 1000)


def _metrics(manifest: dict[str, Any], results: Sequence[OperatorResult]) -> dict[str, float]:
    summary = manifest["summary"]
    found = {
        "rows": float(manifest["rows"]),
        "outlier_share": summary["outliers"] / max(manifest["rows"], 1),
        "effective_sample_size": summary["effective_sample_size"],
    }
    increment = manifest.get("incremental") or {}
    found |= {f"shards_{kind}": float(n) for kind, n in increment.get("shards", {}).items()}
    if increment:
        found["refitted"] = float(increment["outcome"] != "predict")
    for figure in increment.get("drift", ()):
        found |= {f"drift.{figure['name']}.{key}": float(figure[key]) for key in ("excess", "threshold")}
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
