"""The rule that marks rows, and estimates of its precision and recall."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from operators.arrays import Float64, Int64, Mask
from operators.outliers.mixture import Ratios, posteriors
from operators.outliers.planted import KINDS

UNREACHABLE = 2.0
"""Threshold above every posterior: no row is marked."""
TIE = 1e-9
"""Posteriors that differ by no more than this are equal: their rows are marked together or not at all."""


@dataclass(frozen=True)
class Estimates:
    """Estimates of the verdict's quality on the sample, from planted damage."""

    prevalence: dict[str, float]
    """Share of rows of each kind."""
    precision: float
    """Expected share of corrupt rows among the marked; NaN where none are marked."""
    recall: float
    """Upper bound on the share of corrupt rows that are marked; NaN where none are expected."""
    planted_recall: dict[str, float]
    """Share of planted rows of each kind that would be marked."""
    marked: float
    """Share of the rows, of those in which damage was planted, that are marked."""
    n_rows: int
    """Rows of the sample."""
    n_planted: int
    """Rows of the sample in which damage was planted, once of each kind."""


def has_evidence(E: Float64, by_kind: Float64, flips: Ratios, min_flip_ratio: float) -> Mask:
    """Return (n,) whether a row may be marked by the kind that it most probably has.

    A flipped label needs evidence of its own: the posterior of being corrupt also counts what speaks for
    damaged features, and a rare row that breaks a cue has a little of both.

    Parameters
    ----------
    E : (n, m) evidence.
    by_kind : (n, n_kinds) posteriors; flips come first.
    flips : density ratio of wrong labels to right ones.
    min_flip_ratio : least ratio of a row whose most probable kind is a flip.
    """
    enough = flips.log_ratios(E)[:, 0] >= np.log(min_flip_ratio)
    return np.asarray(enough | (by_kind.argmax(axis=1) != 0))


def kind_posteriors(ratios: Ratios, E: Float64, y: Int64, prevalence: Float64, checkable: Mask) -> Float64:
    """Return (n, n_kinds) the probability of each kind, flips first; 0 for flips in other classes.

    Parameters
    ----------
    E, y : (n, m) evidence and (n,) class indices.
    prevalence : (n_kinds,) shares.
    checkable : (n_classes,) whether wrong labels of a class stand out.
    """
    log_ratios = ratios.log_ratios(E)
    log_ratios[~checkable[y], 0] = -np.inf
    return posteriors(log_ratios, prevalence)


def choose_threshold(p: Float64, min_precision: float, min_posterior: float) -> float:
    """Choose the least threshold above which posteriors (n,) have a mean of ``min_precision``.

    It lies between two posteriors that differ by more than ``TIE``, so that the last bits of a row's
    posterior decide nothing, and the mean counts all rows that the threshold marks.

    Returns
    -------
    float
        ``UNREACHABLE`` where no row can be marked.
    """
    ordered = np.sort(p)[::-1]
    precise = np.cumsum(ordered) / np.arange(1, len(p) + 1) >= min_precision
    last_of_tie = np.append(ordered[:-1] - ordered[1:] > TIE, True)
    allowed = np.flatnonzero(precise & last_of_tie & (ordered >= min_posterior))
    if not len(allowed):
        return UNREACHABLE
    last = int(allowed[-1])
    below = max(float(ordered[last + 1]), min_posterior) if last + 1 < len(p) else min_posterior
    return (float(ordered[last]) + below) / 2


def estimate(
    posterior: Float64,
    marked: Mask,
    planted_marked: Sequence[Mask],
    prevalence: Float64,
    n_rows: int,
) -> Estimates:
    """Estimate precision and recall.

    Parameters
    ----------
    posterior, marked : (n,) of the observed rows.
    planted_marked : of each kind, (n,) whether the same rows with that damage would be marked.
    prevalence : (n_kinds,) shares.
    n_rows : rows of the sample.
    """
    total = float(posterior.sum())
    shares = [float(one.mean()) for one in planted_marked]
    return Estimates(
        prevalence=dict(zip(KINDS, prevalence.tolist(), strict=True)),
        precision=float(posterior[marked].mean()) if marked.any() else float("nan"),
        recall=float(posterior[marked].sum()) / total if total > 0 else float("nan"),
        planted_recall=dict(zip(KINDS, shares, strict=True)),
        marked=float(marked.mean()),
        n_rows=n_rows,
        n_planted=len(posterior),
    )
