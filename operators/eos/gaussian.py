"""The Gaussian loss: a weighted mean and covariance, fitted from sums."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, solve_triangular

from operators.arrays import Float64
from operators.eos.kernel import Target, moments


@dataclass(frozen=True)
class Gaussian:
    """Loss (1/D) (D/2 log 2 pi + 1/2 log det V + 1/2 (x - m)' V^-1 (x - m)), in nats a feature (eq. of p. 2).

    ``regularization``, default 1e-6, keeps V from becoming singular: V gets ``regularization`` times the
    features' first variances on its diagonal, which is the exact fit under a penalty of
    tr(R V^-1) / (2 D), R being that diagonal matrix.
    """

    regularization: float = 1e-6
    target: str = "none"

    def start(self, X: npt.NDArray[np.floating], y: Target, prior: Float64, seed: int) -> GaussianModel:
        """A frame to take the first sums in: mean and deviations of a sample X (m, D)."""
        mean, spread = moments(X, prior)
        return GaussianModel(mean, np.diag(spread), self.regularization * spread**2)


@dataclass(frozen=True)
class GaussianModel:
    """mean (D,), Cholesky factor of the covariance (D, D) and the ridge (D,) that is part of it."""

    mean: Float64
    factor: Float64
    ridge: Float64

    @cached_property
    def _whitener(self) -> Float64:
        # One product a block with the inverse is several times faster than a triangular solve.
        inverse = solve_triangular(self.factor, np.eye(len(self.mean)), lower=True)
        return np.ascontiguousarray(inverse.T)

    @cached_property
    def _constant(self) -> float:
        return 0.5 * float(np.log(2 * np.pi)) + float(np.log(np.diag(self.factor)).mean())

    @property
    def covariance(self) -> Float64:
        """V (D, D)."""
        found: Float64 = self.factor @ self.factor.T
        return found

    @property
    def penalty(self) -> float:
        """tr(R V^-1) / (2 D), the regulariser of :class:`Gaussian`."""
        inverse_diagonal = (self._whitener**2).sum(axis=1)
        return float(self.ridge @ inverse_diagonal) / (2 * len(self.mean))

    @property
    def rows_needed(self) -> int:
        """D + 1 rows in general position have a covariance."""
        return len(self.mean) + 1

    def view(self, X: npt.NDArray[np.floating], y: Target) -> GaussianView:
        """Rows in the coordinates in which this Gaussian is standard normal."""
        return GaussianView((X - self.mean) @ self._whitener, self._constant)

    def updated(self, sums: Float64, mass: float) -> GaussianModel:
        """The weighted mean and covariance, ridge included."""
        width = len(self.mean)
        shift = sums[:width] / mass
        spread = sums[width:].reshape(width, width) / mass - np.outer(shift, shift)
        covariance = self.factor @ spread @ self.factor.T
        covariance[np.diag_indices(width)] += self.ridge
        factor = cholesky((covariance + covariance.T) / 2, lower=True)
        return GaussianModel(self.mean + self.factor @ shift, factor, self.ridge)


class GaussianView:
    """Sums are taken of whitened rows: as well conditioned at 1e6 standard deviations from 0 as at 0."""

    def __init__(self, rows: Float64, constant: float) -> None:
        self._rows = rows
        self.losses: Float64 = np.einsum("ij,ij->i", rows, rows) * (0.5 / rows.shape[1]) + constant

    def sums(self, weight: Float64) -> Float64:
        """Weighted sum (D,) and second moments (D, D)."""
        first = weight @ self._rows
        scaled = self._rows * np.sqrt(weight)[:, None]
        return np.concatenate([first, (scaled.T @ scaled).ravel()])
