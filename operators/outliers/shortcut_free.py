"""Features without what tells known shortcuts: a linear map that takes a shortcut out of every feature.

A row that breaks a shortcut looks like a row with a flipped label to every model that leans on it, and no
weighting of rows keeps a model of many features from leaning. What a linear model can read of the shortcut
within the classes is therefore taken out of the features themselves, at the least change of the features
(Belrose et al., "LEACE: perfect linear concept erasure in closed form", 2023; there the covariance is that
of all rows, which would take out the label as well, with which a shortcut goes).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from operators.arrays import Float32, Float64, Int64, Mask
from operators.cues.serialise import load_state
from operators.cues.sides.joint_balance import first_broken
from operators.outliers.linear import Scaler

RIDGE = 1e-3
"""Part of the mean variance that is added to the covariance."""
MIN_SHARE = 1e-6
"""Least singular value, relative to the largest, of a direction that is taken out."""


@dataclass(frozen=True)
class Eraser:
    """A linear map of features that takes shortcuts out of them."""

    mean: Float32
    """(d,) means of the features."""
    inverse: Float32
    """(d,) one over their standard deviations; 0 for a constant one."""
    read: Float64
    """(d, q) what is read of standardised features; q is at most the number of shortcuts."""
    write: Float64
    """(q, d) what is taken from them for each unit that was read."""

    def __call__(self, X: Float32) -> Float32:
        """Return the (n, d) standardised features without the shortcuts."""
        Z = Scaler(self.mean, self.inverse)(X).astype(np.float64)
        return np.asarray(Z - (Z @ self.read) @ self.write, np.float32)


def fit_eraser(X: Float32, y: Int64, scores: Float64) -> Eraser:
    """Find the map after which no feature is correlated with a shortcut within the classes.

    Parameters
    ----------
    X : (n, d) features.
    y : (n,) class index.
    scores : (n, s) linear functions of the features, one for each shortcut.
    """
    scaler = Scaler.fit(X)
    Z, U = scaler(X).astype(np.float64), scores.astype(np.float64)
    for c in np.unique(y):
        rows = y == c
        Z[rows] -= Z[rows].mean(axis=0)
        U[rows] -= U[rows].mean(axis=0)
    covariance = Z.T @ Z / len(Z)
    covariance += (RIDGE * np.trace(covariance) / len(covariance) + 1e-12) * np.eye(len(covariance))
    variances, axes = np.linalg.eigh(covariance)
    whitener, colourer = (axes * variances**-0.5) @ axes.T, (axes * variances**0.5) @ axes.T
    directions, values, _ = np.linalg.svd(whitener @ (Z.T @ U / len(Z)), full_matrices=False)
    kept = directions[:, values > MIN_SHARE * max(float(values.max(initial=0.0)), 1e-300)]
    return Eraser(scaler.mean, scaler.inverse, whitener @ kept, kept.T @ colourer)


def breaks_shortcut(folder: Path, X: Float32, y: Int64) -> Mask:
    """Return whether each row breaks a column that ``cues`` balances, named or found, shape (n,).

    Parameters
    ----------
    folder : state folder of ``cues``.
    X, y : (n, d) features and (n,) class index.
    """
    state = load_state(folder)
    balanced = state.balanced if state.blend > 0 else ()
    return np.asarray(first_broken(balanced, state.scaler.apply(X), y) > 0)
