"""Evaluation, ensembles and their storage against definitions and scikit-learn."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import balanced_accuracy_score, log_loss

from engine.core.errors import InputError
from engine.training import Ensemble, evaluate, fit_arrays, parse_params
from engine.training.evaluation import split_scores
from engine.training.evaluation.by_group import summarise
from engine.training.evaluation.metric_sums import TrueClasses, cvar_of_steps, sum_over_rows
from engine.training.evaluation.plots import draw
from operators.lpboost import solve
from operators.metrics import cvar
from operators.metrics.calibration import calibration
from operators.metrics.intervals import wilson_interval


def arrays(n: int = 300, seed: int = 0) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, 4)) + 0.8 * y[:, None]
    return X, y, rng.integers(0, 5, n), np.where(rng.random(n) < 0.4, "validation", "train")


def test_true_groups_are_texts_of_any_values() -> None:
    kinds = [(pa.int8(), [1, None]), (pa.decimal128(3, 1), [None, 2]), (pa.binary(), [b"a", b"\xff"])]
    found = [split_scores._texts(pa.chunked_array([pa.array(v, kind)])).tolist() for kind, v in kinds]
    assert found == [["1", "null"], ["null", "2.0"], ["a", "\\xff"]]


def ensemble(**values: Any) -> Ensemble:
    X, y, groups, split = arrays()
    options = {
        "trainer": "boosted_cvar",
        "rounds": 5,
        "epochs": 3,
        "round_epochs": 2,
        "alpha": 0.3,
        "lr": 0.1,
    }
    return fit_arrays(X, y, parse_params({**options, **values}), groups=groups, split=split, seed=1)


@given(n=st.integers(1, 60), k=st.integers(0, 60), level=st.floats(0.5, 0.999))
def test_wilson_is_scipy_s(n: int, k: int, level: float) -> None:
    k = min(k, n)
    expected = binomtest(k, n).proportion_ci(level, method="wilson")
    low, high = wilson_interval([k], [n], level)
    np.testing.assert_allclose([low[0], high[0]], [expected.low, expected.high], atol=1e-12)


def test_wilson_knows_nothing_of_no_rows() -> None:
    low, high = wilson_interval([0.0], [0])
    assert (low[0], high[0]) == (0.0, 1.0)
    with pytest.raises(ValueError, match="between 0 and n"):
        wilson_interval([3], [2])
    with pytest.raises(ValueError, match="level is 1"):
        wilson_interval([1], [2], 1)


def test_calibration_by_hand() -> None:
    p = np.array([[0.1, 0.9], [0.3, 0.7], [0.4, 0.6], [1.0, 0.0]])
    found = calibration(p, [1, 0, 1, 0], bins=5)
    assert found.rows.tolist() == [0, 0, 0, 2, 2]
    np.testing.assert_allclose(found.confidence[3:], [0.65, 0.95])
    np.testing.assert_allclose(found.accuracy[3:], [0.5, 1.0])
    assert found.ece == pytest.approx((2 * 0.15 + 2 * 0.05) / 4)
    assert np.isnan(calibration(np.empty((0, 2)), []).ece)
    with pytest.raises(ValueError, match="at least 1 bin"):
        calibration(p, [1, 0, 1], bins=5)


@given(losses=st.lists(st.integers(0, 10**6), min_size=1, max_size=50), alpha=st.floats(0.001, 1))
def test_cvar_of_counts_is_cvar(losses: list[int], alpha: float) -> None:
    assert cvar_of_steps(Counter(losses), alpha) == pytest.approx(
        cvar(np.array(losses) / 1e6, alpha), abs=1e-9
    )


def test_an_ensemble_is_the_lp_s_optimum_on_its_selection_set() -> None:
    X, y, _, split = arrays()
    model = ensemble()
    held = split == "validation"
    assert sorted(model.selection_rows.tolist()) == np.flatnonzero(held).tolist()
    losses = model.losses(X[model.selection_rows], y[model.selection_rows])
    np.testing.assert_array_equal(losses, model.selection_losses)
    for alpha in (0.05, 0.3, 1.0):
        mixed = model.reweight(alpha)
        value = cvar(losses @ mixed.model_weights, alpha)
        assert value == pytest.approx(solve(losses, alpha, method="highs").value, abs=2e-7)
        assert value <= min(cvar(column, alpha) for column in losses.T.astype(float)) + 2e-7
        assert value <= cvar(losses @ model.average().model_weights, alpha) + 2e-7
        assert mixed.models == model.models
    assert model.about["mixing"] == "cvar"
    assert model.reweight(0.3).model_weights == pytest.approx(model.model_weights)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    X, _, _, _ = arrays()
    model = ensemble(model="mlp", hidden=[5])
    model.save(tmp_path)
    loaded = Ensemble.load(tmp_path)
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.selection_losses, model.selection_losses)
    assert loaded.about == model.about
    loaded.reweight(0.9).save(tmp_path)
    assert Ensemble.load(tmp_path).about["alpha"] == 0.9
    assert not [path for path in tmp_path.rglob("*") if path.suffix in (".pkl", ".pt")]
    (tmp_path / "models" / "002.safetensors").write_bytes(b"no tensors")
    with pytest.raises(InputError, match="does not hold a trained model"):
        Ensemble.load(tmp_path)


def test_descriptions_that_do_not_fit_their_files(tmp_path: Path) -> None:
    model = ensemble(model="mlp", hidden=[5])
    model.save(tmp_path)
    about = next(path for path in tmp_path.glob("*.json"))
    record = json.loads(about.read_text())
    huge = json.dumps(record | {"model": record["model"] | {"hidden": [10**7, 10**7]}})
    less = json.dumps({key: value for key, value in record.items() if key != "about"})
    for text, words in (
        (huge, r"weights are described, and the file holds"),
        (less, "KeyError"),
        ("[]", "TypeError"),
        ("[" * 100_000, "nested more than 100 deep"),
    ):
        about.write_text(text)
        with pytest.raises(InputError, match=f"does not hold a trained model: .*{words}") as caught:
            Ensemble.load(tmp_path)
        assert "\n" not in str(caught.value)


def test_a_mixture_predicts_the_mean_of_its_models() -> None:
    X, _, _, _ = arrays(20)
    model = ensemble()
    rows = torch.tensor(X, dtype=torch.float32)
    with torch.no_grad():
        parts = [torch.softmax(m(rows).double(), 1).numpy() for m in model.models]
    expected = sum(w * p for w, p in zip(model.model_weights, parts, strict=True))
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=1e-12)
    assert model.predict(X).tolist() == np.argmax(expected, axis=1).tolist()
    assert model.predict_proba(np.empty((0, 4))).shape == (0, 3)
    with pytest.raises(ValueError, match=r"shape \(20, 3\); the model takes \(n, 4\)"):
        model.predict(X[:, :3])


def test_a_request_has_one_answer_and_models_are_drawn_by_weight() -> None:
    X, _, _, _ = arrays(50)
    model = ensemble(mixing="average")
    requests = [f"applicant-{i}" for i in range(50)]
    first = model.sample(X, requests, seed=5)
    assert np.array_equal(model.sample(X[::-1], requests[::-1], seed=5)[::-1], first)
    chosen = model.chosen(requests, seed=5)
    with torch.no_grad():
        answers = [m(torch.tensor(X, dtype=torch.float32)).numpy().argmax(1) for m in model.models]
    assert first.tolist() == [answers[t][i] for i, t in enumerate(chosen)]
    assert not np.array_equal(model.chosen(requests, seed=6), chosen)
    shares = np.bincount(model.chosen(range(20_000), seed=5), minlength=5) / 20_000
    np.testing.assert_allclose(shares, 0.2, atol=0.02)
    lone = ensemble(rounds=3).reweight(1.0)
    assert (lone.model_weights[lone.chosen(range(500))] > 0).all()
    with pytest.raises(ValueError, match="50 rows, but 2 request ids"):
        model.sample(X, ["a", "b"])


def test_a_request_id_has_one_text_form() -> None:
    model = ensemble(mixing="average")
    for whole in (np.arange(50), np.arange(50.0), [np.float32(i) for i in range(50)]):
        assert model.chosen(whole).tolist() == model.chosen([str(i) for i in range(50)]).tolist()
    for null in (None, float("nan")):
        with pytest.raises(ValueError, match="a request id is null"):
            model.chosen(["a", null])  # type: ignore[list-item]


def test_evaluation_by_definition() -> None:
    X, y, groups, _ = arrays()
    model = ensemble(mixing="average")
    losses = model.losses(X, y) @ model.model_weights
    rows = {"inferred": {0: 10, 1: 20, 2: 5, 3: 1, 4: 4, 7: 60}}
    found = evaluate(model, X, y, groups, alphas=[0.1, 0.5], train_rows=rows, min_rows=1)
    right = model.predict(X) == y
    by_group = {g: right[groups == g].mean() for g in range(5)}
    table = found.groupings["inferred"]
    assert {int(s.group): s.accuracy for s in table.groups if s.rows} == pytest.approx(by_group)
    assert table.worst_group_accuracy == pytest.approx(min(by_group.values()))
    assert table.worst_group == str(min(by_group, key=lambda g: by_group[g]))
    assert table.average == pytest.approx(sum(by_group[g] * rows["inferred"][g] for g in range(5)) / 40)
    assert found.accuracy == pytest.approx(right.mean())
    assert right.mean() != pytest.approx(1 - losses.mean())  # one drawn base model is another classifier
    assert table.without_rows == ("7",)
    assert next(s for s in table.groups if s.group == "7").accuracy is None
    assert found.balanced_accuracy == pytest.approx(balanced_accuracy_score(y, model.predict(X)))
    assert found.log_loss == pytest.approx(log_loss(y, model.predict_proba(X), labels=[0, 1, 2]))
    assert found.metrics("test.")["test.log_loss"] == found.log_loss
    for point in found.cvar:
        assert point.value == pytest.approx(cvar(losses, point.alpha), abs=1e-6)
        mixed = model.losses(X, y) @ model.reweight(point.alpha).model_weights
        assert point.reweighted == pytest.approx(cvar(mixed, point.alpha), abs=1e-6)
        assert point.deterministic == pytest.approx(min(1, losses.mean() / point.alpha), abs=1e-6)
        assert point.coin == pytest.approx(2 / 3)
    json.dumps(found.to_dict())


def test_a_single_model_lies_on_the_deterministic_line() -> None:
    X, y, groups, _ = arrays()
    model = ensemble(rounds=1)
    for point in evaluate(model, X, y, groups).cvar:
        assert point.value == pytest.approx(point.deterministic, abs=1e-9)
        assert point.reweighted is None


def test_counts_add_up_over_shards() -> None:
    X, y, groups, _ = arrays()
    model = ensemble()
    whole = sum_over_rows(model, X, y, {"g": groups}, [np.full(5, 0.2)])
    parts = [
        sum_over_rows(model, X[s], y[s], {"g": groups[s]}, [np.full(5, 0.2)])
        for s in (slice(0, 0), slice(0, 90), slice(90, 91), slice(91, None))
    ]
    for part in parts[1:]:
        parts[0].add(part)
    assert (parts[0].n, parts[0].losses) == (whole.n, whole.losses)
    assert (parts[0].labels.rows, parts[0].labels.right) == (whole.labels.rows, whole.labels.right)
    assert parts[0].log_loss == pytest.approx(whole.log_loss)
    assert parts[0].groupings["g"].rows == whole.groupings["g"].rows
    assert parts[0].groupings["g"].right == pytest.approx(whole.groupings["g"].right)
    assert parts[0].calibration.ece == pytest.approx(whole.calibration.ece)


def test_pictures(tmp_path: Path) -> None:
    X, y, groups, _ = arrays()
    found = evaluate(ensemble(), X, y, {"inferred": groups, "true": groups})
    paths = draw(found, tmp_path, "test")
    assert sorted(path.name for path in paths) == [
        "calibration.png",
        "cvar.png",
        "groups-inferred.png",
        "groups-true.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in paths)


def test_average_precision_is_scikit_learn_s_and_adds_up_over_shards() -> None:
    from sklearn.metrics import average_precision_score

    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 900)
    X = rng.normal(size=(900, 3)).astype(np.float32)
    X[np.arange(900), y] += 1.2
    model = fit_arrays(X, y, parse_params({"trainer": "erm_plain"}))
    p = np.floor(model.predict_proba(X) * 1000)
    expected = np.mean([average_precision_score(y == c, p[:, c]) for c in range(3)])
    groups = rng.integers(0, 2, 900)
    whole = evaluate(model, X, y, groups)
    assert whole.auprc == pytest.approx(expected, abs=1e-9)
    assert whole.metrics()["auprc"] == whole.auprc
    parts = [
        sum_over_rows(model, X[s], y[s], {"inferred": groups[s]}) for s in (slice(0, 300), slice(300, None))
    ]
    parts[0].add(parts[1])
    both = summarise(parts[0], model, (0.1,))
    assert both.auprc == whole.auprc
    ours, theirs = (found.groupings["inferred"].groups for found in (both, whole))
    assert [group.ece for group in ours] == pytest.approx([group.ece for group in theirs])


def test_rows_that_a_champion_cannot_read_count_for_their_true_classes() -> None:
    """They were a class of their own: .60 and not .67 of the balanced accuracy, and no loss of precision.

    The champion has the classes in another order and does not know class 2.
    """
    from sklearn.metrics import average_precision_score

    rng = np.random.default_rng(0)
    truth = rng.integers(0, 3, 900)
    X = rng.normal(0, 0.3, (900, 2)).astype(np.float32) + truth[:, None]
    places = np.array([1, 0, -1])
    known = truth < 2
    model = fit_arrays(X[known], places[truth[known]], parse_params({"trainer": "erm"}))
    unread = known & (rng.random(900) < 0.1)
    seen = np.where(unread, -1, places[truth])
    X[unread] = 0
    sums = sum_over_rows(model, X, seen, {"inferred": truth}, classes=TrueClasses(truth, places))
    found = summarise(sums, model, (1.0,))
    right = (model.predict(X) == seen) & (seen >= 0)
    assert found.balanced_accuracy == pytest.approx(np.mean([right[truth == c].mean() for c in range(3)]))
    p = np.zeros((900, 3))
    p[:, :2] = np.floor(model.predict_proba(X)[:, [1, 0]] * 1000)
    p[unread] = 0
    expected = [average_precision_score(truth == c, p[:, c]) for c in range(3)]
    assert found.auprc == pytest.approx(np.mean(expected), abs=1e-9)
    assert found.accuracy == pytest.approx(right.mean())


def test_the_tail_of_the_cross_entropy_is_that_of_its_rows() -> None:
    X, y, groups, _ = arrays(600)
    model = ensemble()
    nats = -np.log(model.predict_proba(X)[np.arange(600), y])
    found = evaluate(model, X, y, groups, alphas=(0.1, 0.5, 1.0))
    for point in found.cvar:
        assert point.log_loss == pytest.approx(cvar(nats, point.alpha), abs=1e-4)
    assert found.cvar[-1].log_loss == pytest.approx(log_loss(y, model.predict_proba(X)), abs=1e-4)
    assert found.metrics()["log_loss_cvar_0.1"] == found.cvar[0].log_loss
    parts = [sum_over_rows(model, X[s], y[s], {}) for s in (slice(0, 200), slice(200, None))]
    parts[0].add(parts[1])
    assert [p.log_loss for p in summarise(parts[0], model, (0.1, 0.5, 1.0)).cvar] == [
        p.log_loss for p in found.cvar
    ]


def test_calibration_of_a_group_is_that_of_its_rows_alone() -> None:
    rng = np.random.default_rng(1)
    y = rng.integers(0, 2, 600)
    X = (y[:, None] + rng.normal(0, 1, (600, 2))).astype(np.float32)
    model = fit_arrays(X, y, parse_params({"trainer": "erm_plain"}))
    groups = rng.integers(0, 3, 600)
    found = evaluate(model, X, y, groups).groupings["inferred"].groups
    for number, group in enumerate(found):
        mine = groups == number
        p = model.predict_proba(X[mine])
        alone = calibration(p, y[mine], 15)
        assert group.ece == pytest.approx(alone.ece)
        right = p.argmax(axis=1) == y[mine]
        assert group.overconfidence == pytest.approx(p.max(axis=1).mean() - right.mean())
