"""Training on arrays in memory, for notebooks, tests and the tables of the papers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.recipe.trainers import TrainParams, trainer_of
from engine.training.data.rows import dataset_of_arrays
from engine.training.data.strength import max_mean_loss_of
from engine.training.fit.callbacks import Callback
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.job import mix
from engine.training.fit.kernel import fit
from operators.arrays import Float64
from operators.base import OperatorError


def fit_arrays(
    X: npt.ArrayLike,
    y: npt.ArrayLike,
    params: TrainParams,
    *,
    groups: npt.ArrayLike | None = None,
    weight: npt.ArrayLike | None = None,
    split: npt.ArrayLike | None = None,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
) -> Ensemble:
    """Train on rows in memory; see :func:`engine.training.data.rows.dataset_of_arrays` for the arrays.

    ``y`` holds class indices, or the numbers that a regression predicts (``objective: squared``).
    ``callbacks`` are called after every step, epoch and phase; see :mod:`engine.training.fit.callbacks`.
    Raises OperatorError if the rows or the model cannot be used, and for ``max_mean_loss``, which reads a
    published version.
    """
    if max_mean_loss_of(params) is not None:
        raise OperatorError(
            "max_mean_loss: the strength of weighting is chosen on a published version by `rowsieve retrain` "
            "or by the section `train`. For arrays, compute weights with operators.cues.WeightPath."
        )
    target = None
    if params.task == "regression":
        if params.balances_classes:
            raise OperatorError(
                f"trainer {trainer_of(params)} balances classes, and y holds numbers. Train erm, and give a "
                f"weight for each row if you like."
            )
        target = _numbers(np.asarray(y))
        y = np.zeros(target.shape, np.int64)
    if not params.is_estimator:
        _check_finite(np.asarray(X))
    data = dataset_of_arrays(
        X, y, groups=groups, weight=weight, split=split, target=target, noise=params.noise
    )
    n_rows = sum(len(data.train[shard]) for shard in range(len(data.train)))
    fitted = fit(data, params.for_rows(n_rows), seed=seed, callbacks=callbacks)
    about = {"trainer": trainer_of(params), "params": params.model_dump(mode="json"), "seed": seed}
    return mix(fitted, params, about | {"curve": fitted.curve, "best_epoch": fitted.best_epoch})


def _check_finite(X: npt.NDArray[Any]) -> None:
    """Raise OperatorError, which names the first faulty value, for features that a network cannot read."""
    if X.ndim != 2 or X.dtype.kind != "f" or np.isfinite(X).all():
        return
    row, column = (int(place) for place in np.argwhere(~np.isfinite(X))[0])
    raise OperatorError(
        f"X: row {row}, column {column} is {X[row, column]}. Fill in such values or leave such rows out; "
        f"trees such as sklearn:HistGradientBoostingClassifier read missing values."
    )


def _numbers(values: npt.NDArray[Any]) -> Float64:
    """Return a target (n,) as float64. Raises OperatorError, which names the first faulty row."""
    try:
        found: Float64 = values.astype(np.float64)
    except (ValueError, TypeError):
        found = np.array([_number(value) for value in values.ravel()]).reshape(values.shape)
    bad = np.flatnonzero(~np.isfinite(found))
    if len(bad):
        value = values.ravel()[bad[0]]
        raise OperatorError(f"y: row {bad[0]} has no finite number ({value!s}). Leave such rows out.")
    return found


def _number(value: Any) -> float:
    try:
        return float(value)
    except (ValueError, TypeError):
        return math.nan
