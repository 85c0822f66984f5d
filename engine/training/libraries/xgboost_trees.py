"""XGBoost's boosted trees, stored in its JSON format (:mod:`engine.training.libraries.xgboost_format`)."""

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
from engine.training.libraries.xgboost_format import canonical

if TYPE_CHECKING:
    import xgboost


class BoostedTrees:
    """A fitted booster as a classifier of all C classes."""

    def __init__(self, booster: xgboost.Booster, n_features: int, n_classes: int) -> None:
        # Rows are independent, so threads change no byte; tasks share the host, so each takes one.
        booster.set_param({"nthread": 1})
        self.booster, self.n_features = booster, n_features
        self.classes_ = np.arange(n_classes)

    def predict_proba(self, X: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Return the probabilities (n, C) of rows X (n, d)."""
        if not len(X):
            return np.empty((0, len(self.classes_)))
        found = np.asarray(self.booster.inplace_predict(np.ascontiguousarray(X, np.float32)), np.float64)
        return found if found.ndim == 2 else np.column_stack([1 - found, found])

    def predict(self, X: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Return the class of largest probability, the smallest of equals: (n,)."""
        return np.asarray(self.predict_proba(X).argmax(axis=1), np.int64)


class XGBoost:
    """Implements :class:`engine.training.libraries.base.Library`."""

    flavour = "xgboost"
    distributions: tuple[str, ...] = ("xgboost-cpu", "xgboost")

    def fit(self, params: TrainParams, seed: int, rows: WeightedRows) -> FittedEstimator:
        """Fit by one thread: XGBoost adds up gradients in an order that depends on their number."""
        check_library(params.model)
        import xgboost

        values = check_estimator(params.model, params.model_params)
        rounds = values.pop("n_estimators")
        objective: dict[str, Any] = {"objective": "binary:logistic"}
        if rows.n_classes > 2:
            objective = {"objective": "multi:softprob", "num_class": rows.n_classes}
        settings = {"tree_method": "hist", "nthread": 1, "seed": seed % MAX_SEED, "verbosity": 0}
        data = xgboost.DMatrix(rows.X, rows.y, weight=rows.weight, nthread=1)
        booster = xgboost.train({**values, **settings, **objective}, data, rounds)
        return BoostedTrees(booster, rows.X.shape[1], rows.n_classes)

    def dump(self, fitted: FittedEstimator) -> bytes:
        """Implement the method of the protocol: JSON."""
        found = _known(fitted)
        return canonical(bytes(found.booster.save_raw("json")), found.n_features, len(found.classes_))

    def load(self, data: bytes, n_features: int, n_classes: int) -> FittedEstimator:
        """Implement the method of the protocol."""
        checked = canonical(data, n_features, n_classes)
        check_library("xgboost:XGBClassifier")
        import xgboost

        try:
            booster = xgboost.Booster(model_file=bytearray(checked))
        except xgboost.core.XGBoostError as error:
            raise damaged(f"XGBoost does not read it: {one_line(error, 200)}") from None
        return BoostedTrees(booster, n_features, n_classes)


def _known(fitted: FittedEstimator) -> BoostedTrees:
    if not isinstance(fitted, BoostedTrees):
        raise TypeError(f"{type(fitted).__name__} was not fitted by this adapter")
    return fitted
