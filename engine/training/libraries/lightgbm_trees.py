"""LightGBM's boosted trees, stored in its text format (:mod:`engine.training.libraries.lightgbm_format`)."""

from __future__ import annotations

from typing import Any

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
from engine.training.libraries.lightgbm_format import canonical


class _Trees(BoostedTrees):
    def scores(self, X: npt.NDArray[Any]) -> Any:
        # Rows are independent, so threads change no byte; tasks share the host, so each takes one.
        return self.booster.predict(X, num_threads=1)


def _numbers(booster: Any) -> BoostedNumbers:
    return BoostedNumbers(booster, lambda one, X: one.predict(X, num_threads=1))


class LightGbm:
    """LightGBM as a library of estimators; see :class:`engine.training.libraries.base.Library`."""

    flavour = "lightgbm"
    distributions: tuple[str, ...] = ("lightgbm",)

    def fit(self, params: TrainParams, seed: int, rows: WeightedRows) -> Fitted:
        """Fit by ``resources.cpus`` threads, each of which adds up the gradients of whole features."""
        check_library(params.model)
        import lightgbm

        values = check_estimator(params.model, params.model_params)
        rounds = values.pop("n_estimators")
        values["max_depth"] = values["max_depth"] or -1
        objective: dict[str, Any] = {"objective": "binary"}
        if rows.n_classes > 2:
            objective = {"objective": "multiclass", "num_class": rows.n_classes}
        if rows.n_classes == 1:
            quantile = quantile_of(params.objective)
            objective = {"objective": "regression"}
            if quantile is not None:
                objective = {"objective": "quantile", "alpha": quantile}
        settings = {
            "num_threads": max(1, int(params.resources.cpus)),
            "deterministic": True,
            "force_col_wise": True,
            "seed": seed % MAX_SEED,
            "verbosity": -1,
        }
        data = lightgbm.Dataset(rows.X, rows.y, weight=rows.weight)
        booster = lightgbm.train({**values, **settings, **objective}, data, rounds)
        return _numbers(booster) if rows.n_classes == 1 else _Trees(booster, rows.n_classes)

    def dump(self, fitted: Fitted) -> bytes:
        """Implement the method of the protocol: text."""
        booster, n_classes = booster_of(fitted)
        text = booster.model_to_string(num_iteration=-1)
        return canonical(text.encode(), booster.num_feature(), n_classes)

    def load(self, data: bytes, n_features: int, n_classes: int) -> Fitted:
        """Implement the method of the protocol."""
        checked = canonical(data, n_features, n_classes)
        check_library("lightgbm:LGBMClassifier")
        import lightgbm

        try:
            booster = lightgbm.Booster(model_str=checked.decode())
        except lightgbm.basic.LightGBMError as error:
            raise damaged(f"LightGBM does not read it: {one_line(error, 200)}") from None
        return _numbers(booster) if n_classes == 1 else _Trees(booster, n_classes)
