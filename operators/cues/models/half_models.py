"""Class-balanced models of the two halves of the rows, each for the rows that it has not seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from operators.arrays import Float64, Floats, Integers
from operators.cues.models.draws import halves
from operators.cues.models.linear import class_balance, fit_softmax, predict_exactly

SPLITS = 2
"""Divisions of the rows into halves over which measurements are averaged."""


@dataclass(frozen=True)
class HalfModels:
    """Pairs of class-balanced linear classifiers, each trained on one half of the rows.

    Attributes
    ----------
    coefficients
        Shape (splits, 2, d + 1, C); model [s, h] saw half h of split s.
    seed
        Decides the halves.

    """

    coefficients: Floats
    seed: int

    def held_out(self, Z: Floats, ids: Integers) -> Float64:
        """Return class probabilities, shape (splits, n, C), as the function :func:`held_out` does."""
        return held_out(self.coefficients, Z, ids, self.seed)


def fit_halves(
    Z: Floats, y: Integers, ids: Integers, n_classes: int, seed: int, *, l2: float, splits: int = SPLITS
) -> HalfModels:
    """Train the models on standardised rows ``Z`` (n, d) with labels ``y`` (n,) and row ids ``ids`` (n,).

    The cost is ``splits`` fits of the probe, as every fit sees half of the rows.
    """
    found = []
    for s in range(splits):
        half = halves(ids, seed, s)
        parts = [np.flatnonzero(half == h) for h in (0, 1)]
        found.append(np.stack([fit_part(Z, y, part, n_classes, l2) for part in parts]))
    return HalfModels(np.stack(found), seed)


def fit_part(
    Z: Floats, labels: Integers, part: Integers, n_classes: int, l2: float, start: Floats | None = None
) -> Floats:
    """Return the coefficients (d + 1, C) of a class-balanced model of some rows, from those at the start."""
    w = class_balance(labels[part], n_classes)
    return fit_softmax(
        Z[part], labels[part], w, n_classes, l2=l2, start=start, max_iter=100 if start is None else 25
    )


def held_out(models: Floats, Z: Floats, ids: Integers, seed: int) -> Float64:
    """Return class probabilities, shape (splits, n, C), from the model that has not seen the half of the row.

    ``models`` are coefficients as in :class:`HalfModels`. Rows that were never in the sample are treated
    the same way. The result for a row does not depend on the other rows, up to one unit in the last place.
    """
    found = []
    for s in range(models.shape[0]):
        half = halves(ids, seed, s)
        p = np.empty((len(Z), models.shape[-1]))
        for h in (0, 1):
            p[half == h] = predict_exactly(models[s, 1 - h], Z[half == h])
        found.append(p)
    return np.stack(found)
