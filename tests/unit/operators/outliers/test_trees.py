"""Boosted trees as arrays: the probabilities of scikit-learn, by the trees that did not train on a row."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from operators.outliers.trees import DEPTH, MAX_CLASSES, CrossFittedTrees, join_trees, tree_fits


def rows(n_classes: int, n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 5)).astype(np.float32)
    return X, (np.digitize(X[:, 0] * X[:, 1], np.linspace(-1, 1, n_classes - 1))).astype(np.int64)


def fitted(X: np.ndarray, y: np.ndarray, folds: np.ndarray, n_classes: int) -> CrossFittedTrees:
    trees = join_trees([fit() for fit in tree_fits(X, y, folds, n_classes)])
    assert trees is not None
    return trees


@pytest.mark.parametrize("n_classes", [2, 3])
def test_probabilities_are_those_of_scikit_learn_without_the_fold(n_classes: int) -> None:
    X, y = rows(n_classes)
    folds = np.arange(len(y)) % 3
    trees = fitted(X, y, folds, n_classes)
    reference = HistGradientBoostingClassifier(
        max_iter=trees.value.shape[2], max_depth=DEPTH, max_leaf_nodes=None, early_stopping=False
    )
    every = []
    for fold in range(3):
        reference.fit(X[folds != fold], y[folds != fold])
        every.append(np.log(reference.predict_proba(X)))
        own = folds == fold
        np.testing.assert_allclose(
            trees.log_proba(X[own], folds[own], n_classes), every[-1][own], rtol=1e-6, atol=1e-9
        )
    unseen = trees.log_proba(X, np.full(len(y), -1), n_classes)
    np.testing.assert_allclose(unseen, np.mean(every, axis=0), rtol=1e-6, atol=1e-9)


def test_folds_with_fewer_classes_predict_those_that_they_have() -> None:
    X, y = rows(3)
    folds = np.where(y == 2, 1, np.arange(len(y)) % 2)
    p = np.exp(fitted(X, y, folds, 3).log_proba(X, np.ones(len(y), np.int64), 3))
    assert p[:, 2].max() < 1e-9
    np.testing.assert_allclose(p.sum(axis=1), 1)
    p = np.exp(fitted(X, y // 2, y // 2, 2).log_proba(X, np.zeros(len(y), np.int64), 2))
    assert p[:, 1].min() > 1 - 1e-9
    p = np.exp(fitted(X, y // 2, y // 2, 2).log_proba(X, np.ones(len(y), np.int64), 2))
    assert p[:, 0].min() > 1 - 1e-9


def test_many_classes_have_no_trees() -> None:
    X, y = rows(MAX_CLASSES + 1)
    fits = tree_fits(X, y, np.arange(len(y)) % 2, MAX_CLASSES + 1)
    assert join_trees([fit() for fit in fits]) is None
