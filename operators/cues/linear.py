"""Multinomial logistic regression with row weights, by L-BFGS on the mean weighted loss.

The probe of every other module. It is deterministic, has no random start, and accepts a start for cheap
refits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators.arrays import Floats, Integers
from operators.class_shares import class_factors

MAX_STANDARDISED = 1e4
"""Largest standardised value: differences of huge features are beyond the range of float32."""


@dataclass(frozen=True)
class Scaler:
    """Column means and scales; a constant column has scale 1 and becomes 0.

    Attributes
    ----------
    mean, scale
        Float32 vectors, shape (d,).
    directions
        Linear functions of the first d - k features, which give the last k where rows come without these
        (``mentions``), float64 of shape (d - k + 1, k) with the offsets in the last row.

    """

    mean: Floats
    scale: Floats
    directions: Floats | None = None

    @classmethod
    def from_rows(cls, X: Floats) -> Scaler:
        """Measure the rows ``X``, shape (n, d)."""
        mean = X.mean(axis=0, dtype=np.float64)
        # Column by column: numpy's std of a float32 matrix subtracts in float32, which can overflow.
        scale = np.array([X[:, j].astype(np.float64).std() for j in range(X.shape[1])])
        scale[~(scale > 1e-6 * (np.abs(mean) + 1e-12))] = 1.0
        return cls(mean.astype(np.float32), scale.astype(np.float32))

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
    return _softmax((Z @ coef[:-1].astype(np.float32)).astype(np.float64) + coef[-1])


def predict_exactly(coef: Floats, Z: Floats) -> Floats:
    """Return what ``predict`` does, computed in float64: batches of other sizes change no float32 of it."""
    return _softmax(Z.astype(np.float64) @ coef[:-1] + coef[-1])


def _softmax(logits: Floats) -> Floats:
    """Return the probabilities (n, C) of logits (n, C), which are overwritten."""
    logits -= logits.max(axis=1, keepdims=True)
    p = np.exp(logits)
    return np.asarray(p / p.sum(axis=1, keepdims=True))


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
    n, d = Z.shape
    share = np.asarray(w, np.float64) / max(float(np.sum(w)), 1e-300)
    rows = np.arange(n)

    def loss(flat: npt.NDArray[np.float64]) -> tuple[float, npt.NDArray[np.float64]]:
        coef = flat.reshape(d + 1, n_classes)
        p = predict(coef, Z)
        value = -float(share @ np.log(np.maximum(p[rows, y], 1e-300)))
        p[rows, y] -= 1.0
        p *= share[:, None]
        gradient = np.empty_like(coef)
        gradient[:-1] = Z.T @ p.astype(np.float32) + l2 * coef[:-1]
        gradient[-1] = p.sum(axis=0)
        return value + 0.5 * l2 * float((coef[:-1] ** 2).sum()), gradient.ravel()

    x0 = np.zeros((d + 1) * n_classes) if start is None else np.asarray(start, np.float64).ravel()
    # Not at the top: `validate` and `plan` load this module, and the import takes a third of a second.
    from scipy.optimize import minimize

    found = minimize(
        loss, x0, jac=True, method="L-BFGS-B", options={"maxiter": max_iter, "gtol": 1e-5, "ftol": 1e-9}
    )
    return np.asarray(found.x).reshape(d + 1, n_classes)
