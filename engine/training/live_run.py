"""The MLflow run of a training: it is opened before the training and gets every epoch as it ends.

A record in the outbox (:mod:`engine.publish.mlflow_outbox`) holds the run, so that nothing is lost while the
server is away. The run ends as FINISHED, FAILED or KILLED. The run of a process that was killed is continued
by the same training, or ended by the next run or ``rowsieve lineage --sync``.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from connectors.storage import Place
from engine.core.events import Event, Kind, Listener, silent
from engine.core.json_files import to_json
from engine.core.redaction import redact
from engine.publish.mlflow_outbox import (
    RUNNING,
    Record,
    RefusedRecordError,
    deliver,
    pending,
    refusal_text,
    send_series,
)
from engine.publish.outbox_sync import sync
from engine.publish.record_delivery import Patience, unreachable_text
from engine.publish.tracking import (
    OUTPUT_TAG,
    VERSION_TAG,
    by_metric_key,
    client,
    has_records,
    param_text,
    schema_text,
)
from engine.recipe.trainers import TrainParams, trainer_of
from engine.training.data.version import Version
from engine.training.fit.callbacks import EpochEnd
from engine.training.fit.job import TrainingJob

EXPERIMENT = "rowsieve-train"
SEND_SECONDS, RETRY_SECONDS = 2.0, 60.0
"""Least time between two deliveries, and after one that failed."""
CURVES = ("loss", "accuracy", "worst_group_accuracy", "mean_loss", "worst_group_loss")
"""Figures of an epoch. All but the loss are of validation rows, and are logged as ``epoch.FIGURE``."""
_log = logging.getLogger("rowsieve")


def curve_values(curve: Sequence[Mapping[str, Any]], when_ms: int) -> list[tuple[str, float, int, int]]:
    """Return the epochs of a curve as values of MLflow's metrics: name, value, time and step from 0."""
    return [
        (name if name == "loss" else f"epoch.{name}", float(note[name]), when_ms, step)
        for step, note in enumerate(curve)
        for name in CURVES
        if note.get(name) is not None
    ]


def params_of(params: TrainParams, seed: int) -> dict[str, str]:
    """Return the parameters of a training as MLflow keeps them."""
    values = params.model_dump(mode="json") | {"seed": seed}
    return {key: param_text(value) for key, value in values.items()}


def dataset_of(version: Version) -> dict[str, str]:
    """Describe a published version as an MLflow dataset. Its digest covers every published byte."""
    manifest = version.manifest
    source = {"folder": str(version.folder), "version": version.name, "source": manifest["source"]["path"]}
    return {
        "name": str(manifest["recipe"]),
        "digest": str(manifest["content"]),
        "source_type": "rowsieve",
        "source": json.dumps(source),
        "schema": schema_text(manifest["schema"]),
        "profile": json.dumps({"num_rows": manifest["rows"], **manifest["summary"]["splits"]}),
    }


