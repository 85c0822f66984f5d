"""The choice of alpha from the data, without trusted labels.

The paper suggests maximising sum_t log w_t over alpha. That sum is largest for equal weights (Jensen), so its
maximum is at alpha = infinity whatever the data. The paper's examples take alpha from a validation grid.

The rule here needs no labels. A smaller alpha lowers the weights of more rows, good ones among them. The rule
chooses the smallest alpha at which the weights keep an effective sample size (sum w)^2 / sum w^2 of at least
``efficiency`` times the number of rows that are not flagged, which must be more than half of all. Robust
estimators are tuned to an efficiency on Gaussian data in the same way. For clean Gaussian rows there is a
closed form. With kappa = D alpha > 1, the Gaussian loss has the fixed point V = (1 - 1/kappa) Sigma and an
effective sample size of (1 - 1/kappa^2)^(D/2) T. It flags rows whose squared Mahalanobis distance, chi^2 with
D degrees of freedom, is above (kappa - 1) (2 log(1/threshold) + D log(kappa / (kappa - 1))).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from operators.arrays import Float64
from operators.eos.descent import Fit
from operators.eos.kernel import check_losses
from operators.eos.memory import Rows, collect, fitted, losses, step

EFFICIENCY = 0.75
"""Default of ``efficiency``."""
FACTOR = 1.25
"""Ratio of one alpha of the curve to the next."""
MAX_ALPHAS = 60
TOLERANCE = 1e-5
"""``tol`` of the fits of the curve."""
EQUAL = 1e-12
"""Losses whose spread is at most this share of the largest count as equal."""
FIRST_ALPHA = 4.0
"""First alpha, in units of the spread of the losses of an unweighted fit: nearly equal weights."""
COLLAPSED = 0.25
"""The curve ends at the first alpha whose effective sample size is below this share of the rows."""
MAX_FLAGGED = 0.5
"""The curve also ends where more than this share of a class is flagged, and no such alpha is chosen. It is
the default of ``most_flagged`` in the estimator and in the operator, and the breakdown point of robust
estimators, which need a majority of good rows.
"""


@dataclass(frozen=True)
class AlphaPoint:
    """Effect of one alpha, in shares of the rows."""

    alpha: float
    effective_share: float
    """(sum w)^2 / sum w^2, over that of the prior weights."""
    flagged_share: float
    """Rows with w_t < threshold / T."""
    worst_share: float
    """The flagged share of the class with the largest one, if the learner uses classes: with a small alpha a
    classifier learns one class and flags the other."""


def least_rows(model: Any) -> int:
    """Return the number of rows below which no alpha can be chosen for a model that is fitted to them.

    A model that follows nearly every row gives all rows the same loss: a Gaussian with D features does so for
    D + 1 rows. The weights that a small alpha gives then separate rows at random. On clean rows of a
    Gaussian, and in clusters, the rule flags up to 44 % below 1.5 times ``rows_needed`` rows, and 3 % or less
    from the number here on.
    """
    return 2 * model.rows_needed + 20 if model.rows_needed else 0


def sample_size(model: Any) -> int:
    """Return the number of rows with which the chosen alpha is near that of many more rows."""
    return 2 * least_rows(model)


def alpha_sample(rows: Rows, learner: Any, seed: int) -> Rows:
    """Draw the rows on which alpha is chosen: :data:`SAMPLE`, or more where the model needs more."""
    sample = rows.sample(seed)
    wanted = sample_size(learner.start(sample.X, sample.y, sample.prior, seed))
    return rows.sample(seed, wanted) if len(sample) < min(wanted, len(rows)) else sample


def effective_sample_size_curve(
    rows: Rows, learner: Any, *, threshold: float = 0.01, seed: int = 0, max_iter: int = 100
) -> list[AlphaPoint]:
    """Run EOS from a uniform start for falling alpha, until the effective share is below ``COLLAPSED``.

    Returns no points for fewer rows than :func:`least_rows`. Raises ValueError if no row has a positive prior
    weight.
    """
    model = learner.start(rows.X, rows.y, rows.prior, seed)
    first = collect(model, rows, np.inf)
    counted = rows.prior > 0
    found = losses(step(model, first, rows, None), rows.X, rows.y)[counted]
    check_losses(found)
    if len(found) < least_rows(model):
        return []
    spread = _spread(found, rows.prior[counted])
    if not spread:
        return [AlphaPoint(1.0, 1.0, 0.0, 0.0)]
    curve: list[AlphaPoint] = []
    for index in range(MAX_ALPHAS):
        alpha = FIRST_ALPHA * spread / FACTOR**index
        fit = fitted(rows, learner, alpha, seed=seed, tol=TOLERANCE, max_iter=max_iter)
        share = fit.statistics.effective_sample_size / first.effective_sample_size
        curve.append(AlphaPoint(alpha, share, *flagged_shares(fit, rows, threshold)))
        if share < COLLAPSED or curve[-1].worst_share > MAX_FLAGGED:
            break
    return curve


def _spread(losses: Float64, prior: Float64) -> float:
    """Return the spread of losses (n,): to the 95 % quantile, or where that is 0, to the largest."""
    for share in (0.95, 1.0):
        low, high = np.quantile(losses, [0.0, share], weights=prior, method="inverted_cdf")
        if high - low > EQUAL * max(abs(low), abs(high)):
            return float(high - low)
    return 0.0


def flagged_shares(fit: Fit, rows: Rows, threshold: float) -> tuple[float, float]:
    """Return the outliers' share of the prior weight: over all rows, and in the class with the largest."""
    is_outlier = fit.statistics.log_weights(losses(fit.model, rows.X, rows.y)) < np.log(threshold)
    share = float(rows.prior[is_outlier].sum() / rows.prior.sum())
    if rows.y is None or rows.y.ndim > 1 or not np.issubdtype(rows.y.dtype, np.integer):
        return share, share
    counts = np.bincount(rows.y, weights=rows.prior)
    flagged = np.bincount(rows.y, weights=rows.prior * is_outlier)
    return share, float((flagged[counts > 0] / counts[counts > 0]).max())


def choose_alpha(
    curve: Sequence[AlphaPoint], efficiency: float = EFFICIENCY, most_flagged: float = MAX_FLAGGED
) -> float:
    """Return the alpha that the rule of this module chooses from a curve of at least one point.

    It is the smallest alpha that keeps ``efficiency`` and flags less than ``most_flagged`` of every class, or
    the largest alpha of the curve if there is none.
    """
    good = [
        point.alpha
        for point in curve
        if point.worst_share < most_flagged
        and point.effective_share >= efficiency * (1 - point.flagged_share)
    ]
    return min(good, default=max(point.alpha for point in curve))
