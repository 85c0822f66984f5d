"""A package of a third party adds a rule, an objective and a callback; a recipe uses them end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import r2_score

from engine.core.errors import InputError
from engine.core.json_files import read_json
from engine.recipe.trainers import parse_params
from engine.training import Ensemble
from engine.training.data.version import open_version
from engine.training.fit.in_memory import fit_arrays
from operators.base import OperatorError
from tests.unit.engine.training.test_regression import homes, published_homes, rows_of

PACKAGE = '''
"""A stranger's package."""
import os
from typing import Literal

import numpy as np
import torch
from pydantic import Field

from engine.recipe.objectives import ObjectivePlugin
from engine.recipe.trainers import StepwiseParams
from engine.recipe.training_plugins import RulePlugin


class TiltedParams(StepwiseParams):
    """Tilted ERM."""

    trainer: Literal["tilted"] = "tilted"
    tilt: float = Field(default=0.0, ge=0)


class Tilted:
    sees_all = True

    def __init__(self, params, counts):
        self.tilt = params.tilt
        self.state = {"steps": np.zeros(1)}

    def weigh(self, batch):
        self.state["steps"] += 1
        raw = batch.weight * np.exp(self.tilt * (batch.loss - batch.loss.max()))
        return raw / raw.sum()


class Huber:
    def __init__(self, delta):
        if delta is None or delta <= 0:
            raise ValueError("huber: give the residual beyond which the loss is linear, as in huber:1.5")
        self.delta = delta

    def losses(self, outputs, y):
        return torch.nn.functional.huber_loss(outputs, y, reduction="none", delta=self.delta)


class Smoothed:
    """Cross-entropy of smoothed labels."""

    def losses(self, outputs, y):
        return torch.nn.functional.cross_entropy(outputs, y, reduction="none", label_smoothing=0.1)


class Diary:
    def _write(self, event):
        with open(os.environ["DIARY"], "a") as file:
            file.write(type(event).__name__ + "\\n")

    on_step = on_epoch = on_phase_end = _write


class Wide:
    def losses(self, outputs, y):
        return torch.ones(len(y), 2)


RULE = RulePlugin(TiltedParams, Tilted)
WIDE = ObjectivePlugin("regression", lambda number: Wide())
FRAGILE = ObjectivePlugin("regression", lambda number: number.is_integer())
HUBER = ObjectivePlugin("regression", Huber)
SMOOTHED = ObjectivePlugin("classification", lambda number: Smoothed())
HOLLOW = ObjectivePlugin("regression", lambda number: object())
CLUSTERS = ObjectivePlugin("clustering", lambda number: object())
'''
ENTRY_POINTS = """
[rowsieve.training_rules]
tilted = stranger_losses:RULE

[rowsieve.training_objectives]
huber = stranger_losses:HUBER
smoothed = stranger_losses:SMOOTHED
hollow = stranger_losses:HOLLOW
wide = stranger_losses:WIDE
fragile = stranger_losses:FRAGILE
clusters = stranger_losses:CLUSTERS
squared = stranger_losses:HUBER

[rowsieve.training_callbacks]
diary = stranger_losses:Diary
"""


@pytest.fixture(autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install the package as pip leaves it; returns the callback's file."""
    site = tmp_path_factory.mktemp("site")
    (site / "stranger_losses.py").write_text(PACKAGE)
    info = site / "stranger_losses-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger-losses\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("DIARY", str(site / "diary"))
    return site / "diary"


@pytest.mark.slow
def test_a_recipe_uses_a_rule_an_objective_and_a_callback(installed: Path, tmp_path: Path) -> None:
    params = {"objective": "huber:20000", "target": "price", "tilt": 0.1, "epochs": 20, "lr": 0.1}
    output = published_homes(tmp_path, homes(600), train={"trainer": "tilted", "params": params})
    version = open_version(output)
    record = read_json(output / "runs" / f"{version.name}.train.json")
    assert record["trainer"] == "tilted"
    assert record["scores"]["test"]["worst_group_loss"] > 0
    assert record["scores"]["test"]["r2"] > 0.5
    told = installed.read_text().split()
    assert told.count("EpochEnd") == 20
    assert (told.count("PhaseEnd"), told[0], told[-1]) == (1, "StepEnd", "PhaseEnd")
    model = Ensemble.load(output / "models" / record["model"])
    test = rows_of(output, "test")
    answers = model.predict_numbers(test[["area", "rooms"]].to_numpy(np.float32))
    assert r2_score(test["price"], answers) == pytest.approx(record["scores"]["test"]["r2"], abs=1e-3)


def test_a_loss_of_classes(installed: Path) -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    X = (rng.normal(size=(300, 2)) * 0.2 + y[:, None]).astype(np.float32)
    steps = {"optimizer": "sgd", "epochs": 100, "lr": 0.5, "weight_decay": 0.0}
    sure = fit_arrays(X, y, parse_params(steps)).predict_proba(X).max(axis=1).mean()
    params = parse_params({**steps, "objective": "smoothed", "optimizer": "auto"})
    smoothed = fit_arrays(X, y, params)
    assert smoothed.predict_proba(X).max(axis=1).mean() < sure - 0.02
    assert (smoothed.predict(X) == y).mean() > 0.95


def test_what_a_package_says_wrongly_is_named(installed: Path) -> None:
    X, y = np.ones((20, 2), np.float32), np.arange(20.0)
    with pytest.raises(InputError, match="huber: give the residual"):
        parse_params({"objective": "huber"})
    with pytest.raises(InputError, match=r"fragile.*AttributeError"):
        parse_params({"objective": "fragile"})
    with pytest.raises(OperatorError, match=r"Wide.losses .* shape \(20, 2\)"):
        fit_arrays(X, y, parse_params({"objective": "wide"}))
    with pytest.raises(InputError, match=r"'hubr'.*Did you mean 'huber'"):
        parse_params({"objective": "hubr:3"})
    with pytest.raises(InputError, match="says the task 'clustering'"):
        parse_params({"objective": "clusters"})
    with pytest.raises(OperatorError, match=r"made a object, which lacks the method losses\(outputs, y\)"):
        fit_arrays(X, y, parse_params({"objective": "hollow"}))
    assert parse_params({"objective": "squared"}).uses_least_squares  # what is built in stays
