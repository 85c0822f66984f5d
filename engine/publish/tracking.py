"""MLflow tracking of a run: one MLflow run, created in the driver, with inputs, metrics and artifacts."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import posixpath
import re
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from connectors.storage import Place
from engine.core.digests import digest
from engine.core.errors import InputError, one_line
from engine.core.redaction import redact, redact_all
from engine.plan.model import Plan
from engine.publish.mlflow_outbox import GROUPS_TABLE, Record, Sender
from engine.publish.own_artifacts import check_database

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

    from engine.publish.results import OperatorResult

_Entry = TypeVar("_Entry")
_log = logging.getLogger("rowsieve")
VERSION_TAG = "rowsieve.version"
OUTPUT_TAG = "rowsieve.output"
SQLITE = "sqlite:///"
SOURCE_CHARS, SCHEMA_CHARS = 65_535, 1_048_575
"""Maximum length of a dataset's source and of its schema on MLflow."""
CREATION_SECONDS = 60
"""Time to wait for another process that makes the database."""


def tracking_uri(output: Place) -> str:
    """Return MLFLOW_TRACKING_URI, else the URI of a SQLite file in the output; empty for an object store."""
    named = os.environ.get("MLFLOW_TRACKING_URI", "")
    local = f"{SQLITE}{(output / 'mlflow.db').resolve()}" if isinstance(output, Path) else ""
    return named or local


def has_records(output: Place) -> bool:
    """Return whether MLflow may know an output: its server is named, or its database file exists."""
    uri = tracking_uri(output)
    return bool(uri) and (not uri.startswith(SQLITE) or Path(uri.removeprefix(SQLITE)).exists())


def client(output: Place) -> MlflowClient:
    """Return a quiet MLflow client without telemetry for this output.

    Raises InputError without a server, and where the output's own database is a link.
    """
    check_database(output)
    if not tracking_uri(output):
        raise InputError(
            f"{output} cannot hold MLflow's database: set MLFLOW_TRACKING_URI to a server, or "
            f"tracking.enabled to false."
        )
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    # A server that does not answer must not delay a run for minutes.
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "15")
    from mlflow.tracking import MlflowClient

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with _only_one_creates(output):
        return MlflowClient(tracking_uri(output))


def quoted(text: str) -> str:
    """Return a text as a value of MLflow's filters, which take either mark and no escape.

    Raises InputError for a text with both marks.

    Examples
    --------
    >>> print(quoted("o'brien"))
    "o'brien"

    """
    mark = '"' if "'" in text else "'"
    if mark in text:
        raise InputError(f"{text}: MLflow finds no name that has both ' and \". Give another name.")
    return f"{mark}{text}{mark}"


@contextmanager
def mlflow_answers(output: Place, asked: str) -> Iterator[None]:
    """Raise InputError, which names MLflow and the question, for any other error of the block.

    A server does not answer, or a database was made by another release of MLflow or holds values that MLflow
    does not write.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # of MLflow, SQLAlchemy or the network
        raise InputError(
            f"MLflow at {tracking_uri(output)} does not say {asked}: {one_line(error)}. Check "
            "MLFLOW_TRACKING_URI; `mlflow db upgrade` brings a database of an older release up to date, and "
            "a damaged one can be moved aside."
        ) from None


@contextmanager
def _only_one_creates(output: Place) -> Iterator[None]:
    """Let other processes of this host wait, for a minute at most, while MLflow makes the output's database.

    MLflow makes the tables when a client is made, without a lock: of two processes that do so at once, one
    fails. The folder itself is locked, since a file in it could be a link. Where folders cannot be locked,
    nobody waits.
    """
    if not (isinstance(output, Path) and output.is_dir() and tracking_uri(output).startswith(SQLITE)):
        yield
        return
    folder, last = os.open(output, os.O_RDONLY), time.monotonic() + CREATION_SECONDS
    try:
        while not _try_lock(folder) and time.monotonic() < last:
            time.sleep(0.05)
        yield
    finally:
        os.close(folder)


def _try_lock(folder: int) -> bool:
    """Lock a folder and return True; False if another process holds it. True where none can be locked."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


class Tracker:
    """Writes one MLflow run.

    A server that does not answer raises nothing: the record waits in the output folder and is delivered
    later.
    """

    def __init__(self, record: Record, sender: Sender) -> None:
        self._record, self._sender = record, sender
        self._warned = False

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run; None until the server has the run."""
        return self._record.run_id

    @classmethod
    def start(cls, plan: Plan, sender: Sender) -> Tracker:
        """Start a run after delivering waiting records. The caller holds the output's lease."""
        tracker = cls(first_record(plan), sender)
        tracker._send(first=True)
        return tracker

    def finish(
        self, manifest: dict[str, Any], results: Sequence[OperatorResult], report: Place | None
    ) -> None:
        """Record timings, metrics, the manifest and the report."""
        record = self._record
        record.metrics = by_metric_key(_metrics(manifest, results))
        record.texts["manifest.json"] = _json(manifest)
        if report is not None:
            record.files = [f"{report.parent.name}/{report.name}"]

    def record_training(self, training: Mapping[str, Any] | None) -> None:
        """Record the training of the published version, if the recipe asks for one."""
        if training is not None:
            self._record.texts["training.json"] = _json(training)
            self._record.metrics["train.trained"] = float(training["trained"])

    def record_descriptions(self, descriptions: Mapping[str, Any] | None) -> None:
        """Record the groups in words as a table, which ``mlflow.load_table`` and MLflow's pages show."""
        if descriptions is not None:
            self._record.tables[GROUPS_TABLE] = group_table(descriptions["groups"])

    def end(self, status: str) -> None:
        """End the run with MLflow's status FINISHED or FAILED."""
        self._record.status, self._record.end_ms = status, _now_ms()
        self._send()
        self._sender.close()

    def _send(self, *, first: bool = False) -> None:
        """Deliver the record as it is now; a problem is logged once."""
        problem = self._sender.send(self._record, first=first).problem
        if problem and not self._warned:
            _log.warning("%s", problem)
        self._warned = self._warned or bool(problem)


