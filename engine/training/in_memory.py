"""Training on arrays in memory, for notebooks, tests and the tables of the papers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.recipe.trainers import TrainParams, trainer_of
from engine.training.callbacks import Callback
from engine.training.ensemble import Ensemble
from engine.training.job import mix
from engine.training.kernel import fit
from engine.training.rows import dataset_of_arrays
from engine.training.strength import max_mean_loss_of
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
    """Train on rows in memory; see :func:`engine.training.rows.dataset_of_arrays` for the arrays.

    ``y`` holds class indices, or the numbers that a regression predicts (``objective: squared``).
    ``callbacks`` are called after every step, epoch and phase; see :mod:`engine.training.callbacks`.
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
        target = np.asarray(y, np.float64)
        if not np.isfinite(target).all():
            row = int(np.flatnonzero(~np.isfinite(target))[0])
            raise OperatorError(f"y: row {row} has no finite number ({target[row]}). Leave such rows out.")
        y = np.zeros(len(target), np.int64)
    data = dataset_of_arrays(
        X, y, groups=groups, weight=weight, split=split, target=target, noise=params.noise
    )
    n_rows = sum(len(data.train[shard]) for shard in range(len(data.train)))
    fitted = fit(data, params.for_rows(n_rows), seed=seed, callbacks=callbacks)
    about = {"trainer": trainer_of(params), "params": params.model_dump(mode="json"), "seed": seed}
    return mix(fitted, params, about | {"curve": fitted.curve, "best_epoch": fitted.best_epoch})
