"""Standardised features of the evidence of damage."""

from __future__ import annotations

import numpy as np
import pytest

from operators.outliers import linear
from operators.outliers.evidence import log_total
from operators.outliers.linear import CrossFitted, Scaler, fit_linear, log_proba


@pytest.mark.parametrize("unit", [2.0**-120, 2.0**-30, 1.0, 2.0**60])
def test_standardised_features_do_not_depend_on_the_unit(unit: float) -> None:
    X = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    np.testing.assert_allclose(
        Scaler.fit(X * np.float32(unit))(X * np.float32(unit)), Scaler.fit(X)(X), atol=2e-3
    )


@pytest.mark.parametrize("value", [0.0, 0.1, -1e9, 1e-30])
def test_a_column_of_equal_values_is_0_everywhere(value: float) -> None:
    scaler = Scaler.fit(np.full((5000, 1), value, np.float32))
    assert scaler.inverse.tolist() == [0.0]
    assert scaler(np.array([[value], [7.0]], np.float32)).tolist() == [[0.0], [0.0]]


def test_the_smallest_numbers_give_finite_features() -> None:
    X = np.array([[0.0], [1e-45], [3e-45]], np.float32)
    assert np.isfinite(Scaler.fit(X)(X)).all()


def test_the_largest_numbers_give_finite_features() -> None:
    X = np.repeat(np.array([[-3e38], [3e38]], np.float32), [900, 100], axis=0)
    scaler = Scaler.fit(X)
    np.testing.assert_allclose(scaler(X)[[0, -1], 0], [-1 / 3, 3], rtol=1e-5)
    assert np.isfinite(Scaler(np.zeros(1, np.float32), np.full(1, 2.0, np.float32))(X)).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_many_classes_are_fitted_as_few_are(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat(np.arange(0, 60, 2), 60))  # every other class has no row
    Z = (rng.normal(size=(60, 4))[y] + rng.normal(size=(len(y), 4))).astype(np.float32)
    weights = rng.uniform(0.5, 2.0, len(y)) if weighted else None
    many = log_proba(Z, *fit_linear(Z, y, 60, weights))[:, ::2]
    monkeypatch.setattr(linear, "MANY_CLASSES", 30)
    few = log_proba(Z, *fit_linear(Z, y, 60, weights))[:, ::2]
    assert many.std() > 1
    np.testing.assert_allclose(many, few, atol=2e-3)


def test_models_of_many_classes_judge_rows_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    models = CrossFitted(rng.normal(size=(4, 5, 30, 3)), rng.normal(size=(4, 5, 30)))
    Z, folds = rng.normal(size=(50, 3)).astype(np.float32), rng.integers(-1, 5, 50)
    whole = models.log_proba(Z, folds)
    monkeypatch.setattr(linear, "MAX_LOGITS", 4 * 5 * 30 * 7)
    np.testing.assert_allclose(models.log_proba(Z, folds), whole, rtol=1e-12)
    every = np.stack([log_proba(Z[:1], models.coef[0, f], models.intercept[0, f])[0] for f in range(5)])
    np.testing.assert_allclose(whole[0, 0], every.mean(axis=0) if folds[0] < 0 else every[folds[0]])


def test_probabilities_of_many_classes_add_up_as_those_of_few_do() -> None:
    log_p = np.random.default_rng(0).normal(scale=20, size=(9, 30))
    log_p[:, 3] = -np.inf
    np.testing.assert_allclose(log_total(log_p), np.logaddexp.reduce(log_p, axis=1), rtol=1e-12)
