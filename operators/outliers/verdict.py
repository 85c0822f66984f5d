"""The verdict on which rows are probably corrupt, with its estimated precision and recall.

:func:`fit` learns from a bounded sample; ``assessment`` then judges any row. The prevalence of damaged
features is estimated from distances and confirmed by labels, that of label errors from labels alone, so that
one kind cannot pass for the other; the posterior of a row then uses everything.

Not covered: flips that always point the way a cue points (they look like rows that are merely easy), and
damage that leaves a row both near its neighbours and consistent with its label. Estimated recall counts
neither, so that it is an upper bound.

Where shortcuts are known, a second verdict learns from features without them, and a row is only as surely
corrupt as both say: to all that leans on a shortcut, a row that breaks it looks like one with another label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from operators.arrays import Float32, Float64, Int64, Mask
from operators.counts import count
from operators.hashing import folds_of, row_hashes
from operators.outliers.evidence import (
    DISTANCE_COLUMNS,
    LABEL_COLUMNS,
    MARGINS,
    NAMES,
    Sources,
    evidence,
    fit_sources,
)
from operators.outliers.flip_share import checkable_classes
from operators.outliers.linear import Scaler
from operators.outliers.marking import Estimates, choose_threshold, estimate, has_evidence, kind_posteriors
from operators.outliers.mixture import (
    MAX_LOG_RATIO,
    Ratios,
    damage_prevalence,
    fit_ratios,
    flip_ratios,
    posteriors,
)
from operators.outliers.planted import plant
from operators.outliers.sample import SAMPLE
from operators.outliers.screen import Screen, fit_screen
from operators.outliers.shortcut_free import Eraser, fit_eraser
from operators.outliers.strata import Breaks, Strata, strata_of
from operators.threads import limit_threads

FOLDS = "outliers/folds"
NARROW = tuple(MARGINS.index(name) for name in ("plain", "trees"))
"""Evidence that ranks flipped labels well on every table; see :func:`flip_ratios`."""
DAMAGE_ROUNDS = 12
"""Rounds of weighting rows by how surely they are clean, where features are damaged too.

