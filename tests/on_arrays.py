"""Kernels composed over arrays in memory, for tests, the papers' tables and benchmarks.

Rowsieve itself composes them over shards; these functions call the same kernels.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.runs.compare.scores import Cell
from operators.arrays import NOISE, Float64, Integers
from operators.eos.kernel import merged, statistics_of_losses
from operators.grasp.selection import Pick, Rule, grid_facts, pick_by_facts
from operators.hashing import folds_of
from operators.probe.kernel import train
from operators.probe.settings import Settings
from operators.weights.cross_fit import PURPOSE, rows_without, spec_of, trust_of
from operators.weights.kernel import class_priors, group_keys, largest_groups
from operators.weights.params import CrossFit


def closed_form_weights(losses: Float64, alpha: float, prior: Float64 | None = None) -> Float64:
    """Return the weights w_t (n,) of EOS, equation 3, sum 1; ``prior`` (n,) are s_t, default 1."""
    s = np.ones(len(losses)) if prior is None else prior
    statistics = merged([statistics_of_losses(losses, s, alpha)])
    return s * np.exp(statistics.log_weights(losses)) / statistics.prior


def pick_cell(labels: npt.NDArray[Any], silhouettes: Float64, rule: Rule = "coverage") -> Pick:
    """Pick a cell of a grid by its labels (n_eps, n_min_samples, n) and mean silhouettes."""
    return pick_by_facts(grid_facts(labels, silhouettes, np.zeros_like(silhouettes)), rule)


def noise_shares(labels: npt.NDArray[Any]) -> Float64:
    """Return the share (n_eps, n_min_samples) of the rows that are in no group."""
    return np.asarray((labels == NOISE).mean(axis=-1))


def second_group_shares(labels: npt.NDArray[Any]) -> Float64:
    """Return the share (n_eps, n_min_samples) of the rows in the second largest group; 0 if there is none."""
    facts = grid_facts(labels, np.zeros(labels.shape[:-1]), np.zeros(labels.shape[:-1]))
    return np.asarray(facts.second / facts.n_rows)


def trust_on_arrays(
    X: npt.NDArray[np.float32],
    y: Integers,
    groups: Integers,
    params: CrossFit | None = None,
    random_state: int = 0,
) -> Float64:
    """Compute the weight factor of each row under ``trust: self_confidence``, from arrays in memory.

    Parameters
    ----------
    X, y, groups : (n, d) features, (n,) class index and group, -1 in none.
    params : default ``CrossFit()``.
    random_state : of the folds (row i has id i), initial weights and minibatches.
    """
    params, keys = params or CrossFit(), group_keys(y, groups)
    pairs, counts = np.unique(np.column_stack([y, keys]), axis=0, return_counts=True)
    by_class = {(int(c), int(key)): int(n) for (c, key), n in zip(pairs, counts, strict=True)}
    largest = largest_groups(by_class)
    if len(by_class) == len(largest):
        return np.ones(len(y))
    sizes = {key: n_rows for (_, key), n_rows in by_class.items()}
    folds = folds_of(np.arange(len(y)), params.folds, random_state, PURPOSE)
    spec = spec_of(params, X.shape[1], int(y.max()) + 1)
    models = [
        train(
            spec,
            [rows_without(fold, X, y, keys, folds, sizes)],
            settings=Settings.of(params),
            seed=random_state + fold,
        ).model
        for fold in range(params.folds)
    ]
    priors = class_priors(by_class, spec.n_classes).tolist()
    return trust_of(models, X, y, keys, folds, largest, priors)


def counts_of_rows(y: Any, group: Any, true_group: Any, true_outlier: Any | None) -> Counter[Cell]:
    """Counts of rows by class, group and truth, all (n,); rows in no group are marked as outliers."""
    known = [None] * len(y) if true_outlier is None else true_outlier.tolist()
    names = [str(name) for name in true_group.tolist()]
    return Counter(map(Cell, y.tolist(), group.tolist(), (group == NOISE).tolist(), names, known))
