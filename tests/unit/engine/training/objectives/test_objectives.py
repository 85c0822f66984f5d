"""Objectives of numbers against autograd, definitions and scikit-learn, on arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LinearRegression, QuantileRegressor, Ridge
from sklearn.metrics import mean_pinball_loss

from engine.core.errors import InputError
from engine.recipe.trainers import LATER_KEYS, parse_params
from engine.training.data.rows import Dataset, dataset_of_arrays
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.in_memory import fit_arrays
from engine.training.fit.kernel import TrainingOutcome, fit
from engine.training.objectives import Objective, Pinball, Squared, objective_of
from operators.base import OperatorError
from operators.communicator import Communicator
from tests.unit.communicators import train_together

EXACT: dict[str, Any] = {"objective": "squared", "weight_decay": 0.0}
STEPS: dict[str, Any] = {"lr": 0.05, "epochs": 60, "batch_size": 64, "weight_decay": 0.0}


def rows(n: int = 400, seed: int = 0) -> dict[str, Any]:
    """Prices with outliers in group 1, a fifth of the rows, where the second feature counts the other way."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).astype(np.float32) * [1.0, 10.0, 0.1] + [5.0, 0.0, 0.0]
    group = (rng.random(n) < 0.2).astype(int)
    slope = np.where(group == 1, -1.0, 2.0)
    y = 50_000 + 3_000 * X[:, 0] + 500 * slope * X[:, 1] + 800 * rng.standard_t(3, n)
    return {"X": X, "y": y, "groups": group, "weight": rng.uniform(0.2, 3, n)}


def dataset(n: int = 300, n_shards: int = 5) -> Dataset:
    found = rows(n)
    split = np.where(np.random.default_rng(1).random(n) < 0.3, "validation", "train")
    found["target"], found["y"] = found["y"], found["groups"]
    return dataset_of_arrays(**found, split=split, n_shards=n_shards)


@pytest.mark.parametrize(
    ("objective", "slope"),
    [
        (Squared(), lambda r: -2 * r),
        (Pinball(0.9), lambda r: np.where(r > 0, -0.9, 0.1)),
        (Pinball(0.5), lambda r: -np.sign(r) / 2),
    ],
    ids=["squared", "quantile .9", "median"],
)
def test_losses_and_their_gradients_are_the_definitions(objective: Objective, slope: Any) -> None:
    rng = np.random.default_rng(0)
    y, f = torch.from_numpy(rng.normal(size=50)), torch.from_numpy(rng.normal(size=50)).requires_grad_()
    found = objective.losses(f, y)
    residual = (y - f).detach().numpy()
    if isinstance(objective, Pinball):
        expected = mean_pinball_loss(y.numpy(), f.detach().numpy(), alpha=objective.quantile)
        assert float(found.detach().mean()) == pytest.approx(expected, rel=1e-12)
    else:
        np.testing.assert_allclose(found.detach().numpy(), residual**2)
    (gradient,) = torch.autograd.grad(found.sum(), f)
    np.testing.assert_allclose(gradient.numpy(), slope(residual))
    assert torch.autograd.gradcheck(lambda out: objective.losses(out, y), (f,))


def test_least_squares_are_those_of_scikit_learn() -> None:
    found = rows()
    X, y, weight = found["X"].astype(np.float32), found["y"], found["weight"]
    trained = fit_arrays(X, y, parse_params(EXACT), weight=weight)
    expected = LinearRegression().fit(X, y, weight).predict(X)
    np.testing.assert_allclose(trained.predict_numbers(X), expected, rtol=1e-5)
    plain = fit_arrays(X, y, parse_params({**EXACT, "trainer": "erm_plain"}), weight=weight)
    np.testing.assert_allclose(plain.predict_numbers(X), LinearRegression().fit(X, y).predict(X), rtol=1e-5)


def test_the_penalty_is_that_of_ridge_regression_on_standard_scores() -> None:
    found = rows()
    X, y = found["X"].astype(np.float32), found["y"]
    z, target = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    ridge = Ridge(alpha=len(y) * 0.5 / 2).fit(z, target)
    trained = fit_arrays(X, y, parse_params({**EXACT, "weight_decay": 0.5}))
    expected = y.mean() + y.std() * ridge.predict(z)
    np.testing.assert_allclose(trained.predict_numbers(X), expected, rtol=1e-5)


