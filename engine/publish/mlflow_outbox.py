"""The outbox for MLflow: records of runs, kept as files in the output until the server has them.

``runs/pending/<id>.json`` holds everything that one run records. Delivering a record twice changes nothing:
the run on the server carries the record's id as a tag, its parameters and inputs are the same, and its
metrics have the time of the record. :mod:`engine.publish.outbox` has the rule for the files.

An output may be shared, so a record is not trusted to name a run or a file. Its run must carry its id, its
artifacts have the names that Rowsieve writes, and only reports of the output are uploaded. Where the output's
own database is in use, :mod:`engine.publish.own_artifacts` checks the place of the artifacts.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import TypeAdapter

from connectors.storage import Place
from engine.core.errors import InputError, one_line
from engine.core.legacy import tag_names, tag_value
from engine.publish.outbox import Outbox
from engine.publish.own_artifacts import artifacts_uri, check_artifacts, check_place, upload_file
from engine.publish.record_values import Count, DatasetValues, Status, reason_of

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

RECORD_TAG = "rowsieve.record"
TABLES_TAG = "mlflow.loggedArtifacts"
"""MLflow's tag for the artifacts that ``mlflow.load_table`` reads."""
RUNNING, KILLED = "RUNNING", "KILLED"
ID = re.compile(r"[0-9a-f]{32}")
FILE = re.compile(rf"{ID.pattern}\.json")
"""Form of the name of a record's file."""
REPORT = re.compile(r"reports/[A-Za-z0-9][A-Za-z0-9._-]*\.html")
TEXTS = frozenset(
    {"recipe.yaml", "plan.json", "manifest.json", "training.json", "evaluation.json", "search.json"}
)
"""Names of the artifacts that a record may hold as texts."""
GROUPS_TABLE = "groups.json"
"""Artifact of a run with its groups in words, the only table of a record."""
BATCH = 900
"""Metrics of one request; MLflow takes 1,000."""
RUN_UNAVAILABLE = ("RESOURCE_DOES_NOT_EXIST", "PERMISSION_DENIED")
"""MLflow's error codes for a run that is not on the server, or belongs to another user."""
REFUSAL = "INVALID_PARAMETER_VALUE"
"""MLflow's error code for a value that it does not take, or an experiment that was deleted."""
_log = logging.getLogger("rowsieve")


@dataclass
class Record:
    """Everything that one run records on MLflow."""

    id: str
    experiment: str
    name: str
    start_ms: Count
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    dataset: DatasetValues = field(default_factory=dict)
    context: str = "curation"
    """The run's use of the dataset: ``curation`` or ``training``."""
    texts: dict[str, str] = field(default_factory=dict)
    tables: dict[str, str] = field(default_factory=dict)
    """Tables as MLflow writes them (JSON of ``columns`` and ``data``), by the name of their artifact."""
    metrics: dict[str, float] = field(default_factory=dict)
    series: list[tuple[str, float, Count, Count]] = field(default_factory=list)
    """Values of metrics over a training: name, value, milliseconds since 1970, and step."""
    lease: str = ""
    """Folder of the output whose lease the writer of the record holds, of a training; else the output."""
    files: list[str] = field(default_factory=list)
    """Reports to upload, as ``reports/NAME.html`` relative to the output."""
    status: Status = RUNNING
    end_ms: Count | None = None
    run_id: str | None = None

    def write(self, output: Place) -> None:
        """Keep the record until it is delivered."""
        outbox_of(output).keep(self.id, asdict(self))

    def forget(self, output: Place) -> None:
        """Remove the record, since the server has it."""
        outbox_of(output).forget(self.id)


class RefusedRecordError(Exception):
    """The server refuses a record for what it says; the record is set aside."""


@dataclass(frozen=True)
class Answer:
    """The outcome of one delivery."""

    run_id: str | None
    """MLflow's id of the run; None if the server does not have it."""
    problem: str = ""
    """The reason why the record was not delivered and waits in the output; empty if it was delivered."""
    warnings: tuple[str, ...] = ()
    """Warnings that another process logged meanwhile."""