def group_table(groups: Sequence[Mapping[str, Any]]) -> str:
    """Return descriptions of groups as the JSON of an MLflow table."""
    columns = ["class", "group", "rows", "share", "accuracy", "description"]
    scores = ["coverage", "purity", "base", "lift"]
    rows = [
        [*(entry[key] for key in columns), *((entry["rule"] or {}).get(key) for key in scores)]
        for entry in groups
    ]
    return json.dumps(redact_all({"columns": [*columns, *scores], "data": rows}), ensure_ascii=False)


def first_record(plan: Plan) -> Record:
    """Return the record of a run that starts now."""
    recipe = plan.recipe
    params: dict[str, Any] = {"seed": recipe.seed, "rows": plan.n_rows, "shards": len(plan.shards)}
    for planned in plan.operators:
        params |= {f"{planned.name}.{key}": value for key, value in planned.params.items()}
    described = redact_all(recipe.model_dump(mode="json"))
    return Record(
        id=uuid.uuid4().hex,
        experiment=recipe.tracking.experiment,
        name=f"{recipe.name} {plan.version}",
        start_ms=_now_ms(),
        tags={VERSION_TAG: plan.version, OUTPUT_TAG: str(plan.output.resolve())},
        params={key: redact(param_text(value)) for key, value in params.items()},
        dataset=dataset_of(plan),
        texts={
            "recipe.yaml": yaml.safe_dump(described, sort_keys=False),
            "plan.json": _json(plan.to_dict()),
        },
    )


def dataset_of(plan: Plan) -> dict[str, str]:
    """Describe the source as an MLflow dataset. Its digest covers every byte that is read."""
    columns = [{"name": field.name, "type": str(field.type)} for field in plan.listing.schema]
    return {
        "name": plan.recipe.name,
        "digest": digest(plan.listing.identities),
        "source_type": "rowsieve",
        "source": source_text(plan.recipe.source.path, plan.listing.identities),
        "schema": schema_text(columns),
        "profile": json.dumps({"num_rows": plan.n_rows, "num_shards": len(plan.shards)}),
    }


def source_text(path: str, identities: Mapping[str, str]) -> str:
    """Return the JSON of a source as MLflow takes it: its path, its first files, and the number of files.

    The dataset's digest covers the other files too; the run's ``manifest.json`` names them.
    """
    files = list(redact_all(dict(identities)).items())
    rest = {"path": redact(path), "n_files": len(files)}
    room = SOURCE_CHARS - len(json.dumps(rest | {"files": {}}))
    return json.dumps(rest | {"files": dict(_that_fit(files, room))})


def schema_text(columns: Sequence[Mapping[str, Any]]) -> str:
    """Return the JSON of a schema as MLflow takes it: the first columns, and the number of columns."""
    rest = {"n_columns": len(columns)}
    room = SCHEMA_CHARS - len(json.dumps(rest | {"columns": []}))
    return json.dumps(rest | {"columns": _that_fit(columns, room)})


def _that_fit(entries: Sequence[_Entry], room: int) -> list[_Entry]:
    """Return the first entries whose JSON has at most ``room`` characters, with a separator after each."""
    ends = accumulate(len(json.dumps(entry)) + 2 for entry in entries)
    return [entry for entry, end in zip(entries, ends, strict=True) if end <= room]


def _json(value: Any) -> str:
    return json.dumps(redact_all(value), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _now_ms() -> int:
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
        keys = [key for key in ("excess", "threshold", "p") if key in figure]
        found |= {f"drift.{figure['name']}.{key}": float(figure[key]) for key in keys}
    for result in results:
        found[f"{result.name}.seconds"] = result.seconds
        found[f"{result.name}.shards_computed"] = float(result.computed)
        found[f"{result.name}.shards_reused"] = float(result.reused)
        if result.rows_per_worker_second:
            found[f"{result.name}.rows_per_worker_second"] = result.rows_per_worker_second
        found |= {f"{result.name}.{key}": value for key, value in result.metrics.items()}
    return found


def metric_key(name: str) -> str:
    """Replace what MLflow does not allow in the name of a metric: characters, and odd paths (``a//b``)."""
    key = re.sub(r"[^\w\-. /]", "_", name, flags=re.ASCII)
    return key if posixpath.normpath(key) == key else key.replace("/", "_")


def by_metric_key(values: Mapping[str, float]) -> dict[str, float]:
    """Return values under names that MLflow takes, no two of which are alike, whatever their case.

    Of names that :func:`metric_key` makes alike, such as those of classes in another script, the later ones
    end in ``_2``, ``_3``; a name that MLflow takes as it is stays.
    """
    found: dict[str, float] = {}
    taken: set[str] = set()
    for name in sorted(values, key=lambda name: (metric_key(name) != name, name)):
        base = key = metric_key(name)
        copies = 1
        while key.lower() in taken:
            copies += 1
            key = f"{base}_{copies}"
        taken.add(key.lower())
        found[key] = values[name]
    return found


def param_text(value: Any) -> str:
    """Return a parameter as text of at most 6000 characters, which is MLflow's limit."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 6000 else text[:5997] + "..."
