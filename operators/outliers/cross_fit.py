"""Four stages of cross-fitted linear models that disagree about rare rows and agree about corrupt ones.

* *plain*: an ordinary logistic regression, which confident learning ranks by (Northcutt et al. 2021).
* *biased*: trained on labels replaced by predictions of twins, each trained on the other half of the rows,
  so that it leans on whatever they lean on (the label flipping of XRM, Pezeshki et al. 2024).
* *robust*: within each class, the rows that the biased model gets right and those that it gets wrong have
  the same total weight.
* *denied*: trained without the column that separates the classes best on its own.

A row of a minority is wrong by the first two and right by one of the others; a flipped label is wrong by
all. Any of them may fail: where the plain model does not lean on a cue, the rows that the biased model gets
wrong are mostly flips, and the robust model learns little. Calibration decides how much each one counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from operators.arrays import Float32, Float64, Int64
from operators.outliers.linear import CrossFitted, FoldFit, fit_linear, log_proba

STAGES = ("plain", "biased", "robust", "denied")
MAX_RATIO = 20.0
"""Bound on the weight of a row, in multiples of its class's balanced weight."""


def stage_fits(Z: Float32, y: Int64, folds: Int64, priors: Float64) -> list[FoldFit]:
    """Return one function for each fold that fits all stages, six models, on rows outside the fold alone.

    Nothing that a fold's models learn from has seen the labels of the fold: neither the predictions that
    replace labels nor the weights. Otherwise the observed label of a row would leave a trace, however faint,
    that planted flips lack, and calibration would learn that trace.

    Parameters
    ----------
    Z : (n, d) standardised features, in random order.
    y, folds : (n,) class index; fold in 0 .. n_folds - 1.
    priors : (n_classes,) shares of the classes.
    """

    def fit_fold(fold: int) -> tuple[Float64, Float64]:
        rows = np.flatnonzero(folds != fold)
        return _fit_stages(Z[rows], y[rows], priors)

    return [partial(fit_fold, fold) for fold in range(int(folds.max()) + 1)]


def join_stages(fitted: Sequence[tuple[Any, ...]]) -> CrossFitted:
    """Return the models of all folds."""
    return CrossFitted(*(np.stack(parts, axis=1) for parts in zip(*fitted, strict=True)))


def _fit_stages(Z: Float32, y: Int64, priors: Float64) -> tuple[Float64, Float64]:
    """Return coefficients (n_stages, n_classes, d) and intercepts (n_stages, n_classes) of all stages."""
    n_classes = len(priors)
    plain = fit_linear(Z, y, n_classes)
    imitated = np.empty_like(y)
    for half in (slice(0, None, 2), slice(1, None, 2)):
        other = slice(1 - (half.start or 0), None, 2)
        twin = fit_linear(Z[other], y[other], n_classes)
        imitated[half] = balanced_prediction(log_proba(Z[half], *twin), priors)
    biased = fit_linear(Z, imitated, n_classes)
    wrong = 1 - np.exp(log_proba(Z, *biased)[np.arange(len(y)), y])
    robust = fit_linear(Z, y, n_classes, balanced_weights(y, wrong))
    kept = np.ones(Z.shape[1], np.float32)
    kept[strongest_column(Z, y)] = 0.0
    denied = fit_linear(Z * kept, y, n_classes)
    coef, intercept = (np.stack(parts) for parts in zip(plain, biased, robust, denied, strict=True))
    return coef, intercept


def balanced_prediction(log_p: Float64, priors: Float64) -> Int64:
    """Return (n,) the class whose probability most exceeds its share, as a class-balanced model predicts."""
    return np.asarray((log_p - np.log(priors)).argmax(axis=1), np.int64)


def balanced_weights(y: Int64, wrong: Float64) -> Float64:
    """Give the right and the wrong rows of each class the same total weight, up to ``MAX_RATIO``.

    Parameters
    ----------
    y : (n,) class index.
    wrong : (n,) in [0, 1], how surely the biased model gets the row wrong.

    Returns
    -------
    (n,) weights with mean 1.
    """
    weights = np.zeros(len(y))
    for c in np.unique(y):
        rows = np.flatnonzero(y == c)
        for share in (wrong[rows], 1 - wrong[rows]):
            weights[rows] += share * min(0.5 * len(rows) / max(float(share.sum()), 1e-9), MAX_RATIO)
        weights[rows] /= len(rows)
    return np.asarray(weights * (len(y) / weights.sum()), np.float64)


def strongest_column(Z: Float32, y: Int64) -> int:
    """Return the column whose class means explain the largest share of its variance."""
    between = np.zeros(Z.shape[1])
    for c in np.unique(y):
        rows = y == c
        between += rows.mean() * (Z[rows].mean(axis=0, dtype=np.float64) - Z.mean(axis=0)) ** 2
    return int(between.argmax())
