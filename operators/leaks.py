"""Columns that tell the label on their own: usually written down after it, or computed from it.

A small decision tree, or for texts a table of categories, looks at one column and is judged on unseen rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.arrays import Float64
from operators.encode.column_forms import Form, as_numbers, as_seconds, as_texts, form_of

LEAK = 0.97
"""Balanced accuracy on unseen rows from which a column is called a likely leak. What tells less is left to
``cues``: a shortcut may tell 96 labels of 100, and what is honest in it is lost where it is excluded."""
MIN_ROWS = 100
"""Rows below which nothing is said: chance predicts a few rows well."""
MIN_CLASS_ROWS = 50
"""Rows below which a class does not count, as long as two others do: a column that tells all but a handful
of rows leaks, although it is wrong on the whole of a tiny class."""
MIN_COUNTED_CLASS_ROWS = 20
"""Rows below which a class never counts: fewer than ten unseen rows are right by luck or are alike."""
MAX_LEAVES, LEAF_ROWS = 16, 5
MAX_ROWS, MAX_VALUES = 20_000, 2**20
"""Rows that are looked at, and values of all columns together, so that the time stays bounded."""
FEWEST_ROWS = 2_000
"""Rows that are looked at however many columns there are."""

Indices = npt.NDArray[np.int32]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Leak:
    """A column that predicts the label almost perfectly.

    Attributes
    ----------
    name : the column.
    score : balanced accuracy of the column alone on the held-out half, from 0 to 1, over the classes that
        count.
    chance : balanced accuracy of a guess: 1 / number of classes that count.
    """

    name: str
    score: float
    chance: float


def find_leaks(columns: Mapping[str, pa.ChunkedArray], y: Indices, *, seed: int = 0) -> list[Leak]:
    """Return the columns that alone predict the class of unseen rows almost perfectly, the best first.

    At most ``MAX_ROWS`` rows are looked at, those of large classes being drawn; a column takes milliseconds.

    Parameters
    ----------
    columns : source columns of n rows each; those of other types than numbers, texts and times are passed
        over.
    y : class of each row, (n,); negative for rows without one. Classes of fewer than 50 rows are left out
        where at least two larger ones remain, and classes of fewer than 20 always.
    seed : seed of the division into halves.
    """
    labelled = _rows_that_count(y)
    if len(labelled) < MIN_ROWS or len(np.unique(y[labelled])) < 2:
        return []
    rng = np.random.default_rng(seed)
    n_rows = max(FEWEST_ROWS, min(MAX_ROWS, MAX_VALUES // max(len(columns), 1)))
    shuffled = _few_of_large_classes(rng.permutation(labelled), y, n_rows)
    fit, held_out = shuffled[: len(shuffled) // 2], shuffled[len(shuffled) // 2 :]
    chance = 1.0 / len(np.unique(y[held_out]))
    found = []
    for name, column in columns.items():
        predicted = _predicted(column, y, fit, held_out)
        if predicted is None:
            continue
        score = _balanced_accuracy(y[held_out], predicted)
        if score >= max(LEAK, (1 + chance) / 2):
            found.append(Leak(name, score, chance))
    return sorted(found, key=lambda leak: (-leak.score, leak.name))


def _rows_that_count(y: Indices) -> Rows:
    """Return rows with a label, without classes below 50 rows, or below 20 where fewer than two have 50."""
    labelled = np.flatnonzero(y >= 0)
    sizes = np.bincount(y[labelled])
    large = sizes >= MIN_CLASS_ROWS
    if np.count_nonzero(large) < 2:
        large = sizes >= MIN_COUNTED_CLASS_ROWS
    rows: Rows = labelled[large[y[labelled]]]
    return rows


def _few_of_large_classes(rows: Rows, y: Indices, n_rows: int) -> Rows:
    """Keep about ``n_rows`` rows, in their order: all rows of small classes, and the first of large ones.

    The balanced accuracy does not depend on the sizes of classes.
    """
    if len(rows) <= n_rows:
        return rows
    sizes = np.sort(np.bincount(y[rows]))
    sizes = sizes[sizes > 0]
    # The largest bound on the rows of a class with which all classes together have at most n_rows.
    left = n_rows - np.concatenate([[0], np.cumsum(sizes)[:-1]])
    bounds = left // np.arange(len(sizes), 0, -1)
    most = int(bounds[np.argmax(sizes >= bounds)])
    classes = y[rows]
    order = np.argsort(classes, kind="stable")
    firsts = np.searchsorted(classes[order], classes[order])
    kept = np.zeros(len(rows), bool)
    kept[order] = np.arange(len(rows)) - firsts < most
    return rows[kept]


def _balanced_accuracy(y: Indices, predicted: Indices) -> float:
    """Return the mean of the recalls of the classes of ``y``."""
    n_rows = np.bincount(y)
    right = np.bincount(y[y == predicted], minlength=len(n_rows))
    return float((right[n_rows > 0] / n_rows[n_rows > 0]).mean())


def _predicted(column: pa.ChunkedArray, y: Indices, fit: Rows, rows: Rows) -> Indices | None:
    """Classes of ``rows`` by one column, learnt on ``fit``; None for a type that is passed over."""
    form = form_of(column.type)
    if form in (Form.TEXT, Form.CATEGORY):
        return _by_category(column, y, fit, rows)
    if form in (Form.NUMBER, Form.INTEGER, Form.BOOLEAN):
        values = as_numbers(column)
    elif form == Form.TIME:
        values = as_seconds(column)
    else:
        return None
    return _by_cuts(np.where(np.isfinite(values), values, np.nan), y, fit, rows)


def _by_cuts(values: Float64, y: Indices, fit: Rows, rows: Rows) -> Indices:
    """Return the most over-represented class between cuts of a number; a missing one is a value of its own.

    The cuts are those of a classification tree with the Gini impurity and balanced classes, which is grown
    leaf by leaf, the best one first (Breiman et al., Classification and regression trees, 1984).
    """
    n_classes = int(y.max()) + 1
    share = 1.0 / np.maximum(np.bincount(y[fit], minlength=n_classes), 1)
    gone = np.isnan(values)
    present = fit[~gone[fit]]
    order = present[np.argsort(values[present], kind="stable")]
    weights = np.zeros((len(order) + 1, n_classes))
    weights[np.arange(1, len(order) + 1), y[order]] = share[y[order]]
    sums = np.cumsum(weights, axis=0)
    ordered = values[order]
    edges = [0, *_cuts(ordered, sums), len(order)]
    leaves = np.diff(sums[edges], axis=0).argmax(axis=1)
    missing = np.bincount(y[fit[gone[fit]]], minlength=n_classes) * share
    below, above = ordered[np.array(edges[1:-1], np.intp) - 1], ordered[edges[1:-1]]
    middle = below / 2 + above / 2
    found = leaves[np.searchsorted(np.where(middle < above, middle, below), values[rows])]
    return np.where(gone[rows], missing.argmax(), found).astype(np.int32)


def _cuts(ordered: Float64, sums: Float64) -> list[int]:
    """Return positions between leaves, ascending; ``sums`` (n + 1, C) are those of the first k weights."""
    leaves = [(0, len(ordered))]
    splits = {leaves[0]: _best_cut(ordered, sums, *leaves[0])}
    while len(leaves) < MAX_LEAVES:
        leaf = max(leaves, key=lambda one: splits[one][0])
        gain, cut = splits[leaf]
        if gain <= 1e-9:
            break
        leaves.remove(leaf)
        for part in ((leaf[0], cut), (cut, leaf[1])):
            leaves.append(part)
            splits[part] = _best_cut(ordered, sums, *part)
    return sorted(start for start, _ in leaves)[1:]


def _best_cut(ordered: Float64, sums: Float64, start: int, stop: int) -> tuple[float, int]:
    """Return the decrease of the impurity and the position of the best cut in a leaf; 0, 0 without one."""
    places = np.arange(start + LEAF_ROWS, stop - LEAF_ROWS + 1)
    if len(places):
        places = places[ordered[places - 1] < ordered[places]]
    if not len(places):
        return 0.0, 0
    left, right = sums[places] - sums[start], sums[stop] - sums[places]
    purity = (left**2).sum(axis=1) / left.sum(axis=1) + (right**2).sum(axis=1) / right.sum(axis=1)
    whole = sums[stop] - sums[start]
    best = int(purity.argmax())
    return float(purity[best] - (whole**2).sum() / whole.sum()), int(places[best])


def _by_category(column: pa.ChunkedArray, y: Indices, fit: Rows, rows: Rows) -> Indices:
    """Return the class that is most over-represented in a row's category; rare categories count as one."""
    used = as_texts(column.take(pa.array(np.concatenate([fit, rows])))).combine_chunks().dictionary_encode()
    codes = used.indices.fill_null(len(used.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
    rows_of = np.bincount(codes[: len(fit)], minlength=len(used.dictionary) + 1)
    codes = np.where(rows_of[codes] >= LEAF_ROWS, codes, len(rows_of))
    n_classes = int(y.max()) + 1
    cells = codes[: len(fit)] * n_classes + y[fit]
    joint = np.bincount(cells, minlength=(len(rows_of) + 1) * n_classes)
    shares = joint.reshape(-1, n_classes) / np.maximum(np.bincount(y[fit], minlength=n_classes), 1)
    found: Indices = shares.argmax(axis=1)[codes].astype(np.int32)[len(fit) :]
    return found
