"""The softmax regression of ``cues`` against scikit-learn's."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

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
