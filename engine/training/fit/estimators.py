"""Estimators of libraries as base models: what needs ``fit(X, y, sample_weight)`` alone can train them.

An estimator is kept as bytes of its library's own format (:mod:`engine.training.libraries`) inside the same
tensors file as the weights of a network. Its log-probabilities are its logits, so that mixtures, scores and
serving treat it as they treat a network.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from engine.recipe.trainers import TrainParams
from engine.training.data.rows import GroupedRows, join
from engine.training.fit.sampling import Draw
from engine.training.fit.session import Phase, Session
from engine.training.libraries import FittedEstimator, library_of
from engine.training.libraries.base import Fitted, FittedRegressor, WeightedRows, check_library
from engine.training.objectives import RowLosses
from engine.training.rules import Erm
from operators.arrays import Float64, Int64, Mask
from operators.base import OperatorError
from operators.hashing import folds_of
from operators.models import ModelSpec
from operators.probe.scoring import predict

KEY = "estimator"
MIN_PROBABILITY = 1e-12
FOLDS = 5
"""Folds of the errors of a model on rows that it has not seen (jtt)."""


class EstimatorModule(nn.Module):
    """A fitted estimator as a module from (n, d) rows to (n, C) log-probabilities."""

    estimator: Tensor

    def __init__(self, data: bytes, spec: ModelSpec) -> None:
        """Load the estimator of stored bytes. Raises OperatorError for bytes of anything else."""
        super().__init__()
        self.register_buffer(KEY, torch.frombuffer(bytearray(data), dtype=torch.uint8).clone())
        # Callers ask a model's parameters where it computes.
        self.place = nn.Parameter(torch.zeros(0), requires_grad=False)
        self.n_classes = spec.n_classes
        self.fitted: Fitted = library_of(spec.model).load(data, spec.n_features, spec.n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return log-probabilities; a class that no fitted row had gets next to none. Of numbers: (n, 1)."""
        if self.n_classes == 1:
            regressor = cast(FittedRegressor, self.fitted)
            answers = regressor.predict(x.detach().cpu().numpy()) if len(x) else np.zeros(0)
            return torch.from_numpy(np.asarray(answers, np.float32)[:, None])
        found = np.zeros((len(x), self.n_classes))
        if len(x):
            fitted = cast(FittedEstimator, self.fitted)
            classes = np.asarray(fitted.classes_, np.int64)
            found[:, classes] = fitted.predict_proba(x.detach().cpu().numpy())
        return torch.from_numpy(np.log(found.clip(MIN_PROBABILITY)).astype(np.float32))


