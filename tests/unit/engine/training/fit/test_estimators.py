"""Estimators of libraries under the trainers, their refusals, and deep feature reweighting."""

from __future__ import annotations

import io
import math
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
import torch
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import nn

from engine.recipe.estimators import ESTIMATORS, OBJECTIVES_OF, check_estimator
from engine.recipe.trainers import TrainParams, parse_params
from engine.training.data.rows import Dataset, dataset_of_arrays
from engine.training.fit.ensemble import Ensemble
from engine.training.fit.estimators import EstimatorModule
from engine.training.fit.in_memory import fit_arrays
from engine.training.fit.kernel import TrainingOutcome, fit
from engine.training.fit.last_layer import activations, last_linear
from engine.training.fit.session import Session
from engine.training.libraries.scikit_learn import ScikitLearn, make
from operators.base import OperatorError
from operators.communicator import Communicator
from operators.hashing import row_hashes, uniform
from operators.models import ModelSpec
from tests.unit.communicators import train_together
from tests.unit.engine.training.fit.test_training import data

FAST: dict[str, dict[str, Any]] = {
    "sklearn:HistGradientBoostingClassifier": {"max_iter": 15, "min_samples_leaf": 5},
    "sklearn:RandomForestClassifier": {"n_estimators": 12},
    "sklearn:ExtraTreesClassifier": {"n_estimators": 12},
    "sklearn:LogisticRegression": {},
    "xgboost:XGBClassifier": {"n_estimators": 12, "subsample": 0.8},
    "lightgbm:LGBMClassifier": {"n_estimators": 12, "min_child_samples": 5, "colsample_bytree": 0.7},
}
FOREST = {"model": "sklearn:RandomForestClassifier", "model_params": {"n_estimators": 12}}


def rows(n: int = 600, seed: int = 0, minority: float = 0.06) -> dict[str, Any]:
    """Two classes; a strong cue that the minority breaks, and a weak honest feature."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    agrees = rng.random(n) >= minority
    cue = np.where(agrees, y, 1 - y) * 2.0 - 1
    X = np.column_stack([cue * 2, (y * 2 - 1) * 0.8]) + rng.normal(0, [0.3, 0.6], (n, 2))
    return {"X": X.astype(np.float32), "y": y, "groups": 2 * y + agrees, "weight": rng.uniform(0.5, 2, n)}


def library(name: str) -> Any:
    """The package of an optional library; where it is not installed, the test is skipped."""
    return pytest.importorskip(
        name, reason=f"{name} is not installed: pip install -c deploy/constraints.txt '.[{name}]'"
    )


def their_fit(params: Any, seed: int, X: Any, y: Any, weight: Any) -> Any:
    """The classifier of the library, through the library's own interface."""
    if params.model.startswith("sklearn"):
        return make(params, seed).fit(X, y, sample_weight=weight)
    values = {**check_estimator(params.model, params.model_params), "random_state": seed, "n_jobs": 1}
    if params.model.startswith("xgboost"):
        kind = library("xgboost").XGBClassifier(tree_method="hist", **values)
    else:
        values["max_depth"] = values["max_depth"] or -1
        kind = library("lightgbm").LGBMClassifier(deterministic=True, verbosity=-1, **values)
    return kind.fit(X, y, sample_weight=weight)


CLASSIFIERS = [name for name in ESTIMATORS if name not in OBJECTIVES_OF]
"""Regressors have tests of their own, ``test_regressors.py``."""


def test_jtt_repeats_rows_of_a_class_that_the_other_folds_lack() -> None:
    """The rare class has one row: a model without its fold knows the other class alone."""
    found = rows(60)
    y, n = np.zeros(60, np.int64), []
    y[7] = 1
    for times in (1, 20):
        params = parse_params({"trainer": "jtt", "model": "sklearn:LogisticRegression", "upweight": times})
        model = fit_arrays(found["X"], y, params)
        n.append(model.predict_proba(found["X"])[7, 1])
    assert n[1] > 3 * n[0], "the row is an error of the first model"


def test_every_estimator_has_an_example() -> None:
    assert set(FAST) == set(CLASSIFIERS)


@pytest.mark.parametrize("model", ESTIMATORS)
def test_parameters_are_described_in_the_schema_without_reading_source_when_planning(model: str) -> None:
    kind = ESTIMATORS[model]
    assert not kind.model_config.get("use_attribute_docstrings")  # reads the source when the class is made
    assert all(field.get("description") for field in kind.model_json_schema()["properties"].values())


