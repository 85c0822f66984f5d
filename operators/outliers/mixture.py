"""Prevalence of each kind of damage, and the probability that a row has it.

The observed rows are a mixture: clean rows, flipped rows, rows with damaged features. What the last two look
like is known, since both can be planted in the very rows at hand; clean rows are what remains. A logistic
regression on the evidence gives the density ratio of each planted kind to the clean rows, and the shares of
damaged features follow by expectation maximisation (Saerens et al. 2002), where clean rows and the sources of
planted ones are weighted anew by the posterior of every round. The share of flipped labels is fitted by
maximum likelihood (:mod:`operators.outliers.flip_share`): the rounds converge too slowly to tell it. This
differs from MAP-D (Siddiqui et al. 2022) in that the planted rows are never trained on.

The log ratio is linear in the evidence. This tells a label error from natural ambiguity: errors make the
share of contradicted labels level off where the models are sure, ambiguity lets it fall on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from operators.arrays import Float64, Int64, Mask
from operators.outliers.flip_share import fit_flip_share, separation, unmixed_separation
from operators.outliers.linear import fit_logistic

START = 0.02
"""Share of each kind in the first round."""
MAX_TOTAL = 0.3
"""Bound on the share of all damaged rows."""
MAX_LOG_RATIO = 50.0
FLIP_ROUNDS = 12
"""Rounds of weighting for flipped labels. They decide which rows rank first, not how probable a flip is."""
MIN_SUSPECTED = 5
"""Suspected rows below which labels confirm nothing."""
MIN_CONFIRMED = 0.5
"""Share of suspected rows that labels must confirm as damaged.

Where fewer are confirmed, most rows that look damaged are rare, and marking them would be wrong."""
MIN_CONFIRMED_LOWER = 0.2
"""Least value of the lower 95 % limit of that share."""
MIN_LABEL_SPAN = 0.2
"""Least rise of the share of contradicted labels from other rows to planted damaged ones.