def test_a_feature_that_is_there_twice_has_a_solution() -> None:
    found = rows()
    X = np.column_stack([found["X"], found["X"][:, 0], np.ones(len(found["y"]))]).astype(np.float32)
    trained = fit_arrays(X, found["y"], parse_params(EXACT))
    expected = LinearRegression().fit(X, found["y"]).predict(X)
    np.testing.assert_allclose(trained.predict_numbers(X), expected, rtol=1e-5)


@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_the_pinball_loss_comes_near_that_of_scikit_learn(quantile: float) -> None:
    found = rows()
    X, y = found["X"].astype(np.float32), found["y"]
    params = parse_params({"objective": f"pinball:{quantile}", **STEPS, "schedule": "linear"})
    trained = fit_arrays(X, y, params)
    best = QuantileRegressor(quantile=quantile, alpha=0).fit(X, y)
    least = mean_pinball_loss(y, best.predict(X), alpha=quantile)
    assert mean_pinball_loss(y, trained.predict_numbers(X), alpha=quantile) < 1.01 * least
    assert (y <= trained.predict_numbers(X)).mean() == pytest.approx(quantile, abs=0.02)


def test_group_dro_makes_the_worst_groups_loss_small() -> None:
    found = rows(1000)
    X, y, group = found["X"].astype(np.float32), found["y"], found["groups"]

    def worst(trainer: str) -> float:
        params = parse_params({"trainer": trainer, "objective": "squared", "schedule": "linear", **STEPS})
        error = (fit_arrays(X, y, params, groups=group).predict_numbers(X) - y) ** 2
        return float(max(error[group == g].mean() for g in (0, 1)))

    plain = fit_arrays(X, y, parse_params(EXACT)).predict_numbers(X)
    erm = float(max(((plain - y) ** 2)[group == g].mean() for g in (0, 1)))
    assert worst("gdro") < 0.6 * erm


@pytest.mark.parametrize(
    "values",
    [
        {"objective": "squared"},
        {"objective": "pinball:0.9"},
        {"objective": "pinball:0.5", "trainer": "gdro", "keep": "best", "model": "mlp", "hidden": [5]},
        {"objective": "squared", "trainer": "cvar_doro", "optimizer": "adam"},
        {"objective": "squared", "trainer": "erm_class_balanced"},
    ],
    ids=lambda values: f"{values.get('trainer', 'erm')} {values['objective']}",
)
def test_any_number_of_workers_and_an_interruption_give_the_same_bytes(
    values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params = parse_params({"epochs": 3, "batch_size": 64, "slots": 4, "checkpoint_every": 1, **values})
    data = dataset()

    def train(communicator: Communicator) -> TrainingOutcome:
        return fit(data, params, seed=1, communicator=communicator)

    def numbers(found: TrainingOutcome) -> list[bytes]:
        return [value.numpy().tobytes() for value in found.states[0].values()]

    alone = fit(data, params, seed=1)
    for n_workers in (2, 3):
        for found in train_together(n_workers, train):
            assert numbers(found) == numbers(alone)
            assert (found.curve, found.target_scale) == (alone.curve, alone.target_scale)
    if params.uses_least_squares:
        return
    from engine.training.fit import epochs

    true_epoch, calls = epochs.run_epoch, [0]

    def failing(*arguments: Any) -> float:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return true_epoch(*arguments)

    monkeypatch.setattr(epochs, "run_epoch", failing)
    with pytest.raises(KeyboardInterrupt):
        fit(data, params, seed=1, folder=tmp_path, content="rows")
    monkeypatch.undo()
    assert fit(data, params, seed=1, folder=tmp_path, content="rows").curve == alone.curve


def test_the_unit_of_the_target_does_not_matter() -> None:
    found = rows()
    X, y = found["X"].astype(np.float32), found["y"]
    params = parse_params({"objective": "pinball:0.9", **STEPS, "epochs": 3})
    one, other = fit_arrays(X, y, params), fit_arrays(X, y / 1000, params)
    np.testing.assert_allclose(one.predict_numbers(X) / 1000, other.predict_numbers(X), rtol=1e-5)
    assert one.about["curve"][0]["loss"] == pytest.approx(1000 * other.about["curve"][0]["loss"], rel=1e-5)


def test_a_model_of_numbers_is_stored(tmp_path: Path) -> None:
    found = rows()
    X = found["X"].astype(np.float32)
    trained = fit_arrays(X, found["y"], parse_params(EXACT))
    trained.save(tmp_path)
    again = Ensemble.load(tmp_path)
    assert again.predict_numbers(X).tolist() == trained.predict_numbers(X).tolist()
    with pytest.raises(ValueError, match="call predict_numbers"):
        again.predict(X)
    record = (tmp_path / "ensemble.json").read_text()
    (tmp_path / "ensemble.json").write_text(record.replace('"std": ', '"std": -'))
    with pytest.raises(InputError, match="not a finite mean with a positive deviation"):
        Ensemble.load(tmp_path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"objective": "squard"}, "Did you mean 'squared'"),
        ({"objective": "pinball"}, "give the quantile"),
        ({"objective": "pinball:1"}, "give the quantile"),
        ({"objective": "pinball:0"}, "give the quantile"),
        ({"objective": "pinball:-0.5"}, "give the quantile"),
        ({"objective": "pinball:nan"}, "'nan' is not a number"),
        ({"objective": "pinball:high"}, "'high' is not a number"),
        ({"objective": "squared:2"}, "squared takes no number"),
        ({"target": "price"}, "target is read by a regression"),
        ({"model": "linear"}, "for classes it is logistic"),
        ({"objective": "squared", "model": "logistic"}, "Set model to linear"),
        ({"objective": "squared", "model": "sklearn:RandomForestClassifier"}, "predicts classes"),
        ({"objective": "squared", "trainer": "jtt"}, "classifies wrongly"),
        ({"objective": "squared", "trainer": "dfr"}, "logistic regression"),
        ({"objective": "squared", "trainer": "boosted_cvar"}, "classify them wrongly"),
        ({"objective": "squared", "max_mean_loss": 0.1}, "a regression has none"),
        ({"objective": "squared", "optimizer": "lbfgs"}, "with objective cross_entropy"),
    ],
)
def test_what_does_not_fit_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_params(values)


