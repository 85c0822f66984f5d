"""The operator ``eos``, which runs entropic outlier sparsification over shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from connectors.foundation.remedies import add_operator
from operators.base import (
    FEATURES,
    GRADIENT,
    LABEL,
    LOSS,
    Apply,
    Context,
    Cost,
    Executor,
    Operator,
    OperatorError,
    OperatorParams,
    ReportContext,
    Resources,
)
from operators.bounded_json import read_json
from operators.columns import vectors_to_numpy
from operators.eos.params import EosParams
from operators.probe.params import ProbeParams
from operators.report import ReportSection

EOS_WEIGHT = "eos_weight"
EOS_OUTLIER = "eos_outlier"
TARGETS = {"least_squares": "number", "spa": "class"}
BY_CLASS = ("gaussian", "kmeans", "loss")


class Eos(Operator[EosParams]):
    """Adds ``eos_weight``, mean 1 over all valid rows, and ``eos_outlier``."""

    name = "eos"
    version = 3
    cost = Cost(80.6, 18.1, 12)
    Params: ClassVar[type[OperatorParams]] = EosParams
    uses: tuple[str, ...] = ("ingest",)

    @classmethod
    def variant(cls, params: Mapping[str, Any]) -> type[Operator[Any]]:
        """Return :class:`EosByProbe` where a classifier is trained in each iteration."""
        return EosByProbe if params.get("model") == "probe" else cls

    @property
    def column(self) -> str:
        """Return the column from which losses are computed."""
        if self.params.model == "loss":
            return LOSS
        return GRADIENT if self.params.features == "gradient" else FEATURES

    @property
    def by_class(self) -> bool:
        """Return whether every class has a model of its own."""
        return self.params.by_class and self.params.model in BY_CLASS

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the column from which losses are computed, and labels if the learner needs them."""
        labels = self.by_class or self.params.model in TARGETS
        return (self.column, LABEL) if labels else (self.column,)

    @property
    def adds(self) -> tuple[pa.Field, ...]:
        """Return the added columns ``eos_weight`` and ``eos_outlier``."""
        return pa.field(EOS_WEIGHT, pa.float32()), pa.field(EOS_OUTLIER, pa.bool_())

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Learn weights and models; store ``models.npz`` and ``eos.json``, which has the curve of alpha.

        Returns ``outliers``, ``effective_sample_size``, ``objective`` (mean over rows), ``least_alpha`` and
        ``largest_alpha`` (over classes), ``iterations`` (the largest number), ``converged`` (0 or 1),
        ``collapsed``, the number of classes whose weights concentrate on too few rows, and ``too_small``, the
        number of classes with too few rows to choose alpha, whose rows weigh 1. ``objective`` and the alphas
        are missing if all classes are too small.

        Raises
        ------
        OperatorError
            There are no rows, or a loss is not finite.
        """
        # Imported here because planning imports this module and must stay light.
        from operators.eos.sharded import Passes, solve
        from operators.eos.state import EVERYONE, record, scorer_of, summary

        counts = class_counts(context.states["ingest"])
        passes = Passes(self._source(context, len(counts)), executor, self.params.resources)
        sizes = {key: n for key, n in enumerate(counts) if n} if self.by_class else {EVERYONE: sum(counts)}
        learner = learner_of(self.params, len(counts))
        samples = passes.sample(learner, sizes, context.seed)
        if not samples:
            raise OperatorError(
                "operators.eos: there are no valid rows. `rowsieve quarantine` lists the rejected rows."
            )
        fits, curves = solve(passes, learner, self.params, samples, context.seed)
        scorer = scorer_of(fits)
        too_small = {key: sizes[key] for key in curves if key not in fits}
        n_outliers = passes.count_outliers(scorer, self.params.threshold)
        metrics = summary(fits, too_small) | {"outliers": float(n_outliers)}
        scorer.save(context.state, record(fits, curves) | {"metrics": metrics})
        return metrics

    @property
    def can_predict(self) -> bool:
        """Return True: new rows get weights relative to a mean of 1 over the rows of ``fit``."""
        return True

    def report_section(self, context: ReportContext) -> ReportSection | None:
        """Describe the weights and the choice of alpha."""
        from operators.eos.report import eos_section

        return eos_section(context)

    def open(self, context: Context) -> Apply:
        """Return a function that weights the rows of a table by the stored models."""
        from operators.eos.state import Scorer

        scorer = Scorer.load(context.state)
        source = self._source(context, len(class_counts(context.states["ingest"])))

        def apply(table: pa.Table) -> pa.Table:
            if not table.num_rows:
                return self.columns(np.empty(0))
            rows, keys = source.parsed(table)
            return self.columns(scorer.log_weights(rows.X, keys, rows.y))

        return apply

    def columns(self, log_weights: np.ndarray[Any, np.dtype[np.float64]]) -> pa.Table:
        """Return the added columns from the log of weights (n,) of mean 1."""
        is_outlier = log_weights < np.log(self.params.threshold)
        return pa.table({EOS_WEIGHT: np.exp(log_weights).astype(np.float32), EOS_OUTLIER: is_outlier})

    def _source(self, context: Context, n_classes: int) -> Any:
        from operators.eos.sharded import Source

        target = TARGETS.get(self.params.model, "none")
        return Source(context.shards, self.column, self.by_class, target, n_classes)


class EosByProbe(Eos):
    """``eos`` with ``model: probe``: trains the recipe's probe again with the weights from its losses."""

    uses = ("ingest", "probe")

    def __init__(self, params: EosParams, probe: ProbeParams | None = None) -> None:
        super().__init__(params)
        self._probe = probe

    def in_chain(self, chain: Sequence[Operator[Any]]) -> EosByProbe:
        """Return the operator with the parameters of the recipe's probe.

        Raises OperatorError if there is none.
        """
        for operator in chain:
            if isinstance(operator.params, ProbeParams):
                return EosByProbe(self.params, operator.params)
        raise OperatorError(
            f"operators.eos.model is 'probe', but the recipe has no probe. {add_operator('probe')}."
        )

    @property
    def requires(self) -> tuple[str, ...]:
        """Return the required columns: features and labels, as for the probe."""
        return FEATURES, LABEL

    @property
    def resources(self) -> Resources:
        """Resources of one actor, and of one worker of the training: the probe's."""
        return self._probe.resources if self._probe else self.params.resources

    def fit(self, context: Context, executor: Executor) -> dict[str, float]:
        """Learn weights in one task or on the workers of Ray Train; store the model and ``eos.json``.

        Returns the metrics of :meth:`Eos.fit`.
        """
        from operators.eos.probe_job import ProbeJob, run_job

        probe = self._probe
        if probe is None:
            raise OperatorError(
                f"operators.eos.model is 'probe', but the recipe has no probe. {add_operator('probe')} to "
                "operators, or set another model."
            )
        states = context.states
        job = ProbeJob(context.shards, context.state, states["probe"], self.params, probe, context.seed)
        if executor.kind == "ray" and probe.wants_ray(context.shards):
            # Imported here because it takes seconds, and only large runs on Ray need it.
            from operators.probe.ray_train import run_on_ray

            return run_on_ray(
                partial(run_job, job),
                name="eos",
                who="operators.probe",
                job=job,
                resources=probe.resources,
                workers=probe.workers,
            )
        (metrics,) = executor.map(run_job, [job], resources=probe.resources)
        return metrics

    def open(self, context: Context) -> Apply:
        """Return a function that weights the rows of a table by the trained model."""
        from operators.eos.probe_job import load_scorer

        score = load_scorer(context.state, self.resources)

        def apply(table: pa.Table) -> pa.Table:
            if not table.num_rows:
                return self.columns(np.empty(0))
            return self.columns(
                score(vectors_to_numpy(table.column(FEATURES)), table.column(LABEL).to_numpy())
            )

        return apply


def class_counts(ingest: Path) -> list[int]:
    """Return the rows of each class that ``ingest`` counted."""
    found: dict[str, list[int]] = read_json(ingest / "classes.json")
    return found["counts"]


def learner_of(params: EosParams, n_classes: int) -> Any:
    """Return the learner of a recipe's parameters."""
    from operators.eos import SPA, Gaussian, KMeans, LeastSquares
    from operators.eos.losses import FixedLosses

    if params.model == "gaussian":
        return Gaussian(params.regularization)
    if params.model == "kmeans":
        return KMeans(params.n_clusters)
    if params.model == "least_squares":
        return LeastSquares(params.l2)
    if params.model == "spa":
        return SPA(params.n_clusters, params.label_weight, n_classes=n_classes)
    return FixedLosses()