@pytest.mark.parametrize("model", CLASSIFIERS)
def test_an_estimator_is_the_one_of_its_library(model: str) -> None:
    """ERM on the published weights is the library's own fit with ``sample_weight``."""
    library(model.partition(":")[0])
    found = rows()
    params = parse_params({"trainer": "erm", "model": model, "model_params": FAST[model]})
    ours = fit_arrays(**found, params=params, seed=3)
    X, weight = found["X"], found["weight"] / found["weight"].mean()
    if model.endswith("LogisticRegression"):
        X = StandardScaler().fit(X).transform(X)
    theirs = their_fit(params, 3, X, found["y"], weight)
    np.testing.assert_allclose(ours.predict_proba(found["X"]), theirs.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("model", CLASSIFIERS)
def test_three_classes_survive_storing(model: str, tmp_path: Path) -> None:
    library(model.partition(":")[0])
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 3)).astype(np.float32)
    y = X.argmax(axis=1)
    params = parse_params({"trainer": "erm_class_balanced", "model": model, "model_params": FAST[model]})
    trained = fit_arrays(X, y, params)
    trained.save(tmp_path)
    again = Ensemble.load(tmp_path)
    assert again.predict_proba(X).tolist() == trained.predict_proba(X).tolist()
    assert (again.predict(X) == y).mean() > 0.9
    np.testing.assert_allclose(again.predict_proba(X).sum(axis=1), 1, atol=1e-6)


BOOSTED: dict[str, dict[str, Any]] = {
    "sklearn": {"model": "sklearn:HistGradientBoostingClassifier", "model_params": {"max_iter": 8}},
    "xgboost": {"model": "xgboost:XGBClassifier", "model_params": {"n_estimators": 6}},
    "lightgbm": {"model": "lightgbm:LGBMClassifier", "model_params": {"n_estimators": 6}},
}


