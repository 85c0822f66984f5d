"""The losses of EOS: Gaussian, least squares, cross-entropy, and stored losses.

Each learner is a frozen dataclass whose ``start`` returns a model from a sample. A model has ``view`` (the
losses of a block of rows), ``penalty`` (its regulariser), ``rows_needed``, and the theta-step: ``updated``
from weighted sums over rows, or ``refitted`` from all rows where there is no closed form. The losses by
distance to centroids are in :mod:`operators.eos.centroids`.

Source: Horenko, Proceedings of the National Academy of Sciences 119, 2022.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy.linalg import cholesky, solve_triangular

from operators.arrays import Float64
from operators.eos.kernel import Target, moments
from operators.models.linear import log_softmax


@dataclass(frozen=True)
class Gaussian:
    """Loss (1/D) (D/2 log 2 pi + 1/2 log det V + 1/2 (x - m)' V^-1 (x - m)), in nats per feature.

    ``regularization``, default 1e-6, keeps V from becoming singular: V gets ``regularization`` times the
    features' first variances on its diagonal, which is the exact fit under a penalty of
    tr(R V^-1) / (2 D), R being that diagonal matrix.
    """

    regularization: float = 1e-6
    target: str = "none"

    def start(self, X: npt.NDArray[np.floating], y: Target, prior: Float64, seed: int) -> GaussianModel:
        """Return the coordinates of the first sums: mean and standard deviations of a sample X (m, D)."""
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
        # A product with the inverse is several times faster than a triangular solve per block.
        inverse = solve_triangular(self.factor, np.eye(len(self.mean)), lower=True)
        return np.ascontiguousarray(inverse.T)

    @cached_property
    def _constant(self) -> float:
        return 0.5 * float(np.log(2 * np.pi)) + float(np.log(np.diag(self.factor)).mean())

    @property
    def covariance(self) -> Float64:
        """Covariance V (D, D)."""
        found: Float64 = self.factor @ self.factor.T
        return found

    @property
    def penalty(self) -> float:
        """Regulariser tr(R V^-1) / (2 D) of :class:`Gaussian`."""
        inverse_diagonal = (self._whitener**2).sum(axis=1)
        return float(self.ridge @ inverse_diagonal) / (2 * len(self.mean))

    @property
    def rows_needed(self) -> int:
        """Number of rows that a fit needs: D + 1 rows in general position have a regular covariance."""
        return len(self.mean) + 1

    def view(self, X: npt.NDArray[np.floating], y: Target) -> GaussianView:
        """Return the rows in the coordinates in which this Gaussian is standard normal."""
        return GaussianView((X - self.mean) @ self._whitener, self._constant)

    def updated(self, sums: Float64, mass: float) -> GaussianModel:
        """Return the model of the weighted mean and covariance, ridge included."""
        width = len(self.mean)
        shift = sums[:width] / mass
        spread = sums[width:].reshape(width, width) / mass - np.outer(shift, shift)
        covariance = self.factor @ spread @ self.factor.T
        covariance[np.diag_indices(width)] += self.ridge
        factor = cholesky((covariance + covariance.T) / 2, lower=True)
        return GaussianModel(self.mean + self.factor @ shift, factor, self.ridge)


class GaussianView:
    """Rows whitened by the last model, so that sums are well conditioned at any distance of the mean from
    0.
    """

    def __init__(self, rows: Float64, constant: float) -> None:
        self._rows = rows
        self.losses: Float64 = np.einsum("ij,ij->i", rows, rows) * (0.5 / rows.shape[1]) + constant

    def sums(self, weight: Float64) -> Float64:
        """Return the weighted sum (D,) and second moments (D, D), one after the other."""
        first = weight @ self._rows
        scaled = self._rows * np.sqrt(weight)[:, None]
        return np.concatenate([first, (scaled.T @ scaled).ravel()])


RANK = 1e-12
"""Singular values below this share of the largest count as 0 in a least-squares fit."""


@dataclass(frozen=True)
class LeastSquares:
    """Loss (1/M) |y - B' x - b|^2 for targets of M numbers, in their units squared.

    ``l2``, default 0, adds l2 |B|^2 to the objective, B being of features divided by their standard
    deviations in the starting sample; the intercept b is free.
    """

    l2: float = 0.0
    target: str = "number"

    def start(self, X: npt.NDArray[np.floating], y: Target, prior: Float64, seed: int) -> Linear:
        """Return zero coefficients for features scaled by the standard deviations of a sample X (m, D)."""
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
        """Regulariser l2 |B|^2 of the coefficients without the intercepts."""
        return self.l2 * float((self.coefficients[:-1] ** 2).sum())

    @property
    def rows_needed(self) -> int:
        """Number of rows that a fit needs: one per coefficient."""
        return len(self.coefficients)

    def predict(self, X: npt.NDArray[np.floating]) -> Float64:
        """Return the predicted targets (n, M)."""
        found: Float64 = self._design(X) @ self.coefficients
        return found

    def view(self, X: npt.NDArray[np.floating], y: Target) -> LinearView:
        """Return the rows with their residuals."""
        if y is None:
            raise ValueError("The loss 'least_squares' needs targets: pass y.")
        design = self._design(X)
        return LinearView(design, y.reshape(len(X), -1) - design @ self.coefficients)

    def updated(self, sums: Float64, mass: float) -> Linear:
        """Return the exact weighted fit: normal equations for the residuals, by singular values."""
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
        """Return the weighted X'X and X'r, one after the other."""
        weighted = self._design * weight[:, None]
        return np.concatenate([(weighted.T @ self._design).ravel(), (weighted.T @ self._residuals).ravel()])


@dataclass(frozen=True)
class Logistic:
    """Loss: cross-entropy in nats; ``l2`` / 2 |W|^2, default l2 = 0.01, joins the objective.

    Features are divided by their standard deviations in the starting sample. The theta-step has no closed
    form: ``sklearn.linear_model.LogisticRegression`` starts it from the last solution.
    """

    l2: float = 0.01
    target: str = "class"

    def start(self, X: npt.NDArray[np.floating], y: Target, prior: Float64, seed: int) -> Softmax:
        """Return a model under which all labels y (m,) of a sample X (m, D) are equally likely."""
        if y is None:
            raise ValueError("The loss 'logistic' needs class labels: pass y.")
        mean, spread = moments(X, prior)
        n_classes = int(y.max()) + 1
        coefficients = np.zeros((1 if n_classes == 2 else n_classes, X.shape[1] + 1))
        return Softmax(mean, spread, coefficients, self.l2)


@dataclass(frozen=True)
class Softmax:
    """Coefficients (M, D + 1), the intercept last; two classes have one row, of the second class."""

    centre: Float64
    spread: Float64
    coefficients: Float64
    l2: float

    @property
    def penalty(self) -> float:
        """Regulariser l2 / 2 |W|^2; intercepts are free."""
        return self.l2 / 2 * float((self.coefficients[:, :-1] ** 2).sum())

    @property
    def rows_needed(self) -> int:
        """Number of rows that a fit needs: one per class."""
        return max(2, len(self.coefficients))

    def log_proba(self, X: npt.NDArray[np.floating]) -> Float64:
        """Return the log probability (n, M) of each class."""
        logits = self._scaled(X) @ self.coefficients[:, :-1].T + self.coefficients[:, -1]
        if logits.shape[1] == 1:
            logits = np.column_stack([np.zeros(len(X)), logits])
        return log_softmax(logits)

    def predict_proba(self, X: npt.NDArray[np.floating]) -> Float64:
        """Return the probability (n, M) of each class."""
        return np.exp(self.log_proba(X))

    def losses(self, X: npt.NDArray[np.floating], y: Target) -> Float64:
        """Return minus the log probability (n,) of the label y (n,)."""
        if y is None:
            raise ValueError("The loss 'logistic' needs class labels: pass y.")
        found: Float64 = -np.take_along_axis(self.log_proba(X), y[:, None], axis=1)[:, 0]
        return found

    def refitted(self, X: npt.NDArray[np.floating], y: Target, weight: Float64) -> Softmax:
        """Return the minimum of sum_t w_t loss_t + penalty for weights (n,) of sum 1.

        If one class has all of the weight, this model is returned unchanged.
        """
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.linear_model import LogisticRegression

        solver = LogisticRegression(C=1 / self.l2, tol=1e-8, max_iter=1000, warm_start=True)
        solver.coef_, solver.intercept_ = self.coefficients[:, :-1].copy(), self.coefficients[:, -1].copy()
        if y is None or len(np.unique(y[weight > 0])) < 2:
            return self
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            solver.fit(self._scaled(X), y, sample_weight=weight)
        return replace(self, coefficients=np.column_stack([solver.coef_, solver.intercept_]))

    def _scaled(self, X: npt.NDArray[np.floating]) -> Float64:
        found: Float64 = (X - self.centre) / self.spread
        return found


@dataclass(frozen=True)
class FixedLosses:
    """Learner and model whose rows X (n, 1) are the losses themselves."""

    target: str = "none"
    penalty: float = 0.0
    rows_needed: int = 0

    def start(self, X: npt.NDArray[np.floating], y: Target, prior: Float64, seed: int) -> FixedLosses:
        """Return this object: there are no parameters."""
        return self

    def view(self, X: npt.NDArray[np.floating], y: Target) -> FixedView:
        """Take the rows X (n, 1) as losses."""
        return FixedView(X[:, 0].astype(np.float64))

    def updated(self, sums: Float64, mass: float) -> FixedLosses:
        """Return this object: the theta-step changes nothing."""
        return self


@dataclass(frozen=True)
class FixedView:
    """Losses (n,) of a block of rows."""

    losses: Float64

    def sums(self, weight: Float64) -> Float64:
        """Return no sums: an empty array."""
        return np.zeros(0)
