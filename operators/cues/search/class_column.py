"""A column whose values stand for the classes: a shortcut that lies in one column, of any number of classes.

A slice has two sides and cannot show a shortcut of more classes. Each value of a category, or interval of a
number, stands for the class among whose rows it is most over-represented, or for none (``class_sides``); a
row breaks the shortcut if its value stands for another class. The other columns judge these rows as they
judge a slice (``independence``), and if they support that the column is a shortcut, the label is made
independent of what its values stand for. Rows whose value stands for no class, as a missing one may, have no
part in the evidence. Measured in tests/paper/REAL.md, thirteenth and fourteenth study.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.arrays import Floats, Integers
from operators.cues.search.gain import MIN_CELL_ROWS
from operators.cues.search.independence import (
    TINY,
    Independence,
    independence,
    support_of,
    unevenness,
    with_mirrors,
)
from operators.cues.search.ramps import ramp
from operators.cues.search.related_features import are_components, features_of
from operators.cues.search.searched_rows import SearchedRows
from operators.cues.search.slices import Slices, candidate_cuts, strongest
from operators.cues.settings import CueSettings
from operators.cues.sides.class_sides import CHANCE, classes_of_levels, independent_factors
from operators.cues.sides.sides import Sides, level_of

CANDIDATES = 24
"""Features with the strongest slices whose columns are looked at."""
INTERVAL_ROWS, MAX_INTERVALS = 100, 64
"""Least rows of an interval of a number, and how many intervals it has at most."""
MIN_WITH_CLASS = 0.5
"""Share of the rows whose values stand for a class below which a column carries no shortcut."""
MEASURED = 0.2
"""Strength of the strongest column below which nothing is measured."""

VETO = (0.4, 0.48)
"""Strengths between which the other columns come to be needed for any gate."""
RIGHT = (0.65, 0.85)
"""Ratios between which the part of the balance rises from the least to all: below 1 it says how many of the
rows that break the column have wrong labels, which full balance would give most of the weight."""
LEAST_BALANCE = 0.75
"""Part of the balance where many of these labels are wrong."""


@dataclass(frozen=True)
class ClassColumn:
    """The column that stands for the classes most, as models judge it that see nothing of it.

    Attributes
    ----------
    sides
        What its values stand for, with the factors that make the label independent of it.
    column_strength
        Geometric mean of the explained share of the variance of held-out probabilities, and of that of
        held-out errors within the classes, in [0, 1].
    judged
        How models without the column judge the rows that break it.
    support
        1, or less where the column is strong and the others speak against a shortcut. Principal components do
        not: a shortcut lies in several of them.
    share_with_class
        Share of the rows whose value stands for a class; 1 for a number.
    partial
        Whether only the frequent values of the column are seen, so that balancing these is not enough: its
        class shares are judged elsewhere (``share_columns``).

    """

    sides: Sides
    column_strength: float
    judged: Independence
    support: float = 1.0
    share_with_class: float = 1.0
    partial: bool = False

    def part(self) -> float:
        """Return how much of the balance the evidence allows, in [.75, 1].

        It is less where many labels are wrong, of more than two classes. More is taken where only that helps
        the worst group (``decision.trusted_part``).
        """
        if self.sides.factor.shape[0] <= 2:
            return 1.0
        return LEAST_BALANCE + (1.0 - LEAST_BALANCE) * ramp(self.judged.ratio, *RIGHT)

    def measurements(self) -> dict[str, Any]:
        """Return the figures under the names that ``evidence.Evidence`` has for them."""
        return {
            "column_strength": 0.0 if self.partial else self.column_strength,
            "column_minority": self.judged.minority,
            "column_label_accuracy": self.judged.label_accuracy,
            "column_ratio": self.judged.ratio,
            "column_dependence": self.judged.dependence,
            "column_unevenness": unevenness(self.judged),
            "column_support": self.support,
            "column_share_with_class": self.share_with_class,
        }


@dataclass(frozen=True)
class Candidate:
    """A column, and how much models lean on what its values stand for.

    Attributes
    ----------
    sides
        What is balanced: an interval of a number that goes with all classes alike stands for none.
    side
        What the evidence counts, shape (n,): there every interval of a number stands for a class, as between
        two honest classes there always are intervals that go with both.
    has_class
        Whether the value of a row stands for a class in the evidence, shape (n,).
    column_strength
        As in ``ClassColumn``.

    """

    sides: Sides
    side: Integers
    has_class: npt.NDArray[np.bool_]
    column_strength: float

    def explained(self) -> float:
        """Return the root of what the column explains of all rows: others count as not explained."""
        return self.column_strength * float(np.sqrt(self.has_class.mean()))


def candidates(
    slices: Slices, rows: SearchedRows, s: CueSettings, apart: frozenset[int] = frozenset()
) -> list[Candidate]:
    """Return the columns on which models lean, the one that explains most first; none if that is below
    ``MEASURED``.

    Parameters
    ----------
    slices
        Slices of the rows: the columns of the strongest ones are looked at.
    rows
        Rows of the sample.
    s
        Settings, with the source columns of the features.
    apart
        Features whose columns are left out.

    """
    shown = [features for features in column_features(slices, rows.Z, s) if not apart.intersection(features)]
    found = [read_column(features, rows) for features in shown]
    found.sort(key=Candidate.explained, reverse=True)
    return found if found and found[0].column_strength >= MEASURED else []


def judge(best: Candidate, rows: SearchedRows, s: CueSettings) -> ClassColumn | None:
    """Return a column with the judgement of the others; None where too few rows say anything."""
    Z, y, ids, _ = rows
    own = {same for feature in best.sides.columns for same in features_of(feature, Z, s.columns)}
    kept = best.has_class
    broken, shown, label = (best.side != y)[kept], Z[kept], y[kept]
    unseen = with_mirrors(sorted(own), broken, shown, label, s.columns)
    judged = independence(broken, shown, label, ids[kept], unseen, seed=s.seed, l2=s.l2)
    if not judged.rows:
        return None
    support = max(1.0 - ramp(best.column_strength, *VETO), support_of(judged))
    if support < 1.0 and are_components(Z):
        support = 1.0
    partial = _has_shares(best.sides.columns[0], s)
    return ClassColumn(best.sides, best.column_strength, judged, support, float(kept.mean()), partial)


def column_features(slices: Slices, Z: Floats, s: CueSettings) -> list[tuple[int, ...]]:
    """Return the features of each column that has one of the strongest slices, in the order of features."""
    columns = {_column_of(int(slices.feature[k]), Z, s) for k in strongest(slices, CANDIDATES)}
    return sorted(columns - {()})


def _column_of(feature: int, Z: Floats, s: CueSettings) -> tuple[int, ...]:
    """Return the features of a feature's column: those of zeros and ones that exclude each other, or itself.

    Of a column with class shares these are its frequent values; none if there are no such features. What the
    user calls legitimate is left out, though another column may repeat it.
    """
    if _has_shares(feature, s):
        own = next(column.features for column in s.columns if feature in column.features)
        return tuple(one for one in own if _has_two_values(Z[:, one]))
    same = [one for one in features_of(feature, Z, s.columns) if _has_two_values(Z[:, one])]
    return tuple(one for one in same if one not in s.legitimate) if feature in same else (feature,)


def _has_shares(feature: int, s: CueSettings) -> bool:
    return any(column.shares and feature in column.features for column in s.columns)


def _has_two_values(x: Floats) -> bool:
    return bool(((x == x.max()) | (x == x.min())).all())


def read_column(features: tuple[int, ...], rows: SearchedRows) -> Candidate:
    """Return what the values of a column of some features stand for, and how much models lean on that."""
    Z, y, _, p = rows
    C, number = rows.n_classes, len(features) == 1
    level, n_levels, cuts = levels_of(features, Z)
    balanced = classes_of_levels(level, n_levels, y, C, errors=0.0 if number else CHANCE)
    judged = classes_of_levels(level, n_levels, y, C, least=0.0, errors=0.0) if number else balanced
    side = judged[level]
    has_class = side < C
    strength = 0.0
    if has_class.mean() >= MIN_WITH_CLASS and len(np.unique(y[has_class])) == len(np.unique(y)):
        error = 1.0 - p[np.arange(len(y)), y]
        explained = _explained_errors((side != y)[has_class], y[has_class], error[has_class])
        strength = float(np.sqrt(explained_by(level[has_class], p[has_class]) * explained))
    sides = Sides(features, cuts, balanced, independent_factors(balanced[level], y, C))
    return Candidate(sides, side, has_class, strength)


def levels_of(features: tuple[int, ...], Z: Floats) -> tuple[Integers, int, Floats]:
    """Return the level of each row, shape (n,), the number of levels, and the cuts of a number."""
    number = len(features) == 1
    cuts = _cuts(Z[:, features[0]]) if number else np.empty(0, np.float32)
    return level_of(Z, features, cuts), len(cuts) + 1 if number else len(features) + 1, cuts


def _cuts(x: Floats) -> Floats:
    """Return increasing cuts of a number: between its values, or into intervals of at least 100 rows."""
    few = candidate_cuts(x)
    if len(few) < 2 or len(np.unique(x)) <= len(few) + 1:
        return few
    intervals = int(np.clip(len(x) // INTERVAL_ROWS, 2, MAX_INTERVALS))
    return np.unique(np.quantile(x, np.linspace(0, 1, intervals + 1)[1:-1]).astype(np.float32))


def explained_by(level: Integers, p: Floats) -> float:
    """Return the share of the variance of probabilities (n, C) that lies between the levels."""
    rows = np.maximum(np.bincount(level), 1)
    means = np.column_stack([np.bincount(level, p[:, c]) / rows for c in range(p.shape[1])])
    between = (np.bincount(level)[:, None] * (means - p.mean(axis=0)) ** 2).sum()
    return float(between / max(len(p) * p.var(axis=0).sum(), TINY))


def _explained_errors(broken: npt.NDArray[np.bool_], y: Integers, error: Floats) -> float:
    """Return the share of the variance of the errors within the classes that breaking explains.

    A class in which the rows that break the column have the smaller errors explains nothing.
    """
    explained, total = [], []
    for c in np.unique(y):
        e, b = error[y == c], broken[y == c]
        total.append(e.var())
        if min(b.sum(), (~b).sum()) < MIN_CELL_ROWS:
            explained.append(0.0)
            continue
        gap = max(float(e[b].mean() - e[~b].mean()), 0.0)
        explained.append(gap**2 * b.mean() * (1.0 - b.mean()))
    return float(np.mean(explained) / max(np.mean(total), TINY))