Where labels are hardly predictable anyway, rare rows are contradicted nearly as often as damaged ones, and
labels confirm nothing."""
MIN_SPAN_WITHIN = 0.1
"""The same within the strata, on average: a shortcut that tells the label makes it less."""


@dataclass(frozen=True)
class Ratios:
    """Log density ratios of planted kinds to clean rows, linear in standardised evidence."""

    columns: Int64
    """Columns of the evidence that are used."""
    mean: Float64
    """(len(columns),) means of the observed rows."""
    deviation: Float64
    """(len(columns),) their standard deviations."""
    coef: Float64
    """(n_kinds, len(columns))."""
    intercept: Float64
    """(n_kinds,)."""
    prevalence: Float64
    """(n_kinds,) estimated share of each kind among the observed rows."""

    def log_ratios(self, E: Float64) -> Float64:
        """Return (n, n_kinds) log ratios of evidence (n, m)."""
        standard = (E[:, self.columns] - self.mean) / self.deviation
        return np.minimum(standard @ self.coef.T + self.intercept, MAX_LOG_RATIO)


def posteriors(log_ratios: Float64, prevalence: Float64) -> Float64:
    """Return (n, n_kinds) the probability of each kind, given the shares of the mixture."""
    odds = np.exp(log_ratios) * prevalence / max(1 - float(prevalence.sum()), 1e-3)
    return np.asarray(odds / (1 + odds.sum(axis=1, keepdims=True)), np.float64)


def mixture_shares(log_ratios: Float64, start: Float64, max_total: float = MAX_TOTAL) -> Float64:
    """Return (n_kinds,) the shares of the planted kinds by EM, at most ``max_total`` together."""
    shares = start
    for _ in range(100):
        new = posteriors(log_ratios, shares).mean(axis=0)
        new = new * min(1.0, max_total / max(float(new.sum()), 1e-12))
        if np.abs(new - shares).max() < 1e-6:
            break
        shares = new
    return shares


def fit_ratios(
    E: Float64,
    planted: Sequence[Float64],
    columns: Sequence[int],
    *,
    prevalence: Float64 | None = None,
    rounds: int = 4,
) -> Ratios:
    """Fit the density ratios, and the prevalence of each kind unless it is given.

    Parameters
    ----------
    E : (n, m) evidence of the observed rows.
    planted : of each kind, (n, m) evidence of the same rows with that damage.
    columns : columns of the evidence to use.
    prevalence : (n_kinds,) shares known from elsewhere.
    rounds : of weighting rows by how surely they are clean. More rounds mark more rows, less precisely.
    """
    used = np.asarray(columns, np.int64)
    parts = [A[:, used] for A in (E, *planted)]
    mean, deviation = parts[0].mean(axis=0), parts[0].std(axis=0) + 1e-6
    stacked = np.vstack([(A - mean) / deviation for A in parts])
    target = np.repeat(np.arange(len(parts)), len(E))
    shares = np.full(len(planted), START) if prevalence is None else prevalence
    clean = np.ones(len(E))
    for _ in range(rounds):
        weights = np.tile(clean * (len(E) / clean.sum()), len(parts)) + 1e-12
        model = fit_logistic(stacked, target, weights)
        coef, intercept = _relative_to_first(model.coef_, model.intercept_)
        ratios = Ratios(used, mean, deviation, coef, intercept, shares)
        log_ratios = ratios.log_ratios(E)
        if prevalence is None:
            shares = mixture_shares(log_ratios, np.maximum(shares, 1e-4))
        clean = 1 - posteriors(log_ratios, shares).sum(axis=1)
    return Ratios(used, mean, deviation, coef, intercept, shares)


def _relative_to_first(coef: Float64, intercept: Float64) -> tuple[Float64, Float64]:
    """Return logits relative to the first class; scikit-learn keeps one row for two classes."""
    if len(coef) == 1:
        return coef, intercept
    return coef[1:] - coef[0], intercept[1:] - intercept[0]


def prevalence_bound(log_ratio: Float64, planted: Float64, min_share: float = 0.02) -> float:
    """Return an upper bound on the share of a kind: no part of the mixture exceeds the whole above any cut.

    The least ratio of the observed share above a cut (its upper 95 % limit) to the planted share above it,
    over cuts above which at least ``min_share`` of the planted rows lie (Blanchard et al. 2010; the best bin
    of Garg et al. 2021).
    """
    cuts = np.quantile(planted, np.linspace(0, 1 - min_share, 100))
    observed = len(log_ratio) - np.searchsorted(np.sort(log_ratio), cuts, side="left")
    above = len(planted) - np.searchsorted(np.sort(planted), cuts, side="left")
    upper = (observed + 1.64 * np.sqrt(observed) + 1.5) / len(log_ratio)
    return float((upper / (above / len(planted))).min())


def flip_ratios(
    E: Float64,
    flipped: Float64,
    narrow: Sequence[int],
    wide: Sequence[int],
    n_classes: int,
    min_separation: float,
) -> tuple[Ratios, float]:
    """Fit the density ratio of flipped labels, and estimate their share.

    Its direction is the mean of two: one of few columns, whose ranking is never far below that of the best of
    them, and one of all columns on labels, which distinguishes rows that break a cue. Its scale and the share
    follow together by maximum likelihood, :func:`operators.outliers.flip_share.fit_flip_share`.

    Parameters
    ----------
    E, flipped : (n, m) evidence of the observed rows, and of the same rows with another label.
    narrow, wide : columns; ``wide`` contains ``narrow``.
    n_classes : number of classes.
    min_separation : area under ROC, wrong labels against right ones, below which the share counts as 0.

    Returns
    -------
    ratios : of one kind, on the columns ``wide``.
    share : in [0, 1].
    """
    few, every = (fit_ratios(E, [flipped], columns, rounds=FLIP_ROUNDS) for columns in (narrow, wide))
    coef = every.coef / 2
    coef[:, np.isin(every.columns, few.columns)] += few.coef / 2
    intercept = (few.intercept + every.intercept) / 2
    ranking = Ratios(every.columns, every.mean, every.deviation, coef, intercept, np.zeros(1))
    observed, planted = (ranking.log_ratios(A)[:, 0] for A in (E, flipped))
    fit = fit_flip_share(observed, planted, n_classes, MAX_TOTAL)
    ratios = replace(
        ranking,
        coef=coef * fit.slope,
        intercept=intercept * fit.slope + fit.shift,
        prevalence=np.array([fit.share]),
    )
    unmixed = unmixed_separation(separation(observed, planted), fit.share, fit.share / (n_classes - 1))
    return ratios, fit.share if unmixed >= min_separation else 0.0


def estimate_prevalence(E: Float64, planted: Float64, columns: Sequence[int], min_separation: float) -> float:
    """Estimate the share of one kind from some evidence alone; 0 where planted rows hardly stand out."""
    ratios = fit_ratios(E, [planted], columns)
    observed, seen = ratios.log_ratios(E)[:, 0], ratios.log_ratios(planted)[:, 0]
    share = min(float(ratios.prevalence[0]), prevalence_bound(observed, seen))
    from_clean = (separation(observed, seen) - share / 2) / (1 - share)
    return share if from_clean >= min_separation else 0.0


def confirm_by_labels(
    wrong: Float64,
    planted_wrong: Float64,
    suspected: Mask,
    planted_suspected: Mask,
    strata: tuple[Int64, Int64],
) -> float:
    """Estimate the share of suspected rows whose features do not predict their labels, as damage has it.

    Naturally extreme rows have as informative features as others; scrambled ones have not. The contradicted
    share among suspected rows is placed between that among other rows and that among planted rows, each of
    the same strata: classes that are hard to tell, and rows that break a shortcut, are contradicted anyway.

    Parameters
    ----------
    wrong, planted_wrong : (n,) in [0, 1], share of the models without the row that predict another label.
    suspected, planted_suspected : (n,) bool, by evidence from distances alone.
    strata : (n,) of the rows, and of the planted ones; see :mod:`operators.outliers.strata`.

    Returns
    -------
    float
        In [0, 1]; 0 where it or its lower 95 % limit is below the constants above, or labels say nothing.
    """
    m = int(suspected.sum())
    if m < MIN_SUSPECTED or m == len(wrong) or not planted_suspected.any():
        return 0.0
    if planted_wrong[planted_suspected].mean() - wrong[~suspected].mean() < MIN_LABEL_SPAN:
        return 0.0
    excess = span = variance = 0.0
    for stratum in np.unique(strata[0][suspected]):
        rows, planted = strata[0] == stratum, (strata[1] == stratum) & planted_suspected
        of_stratum, others = wrong[rows & suspected], wrong[rows & ~suspected]
        if not len(others) or not planted.any():
            continue
        found, rest = of_stratum.mean(), others.mean()
        excess += len(of_stratum) * (found - rest)
        span += len(of_stratum) * max(float(planted_wrong[planted].mean() - rest), 0.0)
        variance += len(of_stratum) * found * (1 - found)
    if span < MIN_SPAN_WITHIN * m:
        return 0.0
    share, error = excess / span, np.sqrt(max(variance, 1.0)) / span
    confirmed = share >= MIN_CONFIRMED and share - 1.64 * error >= MIN_CONFIRMED_LOWER
    return float(min(share, 1.0)) if confirmed else 0.0


def damage_prevalence(
    E: Float64,
    planted: Float64,
    columns: Sequence[int],
    margins: Sequence[int],
    min_separation: float,
    strata: tuple[Int64, Int64],
) -> float:
    """Estimate the share of rows with damaged features: by distances, confirmed by labels.

    Parameters
    ----------
    E, planted : (n, m) evidence of observed rows, and of the same rows damaged.
    columns : distances, in the evidence.
    margins : columns of margins, which confirm together: each of them may be blind to some damage, as
        permuted pixels keep a cue in their mean, and the best of several is too often right by chance.
    strata : (n,) of observed and of planted rows, within which labels are compared.
    """
    share = estimate_prevalence(E, planted, columns, min_separation)
    if share <= 0:
        return 0.0
    ratios = fit_ratios(E, [planted], columns, prevalence=np.array([share]))
    suspected, seen = (posteriors(ratios.log_ratios(A), ratios.prevalence)[:, 0] >= 0.5 for A in (E, planted))
    wrong, planted_wrong = ((A[:, margins] > 0).mean(axis=1) for A in (E, planted))
    return share * confirm_by_labels(wrong, planted_wrong, suspected, seen, strata)
