"""Records for MLflow: kept as files in the output folder until the server has them, each once.

``runs/pending/<id>.json`` holds all that one run has to say. Delivering it twice changes nothing: the run on
the server carries the record's id as a tag, its parameters and inputs are the same, and its metrics have the
time of the record.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.storage import Place
from engine.core.json_files import write_json
from engine.core.legacy import tag_names
from engine.storage.lease import alive

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

RECORD_TAG = "rowsieve.record"
RUNNING, KILLED = "RUNNING", "KILLED"


@dataclass
class Record:
    """What one run leaves on MLflow. ``status`` is MLflow's: RUNNING, FINISHED, FAILED or KILLED."""

    id: str
    experiment: str
    name: str
    start_ms: int
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    dataset: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)
    """Relative to the output folder."""
    status: str = RUNNING
    end_ms: int | None = None
    run_id: str | None = None

    def write(self, output: Place) -> None:
        """Keep the record until it is delivered."""
        write_json(pending_folder(output) / f"{self.id}.json", asdict(self))

    def forget(self, output: Place) -> None:
        """The server has it."""
        (pending_folder(output) / f"{self.id}.json").unlink(missing_ok=True)


def pending_folder(output: Place) -> Place:
    """Where records wait."""
    return output / "runs" / "pending"


def pending(output: Place) -> list[Record]:
    """Records that wait, oldest first; a file that is no record is left alone."""
    found = []
    waiting: list[Place] = list(pending_folder(output).glob("*.json"))
    for path in sorted(waiting, key=lambda path: path.name):
        try:
            found.append(Record(**json.loads(path.read_text("utf-8"))))
        except (OSError, ValueError, TypeError):
            continue
    return sorted(found, key=lambda record: (record.start_ms, record.id))


def deliver(record: Record, client: MlflowClient, output: Place) -> str:
    """Bring one record to the server; return the run's id. Raises what MLflow raises if it is away."""
    from mlflow.entities import Metric, Param

    record.run_id = record.run_id or _find(record, client) or _create(record, client, output)
    run_id = record.run_id
    when = record.end_ms or record.start_ms
    client.log_batch(
        run_id,
        params=[Param(key, value) for key, value in record.params.items()],
        metrics=[Metric(key, value, when, 0) for key, value in record.metrics.items()],
    )
    if record.dataset:
        client.log_inputs(run_id, [_dataset(record)])
    for name, text in record.texts.items():
        client.log_text(run_id, text, name)
    for name in record.files:
        if (output / name).exists():
            _send_file(client, run_id, output / name)
    if record.status != RUNNING:
        client.set_terminated(run_id, record.status, record.end_ms)
    return run_id


def sync(client: MlflowClient, output: Place, *, holding: bool = False) -> tuple[int, int]:
    """Deliver what waits: how many were delivered, and how many still wait.

    ``holding``: the caller has the output's lease, so that a record that still says RUNNING is of a run that
    was killed. Raises what MLflow raises if the server is away.
    """
    delivered = 0
    for record in pending(output):
        if record.status == RUNNING:
            if not holding and alive(output):
                continue
            record.status, record.end_ms = KILLED, record.start_ms
        deliver(record, client, output)
        record.forget(output)
        delivered += 1
    return delivered, len(pending(output))


def experiment_id(client: MlflowClient, name: str, output: Place) -> str:
    """The experiment of that name, made if there is none."""
    found = client.get_experiment_by_name(name)
    if found is not None:
        known: str = found.experiment_id
        return known
    remote = bool(os.environ.get("MLFLOW_TRACKING_URI"))
    here = isinstance(output, Path) and not remote
    location = (Path(str(output)) / "mlartifacts").resolve().as_uri() if here else None
    made: str = client.create_experiment(name, artifact_location=location)
    return made


def _find(record: Record, client: MlflowClient) -> str | None:
    """The run that an earlier attempt made before it broke off."""
    experiment = client.get_experiment_by_name(record.experiment)
    if experiment is None:
        return None
    for tag in tag_names(RECORD_TAG):
        wanted = f"tags.`{tag}` = '{record.id}'"
        runs = client.search_runs([experiment.experiment_id], wanted, max_results=1)
        if runs:
            return str(runs[0].info.run_id)
    return None


def _send_file(client: MlflowClient, run_id: str, place: Place) -> None:
    """MLflow takes files of this host."""
    if isinstance(place, Path):
        client.log_artifact(run_id, str(place))
        return
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / place.name
        copy.write_bytes(place.read_bytes())
        client.log_artifact(run_id, str(copy))


def _create(record: Record, client: MlflowClient, output: Place) -> str:
    run = client.create_run(
        experiment_id(client, record.experiment, output),
        start_time=record.start_ms,
        tags=record.tags | {RECORD_TAG: record.id},
        run_name=record.name,
    )
    return str(run.info.run_id)


def _dataset(record: Record) -> Any:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    return DatasetInput(Dataset(**record.dataset), [InputTag("mlflow.data.context", "curation")])
