"""Standardised features and cross-fitted linear classifiers, kept as plain arrays."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
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
MANY_CLASSES = 20
"""Classes above which NumPy minimises the loss, block by block: the exponentials, of which there are rows x
classes in every step, take scikit-learn three to four times as long."""
LOSS_ROWS = 512
"""Rows of a block, whose probabilities then stay in the processor's cache."""
MAX_LOGITS = 20_000_000
"""Logits that are held at a time: 160 MB. Up to 20 classes, no sample of 50,000 rows has more."""
TOLERANCE = 1e-3
"""Largest entry of the gradient of the mean loss at which a fit ends."""
MAX_ITERATIONS = 200


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
        n_stages, n_folds, n_classes, _ = self.coef.shape
        found = np.empty((n_stages, len(Z), n_classes))
        step = max(MAX_LOGITS // (n_stages * n_folds * n_classes), 1)
        for start in range(0, len(Z), step):
            rows = slice(start, start + step)
            found[:, rows] = self._log_proba(Z[rows], folds[rows]).transpose(1, 0, 2)
        return found

    def _log_proba(self, Z: Float32, folds: Int64) -> Float64:
        """Return log probabilities as (n, n_stages, n_classes)."""
        n_stages, n_folds, n_classes, d = self.coef.shape
        logits = Z.astype(np.float64) @ self.coef.reshape(-1, d).T + self.intercept.reshape(-1)
        logits = logits.reshape(len(Z), n_stages, n_folds, n_classes)
        found = log_softmax(logits[np.arange(len(Z)), :, np.maximum(folds, 0)])
        if (folds < 0).any():
            found[folds < 0] = log_softmax(logits[folds < 0]).mean(axis=2)
        return found


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
    if len(present) > MANY_CLASSES:
        coef[present], intercept[present] = _fit_many_classes(Z, np.searchsorted(present, y), weights)
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
        model = LogisticRegression(max_iter=MAX_ITERATIONS, tol=TOLERANCE)
        return model.fit(X, y, sample_weight=weights)


def _fit_many_classes(Z: Float32, y: Int64, weights: Float64 | None) -> tuple[Float64, Float64]:
    """Return coefficients (n_classes, d) and intercepts (n_classes,) of what :func:`fit_logistic` minimises.

    Every class has a row. Probabilities are computed in float32.
    """
    n, d = Z.shape
    n_classes = int(y.max()) + 1
    rows = np.hstack([Z, np.ones((n, 1), np.float32)])
    total = float(n) if weights is None else float(weights.sum())
    share = np.asarray(np.full(n, 1.0 / total) if weights is None else weights / total, np.float32)
    penalty = np.append(np.full(d, 1.0 / total), 0.0)

    def loss(flat: Float64) -> tuple[float, Float64]:
        W = flat.reshape(n_classes, d + 1)
        weight = W.T.astype(np.float32)
        value, gradient = 0.5 * float((penalty * W**2).sum()), penalty * W
        for start in range(0, n, LOSS_ROWS):
            block = slice(start, start + LOSS_ROWS)
            more, slope = _block_loss(weight, rows[block], y[block], share[block])
            value += more
            gradient += slope
        return value, gradient.ravel()

    options = {"maxiter": MAX_ITERATIONS, "gtol": TOLERANCE, "ftol": 64 * np.finfo(float).eps, "maxls": 50}
    start = np.zeros(n_classes * (d + 1))
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=options).x.reshape(n_classes, d + 1)
    return found[:, :-1], found[:, -1]


def _block_loss(W: Float32, rows: Float32, y: Int64, share: Float32) -> tuple[float, Float32]:
    """Return the loss of b rows and its gradient (n_classes, d + 1).

    Parameters
    ----------
    W : (d + 1, n_classes) coefficients.
    rows, y, share : (b, d + 1) features with a last one of 1, (b,) class index, (b,) weights.
    """
    own = np.arange(len(y))
    p = rows @ W
    p -= p.max(axis=1, keepdims=True)
    logit = p[own, y]
    np.exp(p, out=p)
    total = p.sum(axis=1)
    value = float(share.astype(np.float64) @ (np.log(total) - logit))
    p *= (share / total)[:, None]
    p[own, y] -= share
    return value, np.asarray(p.T @ rows, np.float32)


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
