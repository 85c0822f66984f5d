"""Probability that the label of a row which breaks balanced columns is right, and its part of the weight.

Rows with wrong labels break a shortcut like rows that contradict it: where few rows do, most of them may have
wrong labels, and balance gives all of them the largest factors. A wrong label belongs to a row of another
class, which looks like the rows of that class in every other column. So the rows of a cell, that is of a
class and of a side of each column, are a mixture of two known kinds: rows like those of the class, and rows
like those of the classes that these sides stand for. ``search.fit_right_labels`` measures the shares. A cell
keeps its weight, and its rows have parts of it by the probability that their label is right.
Measured in tests/paper/REAL.md, twenty-fourth study.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from operators.arrays import Float64, Floats, Integers
from operators.cues.models.linear import predict_exactly
from operators.cues.sides.sides import Sides

TINY = 1e-300
"""Least divisor, against division by 0."""


@dataclass(frozen=True)
class RightLabels:
    """Cells with wrong labels, and a model that tells the classes without the balanced columns.

    Attributes
    ----------
    columns
        The columns for which it was fitted; their factors are of no account.
    coef
        Softmax regression of the class on standardised features, under which all classes are equally
        frequent, shape (d + 1, C); those of the columns are 0.
    cells
        Numbers of the cells (``cells_of``) in rising order, at least one, shape (K,).
    shares
        Share of each true class in the rows of a cell, shape (K, C): that of the cell's own class is the
        share of right labels.
    scale
        Inverse of the mean probability of a right label in a cell, shape (K,).
    classes, rows
        Class of each cell, and its rows in the sample, shape (K,).

    """

    columns: tuple[Sides, ...]
    coef: Floats
    cells: Integers
    shares: Floats
    scale: Floats
    classes: Integers
    rows: Integers

    def is_of(self, columns: Sequence[Sides]) -> bool:
        """Return whether these are the columns for which it was fitted, with the same sides."""
        pairs = zip(self.columns, columns, strict=False)
        return len(self.columns) == len(columns) and all(own.has_sides_of(one) for own, one in pairs)

    def probability(self, columns: Sequence[Sides], Z: Floats, y: Integers) -> Float64:
        """Return the probability that the label of each row is right, shape (n,): 1 outside of the cells.

        Parameters
        ----------
        columns
            The columns that were balanced when this was fitted, in the same order.
        Z, y
            Standardised rows (n, d) and labels (n,). The result for a row does not depend on the others.

        """
        return self._in_cells(columns, Z, y)[0]

    def factor(self, columns: Sequence[Sides], Z: Floats, y: Integers) -> Float64:
        """Return the factor of each row within its cell, shape (n,): ``probability`` over its mean there."""
        probability, rows, cell = self._in_cells(columns, Z, y)
        probability[rows] *= self.scale[cell]
        return probability

    def wrong_by_class(self) -> dict[int, tuple[int, float]]:
        """Return class -> (rows of its cells, expected number of wrong labels among them)."""
        found: dict[int, tuple[int, float]] = {}
        for c, rows, shares in zip(self.classes.tolist(), self.rows.tolist(), self.shares, strict=True):
            total, wrong = found.get(c, (0, 0.0))
            found[c] = (total + rows, wrong + rows * (1.0 - float(shares[c])))
        return found

    def _in_cells(
        self, columns: Sequence[Sides], Z: Floats, y: Integers
    ) -> tuple[Float64, Integers, Integers]:
        """Return the probability of each row, the rows that are in a cell, and where these cells stand."""
        cells = cells_of(columns, Z, y)
        at = np.minimum(np.searchsorted(self.cells, cells), len(self.cells) - 1)
        rows = np.flatnonzero(self.cells[at] == cells)
        found = np.ones(len(y))
        if len(rows):
            p = predict_exactly(self.coef, Z[rows])
            right = right_probability(self.shares[at[rows]], p, y[rows])
            found[rows] = right.astype(np.float32)  # the last digits of p depend on the batch
        return found, rows, at[rows]


def cells_of(columns: Sequence[Sides], Z: Floats, y: Integers) -> Integers:
    """Return a number for the class and the sides of each row, shape (n,)."""
    cells = np.asarray(y, np.int64)
    for one in columns:
        cells = cells * one.factor.shape[1] + one.of_rows(Z)
    return cells


def n_sides(columns: Sequence[Sides]) -> int:
    """Return the number S of combinations of sides: a cell is its class times S, plus that of its sides."""
    return int(np.prod([one.factor.shape[1] for one in columns]))


def right_probability(shares: Floats, p: Floats, y: Integers) -> Float64:
    """Return the probability that labels are right, shape (n,).

    Parameters
    ----------
    shares
        Share of each true class among rows of this label and these sides, shape (n, C).
    p
        Probability of each class by the other columns if all were equally frequent, shape (n, C).
    y
        Labels, shape (n,).

    """
    joint = shares * p
    return np.asarray(joint[np.arange(len(y)), y] / np.maximum(joint.sum(axis=1), TINY))
