"""The verdict on which rows are probably corrupt, with its estimated precision and recall.

:func:`fit` learns from a bounded sample; :func:`assess` scores any row, rows of the sample by models that did
not train on them. The prevalence of damaged features is estimated from distances and confirmed by labels,
that of label errors from labels alone, so that one kind cannot pass for the other; the posterior of a row
then uses everything.

Not covered: flips that always point the way a cue points (they look like rows that are merely easy), and
damage that leaves a row both near its neighbours and consistent with its label. Estimated recall counts
neither, so that it is an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from operators.arrays import Float32, Float64, Int64, Mask
from operators.hashing import folds_of, row_hashes
from operators.outliers.evidence import (
    BLOCK,
    DISTANCE_COLUMNS,
    LABEL_COLUMNS,
    MARGINS,
    NAMES,
    Sources,
    evidence,
    fit_sources,
)
from operators.outliers.linear import Scaler
from operators.outliers.mixture import (
    MAX_LOG_RATIO,
    Ratios,
    damage_prevalence,
    fit_ratios,
    flip_ratios,
    posteriors,
)
from operators.outliers.planted import KINDS, flip_labels, mix_columns, permute_within
from operators.outliers.sample import SAMPLE
from operators.outliers.screen import Screen, fit_screen
from operators.threads import in_threads

FOLDS = "outliers/folds"
PLANTED = "outliers/planted"
NARROW = tuple(MARGINS.index(name) for name in ("plain", "trees"))
"""Evidence that ranks flipped labels well on every table; see :func:`flip_ratios`."""
DAMAGE_ROUNDS = 3
"""Rounds of weighting rows by how surely they are clean, where features are damaged too."""
MAIN_KIND = 0.75
"""Share of the more common kind in all damage of features."""
MIN_ROWS = 100
"""Rows of assessed classes below which there is no evidence."""
MIN_CLASS = 20
"""Sampled rows of a class below which its rows are not assessed."""
UNREACHABLE = 2.0
"""Threshold above every posterior: no row is marked."""


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
    min_flip_separation: float = 0.85
    """Area under ROC, planted flips against clean rows, below which flips count as undetectable."""
    min_damage_separation: float = 0.9
    """The same for damaged features."""
    min_precision: float = 0.7
    """Bound on the estimated precision of the marked rows."""
    min_posterior: float = 0.5
    """No row is marked that is more probably clean."""
    min_prevalence: float = 0.0015
    """A kind that is estimated to be rarer is not marked at all."""
    rank_prevalence: float = 0.002
    """Least prevalence of label errors in the score, which ranks rows even where none are marked."""


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
    """Share of the rows of the sample that are marked."""
    n_rows: int
    """Rows of the sample."""


@dataclass(frozen=True)
class VerdictState:
    """Everything that :func:`assess` needs."""

    scaler: Scaler
    sources: Sources
    ratios: Ratios
    prevalence: Float64
    """(3,) shares with rare kinds set to 0: what is marked follows from them."""
    screen: Screen | None
    """Which rows need their neighbours; None where all do."""
    threshold: float
    """Least posterior of a marked row; ``UNREACHABLE`` where no row is marked."""
    classes: Int64
    """(n_classes,) ascending class indices that are assessed; evidence counts them from 0."""
    sample_ids: Int64
    """Row ids of the sample, ascending."""
    n_folds: int
    seed: int
    estimates: Estimates = field(compare=False)


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on n rows."""

    is_outlier: Mask
    kind: Int64
    """Index into ``KINDS`` of the most probable kind; -1 where the row is not marked."""
    posterior: Float64
    """Probability that the row is corrupt; 0 for rows of a class that is not assessed."""
    score: Float64
    """Log odds with prevalences floored, which rank rows even where the posterior is 0 for all.

    NaN for rows of a class that is not assessed."""


