"""How surely a label is wrong where labels are contradicted most surely: the level at which flips hold.

The log ratio of :mod:`operators.outliers.mixture` is one line through all rows. Its upper end, where rows are
marked, is a small part of them, and there it says too little: of rows with posteriors of .5 nineteen of
twenty can be flipped. So the upper end is looked at by itself, by the density of the observed rows in
multiples of that of rows whose label was flipped. Flips are the same share of these at every log ratio, while
natural ambiguity falls on. Where the ratio is level its height is about the share of flips, and a row's
posterior is this share over the ratio at the row.

A level is no proof: on a table of much natural noise the ratio can be level, too. Therefore flips must be far
from most rows, the ratio must hardly rise over the upper two fifths of the flipped rows, and the share is the
mean of the level and of what all rows together tell.
"""

from __future__ import annotations

import numpy as np
from sklearn.isotonic import IsotonicRegression

from operators.arrays import Float64
from operators.outliers.mixture import Ratios, posteriors, separation

CUTS = (0.1, 0.2, 0.3, 0.4)
"""Shares of the flipped rows above the cuts at which the level is looked for."""
RISE = (1.2, 1.6)
"""Rise of the ratio from the first cut to the last up to which it is level, and from which it is not."""
SEPARATION = (0.86, 0.88)
"""Area under ROC, flipped rows against clean ones, from which a level begins to count, and counts in full."""
CAUTION = 0.93
"""Part of the rows at the level that is taken for flipped."""
TOP = 0.8
"""Share of the flipped rows above the log ratio from which posteriors are given."""
MIN_ROWS = 20
"""Observed rows above that log ratio below which they tell nothing."""
NONE: Float64 = np.empty((0, 2))
"""No level."""


def fit_levels(observed: Float64, flipped: Float64, prevalence: float) -> Float64:
    """Learn the posterior of a flip from the log ratios.

    Parameters
    ----------
    observed, flipped : (n,) and (m,) log ratios of flips: of observed rows, and of rows with another label.
    prevalence : share of flips that all rows together tell; 0 where they tell of none.

    Returns
    -------
    (k, 2)
        Ascending log ratios and the posteriors there, which never fall. Without a level there are no rows.
    """
    least = float(np.quantile(flipped, 1 - TOP))
    seen, planted = observed[observed >= least], flipped[flipped >= least]
    if prevalence <= 0 or len(seen) < MIN_ROWS:
        return NONE
    above = [float((observed >= cut).mean() / (flipped >= cut).mean()) for cut in _cuts(flipped)]
    level, first, last = min(above), above[0], above[-1]
    from_clean = (separation(observed, flipped) - prevalence / 2) / (1 - prevalence)
    trust = _ramp(from_clean, *SEPARATION) * (1 - _ramp(last, RISE[0] * first, RISE[1] * first))
    share = CAUTION * trust * (level + min(prevalence, level)) / 2
    if share <= 0:
        return NONE
    weights = np.r_[np.full(len(seen), 1 / len(observed)), np.full(len(planted), 1 / len(flipped))]
    target = np.r_[np.ones(len(seen)), np.zeros(len(planted))]
    isotonic = IsotonicRegression(increasing=False).fit(np.r_[seen, planted], target, weights)
    ratio = isotonic.y_thresholds_ / np.maximum(1 - isotonic.y_thresholds_, 1e-9)
    found = np.column_stack([isotonic.X_thresholds_, np.minimum(share / np.maximum(ratio, share), 1.0)])
    return np.asarray(found, np.float64)


def posteriors_by_kind(ratios: Ratios, E: Float64, prevalence: Float64) -> Float64:
    """Return (n, n_kinds) the probability of each kind; of flips the larger one of two estimates.

    Parameters
    ----------
    ratios : with the levels of flips, the first kind.
    E : (n, m) evidence.
    prevalence : (n_kinds,) shares of the mixture.
    """
    log_ratios = ratios.log_ratios(E)
    found = posteriors(log_ratios, prevalence)
    if len(ratios.levels):
        at, values = ratios.levels.T
        by_level = np.interp(log_ratios[:, 0], at, values, left=0.0)
        found[:, 0] = np.minimum(np.maximum(found[:, 0], by_level), 1 - found[:, 1:].sum(axis=1))
    return found


def needed_log_ratio(levels: Float64, threshold: float) -> float:
    """Return a log ratio below which no level's posterior reaches the threshold; infinite where none does."""
    reached = np.flatnonzero(levels[:, 1] >= threshold)
    return float(levels[max(reached[0] - 1, 0), 0]) if len(reached) else float("inf")


def _cuts(flipped: Float64) -> Float64:
    return np.asarray(np.quantile(flipped, 1 - np.array(CUTS)), np.float64)


def _ramp(value: float, low: float, high: float) -> float:
    """Return 0 up to ``low``, 1 from ``high`` on, and in between the part of the way."""
    return float(np.clip((value - low) / max(high - low, 1e-12), 0.0, 1.0))
