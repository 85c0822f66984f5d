"""Rules that another package adds by an entry point: a recipe names one as its trainer."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any, Literal

import numpy as np
import pytest
from pydantic import Field

from engine.core.errors import InputError
from engine.recipe import training_plugins
from engine.recipe.trainers import StepwiseParams, TrainParams, parse_params
from engine.recipe.training_plugins import RULES, RulePlugin
from engine.training.data.rows import Counts
from engine.training.fit.kernel import fit
from engine.training.rules import Batch, RuleState
from operators.base import OperatorError
from tests.unit.engine.training.fit.test_training import data


class TiltedParams(StepwiseParams):
    """Tilted ERM (Li et al. 2021)."""

    trainer: Literal["tilted"] = "tilted"
    tilt: float = Field(default=0.0, ge=0)
    """Rows count by exp(tilt * loss)."""


class Tilted:
    """c_i proportional to w_i exp(tilt * loss_i), sum 1."""

    sees_all = True

    def __init__(self, params: TiltedParams, counts: Counts) -> None:
        assert counts.n_rows > 0
        self._tilt = params.tilt
        self.state: RuleState = {}

    def weigh(self, batch: Batch) -> Any:
        raw = batch.weight * np.exp(self._tilt * (batch.loss - batch.loss.max()))
        return raw / raw.sum()


class ShapelessParams(TrainParams):
    """Lacks the key ``trainer``."""


PLUGIN = RulePlugin(TiltedParams, Tilted)
HOLLOW = RulePlugin(TiltedParams, lambda params, counts: object())
SHAPELESS = RulePlugin(ShapelessParams, Tilted)


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    values = {"tilted": "PLUGIN", "gdro": "PLUGIN", "shapeless": "SHAPELESS"}
    values |= {"absent": "ABSENT", "wrong": "data"}

    def found(*, group: str, name: str | None = None) -> list[EntryPoint]:
        every = [EntryPoint(n, f"{__name__}:{value}", RULES) for n, value in values.items()]
        return [point for point in every if point.group == group and name in (None, point.name)]

    monkeypatch.setattr(training_plugins, "entry_points", found)
    return values


def weights_of(**values: Any) -> Any:
    shape = {"batch_size": 64, "epochs": 3, "lr": 0.1, "weights": False, "model": "logistic"}
    return fit(data(300), parse_params({**shape, **values})).states[0]["model.head.weight"].numpy()


def test_a_rule_of_a_plugin_weighs_the_rows_of_every_step() -> None:
    plain = weights_of(trainer="erm", optimizer="sgd")
    np.testing.assert_allclose(weights_of(trainer="tilted"), plain, atol=1e-6)
    assert abs(weights_of(trainer="tilted", tilt=2.0) - plain).max() > 0.01


def test_what_a_recipe_says_of_it_is_checked(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(InputError, match="tilt: Input should be greater than or equal to 0"):
        parse_params({"trainer": "tilted", "tilt": -1})
    with pytest.raises(InputError, match="unknown key"):
        parse_params({"trainer": "tilted", "tlt": 1})
    with pytest.raises(InputError, match=r"there is no trainer 'tiltd'.*tilted"):
        parse_params({"trainer": "tiltd"})
    with pytest.raises(InputError, match="changes the rows' weights in every gradient step"):
        parse_params({"trainer": "tilted", "model": "sklearn:LogisticRegression"})
    assert type(parse_params({"trainer": "gdro"})).__name__ == "GdroParams"  # what is built in stays
    with pytest.raises(InputError, match="ShapelessParams, must derive from"):
        parse_params({"trainer": "shapeless"})
    for name in ("absent", "wrong"):
        with pytest.raises(InputError, match="there is no trainer"):
            parse_params({"trainer": name})
    assert f"absent of {RULES} ({__name__}:ABSENT) does not load: AttributeError" in caplog.text
    assert "is not of the class RulePlugin; it is skipped" in caplog.text


def test_what_makes_no_rule_is_refused(installed: dict[str, str]) -> None:
    installed["tilted"] = "HOLLOW"
    with pytest.raises(OperatorError, match="made a object, which lacks one of sees_all, state and weigh"):
        weights_of(trainer="tilted")
