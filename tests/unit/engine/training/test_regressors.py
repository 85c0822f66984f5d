"""Regressors of libraries: trained, scored, stored without pickles and served as networks of numbers are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMRegressor
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from xgboost import XGBRegressor

from engine.core.errors import InputError
from engine.execution.local_executor import LocalExecutor
from engine.recipe.estimators import ESTIMATORS, OBJECTIVES_OF
from engine.recipe.trainers import parse_params
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.estimators import EstimatorModule
from engine.training.fit.job import TrainingJob
from engine.training.libraries import library_of
from engine.training.libraries.base import WeightedRows
from engine.training.serving.model_package import save_flavour
from engine.training.serving.pyfunc import ServedModel, write_served_model
from engine.training.training_run import TrainResult, TrainSpec, train
from operators.base import OperatorError
from tests.unit.engine.training.test_regression import output, rows_of, scored

__all__ = ["output"]
COLUMNS = ["area", "rooms"]
SMALL: dict[str, dict[str, Any]] = {
    "sklearn:HistGradientBoostingRegressor": {"max_iter": 30},
    "sklearn:RandomForestRegressor": {"n_estimators": 10, "min_samples_leaf": 20},
    "sklearn:ExtraTreesRegressor": {"n_estimators": 10, "min_samples_leaf": 20},
    "xgboost:XGBRegressor": {"n_estimators": 30, "max_depth": 3},
    "lightgbm:LGBMRegressor": {"n_estimators": 30},
}
OWN: dict[str, Any] = {
    "sklearn:HistGradientBoostingRegressor": HistGradientBoostingRegressor(
        early_stopping=False, random_state=0
    ),
    "sklearn:RandomForestRegressor": RandomForestRegressor(random_state=0),
    "sklearn:ExtraTreesRegressor": ExtraTreesRegressor(random_state=0),
    "xgboost:XGBRegressor": XGBRegressor(n_jobs=1, tree_method="hist"),
    "lightgbm:LGBMRegressor": LGBMRegressor(n_jobs=1, verbose=-1),
}
QUANTILES = [name for name, objectives in OBJECTIVES_OF.items() if "pinball" in objectives]


def trained(output: Path, **values: Any) -> TrainResult:
    given = {"trainer": "erm_plain", "objective": "squared", "target": "price", **values}
    return train(TrainSpec(output, parse_params(given)), LocalExecutor())


def test_every_regressor_is_known() -> None:
    assert set(SMALL) == set(OBJECTIVES_OF) == {name for name in ESTIMATORS if name.endswith("Regressor")}


@pytest.mark.parametrize("model", SMALL)
def test_predictions_are_those_of_the_library(output: Path, model: str) -> None:
    result = trained(output, model=model, model_params=SMALL[model])
    learnt, test = rows_of(output, "train"), rows_of(output, "test")
    mean, std = learnt["price"].mean(), learnt["price"].std(ddof=0)
    own = OWN[model].set_params(**SMALL[model])
    own.fit(
        learnt[COLUMNS].to_numpy(np.float32),
        (learnt["price"] - mean) / std,
        sample_weight=np.ones(len(learnt)),
    )
    X = test[COLUMNS].to_numpy(np.float32)
    np.testing.assert_allclose(result.model.predict_numbers(X), mean + std * own.predict(X), rtol=1e-4)
    found = scored(result)
    assert found.r2 is not None
    assert found.r2 > 0.6
    assert result.record["curve"][0]["loss"] > 0
    again = Ensemble.load(result.folder)
    np.testing.assert_array_equal(again.predict_numbers(X), result.model.predict_numbers(X))
    assert again.predict_numbers(X[:0]).shape == (0,)


@pytest.mark.parametrize("model", QUANTILES)
def test_a_quantile_is_above_its_share_of_the_rows(output: Path, model: str) -> None:
    leaves = {"sklearn": {"max_leaf_nodes": 4}, "lightgbm": {"num_leaves": 4}}.get(
        model.partition(":")[0], {}
    )
    small = {**SMALL[model], **leaves}
    result = trained(output, model=model, model_params=small, objective="pinball:0.9")
    assert scored(result).coverage == pytest.approx(0.9, abs=0.06)


def test_rows_in_balance_lift_the_worst_group(output: Path) -> None:
    """The published weights balance the groups: the rare region counts as much as the other."""
    model = {"model": "lightgbm:LGBMRegressor", "model_params": {"n_estimators": 50}}
    worst = {
        trainer: scored(trained(output, trainer=trainer, **model)).groupings["inferred"].worst_group_loss or 0
        for trainer in ("erm_plain", "resample")
    }
    assert worst["resample"] < 0.8 * worst["erm_plain"]


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"model": "sklearn:RandomForestRegressor", "objective": "pinball:0.9"},
            "minimises squared.*XGBRegressor",
        ),
        (
            {"model": "xgboost:XGBClassifier", "objective": "squared"},
            "predicts classes.*xgboost:XGBRegressor",
        ),
        ({"model": "lightgbm:LGBMRegressor"}, "predicts numbers: set objective to squared.*LGBMClassifier"),
        (
            {"model": "lightgbm:LGBMRegressors", "objective": "squared"},
            "Did you mean 'lightgbm:LGBMRegressor'",
        ),
        (
            {"model": "xgboost:XGBRegressor", "objective": "squared", "model_params": {"alpha": 1}},
            "takes no 'alpha'",
        ),
        (
            {
                "model": "sklearn:RandomForestRegressor",
                "objective": "squared",
                "model_params": {"criterion": "gini"},
            },
            r"model_params\.criterion.*'squared_error'",
        ),
        ({"model": "xgboost:XGBRegressor", "objective": "squared", "trainer": "gdro"}, "gdro"),
    ],
)
def test_what_does_not_fit_is_named(values: dict[str, Any], words: str) -> None:
    target = {"target": "price"} if values.get("objective", "") != "" else {}
    with pytest.raises(InputError, match=words):
        parse_params({"trainer": "erm", **target, **values})


def fitted(model: str, objective: str = "squared", n_classes: int = 1) -> bytes:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2)).astype(np.float32)
    y = X[:, 0] + rng.normal(size=80) if n_classes == 1 else rng.integers(0, n_classes, 80)
    task = {"objective": objective, "target": "y"} if n_classes == 1 else {}
    params = parse_params({"trainer": "erm", "model": model, "model_params": SMALL.get(model, {}), **task})
    library = library_of(model)
    return library.dump(library.fit(params, 0, WeightedRows(X, y, np.ones(80), n_classes)))


@pytest.mark.parametrize("model", SMALL)
def test_bytes_of_classes_are_no_model_of_numbers_and_the_other_way_round(model: str) -> None:
    library, classifier = library_of(model), model.replace("Regressor", "Classifier")
    with pytest.raises(OperatorError, match=r"damaged or forged|is none of the estimators"):
        library.load(fitted(classifier, n_classes=2), 2, 1)
    with pytest.raises(OperatorError, match=r"damaged or forged|is none of the estimators"):
        library.load(fitted(model), 2, 2)
    with pytest.raises(OperatorError, match="damaged or forged"):
        library.load(fitted(model), 3, 1)


@pytest.mark.parametrize("model", [name for name in QUANTILES if "sklearn" not in name])
def test_the_stored_bytes_are_read_as_they_are_written(model: str) -> None:
    """A quantile's trees are stored as those of the squared error: they are added up in the same way."""
    library = library_of(model)
    for objective in ("squared", "pinball:0.3"):
        data = fitted(model, objective)
        assert library.dump(library.load(data, 2, 1)) == data


@pytest.mark.parametrize(
    "model", ["sklearn:HistGradientBoostingRegressor", "xgboost:XGBRegressor", "lightgbm:LGBMRegressor"]
)
def test_a_served_regressor_answers_with_numbers(output: Path, tmp_path: Path, model: str) -> None:
    result = trained(output, model=model, model_params=SMALL[model])
    job = TrainingJob(result.version, parse_params({"trainer": "erm_plain"}), 0, result.folder)
    write_served_model(result.model, result.version, job.maker, tmp_path / "served", "price")
    save_flavour(result.model, tmp_path / "served")
    assert (tmp_path / "served" / library_of(model).flavour / "MLmodel").exists()
    test = rows_of(output, "test")
    answers = ServedModel(tmp_path / "served").predict(test[COLUMNS])
    expected = result.model.predict_numbers(test[COLUMNS].to_numpy(np.float32))
    np.testing.assert_allclose(answers["prediction"].to_numpy(float), expected, rtol=1e-6)
    assert isinstance(result.model.models[0], EstimatorModule)
