"""Kernels composed over arrays in memory, for tests, the papers' tables and benchmarks.

Rowsieve itself composes them over shards; these functions call the same kernels.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from numpy.typing import ArrayLike
from torch import nn

from engine.runs.compare.scores import Cell
from operators.arrays import NOISE, Float64, Integers
from operators.base import Context
from operators.distances import evenly_spaced, median_gamma, square_distances
from operators.eos.kernel import merged, statistics_of_losses
from operators.grasp.selection import Pick, Rule, grid_facts, pick_by_facts
from operators.groups.operator import method_class
from operators.groups.state import read_group_record
from operators.hashing import folds_of
from operators.models import ModelSpec
from operators.probe.job import Predictor
from operators.probe.kernel import train
from operators.probe.rows import Rows
from operators.probe.scoring import predict
from operators.probe.settings import Settings
from operators.probe.trained import Trained
from operators.weights.cross_fit import PURPOSE, rows_without, spec_of, trust_of
from operators.weights.kernel import class_priors, group_keys, largest_groups
from operators.weights.params import CrossFit

BLOCK = 1024
"""Rows whose distances from all others are held at a time."""


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
    predictors: list[Predictor] = []
    for fold in range(params.folds):
        rows = [rows_without(fold, X, y, keys, folds, sizes)]
        trained = train(spec, rows, settings=Settings.of(params), seed=random_state + fold)
        predictors.append(partial(predict, trained.model))
    priors = class_priors(by_class, spec.n_classes).tolist()
    return trust_of(predictors, X, y, keys, folds, largest, priors)


def counts_of_rows(y: Any, group: Any, true_group: Any, true_outlier: Any | None) -> Counter[Cell]:
    """Counts of rows by class, group and truth, all (n,); rows in no group are marked as outliers."""
    known = [None] * len(y) if true_outlier is None else true_outlier.tolist()
    names = [str(name) for name in true_group.tolist()]
    return Counter(map(Cell, y.tolist(), group.tolist(), (group == NOISE).tolist(), names, known))


def train_on_arrays(
    X: ArrayLike,
    y: ArrayLike,
    *,
    spec: ModelSpec | None = None,
    settings: Settings | None = None,
    sample_weight: ArrayLike | None = None,
    random_state: int = 0,
) -> Trained[nn.Module]:
    """Call :func:`train` on arrays in memory: X (n, d), y (n,) class indices, sample_weight (n,).

    ``spec`` defaults to a standardised ``logistic`` of ``max(y) + 1`` classes.
    """
    features = np.ascontiguousarray(X, dtype=np.float32)
    labels = np.asarray(y, dtype=np.int64)
    weight = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    spec = spec or ModelSpec(n_features=features.shape[1], n_classes=int(labels.max()) + 1)
    return train(spec, [Rows(features, labels, weight)], settings=settings, seed=random_state)


def mmd(
    X: npt.ArrayLike,
    mask: npt.ArrayLike,
    kernel: Literal["linear", "rbf"] = "rbf",
    gamma: float | None = None,
) -> float:
    """Return the MMD between the rows inside and outside a mask.

    Parameters
    ----------
    X : (n, d) array
        Finite numbers, used as they are: scale features first.
    mask : (n,) array of bool
        Neither all False nor all True.
    kernel : {"rbf", "linear"}, default "rbf"
        "linear", <x, x'>, takes O(n d) time; "rbf", exp(-gamma |x - x'|^2), O(n^2 d) time and O(n) memory.
    gamma : float, optional
        Parameter of "rbf". By default 1 / median |x - x'|^2 of up to 1,000 evenly spaced rows.

    Returns
    -------
    float
        |mean phi(X[mask]) - mean phi(X[~mask])|, not its square.

    Raises
    ------
    ValueError
        One part is empty, or X and mask differ in length.

    Notes
    -----
    The biased estimate of Gretton et al., A Kernel Two-Sample Test, JMLR 2012, equation 5. For two parts of a
    and b rows drawn at random from the same rows it is not 0 but about sqrt(scatter / n (1 / a + 1 / b)),
    where scatter is the sum of |phi - mean|^2.
    """
    rows, inside = np.asarray(X, np.float64), np.asarray(mask, bool)
    if len(rows) != len(inside) or inside.all() or not inside.any():
        raise ValueError(
            f"mmd: the mask has {len(inside)} entries, {int(inside.sum())} of them True, for "
            f"{len(rows)} rows; it must have one entry per row and leave rows on both sides."
        )
    # The coefficients of mean phi(inside) - mean phi(outside).
    signs = np.where(inside, 1 / inside.sum(), -1 / (~inside).sum())
    if kernel == "linear":
        return float(np.linalg.norm(signs @ rows))
    gamma = median_gamma(square_distances(evenly_spaced(rows))) if gamma is None else gamma
    square = 0.0
    for start in range(0, len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        distances = square_distances(rows[part], rows)
        np.exp(-gamma * distances, out=distances)
        square += float(signs[part] @ (distances @ signs))
    return float(np.sqrt(max(square, 0.0)))


def place_rows(state: Path, table: pa.Table) -> pa.Table:
    """Place rows into the groups of a fitted state, as an incremental run does."""
    record = read_group_record(state)
    kind = method_class(str(record["params"]["method"]))
    operator = kind(kind.Params.recorded(record["params"]))
    if "column" in record:
        operator._column = record["column"]  # as `in_chain` sets it
    return operator.open_for_new_rows(Context(SimpleNamespace(shards=()), state))(table)
