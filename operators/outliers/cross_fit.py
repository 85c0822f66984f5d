"""Four stages of cross-fitted linear models that disagree about rare rows and agree about corrupt ones.

* *plain*: an ordinary logistic regression, which confident learning ranks by (Northcutt et al. 2021).
* *biased*: trained on labels replaced by the plain model's held-out predictions, so that it leans on
  whatever the plain model leans on (the label flipping of XRM, Pezeshki et al. 2024).
* *robust*: within each class, the rows that the biased model gets right and those that it gets wrong have
  the same total weight.
* *denied*: trained without the column that separates the classes best on its own.

A row of a minority is wrong by the first two and right by one of the others; a flipped label is wrong by
all. Any of them may fail: where the plain model does not lean on a cue, the rows that the biased model gets
wrong are mostly flips, and the robust model learns little. Calibration decides how much each one counts.
"""

from __future__ import annotations

import numpy as np

from operators.outliers.linear import CrossFitted, Features, Floats, Ints, fit_without_folds

STAGES = ("plain", "biased", "robust", "denied")
MAX_RATIO = 20.0
"""Bound on the weight of a row, in multiples of its class's balanced weight."""


def fit_stages(Z: Features, y: Ints, folds: Ints, priors: Floats) -> CrossFitted:
    """Fit all stages, four models a fold.

    Parameters
    ----------
    Z : (n, d) standardised features.
    y, folds : (n,) class index; fold in 0 .. n_folds - 1.
    priors : (n_classes,) shares of the classes.
    """
    n_classes = len(priors)
    plain = fit_without_folds(Z, y, folds, n_classes)
    leaning = balanced_prediction(plain.log_proba(Z, folds)[0], priors)
    biased = fit_without_folds(Z, leaning, folds, n_classes)
    kept = np.ones(Z.shape[1], np.float32)
    kept[strongest_column(Z, y)] = 0.0
    denied = fit_without_folds(Z * kept, y, folds, n_classes)
    wrong = 1 - np.exp(biased.log_proba(Z, folds)[0][np.arange(len(y)), y])
    robust = fit_without_folds(Z, y, folds, n_classes, balanced_weights(y, wrong))
    stages = (plain, biased, robust, denied)
    return CrossFitted(
        np.concatenate([stage.coef for stage in stages]),
        np.concatenate([stage.intercept for stage in stages]),
    )


def balanced_prediction(log_p: Floats, priors: Floats) -> Ints:
    """Return (n,) the class whose probability most exceeds its share, as a class-balanced model predicts."""
    return np.asarray((log_p - np.log(priors)).argmax(axis=1), np.int64)


def balanced_weights(y: Ints, wrong: Floats) -> Floats:
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


def strongest_column(Z: Features, y: Ints) -> int:
    """Return the column whose class means explain the largest share of its variance."""
    between = np.zeros(Z.shape[1])
    for c in np.unique(y):
        rows = y == c
        between += rows.mean() * (Z[rows].mean(axis=0, dtype=np.float64) - Z.mean(axis=0)) ** 2
    return int(between.argmax())