def test_targets_that_are_no_numbers_are_refused() -> None:
    found = rows(50)
    found["y"][7] = np.nan
    with pytest.raises(OperatorError, match="row 7 has no finite number"):
        fit_arrays(found["X"], found["y"], parse_params(EXACT))
    with pytest.raises(OperatorError, match=r"row 0 has no finite number .*low"):
        fit_arrays(found["X"], np.full(50, "low"), parse_params(EXACT))
    with pytest.raises(OperatorError, match="The rows have one class"):
        fit_arrays(found["X"], np.zeros(50, int), parse_params({}))
    with pytest.raises(OperatorError, match=r"erm_class_balanced.*classes"):
        fit_arrays(found["X"], np.ones(50), parse_params({**EXACT, "trainer": "erm_class_balanced"}))


def test_arrays_that_do_not_fit_together_are_refused() -> None:
    X, y = np.ones((50, 3)), np.arange(50) % 2
    plain = parse_params({})
    for arrays, message in (
        ({"X": X[:40]}, r"X has 40 rows, and y 50"),
        ({"X": X[:, 0]}, r"X has the shape \(50,\)"),
        ({"y": y[:, None]}, r"y has the shape \(50, 1\)"),
        ({"X": np.where(np.arange(150).reshape(50, 3) == 7, np.nan, X)}, "X: row 2, column 1 is nan"),
        ({"y": y + 0.5}, "y: row 0 has no class index .*0.5"),
        ({"y": y - 1}, "y: row 0 has no class index .*-1"),
        ({"weight": np.ones(49)}, "weight has 49 rows, and y 50"),
        ({"groups": np.ones((50, 2))}, r"groups has the shape \(50, 2\)"),
        ({"split": ["train"] * 3}, "split has 3 rows, and y 50"),
        ({"split": ["training"] * 50}, "split: row 0 .*'training'"),
        ({"weight": -np.ones(50)}, "weight: row 0 .*-1"),
    ):
        with pytest.raises(OperatorError, match=message):
            fit_arrays(**{"X": X, "y": y, "params": plain, **arrays})
    with pytest.raises(OperatorError, match=r"y has the shape \(50, 1\)"):
        fit_arrays(X, np.ones((50, 1)), parse_params(EXACT))


