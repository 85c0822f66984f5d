"""The closed-form weights of entropic outlier sparsification, as sums over rows that can be merged.

Source: Horenko, Cheap robust learning of data anomalies with analytically solvable entropic outlier
sparsification, PNAS 119(9), 2022; eq. 2, 3 and Algorithm 1.

For losses g_t and prior weights s_t (1 unless rows count differently) the problem

    minimise over w   sum_t w_t g_t + alpha sum_t w_t log(w_t / s_t),   w >= 0, sum_t w_t = 1

has the solution w_t = s_t exp(-g_t / alpha) / Z with the value -alpha log Z. Z is a sum over rows, so each
block of rows is summed relative to its own smallest loss, and blocks are merged as in a log-sum-exp.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64
from operators.hashing import Hashes, row_hashes, uniform
from operators.spread import mean_and_scale

Target = npt.NDArray[Any] | None

BLOCK = 4096
"""Rows that are processed together: their whitened copies stay in the processor's cache."""


class View(Protocol):
    """A block of n rows under a model."""

    @property
    def losses(self) -> Float64:
        """Losses g(x_t, theta) (n,), finite."""
        ...

    def sums(self, weight: Float64) -> Float64:
        """Return the sums (k,) over rows, linear in ``weight`` (n,), that a weighted fit needs."""
        ...


class Model(Protocol):
    """Parameters theta of a learner whose weighted fit needs only sums over rows."""

    @property
    def penalty(self) -> float:
        """The learner's regulariser at theta, which is added to the objective."""
        ...

    @property
    def rows_needed(self) -> int:
        """Rows below which a fit is degenerate; 0 if nothing is fitted."""
        ...

    def view(self, X: npt.NDArray[np.floating], y: Target) -> View:
        """Return the view of a block of rows X (n, d) with targets y, or None."""
        ...

    def updated(self, sums: Float64, mass: float) -> Model:
        """Return the model of the theta-step, whose ``sum_t w_t g_t / mass + penalty`` is no larger than
        here.

        ``sums`` are those of views of this model; ``mass`` is the sum of the weights.
        """
        ...


@dataclass(frozen=True)
class WeightStatistics:
    """Sums over rows of the weights u_t = s_t exp(-(g_t - low) / alpha)."""

    alpha: float
    low: float
    """Smallest loss of the rows; infinite without rows."""
    mass: float
    """Sum of u_t."""
    square: float
    """Sum of u_t^2."""
    prior: float
    """Sum of s_t, which is the number of rows if all count once."""
    sums: Float64
    """(k,) see :meth:`View.sums`; empty for models that are not fitted from sums."""

    @property
    def objective(self) -> float:
        """Minimum of the problem over w for these losses: -alpha log Z."""
        return self.low - self.alpha * float(np.log(self.mass))

    @property
    def effective_sample_size(self) -> float:
        """Effective sample size (sum w)^2 / sum w^2."""
        return self.mass**2 / self.square

    def log_weights(self, losses: Float64) -> Float64:
        """Return log(w_t T / s_t) (n,) for w_t of sum 1 over the rows of these sums; 0 is an average row."""
        found: Float64 = (self.low - losses) / self.alpha + np.log(self.prior / self.mass)
        return found

    def merge(self, other: WeightStatistics) -> WeightStatistics:
        """Return the sums over the rows of both, relative to the smaller of the two losses ``low``."""
        low = min(self.low, other.low)
        mine, theirs = (_factor(part.low - low, self.alpha) for part in (self, other))
        return WeightStatistics(
            self.alpha,
            low,
            mine * self.mass + theirs * other.mass,
            mine**2 * self.square + theirs**2 * other.square,
            self.prior + other.prior,
            mine * self.sums + theirs * other.sums,
        )


def merged(parts: Iterable[WeightStatistics]) -> WeightStatistics:
    """Merge parts from left to right. Raises ValueError where no row has a positive prior."""
    total: WeightStatistics | None = None
    for part in parts:
        if part.prior > 0:
            total = part if total is None else total.merge(part)
    if total is None:
        raise ValueError("EOS has no rows to learn from: no row has a positive sample weight.")
    return total


