"""Gain of the robust weights that is to be expected, from what was measured on tables with known groups.

The gate multiplies ramps, and one doubtful measurement shuts it. Here regression trees weigh all measurements
together: they were fitted to public and generated tables whose true groups were known, and return by how much
the accuracy of the worst true group may be expected to rise over the weights without a shortcut if the robust
weights are followed: of two classes in full, of more by the part that is best on held-out rows. There are
trees for two classes and for more, with a limit each: of many classes the worst group gains less.
``python -m tests.paper.real.expected_gain`` measures and fits; the problems and the result by
cross-validation are in tests/paper/REAL.md, sixteenth, seventeenth, twentieth, twenty-ninth and thirtieth
study. The trees see neither the name of a table nor its numbers of rows and columns, but the number of rows
that break the shortcut.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from operators.arrays import Float64, Integers, Mask
from operators.bounded_json import read_json
from operators.cues.decision.groups import shortcut_groups
from operators.cues.models.curve_points import baseline, point_at
from operators.cues.models.trade_off import TradeOffPoint, Trials
from operators.cues.models.weight_path import CLASS_BALANCE, FULL, UNWEIGHTED
from operators.cues.search.evidence import Evidence
from operators.cues.search.gain import exchanged
from operators.cues.search.ramps import Measurement

LEAST = {"safe": 0.17, "bold": 0.1}
"""Setting -> expected gain from which robust weights are followed, of two classes."""
LEAST_OF_MANY = {"safe": 0.125, "bold": 0.05}
"""The same of more classes."""
HALF = 1.5
"""Strength at which half of the robust factor is followed."""
STORED = Path(__file__).with_name("expected_gain.json")
"""Trees for two classes."""
STORED_OF_MANY = Path(__file__).with_name("expected_gain_of_many.json")
"""Trees for more classes."""
FROM_EVIDENCE: tuple[Measurement, ...] = (
    "agreement",
    "mistake_confidence",
    "crispness",
    "recovery",
    "error",
    "cost",
    "gain",
    "righted",
    "exchange",
    "share_support",
    "slice_strength",
    "slice_minority",
    "slice_label_accuracy",
    "slice_ratio",
    "slice_dependence",
    "slice_unevenness",
    "slice_support",
    "slice_spread_support",
    "column_strength",
    "column_minority",
    "column_label_accuracy",
    "column_ratio",
    "column_dependence",
    "column_unevenness",
    "column_support",
    "column_share_with_class",
)
"""Measurements that are taken from ``evidence.Evidence``."""
FROM_TRIALS = (
    "of_column",
    "baseline",
    "rise",
    "rise_over_class_balance",
    "rise_by_half",
    "rise_of_class",
    "change_of_mean",
    "rise_of_broken",
    "rise_of_broken_less_errors",
    "exchange_with_class_balance",
    "exchange_with_unweighted",
    "exchange_by_half",
    "broken_share",
    "broken_rows",
    "effective_share",
    "change_of_others",
    "accuracy_of_broken",
    "gap",
)
"""Measurements of ``measurements`` itself."""
NAMES = FROM_EVIDENCE + FROM_TRIALS


@dataclass(frozen=True)
class Trees:
    """Regression trees whose values are added.

    Attributes
    ----------
    names
        Names of the measurements, in the order of the values.
    base
        Value that is added to those of the trees.
    roots
        Node at which each tree begins, shape (T,).
    feature
        Position of the measurement that a node compares, -1 for a leaf, shape (N,).
    threshold
        A row goes left if its value is at most this, shape (N,).
    left, right
        Next node, shape (N,).
    value
        What a leaf adds, shape (N,).

    """

    names: tuple[str, ...]
    base: float
    roots: Integers
    feature: Integers
    threshold: Float64
    left: Integers
    right: Integers
    value: Float64

    def predict(self, row: Float64) -> float:
        """Return the sum of the trees for one row of measurements, shape (len(names),)."""
        node = self.roots
        while (inner := self.feature[node] >= 0).any():
            down = row[self.feature[node]] <= self.threshold[node]
            node = np.where(inner, np.where(down, self.left[node], self.right[node]), node)
        return self.base + float(self.value[node].sum())

    @classmethod
    def load(cls, path: Path) -> Trees:
        """Read the trees that ``tests.paper.real.expected_gain`` wrote."""
        stored = read_json(path)
        return cls(
            tuple(stored["names"]),
            float(stored["base"]),
            np.asarray(stored["roots"], np.int64),
            np.asarray(stored["feature"], np.int64),
            np.asarray(stored["threshold"], np.float64),
            np.asarray(stored["left"], np.int64),
            np.asarray(stored["right"], np.int64),
            np.asarray(stored["value"], np.float64),
        )


def expected_gain(
    evidence: Evidence, trials: Trials, y: Integers, broken: Mask, *, of_column: bool
) -> float | None:
    """Return the rise of the worst group's accuracy that the robust weights may be expected to bring.

    Parameters
    ----------
    evidence
        Measurements of the search.
    trials
        Held-out rows that are right under the weights, with the strengths 0, 1, 1.5 and 2.
    y
        Labels 0 .. C - 1, all of which occur, shape (n,).
    broken
        Whether a row breaks the shortcut, shape (n,).
    of_column
        Whether the weights make the label independent of one column, else they follow twins and slices.

    Returns
    -------
    The rise over the weights without a shortcut; None where full weights could not be tried.

    """
    if FULL not in trials.strengths:
        return None
    trees = stored_trees(STORED if y.max() < 2 else STORED_OF_MANY)
    return trees.predict(measurements(evidence, trials, y, broken, of_column=of_column))


def least_gain(setting: str, n_classes: int) -> float:
    """Return the expected gain from which robust weights are followed, of so many classes."""
    return (LEAST if n_classes == 2 else LEAST_OF_MANY)[setting]


def measurements(
    evidence: Evidence, trials: Trials, y: Integers, broken: Mask, *, of_column: bool
) -> Float64:
    """Return the measurements in the order of ``NAMES``, shape (len(NAMES),); as for ``expected_gain``.

    ``rise`` is that of the worst group at full strength over the better of no weights and class balance, on
    held-out rows; ``rise_by_half`` that at half strength, ``rise_of_class`` that of the worst class.
    ``rise_of_broken`` is the change of the rows that break the shortcut, mean over the classes, from class
    balance, and ``rise_of_broken_less_errors`` the same less two standard errors; ``change_of_others`` that
    of the rows that do not. ``gap`` is by how much these are right more often under the weights.
    ``broken_rows`` is the logarithm of the number of rows in the class that has fewer of them.
    """
    C = int(y.max()) + 1
    by_group, by_class = trials.points(shortcut_groups(y, broken, C)), trials.points(y)
    base = baseline(by_group)
    balanced, full = trials.at(CLASS_BALANCE), trials.at(FULL)
    before, after = _by_side(balanced, y, broken), _by_side(full, y, broken)
    change = after - before
    rows = np.bincount(y[broken], minlength=C)
    found = {
        "of_column": float(of_column),
        "baseline": base.worst,
        "rise": _worst(by_group, FULL) - base.worst,
        "rise_over_class_balance": _worst(by_group, FULL) - _worst(by_group, CLASS_BALANCE),
        "rise_by_half": _worst(by_group, HALF) - base.worst,
        "rise_of_class": _worst(by_class, FULL) - baseline(by_class).worst,
        "change_of_mean": _at(by_group, FULL).mean - base.mean,
        "rise_of_broken": change[1],
        "rise_of_broken_less_errors": change[1] - 2.0 * _error(full.astype(float) - balanced, y, broken),
        "exchange_with_class_balance": exchanged(balanced, full),
        "exchange_with_unweighted": exchanged(trials.at(UNWEIGHTED), full),
        "exchange_by_half": exchanged(balanced, trials.at(HALF)),
        "broken_share": float(broken.mean()),
        "broken_rows": float(np.log10(1.0 + rows.min())),
        "effective_share": _at(by_group, FULL).effective_share,
        "change_of_others": change[0],
        "accuracy_of_broken": after[1],
        "gap": after[0] - after[1],
    }
    taken = [getattr(evidence, name) for name in FROM_EVIDENCE]
    return np.array([*taken, *(found[name] for name in FROM_TRIALS)], np.float64)


@cache
def stored_trees(path: Path) -> Trees:
    """Return the trees of a file.

    Raises
    ------
    ValueError
        They were fitted to other measurements.

    """
    trees = Trees.load(path)
    if trees.names != NAMES:
        raise ValueError(f"{path} was fitted to other measurements: fit it again")
    return trees


def _at(points: tuple[TradeOffPoint, ...], strength: float) -> TradeOffPoint:
    """Return the point of a strength, which has to be there."""
    found = point_at(points, strength)
    if found is None:
        raise ValueError(f"the strength {strength:g} was not tried")
    return found


def _worst(points: tuple[TradeOffPoint, ...], strength: float) -> float:
    return _at(points, strength).worst


def _by_side(right: Mask, y: Integers, broken: Mask) -> Float64:
    """Return the accuracies of the rows that keep to the shortcut and that break it, shape (2,).

    They are means over the classes that have such rows; 0 where none has.
    """
    found = np.zeros(2)
    for side in (0, 1):
        cells = [right[rows].mean() for c in np.unique(y) if (rows := (y == c) & (broken == side)).any()]
        found[side] = np.mean(cells) if cells else 0.0
    return found


def _error(change: Float64, y: Integers, broken: Mask) -> float:
    """Return the standard error of the change of the rows that break the shortcut, mean over the classes."""
    cells = [change[rows] for c in np.unique(y) if (rows := broken & (y == c)).any()]
    return float(np.sqrt(sum(cell.var() / len(cell) for cell in cells)) / max(len(cells), 1))