class EstimatorLearner:
    """An estimator of a library as the base model.

    It implements :class:`engine.training.fit.session.PhaseLearner`.
    """

    device = torch.device("cpu")

    def __init__(self, params: TrainParams, seed: int, spec: ModelSpec, losses: RowLosses) -> None:
        self._params, self._seed, self._spec, self._losses = params, seed, spec, losses
        self._library = library_of(params.model)
        self._module: EstimatorModule | None = None

    @property
    def model(self) -> EstimatorModule:
        """The estimator that was fitted or restored last. Raises OperatorError if there is none."""
        if self._module is None:
            raise OperatorError("The estimator has not been fitted yet. Call fit first.")
        return self._module

    def fit(self, X: npt.NDArray[np.float32], y: Int64 | Float64, weight: Float64) -> None:
        """Fit a new estimator to rows (n, d) with sample weights (n,); rows of weight 0 are left out.

        ``y``: (n,) class indices; of a regression, deviations from the mean of the train rows.
        """
        self._module = EstimatorModule(self._library.dump(self._fitted(X, y, weight)), self._spec)

    def held_out_errors(
        self, X: npt.NDArray[np.float32], y: npt.NDArray[np.int64], weight: Float64, folds: npt.NDArray[Any]
    ) -> npt.NDArray[np.bool_]:
        """Return which rows (n,) a model that was fitted to the other folds (n,) gets wrong.

        Where the other folds have rows of one class only, that class is the answer.
        """
        wrong = np.zeros(len(y), bool)
        for fold in np.unique(folds):
            mine = folds == fold
            known = np.unique(y[~mine & (weight > 0)])
            if len(known) < 2:
                wrong[mine] = ~np.isin(y[mine], known) & (len(known) > 0)
                continue
            fitted = cast(FittedEstimator, self._fitted(X[~mine], y[~mine], weight[~mine]))
            best = np.asarray(fitted.predict_proba(X[mine])).argmax(axis=1)
            wrong[mine] = np.asarray(fitted.classes_)[best] != y[mine]
        return wrong

    def _fitted(self, X: npt.NDArray[np.float32], y: Int64 | Float64, weight: Float64) -> Fitted:
        kept = weight > 0
        if self._spec.n_classes > 1 and len(np.unique(y[kept])) < 2:
            raise OperatorError(
                f"train.model {self._params.model}: the rows to fit have one class only, so there is nothing "
                f"to tell apart. Look at the version's `split` and `weight`."
            )
        scaled = weight[kept] / weight[kept].mean()
        rows = WeightedRows(X[kept], y[kept], scaled, self._spec.n_classes)
        return self._library.fit(self._params, self._seed, rows)

    def fit_phase(self, phase: Phase, session: Session) -> None:
        """Fit an estimator in place of a phase's epochs, to the rows with the weights that a draw expects."""
        if not phase.epochs:
            return
        rows, weight = _weighted_rows(phase, session)
        scale = self._losses.scale
        if scale is None:
            self.fit(rows.X, rows.y, weight)
            loss = predict(self.model, rows.X, rows.y)[1].astype(np.float64)
        else:
            self.fit(rows.X, (rows.numbers - scale.mean) / scale.std, weight)
            loss = -self._losses.scores(self.model, rows)
        mean = float(weight @ loss / weight.sum())
        session.note_epoch({"phase": session.progress.phase, "epoch": 1, "loss": mean})

    def first_errors(self, session: Session) -> dict[int, Mask]:
        """Return slot -> (n,) which train rows are wrong for estimators that were fitted without them.

        An estimator that fits its rows exactly makes no errors on them. A hash of the rows' ids draws folds.
        """
        rows, weight = _weighted_rows(Phase(Erm(), Draw(), 1), session)
        folds = folds_of(rows.row_id, FOLDS, session.seed, "train/first errors")
        wrong = self.held_out_errors(rows.X, rows.y, weight, folds)
        ids = session.of_rows("train", lambda own: own.row_id)
        return {slot: wrong[np.searchsorted(rows.row_id, own)] for slot, own in ids.items()}

    def state(self) -> dict[str, Tensor]:
        """Return the estimator as a named tensor of bytes; empty before the first fit."""
        return {} if self._module is None else {f"model.{KEY}": self._module.estimator.clone()}

    def restore(self, state: Mapping[str, Tensor]) -> None:
        """Restore a result of :meth:`state`."""
        data = state.get(f"model.{KEY}")
        self._module = None if data is None else module_of(data, self._spec)


def module_of(data: Tensor, spec: ModelSpec) -> EstimatorModule:
    """Return the module of an estimator's bytes (n,) uint8, in eval mode."""
    return EstimatorModule(data.numpy().tobytes(), spec).eval()


def check_model(params: TrainParams, n_rows: int) -> None:
    """Raise OperatorError if an estimator's library is missing, or one worker cannot hold so many rows."""
    if not params.is_estimator:
        return
    check_library(params.model)
    if n_rows <= params.max_rows:
        return
    raise OperatorError(
        f"train.model {params.model} needs all {n_rows:,} train rows in the memory of one worker, and "
        f"train.max_rows is {params.max_rows:,}. Raise max_rows if the worker has about 16 bytes for each "
        f"row and feature, or set model to logistic or mlp, which read rows in parts."
    )


def _weighted_rows(phase: Phase, session: Session) -> tuple[GroupedRows, Float64]:
    """Return all train rows by row id, and how much each counts: loss weight times expected draws."""
    shards, draw = session.weighed_rows(phase.weighted)[0], phase.draw
    rows, drawn = [], []
    for slot in session.slots.mine:
        rows += [shards[i] for i in session.slots.shards(slot)]
        times = draw.times if draw.weights is None else draw.weights
        n = sum(len(shards[i]) for i in session.slots.shards(slot))
        drawn.append(np.ones(n) if times is None else times[slot].astype(np.float64))
    every = join(rows)
    order = np.argsort(every.row_id, kind="stable")
    every = every.take(order)
    return every, every.weight * np.concatenate(drawn)[order]
