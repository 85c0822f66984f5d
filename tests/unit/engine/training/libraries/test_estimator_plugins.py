"""Estimators that another package adds by an entry point."""

from __future__ import annotations

import json
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import Field

from engine.core.errors import InputError
from engine.recipe import estimators, training_plugins
from engine.recipe.estimators import EstimatorParams, EstimatorPlugin
from engine.recipe.trainers import TrainParams, parse_params
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.in_memory import fit_arrays
from engine.training.libraries import library_of
from engine.training.libraries.base import WeightedRows, damaged
from operators.base import OperatorError


class Means:
    """Probabilities fall with the squared distance from the mean of each class."""

    def __init__(self, means: Any, sharpness: float) -> None:
        self.means, self.sharpness = np.asarray(means, np.float64), sharpness
        self.classes_ = np.arange(len(self.means))

    def predict_proba(self, X: Any) -> Any:
        far = self.sharpness * ((X[:, None] - self.means) ** 2).sum(axis=2)
        near = np.exp(far.min(axis=1, keepdims=True) - far)
        return near / near.sum(axis=1, keepdims=True)


class MeansParams(EstimatorParams):
    """Parameters of :class:`Means`."""

    sharpness: float = Field(default=1.0, gt=0)
    """Factor of the distances."""


class MeansLibrary:
    """A library of one estimator, stored as JSON."""

    flavour = "means"
    distributions: tuple[str, ...] = ()

    def fit(self, params: TrainParams, seed: int, rows: WeightedRows) -> Means:
        hot = np.eye(rows.n_classes)[rows.y] * rows.weight[:, None]
        sharpness = estimators.check_estimator(params.model, params.model_params)["sharpness"]
        return Means(hot.T @ rows.X / hot.sum(axis=0)[:, None], sharpness)

    def dump(self, fitted: Any) -> bytes:
        return json.dumps([fitted.means.tolist(), fitted.sharpness]).encode()

    def load(self, data: bytes, n_features: int, n_classes: int) -> Means:
        means, sharpness = json.loads(data)
        if np.shape(means) != (n_classes, n_features):
            raise damaged("its means have another shape")
        return Means(means, sharpness)


PLUGIN = EstimatorPlugin({"NearestMean": MeansParams}, MeansLibrary())
HOLLOW = EstimatorPlugin({"NearestMean": MeansParams}, object())


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "means": "PLUGIN",
        "hollow": "HOLLOW",
        "absent": "ABSENT",
        "other": "Means",
        "sklearn": "PLUGIN",
    }
    points = [
        EntryPoint(name, f"{__name__}:{value}", estimators.ENTRY_POINTS) for name, value in values.items()
    ]

    def found(*, group: str, name: str) -> list[EntryPoint]:
        return [point for point in points if point.group == group and point.name == name]

    monkeypatch.setattr(training_plugins, "entry_points", found)


def rows() -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 200)
    return (rng.normal(size=(200, 3)) + 3 * y[:, None]).astype(np.float32), y, rng.uniform(0.5, 2, 200)


@pytest.mark.parametrize("trainer", ["erm", "jtt", "boosted_cvar"])
def test_an_estimator_of_a_plugin_is_trained_and_stored(trainer: str, tmp_path: Path) -> None:
    X, y, weight = rows()
    values = {"model": "means:NearestMean", "model_params": {"sharpness": 0.5}}
    rounds = {"rounds": 2} if trainer == "boosted_cvar" else {}
    trained = fit_arrays(X, y, parse_params({"trainer": trainer, **values, **rounds}), weight=weight)
    trained.save(tmp_path)
    again = Ensemble.load(tmp_path)
    assert again.predict_proba(X).tolist() == trained.predict_proba(X).tolist()
    assert (again.predict(X) == y).mean() > 0.95
    if trainer == "erm":
        means = [np.average(X[y == label], axis=0, weights=weight[y == label]) for label in (0, 1)]
        expected = Means(means, 0.5).predict_proba(X)
        np.testing.assert_allclose(trained.predict_proba(X), expected, atol=1e-5)


def test_what_a_plugin_cannot_train_is_refused() -> None:
    with pytest.raises(InputError, match="NearestMean"):
        parse_params({"model": "means:NearestMeen"})
    with pytest.raises(InputError, match="sharpness"):
        parse_params({"model": "means:NearestMean", "model_params": {"sharpnes": 1}})
    with pytest.raises(InputError, match="changes the rows' weights in every gradient step"):
        parse_params({"trainer": "gdro", "model": "means:NearestMean"})
    with pytest.raises(InputError, match="cannot name this estimator"):
        parse_params({"model": "sklearn:NearestMean"})  # a plugin does not replace what is built in


def test_plugins_that_cannot_be_used(caplog: pytest.LogCaptureFixture) -> None:
    X, y, _ = rows()
    with pytest.raises(OperatorError, match=r"hollow.*lacks one of flavour"):
        fit_arrays(X, y, parse_params({"model": "hollow:NearestMean"}))
    with pytest.raises(OperatorError, match="no installed package has estimators of 'absent'"):
        library_of("absent:NearestMean")
    with pytest.raises(OperatorError, match="no installed package"):
        library_of("other:NearestMean")
    assert "absent" in caplog.text
    assert "is not of the class EstimatorPlugin" in caplog.text