After k rounds the posterior of a row that is surely flipped is about k / (k + 1): with three rounds such rows
stayed below the threshold where many labels are wrong."""
MAIN_KIND = 0.75
"""Share of the more common kind in all damage of features."""
MIN_ROWS = 100
"""Rows of assessed classes below which there is no evidence."""
MIN_CLASS = 20
"""Sampled rows of a class below which its rows are not assessed."""
REMAINDER = 1e-6
"""Deviation, in units of standardised float32 features, up to which a feature holds only rounding."""


class NoEvidenceError(ValueError):
    """The rows cannot support a verdict; the message says why."""


@dataclass(frozen=True)
class Config:
    """Constants of the verdict."""

    max_calibration: int = 5_000
    """Rows in which damage is planted."""
    max_index: int = 10_000
    """Rows in the neighbour tables."""
    n_folds: int = 5
    neighbours: int = 15
    min_flip_separation: float = 0.88
    """Area under ROC, wrong labels against right ones, below which flips count as undetectable."""
    min_class_separation: float = 0.8
    """The same among the rows of one label, below which none of these rows is marked as flipped."""
    min_damage_separation: float = 0.9
    """Area under ROC, planted damage against clean rows, below which damage counts as undetectable."""
    min_precision: float = 0.7
    """Bound on the estimated precision of the marked rows."""
    min_posterior: float = 0.5
    """Posterior of being corrupt from which a row may be marked."""
    min_flip_ratio: float = 32.0
    """Density of wrong labels in multiples of that of right ones from which a row may be marked as flipped.

    By the posterior alone, weaker evidence would do where more labels are wrong, and rare rows, whose
    evidence does not depend on the share of wrong labels, would be marked with them. 32 is what a posterior
    of .5 needs where 3 % of the labels are wrong."""
    min_prevalence: float = 0.0015
    """A kind that is estimated to be rarer is not marked at all."""
    rank_prevalence: float = 0.002
    """Least prevalence of label errors in the score, which ranks rows even where none are marked."""


@dataclass(frozen=True, kw_only=True)
class VerdictState:
    """Everything that :func:`assess` needs."""

    scaler: Scaler
    sources: Sources
    ratios: Ratios
    flips: Ratios
    """Density ratio of wrong labels to right ones, by labels alone."""
    min_flip_ratio: float
    """Least ratio by ``flips`` of a row that is marked as flipped."""
    prevalence: Float64
    """(3,) shares with rare kinds set to 0: what is marked follows from them."""
    screen: Screen | None
    """Chooses the rows whose neighbours are looked up; None where those of all are."""
    threshold: float
    """Least posterior of a marked row; ``UNREACHABLE`` where no row is marked."""
    classes: Int64
    """(n_classes,) ascending class indices that are assessed; evidence counts them from 0."""
    checkable: Mask
    """(n_classes,) whether wrong labels of a class stand out; else none of its rows is marked as flipped."""
    sample_ids: Int64
    """Row ids of the sample, ascending."""
    n_folds: int
    seed: int
    estimates: Estimates = field(compare=False)
    eraser: Eraser | None = None
    """Takes known shortcuts out of the features ahead of everything else; None for features as they are."""
    shortcut_free: VerdictState | None = None
    """The verdict on features without known shortcuts, which has to agree; None where none is known."""


def fit(
    X: Float32,
    y: Int64,
    row_ids: Int64,
    *,
    shortcuts: Float64 | None = None,
    breaks: Breaks | None = None,
    seed: int = 0,
    config: Config | None = None,
) -> VerdictState:
    """Learn to tell corrupt rows. The result depends on neither the order of the rows nor on threads.

    Parameters
    ----------
    X : (n, d) float32 finite features.
    y : (n,) class index.
    row_ids : (n,) unique ids.
    shortcuts : (n, s) linear functions of the features, one for each known shortcut.
    breaks : tells which rows break a known shortcut; see :mod:`operators.outliers.strata`.
    seed : of folds and planted damage.

    Raises
    ------
    NoEvidenceError
        There are too few rows, fewer than two classes of ``MIN_CLASS`` rows, or only constant features.
    """
    config = config or Config()
    classes, rows = _assessed_rows(y, row_ids, seed)
    X, ids = np.asarray(X[rows], np.float32), row_ids[rows].astype(np.int64)
    y = np.searchsorted(classes, y[rows]).astype(np.int64)
    # Another number of threads may round differently.
    m = slice(0, config.max_calibration)
    with limit_threads(1):
        strata = strata_of(X[m], y[m], classes, breaks, seed)
        learnt, eraser = [_learn(X, y, ids, strata, len(classes), seed, config)], None
        if shortcuts is not None and shortcuts.shape[1]:
            eraser = fit_eraser(X, y, np.asarray(shortcuts[rows], np.float64))
            learnt.append(_learn(eraser(X), y, ids, strata, len(classes), seed, config, shortcut_free=True))
        posterior = np.minimum.reduce([one.posteriors for one in learnt])
        evident = np.logical_and.reduce([one.evident for one in learnt])
        prevalence = np.minimum.reduce([one.prevalence for one in learnt])
        threshold = choose_threshold(posterior[0] * evident[0], config.min_precision, config.min_posterior)
        marked, *planted = (posterior >= threshold) & evident
        estimates = estimate(posterior[0], marked, planted, prevalence, len(ids))
        states = [_state(one, y, classes, ids, threshold, estimates, seed, config) for one in learnt]
    if eraser is None:
        return states[0]
    return replace(states[0], shortcut_free=replace(states[1], eraser=eraser))


@dataclass(frozen=True, kw_only=True)
class _Learned:
    """Evidence learnt from one set of features, before rows are marked."""

    scaler: Scaler
    sources: Sources
    E: Float64
    planted: list[Float64]
    ratios: Ratios
    flips: Ratios
    prevalence: Float64
    trusted: Float64
    checkable: Mask
    posteriors: Float64
    """(1 + n_kinds, n) of the observed rows, and of the same rows with each kind of damage."""
    evident: Mask
    """(1 + n_kinds, n) whether they may be marked; see :func:`operators.outliers.marking.has_evidence`."""


def _learn(
    X: Float32,
    y: Int64,
    ids: Int64,
    strata: Strata,
    n_classes: int,
    seed: int,
    config: Config,
    *,
    shortcut_free: bool = False,
) -> _Learned:
    """Learn the evidence and what it says of damage; rows as in :func:`fit`, by the hash of their ids.

    Features from which shortcuts were taken are not shown to trees: a linear map hides nothing from them.
    """
    # Standardised features less their shortcuts are no values of a column: rounding remains of those that
    # hold nothing else.
    scaler = Scaler.fit(X, least=REMAINDER if shortcut_free else 0.0)
    if not scaler.inverse.any():
        raise NoEvidenceError(
            f"all features are constant{' without the known shortcuts' if shortcut_free else ''}"
        )
    Z, folds = scaler(X), folds_of(ids, config.n_folds, seed, FOLDS)
    m = slice(0, config.max_calibration)
    sources = fit_sources(
        Z,
        y,
        folds,
        ids,
        n_classes,
        k=config.neighbours,
        max_index=config.max_index,
        with_trees=not shortcut_free,
    )
    E, planted, flipped = planted_evidence(sources, Z[m], y[m], folds[m], ids[m], seed)
    rows, labels = (E, *planted), (y[m], flipped, y[m], y[m])
    ratios, flips, prevalence = calibrate(E, planted, strata, n_classes, config)
    checkable, covered = _check_classes(flips, rows[:2], labels[:2], n_classes, config)
    prevalence[0] *= covered
    trusted = np.where(prevalence >= config.min_prevalence, prevalence, 0.0)
    by_kind = [kind_posteriors(ratios, A, of, trusted, checkable) for A, of in zip(rows, labels, strict=True)]
    evident = [has_evidence(A, p, flips, config.min_flip_ratio) for A, p in zip(rows, by_kind, strict=True)]
    total = np.stack([p.sum(axis=1) for p in by_kind])
    return _Learned(
        scaler=scaler,
        sources=sources,
        E=E,
        planted=planted,
        ratios=ratios,
        flips=flips,
        prevalence=prevalence,
        trusted=trusted,
        checkable=checkable,
        posteriors=total,
        evident=np.stack(evident),
    )


def _check_classes(
    flips: Ratios, rows: Sequence[Float64], labels: Sequence[Int64], n_classes: int, config: Config
) -> tuple[Mask, float]:
    """Return (n_classes,) whether wrong labels of a class stand out, and the share of flips in such classes.

    Parameters
    ----------
    flips : density ratio of wrong labels to right ones.
    rows, labels : evidence (n, m) and class indices (n,) of the observed rows, and of those planted as
        flipped.
    """
    observed, planted = (flips.log_ratios(A)[:, 0] for A in rows)
    posterior = posteriors(observed[:, None], flips.prevalence)[:, 0]
    least = config.min_class_separation
    found = checkable_classes((observed, planted), (labels[0], labels[1]), posterior, n_classes, least)
    return found, float(posterior[found[labels[0]]].sum() / max(float(posterior.sum()), 1e-12))


def _state(
    one: _Learned,
    y: Int64,
    classes: Int64,
    ids: Int64,
    threshold: float,
    estimates: Estimates,
    seed: int,
    config: Config,
) -> VerdictState:
    """Return the state under which rows are marked from a threshold on."""
    screen = fit_screen(
        one.E,
        one.planted[0],
        y[: len(one.E)],
        one.ratios,
        (one.sources.raw, one.sources.cue_free),
        threshold=threshold,
        prevalence=float(one.trusted[0]),
        min_ratio=config.min_flip_ratio,
    )
    return VerdictState(
        scaler=one.scaler,
        sources=one.sources,
        ratios=one.ratios,
        flips=one.flips,
        min_flip_ratio=config.min_flip_ratio,
        prevalence=one.trusted,
        screen=screen,
        threshold=threshold,
        classes=classes,
        checkable=one.checkable,
        sample_ids=np.sort(ids),
        n_folds=config.n_folds,
        seed=seed,
        estimates=estimates,
    )


def _assessed_rows(y: Int64, row_ids: Int64, seed: int) -> tuple[Int64, Int64]:
    """Return the classes that are assessed, and the positions of their rows by the hash of their ids."""
    classes, counts = np.unique(y, return_counts=True)
    classes = classes[counts >= MIN_CLASS].astype(np.int64)
    order = np.lexsort((row_ids, row_hashes(row_ids, seed, SAMPLE)))
    order = order[np.isin(y[order], classes)]
    if len(classes) < 2 or len(order) < MIN_ROWS:
        have = "has" if len(classes) == 1 else "have"
        raise NoEvidenceError(
            f"{count(len(classes), 'class')} {have} {MIN_CLASS} sampled rows or more "
            f"({count(len(order), 'row')} in all); two such classes and {MIN_ROWS} rows are needed"
        )
    return classes, order


def planted_evidence(
    sources: Sources, Z: Float32, y: Int64, folds: Int64, ids: Int64, seed: int
) -> tuple[Float64, list[Float64], Int64]:
    """Return evidence of observed rows, of the same rows with each kind of ``KINDS``, and the planted labels.

    Parameters
    ----------
    Z : (n, d) standardised features.
    y, folds, ids : (n,) class index, fold and row id.
    """
    observed = sources.view(Z, folds, ids)
    E = evidence(observed, y, sources.priors)
    flipped, damaged = plant(Z, y, len(sources.priors), seed)
    planted = [evidence(observed, flipped, sources.priors)]
    planted += [evidence(sources.view(rows, folds, ids), y, sources.priors) for rows in damaged]
    return E, planted, flipped


def calibrate(
    E: Float64, planted: list[Float64], strata: Strata, n_classes: int, config: Config
) -> tuple[Ratios, Ratios, Float64]:
    """Estimate the density ratios of all kinds, that of flips by labels alone, and the (3,) prevalences.

    Evidence from distances counts only where damaged features are confirmed. On tables without such damage
    it would rank rows that are merely far from others before flipped labels.
    """
    flips, flipped = flip_ratios(E, planted[0], NARROW, LABEL_COLUMNS, n_classes, config.min_flip_separation)
    margins, least = range(len(MARGINS)), config.min_damage_separation
    damage = [
        damage_prevalence(E, rows, DISTANCE_COLUMNS, margins, least, (strata.observed, of_kind))
        for rows, of_kind in zip(planted[1:], strata.planted, strict=True)
    ]
    total, main = max(damage), int(np.argmax(damage))
    if total < config.min_prevalence:
        return _without_damage(flips, config), flips, np.array([flipped, 0.0, 0.0])
    # The kinds overlap: of both only the larger share counts.
    damaged = np.where(np.arange(2) == main, MAIN_KIND, 1 - MAIN_KIND) * total
    prevalence = np.concatenate([[flipped], damaged])
    # Rows are ranked by flips even where these stand out too little to be marked.
    ranked = np.concatenate([[max(float(flips.prevalence[0]), config.rank_prevalence)], damaged])
    ratios = fit_ratios(E, planted, range(len(NAMES)), prevalence=ranked, rounds=DAMAGE_ROUNDS)
    return ratios, flips, prevalence


def _without_damage(flips: Ratios, config: Config) -> Ratios:
    """Extend the ratios of flips by kinds that no row has."""
    coef = np.vstack([flips.coef, np.zeros((2, len(flips.columns)))])
    intercept = np.concatenate([flips.intercept, [-MAX_LOG_RATIO, -MAX_LOG_RATIO]])
    share = max(float(flips.prevalence[0]), config.rank_prevalence)
    return Ratios(flips.columns, flips.mean, flips.deviation, coef, intercept, np.array([share, 0.0, 0.0]))