def collect_statistics(
    model: Model, X: npt.NDArray[np.floating], y: Target, prior: Float64, alpha: float
) -> WeightStatistics:
    """Make one pass over rows: losses, weights and the weighted sums of the next fit, a block at a time.

    Parameters
    ----------
    model : theta.
    X, y : (n, d) rows and their targets, or None.
    prior : (n,) s_t >= 0. The model does not see rows of prior 0: they may lie anywhere.
    alpha : > 0; infinity gives the weights s_t whatever the losses, for a uniform start.

    Raises
    ------
    ValueError
        The loss of a row of positive prior is not finite.
    """
    counted = prior > 0
    if not counted.all():
        X, y, prior = X[counted], None if y is None else y[counted], prior[counted]
    total = WeightStatistics(alpha, np.inf, 0.0, 0.0, 0.0, np.zeros(0))
    for start in range(0, len(X), BLOCK):
        part = slice(start, start + BLOCK)
        view = model.view(X[part], None if y is None else y[part])
        found = statistics_of_losses(view.losses, prior[part], alpha, view.sums)
        total = total.merge(found) if total.prior > 0 else found
    return total


def statistics_of_losses(
    losses: Float64, prior: Float64, alpha: float, sums: Callable[[Float64], Float64] | None = None
) -> WeightStatistics:
    """Collect the statistics of losses (n,), n > 0, with ``sums`` of the weights where a fit needs them.

    Rows of prior 0 have the weight 0, whatever their losses; without any other row ``low`` is infinite.
    Raises ValueError where the loss of a row of positive prior is not finite.
    """
    weight, low = prior, 0.0
    if np.isfinite(alpha):
        counted = prior > 0
        found = losses[counted]
        check_losses(found)
        low = float(found.min(initial=np.inf))
        weight = np.zeros(len(prior))
        weight[counted] = prior[counted] * np.exp((low - found) / alpha)
    summed = np.zeros(0) if sums is None else sums(weight)
    return WeightStatistics(
        alpha, low, float(weight.sum()), float(weight @ weight), float(prior.sum()), summed
    )


def check_losses(losses: Float64) -> None:
    """Raise ValueError where a loss is not finite."""
    bad = losses[~np.isfinite(losses)]
    if len(bad):
        raise ValueError(
            f"{len(bad)} of {len(losses)} rows have a loss that is not finite, such as {bad[0]}. Check for "
            "features beyond 1e150, or regularise the learner."
        )


def _factor(gap: float, alpha: float) -> float:
    return float(np.exp(-gap / alpha)) if gap else 1.0


def moments(X: npt.NDArray[np.floating], prior: Float64) -> tuple[Float64, Float64]:
    """Return mean and deviation (D,) of rows X (n, D) under ``prior`` (n,); deviation 1 if constant."""
    return mean_and_scale(X[prior > 0], prior[prior > 0])


def random_weights(row_ids: npt.NDArray[np.integer], seed: int) -> Float64:
    """Return exponential draws (n,), one per row id; normalised, they are uniform on the simplex.

    They depend on seed and row id alone, so that shards draw them independently.
    """
    found: Float64 = -np.log(uniform(row_hashes(row_ids, seed, "eos/starting weights")))
    return found


def sample_hashes(row_ids: npt.NDArray[np.integer], seed: int) -> Hashes:
    """Return the hashes (n,) of row ids by which the sample is drawn: the rows with the smallest."""
    return row_hashes(row_ids, seed, "eos/sample")


def random_rows(row_ids: npt.NDArray[np.integer], size: int, seed: int) -> npt.NDArray[np.int64]:
    """Return the positions of the ``size`` rows with the smallest hashes, in the order of the hashes.

    The sample of all rows is the sample of the joined samples of shards.
    """
    return np.argsort(sample_hashes(row_ids, seed), kind="stable")[:size]