@pytest.mark.parametrize(
    ("package", "values"),
    [
        ("sklearn", {"trainer": "erm"}),
        ("sklearn", {"trainer": "erm_plain"}),
        ("sklearn", {"trainer": "erm_class_balanced"}),
        ("sklearn", {"trainer": "resample"}),
        ("sklearn", {"trainer": "jtt", "upweight": 5}),
        ("sklearn", {"trainer": "boosted_cvar", "rounds": 3}),
        ("sklearn", {"trainer": "boosted_cvar", "rounds": 3, "boosting": "lp"}),
        ("xgboost", {"trainer": "jtt", "upweight": 5}),
        ("xgboost", {"trainer": "boosted_cvar", "rounds": 3}),
        ("lightgbm", {"trainer": "jtt", "upweight": 5}),
        ("lightgbm", {"trainer": "boosted_cvar", "rounds": 3}),
    ],
    ids=str,
)
def test_trainers_give_the_same_predictions_for_any_shards_and_after_an_interruption(
    package: str, values: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boosted = BOOSTED[package]
    library(package)
    params = parse_params({**values, **boosted})
    spec = ModelSpec(model=params.model, n_features=2, n_classes=2)
    X = rows()["X"]

    def answers(found: Any) -> Any:
        modules = [EstimatorModule(s["model.estimator"].numpy().tobytes(), spec) for s in found.states]
        return [module(torch.from_numpy(X)).numpy().tolist() for module in modules]

    whole = answers(fit(data(300, n_shards=1), params, seed=2))
    assert answers(fit(data(300, n_shards=7), params, seed=2)) == whole
    assert len(whole) == (3 if values["trainer"] == "boosted_cvar" else 1)

    calls: list[int] = []
    from engine.training.fit.estimators import EstimatorLearner

    true_fit = EstimatorLearner.fit

    def failing(self: EstimatorLearner, *arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        true_fit(self, *arguments)

    if len(whole) == 1:
        return
    monkeypatch.setattr(EstimatorLearner, "fit", failing)
    with pytest.raises(KeyboardInterrupt):
        fit(data(300), params, seed=2, folder=tmp_path, content="rows")
    monkeypatch.undo()
    resumed = fit(data(300), params, seed=2, folder=tmp_path, content="rows")
    assert resumed.n_models == len(whole)
    assert resumed.selection_losses.tolist() == fit(data(300), params, seed=2).selection_losses.tolist()


def test_balanced_trainers_lift_the_minority_of_an_estimator() -> None:
    train, test = rows(3000), rows(3000, seed=1)

    def worst(trainer: str, **more: Any) -> float:
        model = {"model": "sklearn:HistGradientBoostingClassifier", "model_params": {"max_iter": 40}}
        trained = fit_arrays(**train, params=parse_params({"trainer": trainer, **model, **more}))
        right = trained.predict(test["X"]) == test["y"]
        return min(float(right[test["groups"] == g].mean()) for g in range(4))

    assert worst("resample") > worst("erm_plain") + 0.15


def test_jtt_repeats_the_rows_that_models_without_them_get_wrong() -> None:
    """Errors are those of five models that have not seen the row: a forest has none on its own rows."""
    found = rows(400)
    params = parse_params({"trainer": "jtt", "upweight": 7, **FOREST})
    trained = fit_arrays(**found, params=params, seed=1)
    folds = row_hashes(np.arange(400), 1, "train/first errors") % np.uint64(5)
    weight, wrong = found["weight"], np.zeros(400, bool)
    for fold in range(5):
        mine = folds == fold
        forest = make(params, 1).fit(found["X"][~mine], found["y"][~mine], weight[~mine])
        wrong[mine] = forest.predict(found["X"][mine]) != found["y"][mine]
    assert 10 < wrong.sum() < 200
    assert wrong[(found["groups"] % 2) == 0].mean() > 2 * wrong.mean()  # the rows that break the cue
    second = make(params, 1).fit(found["X"], found["y"], np.where(wrong, 7, 1.0) * weight)
    np.testing.assert_allclose(trained.predict_proba(found["X"]), second.predict_proba(found["X"]), atol=1e-6)


def test_a_class_without_rows_in_the_fit_gets_next_to_no_probability() -> None:
    forest = RandomForestClassifier(n_estimators=3, random_state=0)
    forest.fit(np.eye(3, dtype=np.float32), [0, 2, 2])
    spec = ModelSpec(model="sklearn:RandomForestClassifier", n_features=3, n_classes=3)
    module = EstimatorModule(ScikitLearn().dump(forest), spec)
    p = module(torch.eye(3)).exp().numpy()
    assert p[:, 1] == pytest.approx([1e-12] * 3)
    np.testing.assert_allclose(p[:, [0, 2]], forest.predict_proba(np.eye(3)), atol=1e-6)


def test_more_rows_than_one_worker_may_hold_are_an_error() -> None:
    params = parse_params({**FOREST, "max_rows": 100})
    with pytest.raises(OperatorError, match=r"600 train rows.*max_rows is 100.*mlp"):
        fit_arrays(**rows(), params=params)


def test_a_stored_estimator_of_another_type_is_not_loaded() -> None:
    class Strange(HistGradientBoostingClassifier):
        pass

    Strange.__module__, Strange.__qualname__ = "somewhere", "Strange"
    fitted = Strange(max_iter=2).fit(np.random.default_rng(0).normal(size=(50, 2)), np.arange(50) % 2)
    with pytest.raises(OperatorError, match=r"somewhere\.Strange.*not loaded"):
        ScikitLearn().load(skops.io.dumps(fitted), 2, 2)
    for other in ({"a": np.zeros(2)}, StandardScaler().fit(np.eye(2))):
        with pytest.raises(OperatorError, match="damaged or forged"):
            ScikitLearn().load(skops.io.dumps(other), 2, 2)


@pytest.mark.parametrize("kind", ["compressed", "overlapping"])
def test_a_forged_archive_of_scikit_learn_is_not_unpacked(kind: str) -> None:
    """Three megabytes unpacked to three gigabytes before anything else was looked at."""
    buffer = io.BytesIO()
    method = zipfile.ZIP_DEFLATED if kind == "compressed" else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("schema.json", b" " * 2**20)
        if kind == "overlapping":
            first = archive.infolist()[0]
            for number in range(100):
                twin = zipfile.ZipInfo(f"{number}.npy")
                twin.file_size, twin.compress_size = first.file_size, first.compress_size
                twin.header_offset, twin.CRC = first.header_offset, first.CRC
                archive.filelist.append(twin)
    with pytest.raises(OperatorError, match=r"damaged or forged: ValueError: its archive states .* bytes"):
        ScikitLearn().load(buffer.getvalue(), 2, 2)


@pytest.mark.parametrize("kind", [RandomForestClassifier, HistGradientBoostingClassifier])
def test_a_forged_tree_of_scikit_learn_is_not_followed(kind: Any) -> None:
    """Its child lies outside of the tree: the library's own code would read other memory."""
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    fitted = (kind(n_estimators=2) if kind is RandomForestClassifier else kind(max_iter=2)).fit(X, y)
    ScikitLearn().load(ScikitLearn().dump(fitted), 2, 2)
    with pytest.raises(OperatorError, match="takes 2 features, and the model 3"):
        ScikitLearn().load(ScikitLearn().dump(fitted), 3, 2)
    if kind is RandomForestClassifier:
        fitted.estimators_[0].tree_.children_left[0] = 10**6
    else:
        fitted._predictors[0][0].nodes["left"][0] = 10**6
    with pytest.raises(OperatorError, match="outside of its tree"):
        ScikitLearn().load(ScikitLearn().dump(fitted), 2, 2)


@pytest.mark.parametrize("model", sorted(ESTIMATORS))
def test_no_parameter_is_infinite(model: str) -> None:
    infinite = {
        key: math.inf for key, value in check_estimator(model, {}).items() if isinstance(value, float)
    }
    for key, value in infinite.items():
        with pytest.raises(ValueError, match=f"model_params.{key}: "):
            check_estimator(model, {key: value})


def test_defaults_are_those_of_the_library() -> None:
    """Parameters that a recipe leaves out have the library's defaults, except for two documented ones."""
    other = {
        ("sklearn:HistGradientBoostingClassifier", "early_stopping"),
        ("sklearn:HistGradientBoostingRegressor", "early_stopping"),
        ("sklearn:LogisticRegression", "max_iter"),
    }
    for model in ESTIMATORS:
        if model.startswith("sklearn"):
            task = {"objective": "squared", "target": "y"} if model in OBJECTIVES_OF else {}
            theirs = type(make(parse_params({"model": model, **task}), 0))().get_params()
            for key, value in check_estimator(model, {}).items():
                assert value == theirs[key] or (model, key) in other, (model, key)


def test_defaults_are_those_of_lightgbm() -> None:
    theirs = library("lightgbm").LGBMClassifier().get_params()
    ours = check_estimator("lightgbm:LGBMClassifier", {})
    assert {**ours, "max_depth": -1} == {key: theirs.get(key, 255) for key in ours}  # 255: max_bin


def test_defaults_are_those_of_xgboost() -> None:
    """A model with the defaults written out is the model of the library's defaults."""
    xgboost, found = library("xgboost"), rows(300)
    ours = check_estimator("xgboost:XGBClassifier", {})
    explicit = xgboost.XGBClassifier(**ours).fit(found["X"], found["y"])
    default = xgboost.XGBClassifier().fit(found["X"], found["y"])
    assert explicit.get_booster().save_raw("json") == default.get_booster().save_raw("json")


class StopAfter:
    """Ends a training after a number of phases, as a killed worker does."""

    def __init__(self, phases: int) -> None:
        self.left = phases

    def on_step(self, event: Any) -> None:
        pass

    def on_epoch(self, event: Any) -> None:
        pass

    def on_phase_end(self, event: Any) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


def test_a_finished_fit_is_not_repeated_after_an_interruption(tmp_path: Path) -> None:
    params = parse_params({"trainer": "boosted_cvar", "rounds": 3, "model": "sklearn:LogisticRegression"})
    whole = fit(data(), params, folder=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        fit(data(), params, folder=tmp_path / "broken", callbacks=[StopAfter(2)])
    resumed = fit(data(), params, folder=tmp_path / "broken")
    assert [note["phase"] for note in resumed.curve] == [0, 1, 2]
    assert np.array_equal(resumed.selection_losses, whole.selection_losses)


# deep feature reweighting


def ends_in_relu(n_features: int, n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_features, n_classes), nn.ReLU())


def two_layers(n_features: int, n_classes: int) -> nn.Module:
    return nn.Sequential(nn.Linear(n_features, 4), nn.Tanh(), nn.Linear(4, n_classes))


@pytest.mark.parametrize("model", ["logistic", "mlp"])
def test_dfr_lifts_the_worst_group(model: str) -> None:
    train, test = rows(3000), rows(3000, seed=1)
    short = {"model": model, "hidden": [8], "epochs": 5, "lr": 0.05}

    def worst(trainer: str) -> float:
        trained = fit_arrays(**train, params=parse_params({"trainer": trainer, **short, "optimizer": "sgd"}))
        right = trained.predict(test["X"]) == test["y"]
        return min(float(right[test["groups"] == g].mean()) for g in range(4))

    assert worst("dfr") > worst("erm_plain") + 0.15


def test_the_last_layer_is_the_balanced_logistic_regression_of_the_held_out_rows() -> None:
    """Against scikit-learn: the same rows, weights and penalty on the activations of the first model."""
    found = rows(800)
    params = parse_params({"trainer": "dfr", "model": "mlp", "hidden": [3], "epochs": 2, "last_l2": 0.02})
    trained = fit_arrays(**found, params=params, seed=5)
    network: Any = trained.models[0]
    layer = last_linear(network, 2, 2)
    held = uniform(row_hashes(np.arange(800), 5, "train/last layer")) < 0.2
    X, is_last = activations(network, layer, found["X"][held])
    assert is_last
    y, g, w = (found[name][held] for name in ("y", "groups", "weight"))
    balanced = w / np.array([w[g == k].sum() for k in range(4)])[g]
    scaler = StandardScaler().fit(X)
    # Two weight vectors under l2/2 |W|^2 are one under l2/4.
    reference = LogisticRegression(C=2 / 0.02, tol=1e-10, max_iter=5000)
    reference.fit(scaler.transform(X), y, sample_weight=balanced / balanced.sum())
    theirs = reference.predict_proba(scaler.transform(activations(network, layer, found["X"])[0]))
    np.testing.assert_allclose(trained.predict_proba(found["X"]), theirs, atol=2e-3)


def test_dfr_needs_a_last_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWSIEVE_FACTORIES", __name__)
    found = rows(300)
    with pytest.raises(OperatorError, match=r"does not end in a torch\.nn\.Linear"):
        fit_arrays(
            **found, params=parse_params({"trainer": "dfr", "model": f"{__name__}:ends_in_relu", "epochs": 1})
        )
    fit_arrays(
        **found, params=parse_params({"trainer": "dfr", "model": f"{__name__}:two_layers", "epochs": 1})
    )


def test_dfr_names_the_class_or_group_without_held_out_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a class was forgotten: the model was right on none of its rows."""
    y = (np.arange(300) % 100 == 0).astype(int)
    X = (6 * y[:, None] + np.random.default_rng(0).normal(size=(300, 2))).astype(np.float32)
    params = parse_params({"trainer": "dfr", "epochs": 1})
    held = [uniform(row_hashes(np.arange(300), seed, "train/last layer")) < 0.2 for seed in range(9)]
    seed = next(seed for seed, mine in enumerate(held) if not mine[y == 1].any())
    model = fit_arrays(X, y, params, groups=np.zeros(300, int), seed=seed)
    assert (model.predict(X)[y == 1] == 1).all(), "one of its three rows is held out"
    monkeypatch.setattr(Session, "note_epoch", pytest.fail)  # no epoch is trained
    only = (np.arange(300) == np.flatnonzero(y)[0]).astype(int)
    with pytest.raises(
        OperatorError, match=r"dfr: class 1 has train rows, .* Raise train\.held_out \(0\.2\)"
    ):
        fit_arrays(X, only, params, groups=np.zeros(300, int), seed=seed)
    with pytest.raises(OperatorError, match=r"dfr: group 4 has train rows, and none of them is held out"):
        fit_arrays(X, np.arange(300) % 2, params, groups=4 * only, seed=seed)
    named = replace(dataset_of_arrays(X, only), class_names=("usual", "rare"))
    with pytest.raises(OperatorError, match="dfr: class 'rare' has train rows"):
        fit(named, params, seed=seed)


def test_dfr_holds_out_a_row_of_each_rare_group_on_any_number_of_workers() -> None:
    """Eleven of twenty seeds refused a class of three rows."""
    found = rows(120)
    found["groups"] = np.where(np.arange(120) % 40 < 2, 4 + np.arange(120) // 40, found["groups"])
    parts = dataset_of_arrays(**found, n_shards=3)
    params = parse_params({"trainer": "dfr", "epochs": 1, "slots": 2})
    for seed in range(3):
        alone = fit(parts, params, seed=seed)
        both = train_together(2, partial(_fit_by, parts, params, seed))
        for one in both:
            assert all(torch.equal(one.states[0][key], value) for key, value in alone.states[0].items())


def _fit_by(parts: Dataset, params: TrainParams, seed: int, communicator: Communicator) -> TrainingOutcome:
    return fit(parts, params, seed=seed, communicator=communicator)
