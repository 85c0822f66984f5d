"""The softmax regression of ``cues`` against scikit-learn's."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from operators.cues.models import linear
from operators.cues.models.linear import fit_softmax, predict


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("warm", [False, True])
def test_probabilities_are_those_of_scikit_learn(classes: int, warm: bool) -> None:
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((600, 6)).astype(np.float32)
    y = (Z @ rng.standard_normal((6, classes)) + rng.gumbel(size=(600, classes))).argmax(axis=1)
    w, l2 = rng.uniform(0.1, 3.0, 600), 1e-2
    start = rng.standard_normal((7, classes)) if warm else None
    coef = fit_softmax(Z, y, w, classes, l2=l2, start=start)
    # One vector of scikit-learn's stands for two opposite ones, whose squares sum up to half of its own.
    penalty = l2 / 2 if classes == 2 else l2
    model = LogisticRegression(C=1 / penalty, tol=1e-8, max_iter=1000)
    reference = model.fit(Z, y, sample_weight=w / w.sum())
    assert np.abs(predict(coef, Z) - reference.predict_proba(Z)).max() < 2e-3
    assert np.abs(coef[:-1].sum(axis=1)).max() < 1e-2  # no class has a vector that all of them share


@pytest.mark.parametrize("classes", [2, 4])
def test_fit_softmax_agrees_with_scikit_learn(classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 5)).astype(np.float32)
    y = (X[:, :classes] + rng.normal(size=(500, classes))).argmax(axis=1)
    w = rng.uniform(0.2, 3, 500)
    l2 = 0.01
    ours = linear.predict(linear.fit_softmax(X, y, w, classes, l2=l2, max_iter=500), X)
    # scikit-learn minimises sum w loss + ||b||^2 / (2 C). For two classes its one logit is the
    # difference of our two,
    # b = v - (-v), so that our penalty l2 * ||v||^2 is l2 / 4 * ||b||^2: half of its own.
    strength = w.sum() * l2 * (0.5 if classes == 2 else 1.0)
    reference = LogisticRegression(C=1 / strength, tol=1e-8, max_iter=5000).fit(X, y, sample_weight=w)
    assert np.abs(ours - reference.predict_proba(X)).max() < 5e-3


def test_scaler_turns_a_constant_column_into_zeros():
    X = np.array([[1.0, 7.0], [3.0, 7.0]], np.float32)
    assert np.allclose(linear.Scaler.from_rows(X).apply(X), [[-1, 0], [1, 0]])


def test_class_balance_gives_every_class_the_same_total():
    y = np.array([0] * 70 + [2] * 30)
    w = linear.class_balance(y, 4)
    assert np.isclose(w[y == 0].sum(), w[y == 2].sum())
    assert np.isclose(w.mean(), 1)
