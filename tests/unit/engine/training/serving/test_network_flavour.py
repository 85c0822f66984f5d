"""Networks of factories and of ``hf:`` as MLflow models of the flavour ``pytorch``."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow.pytorch
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from engine.recipe.trainers import parse_params
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.in_memory import fit_arrays
from engine.training.serving.model_package import save_flavour
from engine.training.serving.network_flavour import FLAVOUR
from tests.unit.engine.training.tiny_networks import CONFIGS, TEXTS, save_network

QUICK = {"epochs": 1, "batch_size": 64}
ELSEWHERE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("engine", "operators", "connectors", "tests", "transformers"):
            raise ImportError(f"{name} is not installed here")

sys.meta_path.insert(0, Blocked())
import mlflow.pytorch
import numpy, torch

rows = torch.from_numpy(numpy.load(sys.argv[2]))
with torch.no_grad():
    numpy.save(sys.argv[3], mlflow.pytorch.load_model(sys.argv[1])(rows).numpy())
"""


@pytest.fixture(autouse=True)
def _own_factories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWSIEVE_FACTORIES", __name__)


def small_network(n_features: int, n_outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_features, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, n_outputs))


class Fickle(nn.Module):
    """Takes another way for other values, which no graph can."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(n_features, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.linear(x)
        return found if float(x.sum()) > 0 else -found


def fitted(model: str, X: np.ndarray[Any, Any], **values: Any) -> Ensemble:
    y = np.random.default_rng(0).integers(0, 2, len(X))
    more = {"model_params": {"column": "c"}} if model.startswith("hf:") else {}
    params = parse_params({"trainer": "erm_plain", "model": model, **more, **QUICK, **values})
    return fit_arrays(X, y if params.task == "classification" else 5.0 + y, params)


def inputs_of(kind: str, n: int = 70) -> np.ndarray[Any, Any]:
    """Token ids with padding behind the text, or pixels."""
    rng = np.random.default_rng(0)
    if kind not in TEXTS:
        side = CONFIGS[kind].get("image_size", 32)
        return rng.integers(0, 256, (n, 3 * side**2)).astype(np.float32)
    found = rng.integers(3, 20, (n, 12)).astype(np.float32)
    found[np.arange(12) >= rng.integers(2, 9, n)[:, None]] = -1
    return found


@pytest.mark.parametrize(
    "kind",
    [
        "vit",
        *(pytest.param(k, marks=pytest.mark.slow) for k in sorted(set(CONFIGS) - {"vit"})),
    ],
)
def test_the_graph_of_every_architecture_answers_as_the_model(kind: str, tmp_path: Path) -> None:
    X = inputs_of(kind)
    model = fitted(f"hf:{save_network(kind, tmp_path / 'net')}", X)
    save_flavour(model, tmp_path)
    loaded = mlflow.pytorch.load_model(str(tmp_path / FLAVOUR))
    with torch.no_grad():
        found = loaded(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(found, model.predict_proba(X), atol=1e-5)


@pytest.mark.slow
def test_a_network_of_a_factory_answers_where_its_package_is_missing(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(3, 2, (200, 5)).astype(np.float32)
    model = fitted(f"{__name__}:small_network", X)
    save_flavour(model, tmp_path)
    np.save(tmp_path / "X.npy", X)
    places = [tmp_path / FLAVOUR, tmp_path / "X.npy", tmp_path / "answers.npy"]
    subprocess.run(
        [sys.executable, "-c", ELSEWHERE, *map(str, places)],
        check=True,
        cwd=tmp_path,
        env={**os.environ, "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false"},
    )
    np.testing.assert_allclose(np.load(places[2]), model.predict_proba(X), atol=1e-6)
    pins = (tmp_path / FLAVOUR / "requirements.txt").read_text("utf-8").splitlines()
    assert [pin.partition("==")[0] for pin in pins] == ["mlflow", "numpy", "torch"]


def test_a_regression_answers_in_the_unit_of_its_target(tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)
    model = fitted(f"{__name__}:small_network", X, objective="squared")
    save_flavour(model, tmp_path)
    served = mlflow.pyfunc.load_model(str(tmp_path / FLAVOUR))
    np.testing.assert_allclose(served.predict(X), model.predict_numbers(X), rtol=1e-5)


def test_a_network_that_is_no_graph_is_left_out_with_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    X = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)
    with caplog.at_level(logging.WARNING, "rowsieve"):
        save_flavour(fitted(f"{__name__}:Fickle", X), tmp_path)
    assert not (tmp_path / FLAVOUR).exists()
    assert "Fickle has no MLflow model of the flavour pytorch" in caplog.text


def test_weights_that_would_make_the_model_too_large_are_not_written_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    X = np.random.default_rng(0).normal(size=(200, 5)).astype(np.float32)
    model = fitted(f"{__name__}:small_network", X)
    monkeypatch.setenv("ROWSIEVE_MAX_MODEL_BYTES", "900")
    with caplog.at_level(logging.WARNING, "rowsieve"):
        save_flavour(model, tmp_path)
    assert not (tmp_path / FLAVOUR).exists()
    assert "would lie in the model twice" in caplog.text


@pytest.mark.parametrize("model", ["logistic", "sklearn:LogisticRegression"])
def test_other_models_have_none(model: str, tmp_path: Path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 5)).astype(np.float32)
    params = parse_params({"trainer": "erm_plain", "model": model})
    save_flavour(fit_arrays(X, np.arange(60) % 2, params), tmp_path)
    assert not (tmp_path / FLAVOUR).exists()