class Sender(Protocol):
    """Delivers the states of one record, one after the other."""

    def send(self, record: Record, *, first: bool) -> Answer:
        """Deliver a record; with ``first``, those of earlier runs before it."""
        ...

    def close(self) -> None:
        """Free what the sender holds."""
        ...


_RECORD = TypeAdapter(Record)


def record_of(values: Any) -> Record:
    """Return the record of values as JSON has them. Raises ValueError if they are not a record."""
    return _RECORD.validate_python(values)


def pending_folder(output: Place) -> Place:
    """Return the folder in which records wait."""
    return output / "runs" / "pending"


def outbox_of(output: Place) -> Outbox:
    """Return the outbox for MLflow of an output."""
    return Outbox(output, pending_folder(output), FILE)


def pending(output: Place) -> list[Record]:
    """Return the records that wait, oldest first.

    A file that holds no record, or is not named by its record's id, is ignored.
    """
    found = []
    for place in outbox_of(output).waiting():
        with suppress(OSError, ValueError):
            found.append(_read(output, place))
    return sorted(found, key=lambda record: (record.start_ms, record.id))


def warn_of_others(output: Place) -> int:
    """Log a warning for each file that has the name of a record and holds none that can be delivered; return
    how many there are.
    """
    others = 0
    for place in outbox_of(output).waiting():
        try:
            _read(output, place)
        except FileNotFoundError:
            continue  # another process has delivered it
        except (OSError, ValueError) as error:
            reason = reason_of(error) if isinstance(error, ValueError) else one_line(error)
            _log.warning("%s holds no record that MLflow takes (%s). Correct or remove it.", place, reason)
            others += 1
    return others


def _read(output: Place, place: Place) -> Record:
    """Return the record of a file. Raises OSError, or ValueError if it holds none or that of another file."""
    record = record_of(outbox_of(output).read(place))
    if place.name != f"{record.id}.json":
        raise ValueError(f"it is the record {record.id[:60]!r}")
    return record


def deliver(record: Record, client: MlflowClient, output: Place) -> str:
    """Deliver one record; return the run's id.

    Raises
    ------
    InputError
        The output's own database names a place outside the output for the artifacts.
    RefusedRecordError
        The server refuses what the record says, or it cannot be sent as UTF-8. The record is set aside; if
        its run is over, that of the server has ended too.
    Exception
        The server does not answer; the class is MLflow's.

    """
    try:
        return _send(record, client, output)
    except Exception as error:  # without an import of MLflow's exceptions
        if getattr(error, "error_code", "") != REFUSAL and not isinstance(error, UnicodeEncodeError):
            raise
        _set_aside(record, client, output)
        raise RefusedRecordError(one_line(error)) from None


def _set_aside(record: Record, client: MlflowClient, output: Place) -> None:
    """Keep a refused record where no delivery finds it, and end its run on the server."""
    outbox_of(output).set_aside(record.id, asdict(record))
    if record.run_id and record.status != RUNNING:
        with suppress(Exception):  # the refusal is what is reported
            client.set_terminated(record.run_id, record.status, record.end_ms)


def _send(record: Record, client: MlflowClient, output: Place) -> str:
    """Send everything that a record holds; return the run's id."""
    from mlflow.entities import Metric, Param

    record.run_id = (
        _own_run(record, client) or _find_run(record, client) or _create_run(record, client, output)
    )
    run_id = record.run_id
    check_artifacts(client, run_id, output)
    when = record.end_ms or record.start_ms
    client.log_batch(
        run_id,
        params=[Param(key, value) for key, value in record.params.items()],
        metrics=[Metric(key, value, when, 0) for key, value in record.metrics.items()],
    )
    if record.dataset:
        client.log_inputs(run_id, [_dataset(record)])
    send_series(record, client)
    for name, text in _accepted(record, record.texts, TEXTS, output):
        client.log_text(run_id, text, name)
    for name, text in _accepted(record, record.tables, {GROUPS_TABLE}, output):
        client.log_text(run_id, text, name)
        client.set_tag(run_id, TABLES_TAG, json.dumps([{"path": name, "type": "table"}]))
    for name in record.files:
        if not _is_report(output, name):
            _warn_refused(record, name, output, "no report of the output")
        else:
            _send_report(client, run_id, record, name, output)
    if record.status != RUNNING:
        client.set_terminated(run_id, record.status, record.end_ms)
    return run_id


