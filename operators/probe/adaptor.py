"""Trains the probe over shards, then streams them through it."""

from __future__ import annotations

import logging
import math
from functools import partial
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from operators.base import (
    FEATURES,
    LABEL,
    LOSS,
    PREDICTION,
    Apply,
    Context,
    Cost,
    Executor,
    Operator,
    OperatorError,
    OperatorParams,
)
from operators.bounded_json import read_json
from operators.columns import vectors_to_numpy
from operators.explanations import ExplainedRow, Fact, added_facts
from operators.probe.job import ProbeJob, open_predictor, run_job
from operators.probe.params import ProbeParams

_log = logging.getLogger("rowsieve")


class Probe(Operator[ProbeParams]):
    """Adds the prediction and the loss of a classifier trained on all rows (empirical risk minimisation)."""

    name = "probe"
    version = 5
    cost = Cost(13.8, 7.95, 93)
    Params: ClassVar[type[OperatorParams]] = ProbeParams
    uses = ("ingest",)

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the required columns: features and labels."""
        return FEATURES, LABEL

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Predicted class index, and softmax cross-entropy in nats."""
        return pa.field(PREDICTION, pa.int32()), pa.field(LOSS, pa.float32())

    @property
    def needs_ray(self) -> bool:
        """Return whether the recipe asks for Ray Train."""
        return self.params.trainer == "ray"

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Train in one task or on Ray Train's workers; leaves the model and ``training.json``.

        Returns train_loss, train_accuracy and n_parameters.

        Raises
        ------
        OperatorError
            ``trainer: ray`` without Ray, fewer than two classes, or rows or a model that cannot be used.
        """
        n_classes, widths = _measures(context.states["ingest"])
        job = ProbeJob(context.shards, context.state, self.params, n_classes, widths, context.seed)
        metrics = self._run(job, context, executor)
        if not metrics["converged"]:
            _log.warning(
                "operators.probe: the solver stopped before the logistic model converged, so that another "
                "run on more rows may give another model. Raise l2, or set standardize: true."
            )
        return metrics

    def _run(self, job: ProbeJob, context: Context, executor: Executor) -> dict[str, float]:
        if self._trains_on_ray(context, executor):
            # Imported here because the import takes seconds, and one task without Ray does not need it.
            from operators.probe.ray_train import run_on_ray

            return run_on_ray(
                partial(run_job, job),
                name="probe",
                who="operators.probe",
                job=job,
                resources=self.params.resources,
                workers=self.params.workers,
            )
        (metrics,) = executor.map(run_job, [job], resources=self.params.resources)
        return metrics

    def _trains_on_ray(self, context: Context, executor: Executor) -> bool:
        params = self.params
        if params.trainer == "ray" and executor.kind != "ray":
            raise OperatorError(
                "operators.probe.trainer is 'ray', but this run's executor is local, or its hosts share no "
                "disk for the output. Set trainer to 'auto' or 'in_process', or run on Ray (run.executor: "
                "ray) with an output.path that all hosts see."
            )
        return executor.kind == "ray" and params.wants_ray(context.shards)

    @property
    def can_predict(self) -> bool:
        """Return True: the trained model places new rows without ``fit``."""
        return True

    def explain(self, context: Context, row: ExplainedRow) -> list[Fact]:
        """Say what the classifier predicts, and how likely it takes the row's label to be."""
        if not row.has(PREDICTION, LOSS):
            return added_facts(self.adds, row)
        prediction, loss = row.value(PREDICTION), row.value(LOSS)
        right = "the label" if prediction == row.value(LABEL) else "not the label"
        return [
            Fact("prediction", row.class_name(prediction), right),
            Fact("loss", loss, f"the label has probability {math.exp(-loss):.3g}"),
        ]

    def open(self, context: Context) -> Apply:
        """Load the trained model once."""
        predict = open_predictor(context.state, self.params.resources)

        def apply(table: pa.Table) -> pa.Table:
            features, labels = vectors_to_numpy(table.column(FEATURES)), table.column(LABEL).to_numpy()
            prediction, loss = predict(features, labels)
            return pa.table({PREDICTION: prediction, LOSS: loss})

        return apply


def _measures(ingest: Path) -> tuple[int, tuple[int, ...]]:
    """Return the number of classes, and of features of each source column."""
    path = ingest / "classes.json"
    found = read_json(path)
    n_classes = len(found["classes"])
    if n_classes < 2:
        raise OperatorError(
            f"{path} lists {n_classes} class; a classifier needs at least two in the label column."
        )
    return n_classes, tuple(found.get("widths", ()))
