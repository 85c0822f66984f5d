"""Probability that the label of a row which breaks balanced columns is right, and its share in the weight.

A wrong label breaks a shortcut as a right one does. Of the rows of a class on a side that stands for another
class, many or most may have wrong labels, and balance gives all of them the largest factors. Wrong labels
belong to rows of the other class, which look like its rows in every other column. So the rows of a cell, a
class and the sides of the columns, are a mixture of two kinds that are known: the rows of the class, and
those of the classes whose rows are on these sides. ``search.fit_right_labels`` measures the mixture. The
weight of a cell stays as it is, and goes to its rows by the probability that their label is right.
Measured in tests/paper/REAL.md, twenty-fourth study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from operators.arrays import Float64, Floats, Integers
from operators.cues.models.linear import predict_exactly
from operators.cues.sides.sides import Sides


@dataclass(frozen=True)
class RightLabels:
    """Cells whose rows have wrong labels, and models that tell the classes without the columns.

    Attributes
    ----------
    coef
        Softmax regression of the class on standardised features, those of the columns at 0, under which
        every class is as frequent, float64 of shape (d + 1, C).
    cells
        Numbers of the cells (``cells_of``) in rising order, shape (K,).
    prior
        Share of each true class in the rows of a cell, shape (K, C): that of the class of the cell is the
        share of right labels.
    scale
        Inverse of the mean probability of a right label in a cell, shape (K,).

    """

    coef: Floats
    cells: Integers
    prior: Floats
    scale: Floats

    def probability(self, columns: Sequence[Sides], Z: Floats, y: Integers) -> Float64:
        """Return the probability that the label of each row is right, shape (n,); 1 outside of the cells."""
        found = np.ones(len(y))
        rows, at = self._in_cells(columns, Z, y)
        if len(rows):
            found[rows] = right_given(self.prior[at], predict_exactly(self.coef, Z[rows]), y[rows])
        return found

    def factor(self, columns: Sequence[Sides], Z: Floats, y: Integers) -> Float64:
        """Return what the weight of each row is multiplied by, shape (n,): its mean over a cell is 1."""
        rows, at = self._in_cells(columns, Z, y)
        found = self.probability(columns, Z, y)
        found[rows] *= self.scale[at]
        return found

    def _in_cells(self, columns: Sequence[Sides], Z: Floats, y: Integers) -> tuple[Integers, Integers]:
        """Return the rows that are in one of the cells, and the positions of these."""
        cells = cells_of(columns, Z, y)
        at = np.minimum(np.searchsorted(self.cells, cells), len(self.cells) - 1)
        rows = np.flatnonzero(self.cells[at] == cells)
        return rows, at[rows]


def cells_of(columns: Sequence[Sides], Z: Floats, y: Integers) -> Integers:
    """Return the number of each row's class and sides, shape (n,)."""
    cells = np.asarray(y, np.int64)
    for one in columns:
        cells = cells * one.factor.shape[1] + one.of_rows(Z)
    return cells


def right_given(prior: Floats, p: Floats, y: Integers) -> Float64:
    """Return the probability that labels are right, shape (n,).

    Parameters
    ----------
    prior
        Share of each true class among rows of this label and side, shape (n, C) or (C,).
    p
        Probability of each class by the other columns, if all were as frequent, shape (n, C).
    y
        Labels, shape (n,).

    """
    joint = prior * p
    own = joint[np.arange(len(y)), y]
    return np.asarray(own / np.maximum(joint.sum(axis=1), 1e-300))
