"""Multinomial logistic regression with row weights, by L-BFGS on the mean weighted loss.

The classifier that ``models``, ``search`` and ``words`` fit. It is deterministic: it starts at zero, or at
given coefficients for a cheap refit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from operators.arrays import Float64, Floats, Integers
from operators.class_shares import class_factors

Loss = Callable[[Float64], tuple[float, Float64]]
SQRT_2 = 2.0**0.5
MAX_STANDARDISED = 1e4
"""Largest standardised value: differences of huge features are beyond the range of float32."""


@dataclass(frozen=True)
class Scaler:
    """Column means and scales; a constant column has scale 1 and becomes 0, but for rounding.

    Attributes
    ----------
    mean, scale
        Float32 vectors, shape (d,).
    directions
        Linear functions of the first d - k features, which give the last k where rows come without these
        (``words.mentions``), float64 of shape (d - k + 1, k) with the offsets in the last row.

    """

    mean: Floats
    scale: Floats
    directions: Floats | None = None

    @classmethod
    def from_rows(cls, X: Floats) -> Scaler:
        """Measure the rows ``X``, shape (n, d)."""
        mean = X.mean(axis=0, dtype=np.float64)
        # Column by column: numpy's std of a float32 matrix subtracts in float32, which can overflow.
        scale = np.array([X[:, j].astype(np.float64).std() for j in range(X.shape[1])]).astype(np.float32)
        # Of equal values the sums leave a rounding error, which is no spread.
        scale[(X.max(axis=0) == X.min(axis=0)) | (scale == 0)] = 1.0
        return cls(mean.astype(np.float32), scale)

    def extend(self, X: Floats) -> Floats:
        """Return rows (n, d) with the features that ``directions`` give, where they come without these."""
        if self.directions is None or X.shape[1] == len(self.mean):
            return X
        return with_directions(X, self.directions)

    def apply(self, X: Floats) -> Floats:
        """Return the standardised rows as float32, shape (n, d), clipped to [-10,000, 10,000]."""
        X = self.extend(X)
        with np.errstate(over="ignore"):
            Z = (X.astype(np.float32) - self.mean) / self.scale
        return np.asarray(np.clip(Z, -MAX_STANDARDISED, MAX_STANDARDISED, out=Z), np.float32)


def with_directions(X: Floats, directions: Floats) -> Floats:
    """Return rows (n, d) with k linear functions of them, whose coefficients have the shape (d + 1, k)."""
    made = X.astype(np.float64) @ directions[:-1] + directions[-1]
    return np.hstack([X, made.astype(np.float32)])


def class_balance(y: Integers, n_classes: int) -> Floats:
    """Return row weights, shape (n,), mean 1, under which every class that occurs has the same total.

    Classes with few rows have less (``operators.class_shares``).
    """
    return np.asarray(class_factors(np.bincount(y, minlength=n_classes))[y], np.float64)


def predict(coef: Floats, Z: Floats) -> Floats:
    """Return class probabilities, float64 of shape (n, C), for standardised rows ``Z`` of shape (n, d).

    ``coef`` has shape (d + 1, C); its last row is the intercept.
    """
    return _softmax((Z @ coef[:-1].astype(np.float32)).T.astype(np.float64, order="C"), coef[-1]).T


def predict_exactly(coef: Floats, Z: Floats) -> Floats:
    """Return what ``predict`` does, computed in float64: batches of other sizes change no float32 of it."""
    return _softmax(np.ascontiguousarray((Z.astype(np.float64) @ coef[:-1]).T), coef[-1]).T


def _softmax(logits: Floats, intercept: Floats) -> Floats:
    """Return probabilities (C, n) of logits (C, n) without intercepts, in their place.

    Classes come first, as numpy is slow where it reduces a short last axis.
    """
    logits += intercept[:, None]
    logits -= logits.max(axis=0)
    np.exp(logits, out=logits)
    logits /= logits.sum(axis=0)
    return logits


def fit_softmax(
    Z: Floats,
    y: Integers,
    w: Floats,
    n_classes: int,
    *,
    l2: float = 1e-3,
    start: Floats | None = None,
    max_iter: int = 100,
) -> Floats:
    """Fit a softmax regression.

    Parameters
    ----------
    Z
        Standardised rows, float32, shape (n, d).
    y
        Labels 0 .. C - 1, shape (n,).
    w
        Non-negative row weights, shape (n,); only their ratios matter.
    n_classes
        C.
    l2
        Ridge penalty on all coefficients but the intercepts.
    start
        Coefficients to start from; default zeros.
    max_iter
        Limit on L-BFGS iterations.

    Returns
    -------
    Coefficients, float64, shape (d + 1, C); the last row is the intercept.

    Notes
    -----
    Minimises sum_i w_i * -log p(y_i | z_i) / sum_i w_i + l2 / 2 * ||coef[:-1]||^2.

    """
    share = np.asarray(w, np.float64) / max(float(np.sum(w)), 1e-300)
    x0 = np.zeros((Z.shape[1] + 1, n_classes)) if start is None else np.asarray(start, np.float64)
    if n_classes == 2:
        gap = _minimise(_two_class_loss(Z, y, share, l2), (x0[:, 1] - x0[:, 0]) / SQRT_2, SQRT_2, max_iter)
        return np.stack([-gap / SQRT_2, gap / SQRT_2], axis=1)
    return _minimise(_softmax_loss(Z, y, share, l2, n_classes), x0, 1.0, max_iter).reshape(x0.shape)


def _minimise(loss: Loss, x0: Floats, scale: float, max_iter: int) -> Floats:
    """Return the minimum of a function that gives value and gradient; ``scale`` is that of its gradient."""
    # Not at the top: `validate` and `plan` load this module, and the import takes a third of a second.
    from scipy.optimize import minimize

    options = {"maxiter": max_iter, "gtol": 1e-5 * scale, "ftol": 1e-9}
    return np.asarray(minimize(loss, x0.ravel(), jac=True, method="L-BFGS-B", options=options).x)


def _softmax_loss(Z: Floats, y: Integers, share: Floats, l2: float, n_classes: int) -> Loss:
    """Return the mean loss and its gradient as a function of the flat coefficients."""
    d, rows = Z.shape[1], np.arange(len(y))

    def loss(flat: Float64) -> tuple[float, Float64]:
        coef = flat.reshape(d + 1, n_classes)
        p = predict(coef, Z).T
        value = -float(share @ np.log(np.maximum(p[y, rows], 1e-300)))
        p[y, rows] -= 1.0
        p *= share
        gradient = np.empty_like(coef)
        gradient[:-1] = Z.T @ p.T.astype(np.float32, order="C") + l2 * coef[:-1]
        gradient[-1] = p.sum(axis=1)
        return value + 0.5 * l2 * float((coef[:-1] ** 2).sum()), gradient.ravel()

    return loss


def _two_class_loss(Z: Floats, y: Integers, share: Floats, l2: float) -> Loss:
    """Return the loss of two classes and its gradient by (coef[:, 1] - coef[:, 0]) / sqrt(2), shape (d + 1,).

    Coefficients of the least norm are opposite, so that one vector of the same length stands for both, and
    takes the same path. Only the difference of the logits is formed.
    """
    sign = np.where(y == 1, SQRT_2, -SQRT_2)
    signed_share = sign * share

    def loss(gap: Float64) -> tuple[float, Float64]:
        margin = (Z @ gap[:-1].astype(np.float32)).astype(np.float64)
        margin += gap[-1]
        margin *= sign
        smaller = np.exp(-np.abs(margin))
        larger = 1.0 + smaller
        value = float(share @ np.log(larger)) - float(share @ np.minimum(margin, 0.0))
        wrong = np.where(margin > 0, smaller, 1.0)
        wrong /= larger
        wrong *= signed_share
        gradient = np.empty_like(gap)
        gradient[:-1] = l2 * gap[:-1] - wrong.astype(np.float32) @ Z
        gradient[-1] = -wrong.sum()
        return value + 0.5 * l2 * float(gap[:-1] @ gap[:-1]), gradient

    return loss
