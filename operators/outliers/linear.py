"""Standardised features and cross-fitted linear classifiers, kept as plain arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.extmath import randomized_svd

from operators.arrays import Float32, Float64, Int64
from operators.ingest.kernel import FLOAT32_MAX
from operators.models.linear import log_softmax
from operators.spread import usable_scale

FoldFit = Callable[[], tuple[Any, ...]]
"""Fits the models of one fold, and returns their arrays."""
_FILTERS = Lock()
"""``catch_warnings`` changes the filters of the whole process: one thread at a time."""
MAX_EXACT = 1024
"""Features up to which principal directions are computed exactly."""
ABSENT = -30.0
"""Logit of a class without a training row: its probability is 0 for all purposes."""


@dataclass(frozen=True)
class Scaler:
    """Standardises features; constant columns become 0 everywhere."""

    mean: Float32
    """(d,) means."""
    inverse: Float32
    """(d,) one over the standard deviation; 0 for a constant column, as :mod:`operators.spread` has it."""

    @classmethod
    def fit(cls, X: Float32, least: float = 0.0) -> Scaler:
        """Estimate means and deviations of (n, d) features.

        A column of equal values is constant, whatever its unit, and one of a deviation up to ``least``.
        """
        mean = X.mean(axis=0, dtype=np.float64)
        deviation = X.std(axis=0, dtype=np.float64)
        scale = usable_scale(deviation, X.min(axis=0), X.max(axis=0), constant=np.inf)
        scale[deviation <= least] = np.inf
        inverse = np.minimum(1.0 / scale, FLOAT32_MAX)  # float32 holds no inverse of a subnormal deviation
        return cls(mean.astype(np.float32), inverse.astype(np.float32))

    def __call__(self, X: Float32) -> Float32:
        """Return the (n, d) standardised features, bounded to what float32 holds."""
        found = (X.astype(np.float64) - self.mean) * self.inverse  # in float32 the difference can overflow
        return np.clip(found, -FLOAT32_MAX, FLOAT32_MAX).astype(np.float32)


@dataclass(frozen=True)
class CrossFitted:
    """Multinomial logistic regressions of several stages, one for each fold, fitted without that fold."""

    coef: Float64
    """(n_stages, n_folds, n_classes, d) coefficients."""
    intercept: Float64
    """(n_stages, n_folds, n_classes) intercepts; ``ABSENT`` for a class that had no training row."""

    def log_proba(self, Z: Float32, folds: Int64) -> Float64:
        """Return log probabilities of each row by the models that did not train on it.

        Parameters
        ----------
        Z : (n, d) standardised features.
        folds : (n,) fold of each row; -1 for rows that no model trained on, which get the mean of all folds.

        Returns
        -------
        (n_stages, n, n_classes)
        """
        n_stages, n_folds, n_classes, d = self.coef.shape
        logits = Z.astype(np.float64) @ self.coef.reshape(-1, d).T + self.intercept.reshape(-1)
        log_p = log_softmax(logits.reshape(len(Z), n_stages, n_folds, n_classes))
        own = log_p[np.arange(len(Z)), :, np.maximum(folds, 0)]
        found = np.where((folds < 0)[:, None, None], log_p.mean(axis=2), own)
        return np.asarray(found.transpose(1, 0, 2), np.float64)


def log_proba(Z: Float32, coef: Float64, intercept: Float64) -> Float64:
    """Return (n, n_classes) log probabilities of rows (n, d) by one model."""
    return log_softmax(Z.astype(np.float64) @ coef.T + intercept)


def fit_linear(
    Z: Float32, y: Int64, n_classes: int, weights: Float64 | None = None
) -> tuple[Float64, Float64]:
    """Fit a multinomial logistic regression with scikit-learn's L2 penalty of C = 1.

    Returns
    -------
    coef : (n_classes, d)
    intercept : (n_classes,)
        With a single class among the rows, the model is the constant prediction of that class.
    """
    present = np.unique(y)
    coef, intercept = np.zeros((n_classes, Z.shape[1])), np.full(n_classes, ABSENT)
    if len(present) == 1:
        intercept[present] = 0.0
        return coef, intercept
    model = fit_logistic(Z, y, weights)
    if len(present) == 2:
        half, bias = model.coef_[0] / 2, model.intercept_[0] / 2
        coef[present] = np.stack([-half, half])
        intercept[present] = [-bias, bias]
    else:
        coef[present], intercept[present] = model.coef_, model.intercept_
    return coef, intercept


def fit_logistic(X: npt.NDArray[np.floating], y: Int64, weights: Float64 | None = None) -> LogisticRegression:
    """Fit a logistic regression, silently where it stops early: calibration weighs it as it is."""
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(max_iter=200, tol=1e-3).fit(X, y, sample_weight=weights)


def principal_directions(V: npt.NDArray[np.floating], rank: int) -> tuple[Float64, Float64]:
    """Compute the directions of largest variance, by randomised iteration beyond ``MAX_EXACT`` features.

    Parameters
    ----------
    V : (n, d) rows.
    rank : number of directions; d if that is less.

    Returns
    -------
    variances : (r,) descending, with divisor n - 1.
    directions : (d, r) orthonormal.
    """
    centred = V - V.mean(axis=0, dtype=np.float64)
    if centred.shape[1] > MAX_EXACT:
        _, singular, rows = randomized_svd(centred, min(rank, len(V)), random_state=0)
        return singular**2 / (len(V) - 1), np.asarray(rows.T, np.float64)
    values, vectors = np.linalg.eigh(centred.T @ centred / (len(V) - 1))
    return values[::-1][:rank], vectors[:, ::-1][:, :rank]
