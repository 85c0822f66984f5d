"""Cross-fitted gradient-boosted trees, kept as plain arrays: the second model that assesses labels.

scikit-learn's histogram booster fits them; every tree is then stored as a complete binary tree of
``DEPTH`` levels, so that reading a state runs no code and that a row is scored by array lookups alone.
On plain tables the trees rank flipped labels better than a linear model does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import HistGradientBoostingClassifier

from operators.arrays import Float32, Float64, Int64, Mask
from operators.outliers.linear import ABSENT, FoldFit

DEPTH = 4
N_INNER, N_LEAVES = 2**DEPTH - 1, 2**DEPTH
MAX_TREES = 60
"""Trees of one fold, of all classes together; at least ``MIN_ROUNDS`` for each class."""
MIN_ROUNDS = 12
MAX_CLASSES = 12
"""Number of classes beyond which there are no trees: their cost grows with it."""
MAX_VALUES = 2_000_000
"""Feature values that one fold's trees learn from; rows beyond this bound are left out."""


@dataclass(frozen=True)
class CrossFittedTrees:
    """Boosted trees, one ensemble for each fold, fitted without that fold.

    The number of logits k is 1 for two classes and n_classes otherwise; m is the number of boosting rounds.
    """

    feature: Int64
    """(n_folds, k, m, N_INNER) column that each inner node compares."""
    threshold: Float64
    """(n_folds, k, m, N_INNER) a row whose value is larger goes right; infinite below a leaf."""
    value: Float64
    """(n_folds, k, m, N_LEAVES) what each leaf adds to the logit."""
    baseline: Float64
    """(n_folds, k) logits before the first tree."""

    def log_proba(self, Z: Float32, folds: Int64, n_classes: int) -> Float64:
        """Return log probabilities of each row by the trees that did not train on it.

        Parameters
        ----------
        Z : (n, d) standardised features.
        folds : (n,) fold of each row; -1 for rows that no trees trained on, which get the mean of all folds.
        n_classes : number of classes.

        Returns
        -------
        (n, n_classes)
        """
        raw = self._raw(Z)
        logits = raw if n_classes > 2 else np.concatenate([np.zeros_like(raw), raw], axis=2)
        logits = logits - logits.max(axis=2, keepdims=True)
        log_p = logits - np.log(np.exp(logits).sum(axis=2, keepdims=True))
        own = log_p[np.arange(len(Z)), np.maximum(folds, 0)]
        return np.asarray(np.where((folds < 0)[:, None], log_p.mean(axis=1), own), np.float64)

    def _raw(self, Z: Float32) -> Float64:
        """Return (n, n_folds, k) sums of the leaves that each row (n, d) falls into."""
        columns = np.ascontiguousarray(Z.T)
        sums = np.empty((*self.baseline.shape, len(Z)))
        for fold, k in np.ndindex(*self.baseline.shape):
            # (N_INNER, m, n): whole rows of comparisons at a time are several times faster than look-ups.
            bound = _floor(self.threshold[fold, k].T)
            leaf = _leaf(columns[self.feature[fold, k].T] > bound[:, :, None])
            value = self.value[fold, k].reshape(-1)
            first = np.arange(len(leaf))[:, None] * N_LEAVES
            sums[fold, k] = value[first + leaf].sum(axis=0) + self.baseline[fold, k]
        return np.ascontiguousarray(sums.transpose(2, 0, 1))


def _floor(thresholds: Float64) -> Float32:
    """Return the largest float32 up to each threshold: the same float32 values are larger than it."""
    found = thresholds.astype(np.float32)
    return np.where(found > thresholds, np.nextafter(found, np.float32(-np.inf)), found)


def _leaf(right: Mask) -> Int64:
    """Return the leaf (m, n) that rows fall into, from (N_INNER, m, n) whether they go right at a node."""
    bits = right.view(np.uint8)
    leaf = np.zeros(right.shape[1:], np.uint8)
    path: list[npt.NDArray[np.uint8]] = []
    for level in range(DEPTH):
        nodes = bits[2**level - 1 : 2 ** (level + 1) - 1]
        for turn in path:
            low, high = np.split(nodes, 2)
            nodes = low ^ (turn & (low ^ high))
        path.append(nodes[0])
        leaf = 2 * leaf + nodes[0]
    return leaf.astype(np.int64)


def tree_fits(Z: Float32, y: Int64, folds: Int64, n_classes: int) -> list[FoldFit]:
    """Return one function for each fold that fits the trees without it; none beyond ``MAX_CLASSES`` classes.

    Parameters
    ----------
    Z : (n, d) standardised features, in random order: where there are too many rows, the first ones count.
    y, folds : (n,) class index; fold in 0 .. n_folds - 1.
    """
    if n_classes > MAX_CLASSES:
        return []
    k = 1 if n_classes == 2 else n_classes
    rounds = max(MIN_ROUNDS, MAX_TREES // k)
    max_rows = max(MAX_VALUES // (Z.shape[1] * k), 1000)

    def fit_fold(fold: int) -> _Arrays:
        rows = np.flatnonzero(folds != fold)[:max_rows]
        return _fit_fold(Z[rows], y[rows], k, rounds)

    return [partial(fit_fold, fold) for fold in range(int(folds.max()) + 1)]


def join_trees(fitted: Sequence[tuple[Any, ...]]) -> CrossFittedTrees | None:
    """Return the trees of all folds; None where there are none."""
    return CrossFittedTrees(*(np.stack(part) for part in zip(*fitted, strict=True))) if fitted else None


class _Arrays(NamedTuple):
    """The arrays of ``CrossFittedTrees`` for one fold."""

    feature: Int64
    threshold: Float64
    value: Float64
    baseline: Float64


def _fit_fold(Z: Float32, y: Int64, k: int, rounds: int) -> _Arrays:
    """Fit the trees of one fold on rows (n, d) outside it, with ``k`` logits."""
    found = _Arrays(
        np.zeros((k, rounds, N_INNER), np.int64),
        np.full((k, rounds, N_INNER), np.inf),
        np.zeros((k, rounds, N_LEAVES)),
        np.full(k, ABSENT),
    )
    present = np.unique(y)
    if len(present) == 1:
        if k == 1:
            found.baseline[:] = -ABSENT * (2 * present[0] - 1)
        else:
            found.baseline[present] = 0.0
        return found
    model = HistGradientBoostingClassifier(
        max_iter=rounds, max_depth=DEPTH, max_leaf_nodes=None, early_stopping=False, random_state=0
    ).fit(Z, y)
    columns = np.zeros(1, np.int64)
    if k > 1:
        found.baseline[present] = 0.0
        columns = present if len(present) > 2 else present[1:]
    found.baseline[columns] = np.ravel(model._baseline_prediction)
    for i, predictors in enumerate(model._predictors):
        for column, tree in zip(columns, predictors, strict=True):
            _fill(tree.nodes, found.feature[column, i], found.threshold[column, i], found.value[column, i])
    return found


def _fill(nodes: Any, feature: Int64, threshold: Float64, value: Float64) -> None:
    """Write a tree of scikit-learn into the arrays of a complete binary tree."""
    pending = [(0, 0)]
    while pending:
        source, place = pending.pop()
        node = nodes[source]
        if place >= N_INNER:
            value[place - N_INNER] = node["value"]
        elif node["is_leaf"]:
            # Both children repeat the leaf.
            pending += [(source, 2 * place + 1), (source, 2 * place + 2)]
        else:
            feature[place], threshold[place] = node["feature_idx"], node["num_threshold"]
            pending += [(int(node["left"]), 2 * place + 1), (int(node["right"]), 2 * place + 2)]