def send_series(record: Record, client: MlflowClient) -> None:
    """Send the values of a training's metrics to the record's run, which the server has.

    MLflow's databases keep a value that arrives twice once.
    """
    from mlflow.entities import Metric

    values = [Metric(*value) for value in record.series]
    for start in range(0, len(values), BATCH):
        client.log_batch(record.run_id, metrics=values[start : start + BATCH])


def refusal_text(record: Record, output: Place, error: RefusedRecordError) -> str:
    """Return the warning that MLflow refuses a record, which was set aside."""
    return (
        f"MLflow refuses the record of {record.name!r} ({error}). It is kept as "
        f"{outbox_of(output).refused(record.id)}; to have it delivered again once the cause is gone, "
        f"rename it to {record.id}.json."
    )


def experiment_id(client: MlflowClient, name: str, output: Place) -> str:
    """Return the id of the experiment of that name, which is created if there is none.

    Raises InputError if the output's own database names a place outside the output for its artifacts.
    """
    found = client.get_experiment_by_name(name)
    if found is not None:
        check_place(str(found.artifact_location), f"the experiment {name!r}", output)
        known: str = found.experiment_id
        return known
    made: str = client.create_experiment(name, artifact_location=artifacts_uri(output))
    return made


def _own_run(record: Record, client: MlflowClient) -> str | None:
    """Return the id of the run that the record names, if that run carries the record's id; else None."""
    from mlflow.exceptions import MlflowException

    if not record.run_id or not ID.fullmatch(record.run_id):
        return None
    try:
        tags = client.get_run(record.run_id).data.tags
    except MlflowException as error:
        if error.error_code in RUN_UNAVAILABLE:
            return None
        raise
    return record.run_id if tag_value(tags, RECORD_TAG) == record.id else None


def _accepted(
    record: Record, texts: Mapping[str, str], names: Collection[str], output: Place
) -> list[tuple[str, str]]:
    """Return the texts whose names are artifacts that Rowsieve writes; log a warning for the others."""
    for name in texts:
        if name not in names:
            _warn_refused(record, name, output, "no artifact that Rowsieve writes")
    return [(name, text) for name, text in texts.items() if name in names]


def _warn_refused(record: Record, name: str, output: Place, why: str) -> None:
    _log.warning("%s: the record %s names %r, which is not uploaded: %s.", output, record.id, name, why)


def _find_run(record: Record, client: MlflowClient) -> str | None:
    """Return the id of the run that an earlier, interrupted delivery created; None if there is none."""
    experiment = client.get_experiment_by_name(record.experiment)
    if experiment is None:
        return None
    for tag in tag_names(RECORD_TAG):
        wanted = f"tags.`{tag}` = '{record.id}'"
        runs = client.search_runs([experiment.experiment_id], wanted, max_results=1)
        if runs:
            return str(runs[0].info.run_id)
    return None


def _is_report(output: Place, name: str) -> bool:
    """Return whether a name is that of a report which lies in the output itself, not behind a link."""
    if not REPORT.fullmatch(name):
        return False
    return not isinstance(output, Path) or (output / name).resolve().is_relative_to(output.resolve())


def _send_report(client: MlflowClient, run_id: str, record: Record, name: str, output: Place) -> None:
    """Upload a report, if there is one."""
    try:
        upload_file(client, run_id, output / name, root=output)
    except FileNotFoundError:
        return
    except InputError:
        _warn_refused(record, name, output, "no report of the output")


def _create_run(record: Record, client: MlflowClient, output: Place) -> str:
    run = client.create_run(
        experiment_id(client, record.experiment, output),
        start_time=record.start_ms,
        tags=record.tags | {RECORD_TAG: record.id},
        run_name=record.name,
    )
    return str(run.info.run_id)


def _dataset(record: Record) -> Any:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    return DatasetInput(Dataset(**record.dataset), [InputTag("mlflow.data.context", record.context)])