class LiveRun:
    """One MLflow run of a training. None of its methods raises because a server does not answer."""

    def __init__(self, output: Place, record: Record) -> None:
        self._output, self._record = output, record
        self._is_known = self._warned = False
        self._next_try = 0.0
        self._patience = Patience()
        self._steps = 0
        self._held = {step for *_, step in record.series}
        """Steps that this process has sent or will send."""
        self.over = False

    @property
    def run_id(self) -> str | None:
        """MLflow's id of the run; None while the server does not have it."""
        return self._record.run_id if self._is_known else None

    @classmethod
    def open(cls, job: TrainingJob, place: Place) -> LiveRun:
        """Open the run of a training whose lease the caller holds, or continue that of a killed process."""
        output = job.version.output
        lease = f"models/{place.name}" if place == output / "models" / place.name else ""
        record = Record(
            id=uuid.uuid4().hex,
            experiment=EXPERIMENT,
            name=f"{trainer_of(job.params)} {job.version.name}",
            start_ms=_now_ms(),
            tags={VERSION_TAG: job.version.name, OUTPUT_TAG: str(output.resolve())},
            params={key: redact(text) for key, text in params_of(job.params, job.seed).items()},
            dataset=dataset_of(job.version),
            context="training",
            lease=lease,
        )
        for waiting in pending(output) if lease else ():
            if (waiting.lease, waiting.status, waiting.experiment) == (lease, RUNNING, EXPERIMENT):
                record = replace(
                    record,
                    id=waiting.id,
                    run_id=waiting.run_id,
                    start_ms=waiting.start_ms,
                    series=waiting.series,
                )
        live = cls(output, record)
        with suppress(Exception):  # of other runs; what is in the way is said below
            sync(client(output), output)
        live._send()
        return live

    def add(self, epochs: Sequence[EpochEnd]) -> None:
        """Log epochs that have ended, at most every two seconds."""
        now = _now_ms()
        for epoch in epochs:
            if epoch.number > self._steps:
                self._record.series += [
                    (name, value, now, epoch.number - 1)
                    for name, value, _, _ in curve_values([vars(epoch)], now)
                ]
                self._steps = epoch.number
                self._held.add(epoch.number - 1)
        if time.monotonic() >= self._next_try:
            self._send_series()

    def complete(
        self, curve: Sequence[Mapping[str, Any]], metrics: Mapping[str, float], texts: Mapping[str, Any]
    ) -> None:
        """Add the epochs that this process has not sent, the scores, and records as files.

        A killed process may have left epochs before its checkpoint unsent. Those that it had sent are sent
        again, with the same values.
        """
        self._record.series += [
            value for value in curve_values(curve, _now_ms()) if value[3] not in self._held
        ]
        self._held |= set(range(len(curve)))
        self._steps = max(self._steps, len(curve))
        self._record.metrics |= by_metric_key(metrics)
        self._record.texts |= {name: to_json(value) for name, value in texts.items()}
        self._send()

    def close(self, status: str) -> None:
        """End the run with MLflow's status FINISHED, FAILED or KILLED; a second call does nothing."""
        if not self.over:
            self.over = True
            self._record.status, self._record.end_ms = status, _now_ms()
            self._send()

    def _send_series(self) -> None:
        if not self._is_known:
            self._send()
            return
        self._try(lambda: send_series(self._record, client(self._output)))

    def _send(self) -> None:
        """Keep the record as a file, then try to deliver all of it."""
        with suppress(OSError):
            self._record.write(self._output)
        self._try(self._deliver)

    def _deliver(self) -> None:
        record = self._record
        deliver(record, client(self._output), self._output)
        self._is_known = True
        if record.status == RUNNING:
            record.write(self._output)  # with the run's id
        else:
            record.forget(self._output)

    def _try(self, send: Callable[[], None]) -> None:
        if self._patience.problem():
            with suppress(OSError):
                self._record.write(self._output)
            self._next_try = time.monotonic() + RETRY_SECONDS
            return
        started = time.monotonic()
        try:
            send()
            self._record.series.clear()
            self._next_try = time.monotonic() + SEND_SECONDS
        except RefusedRecordError as error:
            self._next_try = time.monotonic() + RETRY_SECONDS
            self._warn(f"{refusal_text(self._record, self._output, error)} The training goes on.")
        except Exception as error:  # MLflow's client raises errors of many kinds, and none may end a training
            with suppress(OSError):
                self._record.write(self._output)
            self._next_try = time.monotonic() + RETRY_SECONDS
            problem = unreachable_text(self._output, error, "The training")
            self._patience.note_failure(problem, started)
            self._warn(problem)

    def _warn(self, text: str) -> None:
        """Log the first problem of the run."""
        if not self._warned:
            _log.warning("%s", redact(text))
        self._warned = True


@dataclass
class TrainingWatch:
    """Those who are told of a training: the listener of its progress, and its MLflow run if it has one."""

    listener: Listener = silent
    tracks: bool = False
    """Open an MLflow run if the output has a database for it or a server is named."""
    run: LiveRun | None = None
    started: float = 0.0
    done: int = 0
    total: int = 0
    """Epochs that have ended, and that are expected; 0 before a training starts."""

    def start(self, job: TrainingJob, place: Place) -> None:
        """Open the run before a training starts; the caller holds its lease."""
        self.open(job, place)
        total = job.resolved_params.total_epochs
        self.started, self.total = time.monotonic(), total
        self._emit(0, total, "start")

    def open(self, job: TrainingJob, place: Place) -> None:
        """Open the MLflow run, if trainings on this version are recorded."""
        if self.tracks and has_records(job.version.output):
            self.run = LiveRun.open(job, place)

    def tell(self, epochs: Sequence[EpochEnd]) -> None:
        """Pass epochs on that have ended."""
        self.done = epochs[-1].number
        self._emit(self.done, epochs[-1].total, "progress")
        if self.run is not None:
            self.run.add(epochs)

    def finish(self) -> None:
        """Tell the listener that the model is trained."""
        if self.total:
            self._emit(self.done or self.total, self.done or self.total, "finish")

    def _emit(self, done: int, total: int, kind: Kind) -> None:
        seconds = time.monotonic() - self.started
        self.listener(Event(kind, "train", done, total, seconds=seconds, unit="epochs"))

    @contextmanager
    def closing(self) -> Iterator[None]:
        """End the run when the block ends: FINISHED, after an error FAILED, after a signal KILLED."""
        try:
            yield
        except BaseException as error:
            if self.run is not None:
                self.run.close("FAILED" if isinstance(error, Exception) else "KILLED")
            raise
        if self.run is not None:
            self.run.close("FINISHED")


def _now_ms() -> int:
    return int(time.time() * 1000)
