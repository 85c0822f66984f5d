"""XGBoost's boosted trees, stored in its JSON format (:mod:`engine.training.libraries.xgboost_format`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from engine.core.errors import one_line
from engine.recipe.estimators import check_estimator
from engine.recipe.trainers import TrainParams
from engine.training.libraries.base import (
    MAX_SEED,
    BoostedNumbers,
    BoostedTrees,
    Fitted,
    WeightedRows,
    booster_of,
    check_library,
    damaged,
    quantile_of,
)
from engine.training.libraries.xgboost_format import canonical


class _Trees(BoostedTrees):
    def __init__(self, booster: Any, n_classes: int) -> None:
        # Rows are independent, so threads change no byte; tasks share the host, so each takes one.
        booster.set_param({"nthread": 1})
        super().__init__(booster, n_classes)

    def scores(self, X: npt.NDArray[Any]) -> Any:
        return self.booster.inplace_predict(np.ascontiguousarray(X, np.float32))


def _numbers(booster: Any) -> BoostedNumbers:
    booster.set_param({"nthread": 1})
    return BoostedNumbers(booster, lambda one, X: one.inplace_predict(np.ascontiguousarray(X, np.float32)))


class XGBoost:
    """XGBoost as a library of estimators; see :class:`engine.training.libraries.base.Library`."""

    flavour = "xgboost"
    distributions: tuple[str, ...] = ("xgboost-cpu", "xgboost")

    def fit(self, params: TrainParams, seed: int, rows: WeightedRows) -> Fitted:
        """Fit by one thread: XGBoost adds up gradients in an order that depends on their number."""
        check_library(params.model)
        import xgboost

        values = check_estimator(params.model, params.model_params)
        rounds = values.pop("n_estimators")
        objective: dict[str, Any] = {"objective": "binary:logistic"}
        if rows.n_classes > 2:
            objective = {"objective": "multi:softprob", "num_class": rows.n_classes}
        if rows.n_classes == 1:
            objective = _of_numbers(quantile_of(params.objective))
        settings = {"tree_method": "hist", "nthread": 1, "seed": seed % MAX_SEED, "verbosity": 0}
        data = xgboost.DMatrix(rows.X, rows.y, weight=rows.weight, nthread=1)
        booster = xgboost.train({**values, **settings, **objective}, data, rounds)
        return _numbers(booster) if rows.n_classes == 1 else _Trees(booster, rows.n_classes)

    def dump(self, fitted: Fitted) -> bytes:
        """Implement the method of the protocol: JSON."""
        booster, n_classes = booster_of(fitted)
        return canonical(bytes(booster.save_raw("json")), booster.num_features(), n_classes)

    def load(self, data: bytes, n_features: int, n_classes: int) -> Fitted:
        """Implement the method of the protocol."""
        checked = canonical(data, n_features, n_classes)
        check_library("xgboost:XGBClassifier")
        import xgboost

        try:
            booster = xgboost.Booster(model_file=bytearray(checked))
        except xgboost.core.XGBoostError as error:
            raise damaged(f"XGBoost does not read it: {one_line(error, 200)}") from None
        return _numbers(booster) if n_classes == 1 else _Trees(booster, n_classes)


def _of_numbers(quantile: float | None) -> dict[str, Any]:
    if quantile is None:
        return {"objective": "reg:squarederror"}
    return {"objective": "reg:quantileerror", "quantile_alpha": quantile}