def fit(X: Float32, y: Int64, row_ids: Int64, *, seed: int = 0, config: Config | None = None) -> VerdictState:
    """Learn to tell corrupt rows. The result depends on neither the order of the rows nor on threads.

    Parameters
    ----------
    X : (n, d) float32 finite features.
    y : (n,) class index.
    row_ids : (n,) unique ids.
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
    scaler = Scaler.fit(X)
    if not scaler.inverse.any():
        raise NoEvidenceError("all features are constant")
    Z, folds = scaler(X), folds_of(ids, config.n_folds, seed, FOLDS)
    m = slice(0, config.max_calibration)
    # Another number of threads may round differently.
    with threadpool_limits(1):
        sources = fit_sources(Z, y, folds, ids, len(classes), k=config.neighbours, max_index=config.max_index)
        E, planted = planted_evidence(sources, Z[m], y[m], folds[m], ids[m], seed)
        ratios, prevalence = calibrate(E, planted, config)
        trusted = np.where(prevalence >= config.min_prevalence, prevalence, 0.0)
        posterior, *seen = (posteriors(ratios.log_ratios(A), trusted).sum(axis=1) for A in (E, *planted))
        threshold = choose_threshold(posterior, config.min_precision, config.min_posterior)
        screen = fit_screen(
            E,
            planted[0],
            y[m],
            ratios,
            (sources.raw, sources.cue_free),
            threshold=threshold,
            prevalence=float(trusted[0]),
        )
    return VerdictState(
        scaler,
        sources,
        ratios,
        trusted,
        screen,
        threshold,
        classes,
        np.sort(ids),
        config.n_folds,
        seed,
        estimate(posterior, seen, prevalence, threshold, len(ids)),
    )


def _assessed_rows(y: Int64, row_ids: Int64, seed: int) -> tuple[Int64, Int64]:
    """Return the classes that are assessed, and the positions of their rows by the hash of their ids."""
    classes, counts = np.unique(y, return_counts=True)
    classes = classes[counts >= MIN_CLASS].astype(np.int64)
    order = np.lexsort((row_ids, row_hashes(row_ids, seed, SAMPLE)))
    order = order[np.isin(y[order], classes)]
    if len(classes) < 2 or len(order) < MIN_ROWS:
        raise NoEvidenceError(
            f"{len(classes)} classes have {MIN_CLASS} sampled rows or more ({len(order)} rows in all); two "
            f"such classes and {MIN_ROWS} rows are needed"
        )
    return classes, order


def estimate(
    posterior: Float64, seen: list[Float64], prevalence: Float64, threshold: float, n_rows: int
) -> Estimates:
    """Estimate precision and recall from posteriors of observed rows (n,) and of planted ones (n,) each."""
    marked = posterior >= threshold
    total = float(posterior.sum())
    shares = [float((p >= threshold).mean()) for p in seen]
    return Estimates(
        dict(zip(KINDS, prevalence.tolist(), strict=True)),
        float(posterior[marked].mean()) if marked.any() else float("nan"),
        float(posterior[marked].sum()) / total if total > 0 else float("nan"),
        dict(zip(KINDS, shares, strict=True)),
        float(marked.mean()),
        n_rows,
    )


def planted_evidence(
    sources: Sources, Z: Float32, y: Int64, folds: Int64, ids: Int64, seed: int
) -> tuple[Float64, list[Float64]]:
    """Return evidence of observed rows, and of the same rows with each kind of ``KINDS``.

    Parameters
    ----------
    Z : (n, d) standardised features.
    y, folds, ids : (n,) class index, fold and row id.
    """
    rng = np.random.default_rng(int(row_hashes(np.zeros(1, np.int64), seed, PLANTED)[0]))
    observed = sources.view(Z, folds, ids)
    E = evidence(observed, y, sources.priors)
    planted = [evidence(observed, flip_labels(y, len(sources.priors), rng), sources.priors)]
    varies = Z.any(axis=0)
    for damage in (mix_columns, permute_within):
        view = sources.view(damage(Z, rng) * varies, folds, ids)
        planted.append(evidence(view, y, sources.priors))
    return E, planted


def calibrate(E: Float64, planted: list[Float64], config: Config) -> tuple[Ratios, Float64]:
    """Estimate the density ratios of all kinds and the (3,) prevalences.

    Evidence from distances counts only where damaged features are confirmed. On tables without such damage
    it would rank rows that are merely far from others before flipped labels.
    """
    flips, flipped = flip_ratios(E, planted[0], NARROW, LABEL_COLUMNS, config.min_flip_separation)
    margins, least = range(len(MARGINS)), config.min_damage_separation
    damage = [damage_prevalence(E, kind, DISTANCE_COLUMNS, margins, least) for kind in planted[1:]]
    total, main = max(damage), int(np.argmax(damage))
    if total < config.min_prevalence:
        return _without_damage(flips, config), np.array([flipped, 0.0, 0.0])
    # The kinds overlap: of both only the larger share counts.
    damaged = np.where(np.arange(2) == main, MAIN_KIND, 1 - MAIN_KIND) * total
    prevalence = np.concatenate([[flipped], damaged])
    ranked = np.maximum(prevalence, [config.rank_prevalence, 0, 0])
    ratios = fit_ratios(E, planted, range(len(NAMES)), prevalence=ranked, rounds=DAMAGE_ROUNDS)
    return ratios, prevalence


def _without_damage(flips: Ratios, config: Config) -> Ratios:
    """Extend the ratios of flips by kinds that no row has."""
    coef = np.vstack([flips.coef, np.zeros((2, len(flips.columns)))])
    intercept = np.concatenate([flips.intercept, [-MAX_LOG_RATIO, -MAX_LOG_RATIO]])
    share = max(float(flips.prevalence[0]), config.rank_prevalence)
    return Ratios(flips.columns, flips.mean, flips.deviation, coef, intercept, np.array([share, 0.0, 0.0]))


def choose_threshold(p: Float64, min_precision: float, min_posterior: float) -> float:
    """Choose the least threshold above which posteriors (n,) have a mean of ``min_precision``.

    It lies between two posteriors, so that the last bits of a row's posterior decide nothing.

    Returns
    -------
    float
        ``UNREACHABLE`` where no row can be marked.
    """
    ordered = np.sort(p)[::-1]
    precise = np.cumsum(ordered) / np.arange(1, len(p) + 1) >= min_precision
    allowed = np.flatnonzero(precise & (ordered >= min_posterior))
    if not len(allowed):
        return UNREACHABLE
    last = int(allowed[-1])
    below = max(float(ordered[last + 1]), min_posterior) if last + 1 < len(p) else min_posterior
    return (float(ordered[last]) + below) / 2


def assess(state: VerdictState, X: Float32, y: Int64, row_ids: Int64) -> Verdicts:
    """Assess rows, each on its own: neither their order nor the other rows change a bit of the result.

    Parameters
    ----------
    X, y, row_ids : (n, d) features, (n,) class index, (n,) ids.
    """
    n = len(y)
    posterior, score = np.zeros(n), np.full(n, np.nan)
    kind = np.full(n, -1, np.int64)
    known = np.isin(y, state.classes)

    def assess_block(block: tuple[Int64, Int64]) -> None:
        rows, places = block
        E = _block_evidence(state, X[rows], y[rows], row_ids[rows], places, screen=state.screen)
        log_ratios = state.ratios.log_ratios(E)
        by_kind = posteriors(log_ratios, state.prevalence)[places]
        posterior[rows], kind[rows] = by_kind.sum(axis=1), by_kind.argmax(axis=1)
        score[rows] = np.log(np.exp(log_ratios) @ state.ratios.prevalence)[places]

    with threadpool_limits(1):
        state.sources.prepare()
        in_threads(assess_block, list(_blocks(row_ids, np.flatnonzero(known))))
    marked = posterior >= state.threshold
    return Verdicts(marked, np.where(marked, kind, -1), posterior, score)


def row_evidence(state: VerdictState, X: Float32, y: Int64, row_ids: Int64) -> tuple[Float64, Float64]:
    """Return the evidence on one row, shape (len(NAMES),), and its posterior by kind, shape (3,).

    Parameters
    ----------
    X, y, row_ids : (1, d) features, (1,) index of a class that is assessed, (1,) id.
    """
    place = np.asarray(row_ids % BLOCK, np.int64)
    with threadpool_limits(1):
        E = _block_evidence(state, X, y, row_ids, place)
        by_kind = posteriors(state.ratios.log_ratios(E), state.prevalence)
    return np.asarray(E[place[0]]), np.asarray(by_kind[place[0]])


def _block_evidence(
    state: VerdictState,
    X: Float32,
    y: Int64,
    row_ids: Int64,
    places: Int64,
    *,
    screen: Screen | None = None,
) -> Float64:
    """Return (BLOCK, len(NAMES)) evidence of a block in which the rows stand at the given places.

    With a screen, neighbours are looked up for rows of the sample and for those that the screen wants; what
    the others lack is estimated.
    """
    ids = row_ids.astype(np.int64)
    nearest = np.minimum(np.searchsorted(state.sample_ids, ids), len(state.sample_ids) - 1)
    inside = state.sample_ids[nearest] == ids
    Z = np.zeros((BLOCK, X.shape[1]), np.float32)
    folds, block_ids, labels = (np.full(BLOCK, value, np.int64) for value in (-1, -1, 0))
    Z[places] = state.scaler(X)
    folds[places] = np.where(inside, folds_of(ids, state.n_folds, state.seed, FOLDS), -1)
    block_ids[places] = ids
    labels[places] = np.searchsorted(state.classes, y)
    sources = state.sources
    view, estimated = sources.view_without_neighbours(Z, folds), None
    wanted = places
    if screen is not None:
        estimated = screen.fill_margins(evidence(view, labels, sources.priors), labels)
        wanted = np.union1d(screen.select_rows(estimated, labels, state.ratios), places[inside])
        wanted = np.intersect1d(wanted, places, assume_unique=True)
    sources.add_neighbours(view, Z, block_ids, wanted)
    found = evidence(view, labels, sources.priors)
    if estimated is None:
        return found
    estimated[wanted] = found[wanted]
    return estimated


def _blocks(row_ids: Int64, rows: Int64) -> Iterator[tuple[Int64, Int64]]:
    """Yield the rows whose ids share a block, and their places in it: ``row_id % BLOCK``.

    A matrix product may round a row differently at another place of the block.
    """
    order = rows[np.argsort(row_ids[rows], kind="stable")]
    cuts = np.flatnonzero(np.diff(row_ids[order] // BLOCK)) + 1
    for start, stop in pairwise([0, *cuts.tolist(), len(order)]):
        if stop > start:
            yield order[start:stop], np.asarray(row_ids[order[start:stop]] % BLOCK, np.int64)
