"""Measures the share of right labels among the rows that break balanced columns, by what the others say.

A model that sees none of the columns, nor what mirrors one of them, learns the classes from the rows that
break none, of which few have a wrong label. The share of right labels in a cell is that of the largest
likelihood. Nothing is said where that model hardly tells the classes, or where rows that break the columns
differ from the others of their class by more than wrong labels: they may be as hard for the other columns
though their labels are right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from operators.arrays import Float64, Floats, Integers, Mask
from operators.cues.models.draws import Split, halves
from operators.cues.models.linear import fit_softmax, predict, predict_exactly
from operators.cues.search.gain import MIN_CELL_ROWS
from operators.cues.search.independence import independence
from operators.cues.search.wrong_labels import unseen_features
from operators.cues.settings import CueSettings
from operators.cues.sides.right_labels import TINY, RightLabels, cells_of, n_sides, right_probability
from operators.cues.sides.sides import Sides

MOST_COLUMNS = 4
"""Columns beyond which cells have too few rows."""
LEAST_SHARE = 0.01
"""Least share of right labels in a cell."""
SURE_OF_WRONG = 2.0
"""Rise of the log likelihood by wrong labels from which a cell is taken to have some: two standard errors."""
MAX_DEPENDENCE = 0.6
"""Area under the curve of models that tell the side within a class (``independence``), above which rows that
break the columns differ by more than wrong labels."""
MIN_LABEL_ACCURACY = 0.1
"""Accuracy above chance of models that see none of the columns, below which they tell the classes so little
that chance decides the shares."""
STEPS = 40
"""Halvings of the interval of the share."""


def fit_right_labels(
    columns: Sequence[Sides], Z: Floats, y: Integers, ids: Integers, s: CueSettings, n_classes: int
) -> RightLabels | None:
    """Return the cells that have wrong labels; None where none has, or nothing can be said.

    Parameters
    ----------
    columns
        Columns that are balanced together.
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,) of the sample.
    s
        Settings, with the source columns of the features.
    n_classes
        C.

    """
    if not 0 < len(columns) <= MOST_COLUMNS:
        return None
    broken = np.any([one.breaks(Z, y) for one in columns], axis=0)
    unseen = unseen_features(columns, Z, y, s)
    coef = _fit_classes(Z, y, ids, ~broken, unseen, s, n_classes)
    if coef is None:
        return None
    rows = np.flatnonzero(broken)
    cells = cells_of(columns, Z, y)
    sides, side = np.unique(cells % n_sides(columns), return_inverse=True)
    follow = np.zeros((len(sides), n_classes))
    np.add.at(follow, (side[~broken], y[~broken]), 1.0)
    found: list[_Cell] = []
    for part in _parts(cells[rows], y[rows]):
        of_part = rows[part]
        p = predict_exactly(coef, Z[of_part])
        found += _judge(cells[of_part], int(y[of_part[0]]), follow[side[of_part]], p)
    if not found:
        return None
    judged = independence(broken, Z, y, ids, unseen, seed=s.seed, l2=s.l2)
    if judged.dependence > MAX_DEPENDENCE or judged.label_accuracy < MIN_LABEL_ACCURACY:
        return None
    return _joined(columns, coef, found)


class _Cell(NamedTuple):
    """One entry of each array of ``RightLabels``."""

    cell: int
    shares: Float64
    scale: float
    c: int
    rows: int


def _joined(columns: Sequence[Sides], coef: Floats, found: Sequence[_Cell]) -> RightLabels:
    ordered = sorted(found, key=lambda one: one.cell)
    return RightLabels(
        columns=tuple(columns),
        coef=coef,
        cells=np.array([one.cell for one in ordered], np.int64),
        shares=np.array([one.shares for one in ordered]),
        scale=np.array([one.scale for one in ordered]),
        classes=np.array([one.c for one in ordered], np.int64),
        rows=np.array([one.rows for one in ordered], np.int64),
    )


def _fit_classes(
    Z: Floats, y: Integers, ids: Integers, follows: Mask, unseen: Sequence[int], s: CueSettings, C: int
) -> Floats | None:
    """Return the coefficients of ``RightLabels``; None where a class has too few rows that follow.

    They are the mean of the models of two halves, multiplied by what makes each best on the other half:
    models of many features are too sure of themselves. Classes weigh the same, whatever their size.
    """
    half, seen = halves(ids, s.seed, Split.FIRST), Z.copy()
    seen[:, list(unseen)] = 0.0
    rows = [np.flatnonzero(follows & (half == h)) for h in (0, 1)]
    present = np.unique(y)
    if any(np.bincount(y[part], minlength=C)[present].min() < MIN_CELL_ROWS for part in rows):
        return None
    models = [fit_softmax(seen[part], y[part], _equal_totals(y[part]), C, l2=s.l2) for part in rows]
    held_out = [predict(model, seen[part]) for model, part in zip(models, reversed(rows), strict=True)]
    labels = np.concatenate([y[part] for part in reversed(rows)])
    logits = np.log(np.maximum(np.concatenate(held_out), TINY))
    coef = best_slope(logits, labels, _equal_totals(labels)) * (models[0] + models[1]) / 2
    coef[list(unseen)] = 0.0
    return np.asarray(coef)


def _equal_totals(y: Integers) -> Float64:
    return np.asarray(1.0 / np.bincount(y)[y])


def best_slope(logits: Floats, y: Integers, w: Floats) -> float:
    """Return the factor from 0 to 2 of logits (n, C) with the least weighted log loss of the labels (n,)."""
    # Not at the top: `validate` and `plan` load this module, and the import takes a third of a second.
    from scipy.optimize import minimize_scalar
    from scipy.special import logsumexp

    own = logits[np.arange(len(y)), y]

    def loss(slope: float) -> float:
        return float(w @ (logsumexp(slope * logits, axis=1) - slope * own))

    return float(minimize_scalar(loss, bounds=(0.0, 2.0), method="bounded").x)


def _parts(cells: Integers, y: Integers) -> Iterator[Integers]:
    """Yield the rows of each cell that has enough, and then those of all others of a class together."""
    for c in np.unique(y):
        of_class = np.flatnonzero(y == c)
        _, which, counts = np.unique(cells[of_class], return_inverse=True, return_counts=True)
        large = counts >= MIN_CELL_ROWS
        for k in np.flatnonzero(large):
            yield of_class[which == k]
        rest = of_class[~large[which]]
        if len(rest) >= MIN_CELL_ROWS:
            yield rest


def _judge(cells: Integers, c: int, follow: Float64, p: Floats) -> list[_Cell]:
    """Return the cells of rows that have one share of right labels; none where all labels may be right.

    Parameters
    ----------
    cells
        Cell of each row, shape (m,), all of one class.
    c
        That class.
    follow
        Rows of each class that follow the columns on the sides of the row, shape (m, C): wrong labels come
        from the other classes in these shares. Rows on sides where no other class is are left out.
    p
        Probability of each class by the other columns, shape (m, C).

    """
    others = np.delete(follow, c, axis=1).sum(axis=1)
    known = others > 0
    if np.count_nonzero(known) < MIN_CELL_ROWS:
        return []
    shares = follow[known] / others[known, None]
    shares[:, c] = 0.0
    cells, p = cells[known], p[known]
    share = right_share(p[:, c], (shares * p).sum(axis=1))
    if share == 1.0:
        return []
    shares *= 1.0 - share
    shares[:, c] = share
    scale = 1.0 / right_probability(shares, p, np.full(len(p), c)).mean()
    names, first, rows = np.unique(cells, return_index=True, return_counts=True)
    return [
        _Cell(int(cell), shares[at], float(scale), c, int(n))
        for cell, at, n in zip(names, first, rows, strict=True)
    ]


def right_share(right: Floats, wrong: Floats) -> float:
    """Return the share of right labels, at least .01: 1 where it is not clearly less.

    Parameters
    ----------
    right, wrong
        Density of each row if its label is right and if it is wrong, shape (m,), up to a factor of each row.

    """

    def mixture(share: float) -> Float64:
        return np.asarray(np.maximum(share * right + (1.0 - share) * wrong, TINY))

    low, high = LEAST_SHARE, 1.0
    for _ in range(STEPS):  # the log likelihood is concave
        middle = (low + high) / 2
        rises = ((right - wrong) / mixture(middle)).sum() > 0
        low, high = (middle, high) if rises else (low, middle)
    gained = float((np.log(mixture(low)) - np.log(mixture(1.0))).sum())
    return low if gained >= SURE_OF_WRONG else 1.0
