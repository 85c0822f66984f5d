"""Assessment of any rows by a learnt verdict: rows of the sample by models that did not train on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from operators.arrays import Float32, Float64, Int64, Mask
from operators.hashing import folds_of
from operators.outliers.evidence import BLOCK, evidence
from operators.outliers.marking import has_evidence, kind_posteriors
from operators.outliers.screen import Screen
from operators.outliers.verdict import FOLDS, VerdictState
from operators.threads import in_threads, limit_threads


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on n rows."""

    is_outlier: Mask
    kind: Int64
    """Index into ``KINDS`` of the most probable kind; -1 where the row is not marked."""
    posterior: Float64
    """Probability that the row is corrupt; 0 for rows of a class that is not assessed. Where shortcuts are
    known it is the lower one of two, and of rows that are not marked an upper bound."""
    score: Float64
    """Log odds with prevalences floored, which rank rows even where the posterior is 0 for all. They count
    all features.

    NaN for rows of a class that is not assessed."""


def assess(state: VerdictState, X: Float32, y: Int64, row_ids: Int64) -> Verdicts:
    """Assess rows, each on its own: neither their order nor the other rows change a bit of the result.

    Parameters
    ----------
    X, y, row_ids : (n, d) features, (n,) class index, (n,) ids.
    """
    n = len(y)
    posterior, score = np.zeros(n), np.full(n, np.nan)
    kind, evident = np.full(n, -1, np.int64), np.zeros(n, np.bool_)
    known = np.isin(y, state.classes)

    def assess_block(block: tuple[Int64, Int64]) -> None:
        rows, places = block
        E = _block_evidence(state, X[rows], y[rows], row_ids[rows], places, screen=state.screen)
        labels = _block_labels(state, y[rows], places)
        by_kind = kind_posteriors(state.ratios, E, labels, state.prevalence, state.checkable)
        evident[rows] = has_evidence(E, by_kind, state.flips, state.min_flip_ratio)[places]
        posterior[rows], kind[rows] = by_kind.sum(axis=1)[places], by_kind.argmax(axis=1)[places]
        score[rows] = np.log(np.exp(state.ratios.log_ratios(E)) @ state.ratios.prevalence)[places]

    with limit_threads(1):
        state.sources.prepare()
        in_threads(assess_block, list(_blocks(row_ids, np.flatnonzero(known))))
    marked = (posterior >= state.threshold) & evident
    if state.shortcut_free is not None and marked.any():
        rows = np.flatnonzero(marked)
        free = assess(state.shortcut_free, X[rows], y[rows], row_ids[rows])
        posterior[rows] = np.minimum(posterior[rows], free.posterior)
        marked[rows] = free.is_outlier
    return Verdicts(marked, np.where(marked, kind, -1), posterior, score)


def row_evidence(state: VerdictState, X: Float32, y: Int64, row_ids: Int64) -> tuple[Float64, Float64]:
    """Return the evidence on one row, shape (len(NAMES),), and its posterior by kind, shape (3,).

    Parameters
    ----------
    X, y, row_ids : (1, d) features, (1,) index of a class that is assessed, (1,) id.
    """
    place = np.asarray(row_ids % BLOCK, np.int64)
    with limit_threads(1):
        E = _block_evidence(state, X, y, row_ids, place)
        labels = _block_labels(state, y, place)
        by_kind = kind_posteriors(state.ratios, E, labels, state.prevalence, state.checkable)
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
    raw, Z = np.zeros((BLOCK, X.shape[1]), np.float32), np.zeros((BLOCK, X.shape[1]), np.float32)
    raw[places] = X
    if state.eraser is not None:
        raw = state.eraser(raw)
    folds, block_ids = np.full(BLOCK, -1, np.int64), np.full(BLOCK, -1, np.int64)
    labels = _block_labels(state, y, places)
    Z[places] = state.scaler(raw[places])
    folds[places] = np.where(inside, folds_of(ids, state.n_folds, state.seed, FOLDS), -1)
    block_ids[places] = ids
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


def _block_labels(state: VerdictState, y: Int64, places: Int64) -> Int64:
    """Return (BLOCK,) positions of the class indices ``y`` among the assessed classes; 0 elsewhere."""
    labels = np.zeros(BLOCK, np.int64)
    labels[places] = np.searchsorted(state.classes, y)
    return labels


def _blocks(row_ids: Int64, rows: Int64) -> Iterator[tuple[Int64, Int64]]:
    """Yield the rows whose ids share a block, and their places in it: ``row_id % BLOCK``.

    A matrix product may round a row differently at another place of the block.
    """
    order = rows[np.argsort(row_ids[rows], kind="stable")]
    cuts = np.flatnonzero(np.diff(row_ids[order] // BLOCK)) + 1
    for start, stop in pairwise([0, *cuts.tolist(), len(order)]):
        if stop > start:
            yield order[start:stop], np.asarray(row_ids[order[start:stop]] % BLOCK, np.int64)