@pytest.mark.parametrize("value", [0.1, -1e9 / 3])
@pytest.mark.parametrize(
    "values", [{}, {"trainer": "gdro"}, {"objective": "pinball:0.9"}, {"trainer": "cvar_doro"}], ids=str
)
def test_a_constant_target_is_predicted(values: dict[str, Any], value: float) -> None:
    """The rounding of its mean, 1e-17 for .1, is no deviation and no unit of losses."""
    X = rows(300)["X"]
    params = parse_params({**EXACT, "epochs": 60, "lr": 0.05, "schedule": "linear", **values})
    trained = fit_arrays(X, np.full(300, value), params)
    assert trained.target is not None
    assert trained.target.mean == pytest.approx(value, rel=1e-15)
    np.testing.assert_allclose(trained.predict_numbers(X), value, atol=0.5)


@pytest.mark.parametrize("trainer", ["erm", "gdro", "cvar_doro"])
@pytest.mark.parametrize("factor", [1e-60, 1.0, 1e60])
def test_any_usual_unit_of_the_target_gives_the_same_answers(trainer: str, factor: float) -> None:
    found = rows(200)
    X, y = found["X"].astype(np.float32), -found["y"] / 50_000
    params = parse_params({"trainer": trainer, "objective": "squared", "epochs": 2})
    one, other = fit_arrays(X, y, params), fit_arrays(X, y * factor, params)
    np.testing.assert_allclose(one.predict_numbers(X), other.predict_numbers(X) / factor, rtol=1e-4)


@pytest.mark.parametrize("factor", [1e-200, 1e-310, 1e200, 1e306])
def test_a_target_whose_squares_are_no_numbers_is_refused(factor: float) -> None:
    """1e-200 was once answered by .3, and 1e200 said that training had diverged."""
    found = rows(100)
    y = (found["y"] - found["y"].mean()) / found["y"].std() * factor
    for objective in ("squared", "pinball:0.9"):
        with pytest.raises(OperatorError, match=r"from their mean .* Give it in another unit"):
            fit_arrays(found["X"], y, parse_params({"objective": objective}))


def test_one_group_is_trained_as_erm_is() -> None:
    found = rows(200)
    X, y = found["X"].astype(np.float32), found["y"]
    values = {"objective": "squared", "epochs": 5, "sampling": "shuffle", "lr": 0.05}
    gdro = fit_arrays(X, y, parse_params({**values, "trainer": "gdro"}))
    erm = fit_arrays(X, y, parse_params({**values, "optimizer": "sgd"}))
    np.testing.assert_allclose(gdro.predict_numbers(X), erm.predict_numbers(X), rtol=1e-5)


def test_the_best_epoch_has_the_least_loss_of_the_worst_group() -> None:
    """And ``patience`` counts epochs without a smaller one."""
    values = {"trainer": "gdro", "objective": "squared", "model": "mlp", "hidden": [6], "batch_size": 32}
    values |= {"keep": "best", "lr": 0.4, "epochs": 30}
    whole = fit(dataset(), parse_params(values), seed=3)
    scores = [(note["worst_group_loss"], note["mean_loss"]) for note in whole.curve]
    assert whole.best_epoch == 1 + scores.index(min(scores))
    stopped = fit(dataset(), parse_params({**values, "patience": 4}), seed=3)
    since = [epoch - scores.index(min(scores[: epoch + 1])) for epoch in range(30)]
    assert 4 in since
    assert len(stopped.curve) == since.index(4) + 1
    assert stopped.curve == whole.curve[: len(stopped.curve)]


def test_a_model_of_numbers_draws_no_answer_and_has_no_errors() -> None:
    found = rows(50)
    trained = fit_arrays(found["X"], found["y"], parse_params(EXACT))
    for call in (
        lambda: trained.sample(found["X"], range(50)),
        lambda: trained.losses(found["X"], found["y"]),
        lambda: trained.reweight(0.1),
    ):
        with pytest.raises(ValueError, match="predicts numbers"):
            call()


def test_the_objective_is_no_part_of_the_fingerprint_of_a_classification() -> None:
    values = parse_params({}).model_dump(mode="json")
    assert {key: values[key] for key in ("objective", "target")} == {
        key: LATER_KEYS[key] for key in ("objective", "target")
    }
    assert type(objective_of("cross_entropy")).__name__ == "CrossEntropy"
