"""Measures the share of right labels among the rows that break balanced columns, by the other columns.

Models that see none of the columns learn the classes from the rows that follow them, of which hardly any has
a wrong label. By these models the share of right labels in a cell is that of the largest likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from operators.arrays import Float64, Floats, Integers, Mask
from operators.cues.models.draws import Split, halves
from operators.cues.models.linear import class_balance, fit_softmax, predict, predict_exactly
from operators.cues.search.gain import MIN_CELL_ROWS
from operators.cues.search.independence import independence
from operators.cues.search.wrong_labels import own_features
from operators.cues.settings import CueSettings
from operators.cues.sides.right_labels import RightLabels, cells_of, right_given
from operators.cues.sides.sides import Sides

MOST_COLUMNS = 4
"""Columns beyond which cells have too few rows."""
LEAST_SHARE = 0.01
"""Least share of right labels in a cell."""
SURE_OF_WRONG = 4.0
"""Twice the rise of the log likelihood by wrong labels, from which they are taken to be there."""
MAX_DEPENDENCE = 0.6
"""Area under the curve of models that tell the side within a class, from which the rows that break the columns
differ from the others by more than wrong labels."""


def fit_right_labels(
    columns: Sequence[Sides], Z: Floats, y: Integers, ids: Integers, s: CueSettings, n_classes: int
) -> RightLabels | None:
    """Return the cells with wrong labels; None where there are none, or nothing can be said of them.

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
    broken = np.zeros(len(y), np.bool_)
    for one in columns:
        broken |= one.breaks(Z, y)
    own = sorted(own_features(columns, Z, s))
    coef = _fit_classes(Z, y, ids, ~broken, own, s, n_classes)
    if coef is None:
        return None
    radix = int(np.prod([one.factor.shape[1] for one in columns]))
    found = _fit_cells(cells_of(columns, Z, y), radix, y, broken, predict_exactly(coef, Z), coef, n_classes)
    if found is None:
        return None
    judged = independence(broken, Z, y, ids, own, seed=s.seed, l2=s.l2)
    import os
    if os.environ.get("RL_LOG"):
        print("RL", columns[0].columns[:3], "cells", len(found.cells), "right", np.round(found.prior.max(axis=1), 2)[:6], "scale", np.round(found.scale[:6],1), "dep %.2f ratio %.2f even %.2f acc %.2f" % (judged.dependence, judged.ratio, judged.evenness, judged.label_accuracy))
    if os.environ.get("RL_OFF"): return None
    return found if judged.dependence <= float(os.environ.get("RL_DEP", MAX_DEPENDENCE)) else None


def _fit_classes(
    Z: Floats, y: Integers, ids: Integers, follows: Mask, own: Sequence[int], s: CueSettings, C: int
) -> Floats | None:
    """Return the coefficients (d + 1, C) of ``RightLabels``; None where a half of a class is too small."""
    half, seen = halves(ids, s.seed, Split.FIRST), Z.copy()
    seen[:, list(own)] = 0.0
    rows = [np.flatnonzero(follows & (half == h)) for h in (0, 1)]
    if any((np.bincount(y[r], minlength=C)[np.unique(y)] < MIN_CELL_ROWS).any() for r in rows):
        return None
    models = [fit_softmax(seen[r], y[r], class_balance(y[r], C), C, l2=s.l2) for r in rows]
    held_out = [(models[1 - h], rows[h]) for h in (0, 1)]
    p = np.concatenate([predict(model, seen[r]) for model, r in held_out])
    labels = np.concatenate([y[r] for _, r in held_out])
    coef = _slope(np.log(np.maximum(p, 1e-300)), labels, C) * (models[0] + models[1]) / 2
    coef[list(own)] = 0.0
    return np.asarray(coef)


def _slope(logits: Floats, y: Integers, C: int) -> float:
    """Return what logits (n, C) are multiplied by so that the mean loss of labels (n,) is least."""
    from scipy.optimize import minimize_scalar

    w = class_balance(y, C)

    def loss(slope: float) -> float:
        scaled = slope * logits
        top = scaled.max(axis=1, keepdims=True)
        total = np.log(np.exp(scaled - top).sum(axis=1)) + top[:, 0]
        return float(w @ (total - scaled[np.arange(len(y)), y]))

    return float(minimize_scalar(loss, bounds=(0.0, 2.0), method="bounded").x)


def _fit_cells(
    cells: Integers, radix: int, y: Integers, broken: Mask, p: Floats, coef: Floats, C: int
) -> RightLabels | None:
    """Return the cells in which labels are wrong."""
    found: list[int] = []
    priors: list[Float64] = []
    scales: list[float] = []
    names, counts = np.unique(cells[broken], return_counts=True)
    for cell in names[counts >= MIN_CELL_ROWS]:
        rows = np.flatnonzero(cells == cell)
        c, side = divmod(int(cell), radix)
        others = np.bincount(y[(cells % radix == side) & ~broken], minlength=C).astype(float)
        others[c] = 0.0
        if not others.any():
            continue
        prior = _prior(others / others.sum(), c, p[rows])
        if prior is None:
            continue
        found.append(int(cell))
        priors.append(prior)
        scales.append(float(1.0 / max(right_given(prior, p[rows], y[rows]).mean(), 1e-6)))
    return RightLabels(coef, np.array(found, np.int64), np.array(priors), np.array(scales)) if found else None


def _prior(others: Float64, c: int, p: Floats) -> Float64 | None:
    """Return the shares (C,) of the true classes among the rows of a cell; None where no label seems wrong.

    Parameters
    ----------
    others
        Shares of the other classes among wrong labels.
    c
        Class of the cell.
    p
        Probability of each class by the other columns, shape (m, C).

    """
    right, wrong = p[:, c], p @ others

    def gain(share: float) -> float:
        return float(np.log(np.maximum(share * right + (1.0 - share) * wrong, 1e-300)).sum())

    low, high = LEAST_SHARE, 1.0
    for _ in range(40):
        share = (low + high) / 2
        slope = ((right - wrong) / np.maximum(share * right + (1.0 - share) * wrong, 1e-300)).sum()
        low, high = (share, high) if slope > 0 else (low, share)
    if 2.0 * (gain(share) - gain(1.0)) < SURE_OF_WRONG:
        return None
    prior = (1.0 - share) * others
    prior[c] = share
    return np.asarray(prior)
