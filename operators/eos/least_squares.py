"""The squared loss of a linear regression, fitted from sums."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64
from operators.eos.kernel import Target, moments

RANK = 1e-12


@dataclass(frozen=True)
class LeastSquares:
    """Loss (1/M) |y - B' x - b|^2 for targets of M numbers, in their units squared.

    ``l2``, default 0, adds l2 |B|^2 to the objective, B being of features divided by their standard
    deviations in the starting sample; the intercept b is free.
    """

    l2: float = 0.0
    target: str = "number"

    def start(self, X: npt.NDArray[np.floating], y: Target, prior: Float64, seed: int) -> Linear:
        """A frame to take the first sums in: the features' means and deviations in a sample X (m, D)."""
        if y is None:
            raise ValueError("The loss 'least_squares' needs targets: pass y.")
        mean, spread = moments(X, prior)
        n_targets = 1 if y.ndim == 1 else y.shape[1]
        coefficients = np.zeros((X.shape[1] + 1, n_targets))
        return Linear(mean, 1 / spread, coefficients, self.l2)


@dataclass(frozen=True)
class Linear:
    """Coefficients (D + 1, M) of centred and scaled features, the intercept last."""

    centre: Float64
    scale: Float64
    coefficients: Float64
    l2: float

    @property
    def penalty(self) -> float:
        """l2 |B|^2, the regulariser of the coefficients without the intercepts."""
        return self.l2 * float((self.coefficients[:-1] ** 2).sum())

    @property
    def rows_needed(self) -> int:
        """One for each coefficient."""
        return len(self.coefficients)

    def predict(self, X: npt.NDArray[np.floating]) -> Float64:
        """Return the predicted targets (n, M)."""
        found: Float64 = self._design(X) @ self.coefficients
        return found

    def view(self, X: npt.NDArray[np.floating], y: Target) -> LinearView:
        """Rows with their residuals."""
        if y is None:
            raise ValueError("The loss 'least_squares' needs targets: pass y.")
        design = self._design(X)
        return LinearView(design, y.reshape(len(X), -1) - design @ self.coefficients)

    def updated(self, sums: Float64, mass: float) -> Linear:
        """The exact weighted fit: normal equations for what the residuals leave, by singular values."""
        width, n_targets = self.coefficients.shape
        gram = sums[: width * width].reshape(width, width) / mass
        right = sums[width * width :].reshape(width, n_targets) / mass
        ridge = np.full(width, self.l2 * n_targets)
        ridge[-1] = 0
        gram[np.diag_indices(width)] += ridge
        step = np.linalg.lstsq(gram, right - ridge[:, None] * self.coefficients, rcond=RANK)[0]
        return replace(self, coefficients=self.coefficients + step)

    def _design(self, X: npt.NDArray[np.floating]) -> Float64:
        found = np.ones((len(X), len(self.coefficients)))
        found[:, :-1] = (X - self.centre) * self.scale
        return found


class LinearView:
    """Design (n, D + 1) and residuals (n, M)."""

    def __init__(self, design: Float64, residuals: Float64) -> None:
        self._design, self._residuals = design, residuals
        self.losses: Float64 = (residuals**2).mean(axis=1)

    def sums(self, weight: Float64) -> Float64:
        """Weighted X'X and X'r, one after the other."""
        weighted = self._design * weight[:, None]
        return np.concatenate([(weighted.T @ self._design).ravel(), (weighted.T @ self._residuals).ravel()])
