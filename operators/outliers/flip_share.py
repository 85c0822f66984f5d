"""The share of flipped labels and the scale of their log ratio, fitted together by maximum likelihood.

Observed rows and rows with a planted flip are two mixtures of the same two densities. Let c be the density
of the evidence of rows with a right label, q that of rows with a wrong one, s the share of wrong labels and
C the number of classes. A planted flip of a wrong label gives the right one back in one of C - 1 cases. So

    observed rows:  (1 - s) c + s q,
    planted flips:  (1 - s / (C - 1)) q + s / (C - 1) c,

with log q / c = slope * t + shift, where t is a log ratio known up to its scale. The likelihood that a row
of either sample belongs to its sample, given t, depends on slope, shift and s alone (the case-control
likelihood of two-sample mixtures, Qin 1999, "Empirical likelihood ratio based confidence intervals for
mixture proportions").

Alternating between the log ratio and the posterior of every row has the same solution, and reaches it very
slowly: where flips are alone among the most suspicious rows, their posterior after k rounds is k / (k + 1) if
the share is right, and stays at the ratio of the assumed share to the true one if that is too low. Whether
rows reached a threshold then depended on the noise in the assumed share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import chi2, rankdata

from operators.arrays import Float64, Int64, Mask

MIN_SHARE = 1e-7
MAX_SLOPE = 60.0
"""Bound on the slope of the standardised log ratio."""
MAX_SHIFT = 40.0
"""Bound on the absolute shift of the standardised log ratio."""
BOUND_SHARE = 0.1
"""Least share of the planted rows above a cut at which the share is bounded; fewer tell too little."""
MIN_RIGHT = 0.25
"""Least share of right labels in a class from which they are told from wrong ones."""
LOWER_LIMIT = 1.64
"""Standard deviations, of an area of chance, by which the lower 95 % limit of an area lies below it."""
STARTS = tuple((slope, share) for share in (0.005, 0.03, 0.1) for slope in (2.0, 6.0))
"""Slopes and shares from which the likelihood is maximised, as it may have several maxima."""
LABEL_STARTS = tuple((slope, share) for share in (0.005, 0.1, 0.4, 0.7) for slope in (0.5, 2.0, 6.0))
"""The same for the rows of one label, of which more may be wrong, and which features tell less well."""
MAX_LABEL_SHARE = 0.9
"""Bound on the share of wrong labels among the rows of one label."""
MAX_RIGHT = 0.5
"""Bound on the share of right labels among those planted in one class, beyond which they tell nothing."""


class FlipShare(NamedTuple):
    """The log ratio of wrong labels to right ones, ``slope * t + shift``, and the share of wrong ones."""

    slope: float
    shift: float
    share: float


def fit_flip_share(observed: Float64, planted: Float64, n_classes: int, max_share: float) -> FlipShare:
    """Fit slope, shift and share to a log ratio that ranks rows.

    Parameters
    ----------
    observed, planted : (n,) log ratios of the observed rows, and of the same rows with another label.
    n_classes : number of classes, from which planted labels are drawn uniformly.
    max_share : bound on the share.

    Returns
    -------
    FlipShare
        The slope is positive: the ranking stays. The share is at most :func:`share_bound`.
    """
    fit = _maximise_likelihood(observed, planted, 0.0, 1.0 / (n_classes - 1), STARTS, max_share)
    return fit._replace(share=min(fit.share, share_bound(observed, planted)))


def share_of_label(observed: Float64, planted: Float64, right: float) -> float:
    """Return the share of wrong labels among the rows of one label, by the likelihood of these rows alone.

    The shift is free, so that neither the rarity of the label nor the share of wrong labels in other classes
    has a say: only a part of the rows that stands apart from the others as planted flips do counts.

    Parameters
    ----------
    observed, planted : (n,) log ratios of the observed rows, and (m,) of others to which the label was given.
    right : share of the planted labels that are right.
    """
    return _maximise_likelihood(observed, planted, right, 0.0, LABEL_STARTS, MAX_LABEL_SHARE).share


def share_bound(observed: Float64, planted: Float64) -> float:
    """Return an upper limit of the share: no part of a mixture exceeds the whole above any cut.

    Where natural ambiguity leaves a tail of doubtful rows that ends before the most suspicious planted rows,
    the likelihood takes the tail for wrong labels; too few observed rows at the end show that it is not.

    Parameters
    ----------
    observed, planted : (n,) log ratios of the observed rows, and of the same rows with another label.
    """
    cuts = np.quantile(planted, 1 - np.linspace(BOUND_SHARE, 1, 100))
    seen, above = (len(t) - np.searchsorted(np.sort(t), cuts, side="left") for t in (observed, planted))
    upper = chi2.ppf(0.95, 2 * (seen + 1)) / 2
    return float((upper / len(observed) / (above / len(planted))).min())


def unmixed_separation(found: float, wrong: float, back: float) -> float:
    """Return the area under ROC between wrong and right labels, from that between two mixtures of them.

    Parameters
    ----------
    found : probability that a planted flip has a larger log ratio than an observed row.
    wrong : share of wrong labels among the observed rows.
    back : share of planted flips that give a right label back.
    """
    equal = wrong * (1 - back) + (1 - wrong) * back
    return (found - equal / 2 - wrong * back) / (1 - wrong - back)


def checkable_classes(
    log_ratios: tuple[Float64, Float64],
    labels: tuple[Int64, Int64],
    posterior: Float64,
    n_classes: int,
    min_separation: float,
) -> Mask:
    """Return (n_classes,) whether wrong labels of a class stand out among the rows with that label.

    Flips hit classes in another proportion than they occur, so that a rare label alone speaks for a flip.
    Where features say nothing, all rows of a rare class would pass for flipped rows of the others. Among rows
    of one label, features alone can tell wrong labels from right ones.

    The posterior takes wrong labels to fall on all classes alike. Where large classes are confused with each
    other only, it calls most rows of a rare one wrong; so the share of wrong labels that is taken out of the
    area is at most the one that the rows of the label show by themselves (:func:`share_of_label`).

    Parameters
    ----------
    log_ratios : (n,) of the observed rows, and (n,) of the same rows with another label.
    labels : (n,) class indices of both.
    posterior : (n,) probability that an observed row is flipped.
    n_classes : number of classes.
    min_separation : area under ROC, wrong labels against right ones of a class, from whose lower 95 % limit
        on they stand out.
    """
    found = np.zeros(n_classes, np.bool_)
    for label in range(n_classes):
        seen, planted = (one == label for one in labels)
        if seen.any() and planted.any():
            t, flips = log_ratios[0][seen], log_ratios[1][planted]
            back = float(posterior[planted].mean()) / (n_classes - 1)
            area = separation(t, flips)
            area -= LOWER_LIMIT * float(np.sqrt((1 / seen.sum() + 1 / planted.sum()) / 12))
            most = float(posterior[seen].mean())
            decided = _decided_for_all_shares(area, most, back, min_separation)
            if decided is None:  # only then, as the share takes long
                wrong = min(most, share_of_label(t, flips, min(back, MAX_RIGHT)))
                decided = _stands_out(area, wrong, back, min_separation)
            found[label] = decided
    return found


def _stands_out(area: float, wrong: float, back: float, min_separation: float) -> bool:
    """Return whether wrong labels stand out where a share of the labels is wrong."""
    enough = 1 - wrong - back >= MIN_RIGHT
    return enough and unmixed_separation(area, wrong, back) >= min_separation


def _decided_for_all_shares(area: float, most: float, back: float, min_separation: float) -> bool | None:
    """Return what :func:`_stands_out` says of all shares from 0 to ``most``; None where it depends on them.

    The separation rises or falls all the way with the share, so that the ends decide.
    """
    last = min(most, 1 - back - MIN_RIGHT)  # with more wrong labels nothing stands out
    if last < 0:
        return False
    first, at_last = (unmixed_separation(area, wrong, back) >= min_separation for wrong in (0.0, last))
    if first and at_last and last == most:
        return True
    return None if first or at_last else False


def separation(log_ratio: Float64, planted: Float64) -> float:
    """Return the probability that a planted row has a larger log ratio than an observed one."""
    ranks = rankdata(np.concatenate([log_ratio, planted]))[len(log_ratio) :]
    n, m = len(log_ratio), len(planted)
    return float((ranks.sum() - m * (m + 1) / 2) / (n * m))


def _maximise_likelihood(
    observed: Float64,
    planted: Float64,
    right: float,
    back: float,
    starts: Sequence[tuple[float, float]],
    max_share: float,
) -> FlipShare:
    """Return slope, shift and share of the greatest likelihood; both samples weigh the same.

    Parameters
    ----------
    observed, planted : (n,) and (m,) log ratios.
    right, back : share of right labels among the planted ones, ``right + back * share``.
    starts : slopes, of the standardised log ratio, and shares from which the likelihood is maximised.
    max_share : bound on the share.
    """
    t = np.concatenate([observed, planted])
    centre, deviation = float(t.mean()), float(t.std()) + 1e-9
    is_observed = np.arange(len(t)) < len(observed)
    weights = len(t) / 2 / np.where(is_observed, len(observed), len(planted))
    bounds = [(0.1, MAX_SLOPE), (-MAX_SHIFT, MAX_SHIFT), (MIN_SHARE, max_share)]
    fits = [
        minimize(
            _loss,
            [slope, 0.0, share],
            args=((t - centre) / deviation, is_observed, weights, right, back),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
        )
        for slope, share in starts
    ]
    slope, shift, share = min(fits, key=lambda fit: float(fit.fun)).x.tolist()
    return FlipShare(slope / deviation, shift - slope * centre / deviation, share)


def _loss(
    parameters: Float64, x: Float64, is_observed: Mask, weights: Float64, right: float, back: float
) -> tuple[float, Float64]:
    """Return the negative log likelihood, and its gradient (3,) by slope, shift and share.

    Parameters
    ----------
    parameters : slope, shift and share s.
    x : (n,) standardised log ratios.
    is_observed : (n,) bool.
    weights : (n,) of the rows.
    right, back : share ``right + back * s`` of the planted labels that are right.
    """
    slope, shift, s = parameters
    u, r = expit(slope * x + shift), right + back * s
    # Densities of both samples in units of c + q.
    seen, planted = (1 - s) * (1 - u) + s * u, (1 - r) * u + r * (1 - u)
    by_u = np.where(is_observed, (2 * s - 1) / seen, (1 - 2 * r) / planted)
    by_u -= 2 * (s * (1 - back) - right) / (seen + planted)
    by_s = np.where(is_observed, (2 * u - 1) / seen, back * (1 - 2 * u) / planted)
    by_s -= (2 * u - 1) * (1 - back) / (seen + planted)
    by_s, by_logit = weights * by_s, weights * by_u * u * (1 - u)
    loss = -float((weights * np.log(np.where(is_observed, seen, planted) / (seen + planted))).sum())
    return loss, -np.array([(by_logit * x).sum(), by_logit.sum(), by_s.sum()])
