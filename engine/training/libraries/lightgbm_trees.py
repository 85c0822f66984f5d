"""LightGBM's boosted trees, stored in its text format (:mod:`engine.training.libraries.lightgbm_format`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from engine.core.errors import one_line
from engine.recipe.estimators import check_estimator
from engine.recipe.trainers import TrainParams
from engine.training.libraries.base import (
    MAX_SEED,
    FittedEstimator,
    WeightedRows,
    check_library,
    damaged,
)
from engine.training.libraries.lightgbm_format import canonical

if TYPE_CHECKING:
    import lightgbm


class BoostedTrees:
    """A fitted booster as a classifier of all C classes."""

    def __init__(self, booster: lightgbm.Booster, n_classes: int) -> None:
        self.booster = booster
        self.classes_ = np.arange(n_classes)

    def predict_proba(self, X: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the probabilities (n, C) of rows X (n, d)."""
        if not len(X):
            return np.empty((0, len(self.classes_)))
        # Rows are independent, so threads change no byte; tasks share the host, so each takes one.
        found = np.asarray(self.booster.predict(X, num_threads=1), np.float64)
        return found if found.ndim == 2 else np.column_stack([1 - found, found])

    def predict(self, X: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the class of largest probability, the smallest of equals: (n,)."""
        return np.asarray(self.predict_proba(X).argmax(axis=1), np.int64)


class LightGbm:
    """Implements :class:`engine.training.libraries.base.Library`."""

    flavour = "lightgbm"
    distributions: tuple[str, ...] = ("lightgbm",)

    def fit(self, params: TrainParams, seed: int, rows: WeightedRows) -> FittedEstimator:
        """Fit by ``resources.cpus`` threads, each of which adds up the gradients of whole features."""
        check_library(params.model)
        import lightgbm

        values = check_estimator(params.model, params.model_params)
        rounds = values.pop("n_estimators")
        values["max_depth"] = values["max_depth"] or -1
        objective: dict[str, Any] = {"objective": "binary"}
        if rows.n_classes > 2:
            objective = {"objective": "multiclass", "num_class": rows.n_classes}
        settings = {
            "num_threads": max(1, int(params.resources.cpus)),
            "deterministic": True,
            "force_col_wise": True,
            "seed": seed % MAX_SEED,
            "verbosity": -1,
        }
        data = lightgbm.Dataset(rows.X, rows.y, weight=rows.weight)
        booster = lightgbm.train({**values, **settings, **objective}, data, rounds)
        return BoostedTrees(booster, rows.n_classes)

    def dump(self, fitted: FittedEstimator) -> bytes:
        """Implement the method of the protocol: text."""
        found = _known(fitted)
        text = found.booster.model_to_string(num_iteration=-1)
        return canonical(text.encode(), found.booster.num_feature(), len(found.classes_))

    def load(self, data: bytes, n_features: int, n_classes: int) -> FittedEstimator:
        """Implement the method of the protocol."""
        checked = canonical(data, n_features, n_classes)
        check_library("lightgbm:LGBMClassifier")
        import lightgbm

        try:
            booster = lightgbm.Booster(model_str=checked.decode())
        except lightgbm.basic.LightGBMError as error:
            raise damaged(f"LightGBM does not read it: {one_line(error, 200)}") from None
        return BoostedTrees(booster, n_classes)


def _known(fitted: FittedEstimator) -> BoostedTrees:
    if not isinstance(fitted, BoostedTrees):
        raise TypeError(f"{type(fitted).__name__} was not fitted by this adapter")
    return fitted
