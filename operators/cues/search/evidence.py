"""Measurements of whether a model leans on a shortcut, without group labels, and the gate that they open.

The gate is the trust in the robust weights, from 0 (shut) to 1 (open). It follows from the measurements by
the limits in :mod:`operators.cues.search.ramps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from operators.arrays import Floats, Integers
from operators.cues.models.class_accuracy import balanced_loss, class_mean
from operators.cues.search.gain import exchange, righted, slice_gain
from operators.cues.search.ramps import (
    ALL_WITH_CLASS,
    BOLD_RAMPS,
    COLUMN_OF_TWO_RAMPS,
    COLUMN_RAMPS,
    CRISP,
    GAINS_OR_DEPENDS,
    MANY_CLASSES_GAIN,
    NO_STRONG_SLICE,
    NOT_NOISE,
    RAMPS,
    REPEATED_RAMPS,
    SINGLE_RAMPS,
    SLICE_VETO,
    SPREAD_NEEDS,
    SPREAD_NEEDS_OF_MANY,
    SPREAD_RAMPS,
    Ramps,
    ramp,
)

SLICE_PART = (0.5, 0.9, 0.5)
"""Agreement at which slices have no part in the weights, agreement at which it is largest, and this part."""
EQUAL_RIVAL = 0.9
"""Strength of another column, relative to the strongest, from which no measurement tells which of two columns
carries a shortcut: an honest one that is balanced in full is lost."""
UNSEEN = 0.2
"""Strength by which a column of two classes exceeds its strongest slice, from which the others judge it:
models lean on more than one interval of a number."""
LEAST_AGREEMENT = 0.3
"""Agreement of slices and twins below which twins follow no column. Where the others say of the strongest
column that it is honest, too, the rows that twins mistake are wrong labels or hard."""
MIN_HARD_ROWS = 20
"""Rows that the twins get wrong below which classes are pooled."""


@dataclass(frozen=True)
class Evidence:
    """Measurements on held-out rows of the sample.

    Attributes
    ----------
    agreement
        Correlation of the logarithms of slice and environment factors within the classes, mean over the
        classes.
    mistake_confidence
        Mean of ((C p_max - 1) / (C - 1))^2 over the held-out mistakes of class-balanced models. A
        calibrated model with evenly spread scores has 1/6; one that follows a binary cue of accuracy a
        has (2 a - 1)^2.
    crispness
        Mean of (2 p_y - 1)^2 over held-out rows of the twins after label flipping: 1 if they share one
        crisp rule.
    recovery
        Of the accuracy that the robust weights move, the part that is gained on rows the twins get wrong
        (worst class) against what is lost on the others. Noise and honest ambiguity do not recover.
    error
        Held-out balanced error of class-balanced models.
    cost
        Loss of held-out balanced accuracy under weights that give the mistakes half of each class.
    gain
        Rise of the accuracy of the worst class and side of a listed slice under the robust weights over the
        better of class balance and no weights, less one standard error; the largest over the listed slices
        (``gain.slice_gain``).
    righted
        Part of the confident mistakes that the robust weights put right, less two standard errors: those of
        class balance or of no weights, the smaller part.
    price
        Loss of held-out balanced accuracy under the robust weights themselves: ``cost`` for two classes.
        It is for people alone, in the metrics and ``suspects.json``; nothing is decided by it.
    classes
        Number of classes with enough rows to be learnt from.
    exchange
        Rows that the robust weights put right for each row that they make wrong, against class balance.
    share_support
        How far the other columns support that class shares carry a shortcut, where models lean on some
        (``share_columns.share_support``).
    slice_strength, slice_minority, slice_label_accuracy, slice_ratio, slice_dependence, slice_unevenness, \
    slice_support, slice_spread_support, slice_rival
        What the other columns say of the column on which models lean most
        (``strongest_slice.StrongestSlice``).
    column_strength, column_minority, column_label_accuracy, column_ratio, column_dependence, \
    column_unevenness, column_support, column_share_with_class
        What they say of the column whose values stand for the classes
        (``class_column.ClassColumn``); 0 where no column is strong.

    """

    agreement: float
    mistake_confidence: float
    crispness: float
    recovery: float
    error: float
    cost: float
    gain: float
    righted: float
    price: float = 0.0
    classes: int = 2
    exchange: float = 1.0
    share_support: float = 1.0
    slice_strength: float = 0.0
    slice_minority: float = 0.0
    slice_label_accuracy: float = 0.0
    slice_ratio: float = 0.0
    slice_dependence: float = 0.0
    slice_unevenness: float = 0.0
    slice_support: float = 1.0
    slice_spread_support: float = 1.0
    slice_rival: float = 0.0
    column_strength: float = 0.0
    column_minority: float = 0.0
    column_label_accuracy: float = 0.0
    column_ratio: float = 0.0
    column_dependence: float = 0.0
    column_unevenness: float = 0.0
    column_support: float = 1.0
    column_share_with_class: float = 1.0

    def gate(self) -> float:
        """Return the trust in the robust weights, in [0, 1]: the largest gate of five kinds of shortcut.

        Of two classes a column whose values all stand for them opens none by itself.
        """
        return max(self.searched_gate(), self.own_column_gate())

    def column_gate(self) -> float:
        """Return the trust in a column whose values stand for the classes, in [0, 1]."""
        return float(np.prod(list(self.ramps(COLUMN_RAMPS).values())))

    def own_column_gate(self) -> float:
        """Return the gate of such a column where twins and slices need not have found a shortcut, in [0, 1].

        Of two classes a slice shows such a column as well, unless some of its values stand for no class; it
        opens nothing where another column is about as strong.
        """
        if self.classes > 2:
            return self.column_gate()
        if self.slice_rival >= EQUAL_RIVAL:
            return 0.0
        return self.column_of_two_gate() if self.column_share_with_class < ALL_WITH_CLASS else 0.0

    def column_of_two_gate(self) -> float:
        """Return the trust in a column of two classes that held-out rows have to favour, in [0, 1]."""
        return float(np.prod(list(self.ramps(COLUMN_OF_TWO_RAMPS).values())))

    def searched_gate(self) -> float:
        """Return the trust in the weights of twins and slices, in [0, 1]."""
        found, spread, repeated, single = (
            float(np.prod(list(self.ramps(ramps).values())))
            for ramps in (RAMPS, SPREAD_RAMPS, REPEATED_RAMPS, SINGLE_RAMPS)
        )
        needed = SPREAD_NEEDS if self.classes <= 2 else SPREAD_NEEDS_OF_MANY
        crisp = float(np.prod(list(self.ramps(CRISP).values())))
        spread *= self.slice_spread_support * max(*self.ramps(needed).values(), crisp)
        found, single = found * self.not_honest(), single * self.not_honest()
        without_strong_slice = self.without_strong_slice()
        found, spread = found * without_strong_slice, spread * without_strong_slice
        return max(self.support_of_column() * max(self.slice_support * found, spread, repeated), single)

    def support_of_column(self) -> float:
        """Return how far the others support that the column which stands for the classes carries a shortcut.

        Of two classes a slice of the column says it as well, in ``slice_support``, unless no slice of it is
        nearly as strong, as of a number whose middle stands for a class. Where slices agree little with the
        twins as well, the twins follow an honest column whatever its strength.
        """
        if self.classes > 2:
            return self.column_support
        if self.column_strength < self.slice_strength + UNSEEN:
            return 1.0
        if self.agreement < LEAST_AGREEMENT:
            return self.column_support
        return max(self.column_support, 1.0 - ramp(self.column_strength, *SLICE_VETO))

    def not_honest(self) -> float:
        """Return how far the strongest column of two classes is neither honest nor noise, in [0, 1]."""
        if self.classes > 2 or self.slice_strength <= 0.0:
            return 1.0
        return float(np.prod([max(self.ramps(limits).values()) for limits in (NOT_NOISE, GAINS_OR_DEPENDS)]))

    def without_strong_slice(self) -> float:
        """Return the trust in a shortcut of two classes that no column leads, in [0, 1].

        Nothing but what the weights put right then tells it from wrong labels on an honest table.
        """
        led = self.classes > 2 or self.slice_strength > 0.0
        return 1.0 if led else float(np.prod(list(self.ramps(NO_STRONG_SLICE).values())))

    def looks_like_wrong_labels(self) -> bool:
        """Return whether what models mistake are rather wrong labels or hard rows of an honest table."""
        return self.classes <= 2 and min(self.without_strong_slice(), self.support_of_column()) <= 0.0

    def bold_gate(self) -> float:
        """Return how far nothing speaks against balancing the slices, in [0, 1]."""
        return float(np.prod(list(self.ramps(BOLD_RAMPS).values())))

    def ramps(self, limits: Ramps) -> dict[str, float]:
        """Return every measurement mapped to [0, 1]: 0 at the first limit, 1 at the second.

        With more than two classes a large gain stands in for the recovery.
        """
        values = asdict(self) | {
            "relative_error": self.error * self.classes / max(self.classes - 1, 1),
            "slice_dominance": self.slice_strength,
        }
        found: dict[str, float] = {name: ramp(values[name], *ends) for name, ends in limits.items()}
        if self.classes > 2 and {"recovery", "gain"} <= limits.keys():
            found["recovery"] = max(found["recovery"], ramp(self.gain, *MANY_CLASSES_GAIN))
        return found

    def weakest(self) -> str:
        """Return the name of the measurement, or ``not_honest``, that lowers the gate most."""
        ramps = self.ramps(RAMPS) | {
            "slice_support": min(self.slice_support, self.support_of_column()),
            "not_honest": self.not_honest(),
            "without_strong_slice": self.without_strong_slice(),
        }
        return min(ramps, key=lambda name: ramps[name])


def slice_part(agreement: float, classes: int = 2) -> float:
    """Return the part of the slices in the robust weights, in [0, .5]; the twins have the rest.

    Slices count as far as they agree with the twins: honest features make slices, too. A slice has two sides,
    and balances only so much of a shortcut that points to each of C classes: its part is 2 / C of that.
    """
    none, full, largest = SLICE_PART
    return largest * 2.0 / max(classes, 2) * ramp(agreement, none, full)


def measure(
    y: Integers,
    agreement: float,
    before: Floats,
    plain: Sequence[Floats],
    after: Floats,
    halved: Sequence[Floats],
    robust: Sequence[Floats],
    sides: npt.NDArray[np.bool_],
) -> Evidence:
    """Measure the evidence on the sample.

    Parameters
    ----------
    y
        Labels, shape (n,).
    agreement
        From ``class_correlation``.
    before, after
        Held-out probabilities of the twins, shape (splits, n, C).
    plain
        Per split held-out probabilities, shape (n, C), of models without weights.
    halved
        Per split held-out probabilities, shape (n, C), of models trained with weights that give the twins'
        mistakes half of each class, whatever the number of classes.
    robust
        The same for the robust weights.
    sides
        Sides of the listed slices, shape (slices, n).

    """
    C = before.shape[2]
    rows, everything = np.arange(len(y)), np.ones(len(y), bool)
    gains, losses, costs, prices, confident, errors = [], [], [], [], [], []
    for s in range(len(before)):
        right, was_right = halved[s].argmax(axis=1) == y, before[s].argmax(axis=1) == y
        moved = right.astype(float) - was_right
        hard = after[s].argmax(axis=1) != y
        gains.append(_worst_gain(moved, hard, y, C))
        losses.append(-class_mean(moved, y, ~hard, C))
        costs.append(-class_mean(moved, y, everything, C))
        prices.append(balanced_loss(before[s], robust[s], y))
        sure = ((C * before[s].max(axis=1) - 1) / max(C - 1, 1)) ** 2
        confident.append(class_mean(sure, y, ~was_right, C))
        errors.append(1.0 - class_mean(was_right.astype(float), y, everything, C))
    gain, loss = max(float(np.mean(gains)), 0.0), max(float(np.mean(losses)), 0.001)
    crisp = np.mean([class_mean((2 * q[rows, y] - 1) ** 2, y, everything, C) for q in after])
    return Evidence(
        agreement=agreement,
        mistake_confidence=float(np.mean(confident)),
        crispness=float(crisp),
        recovery=gain / (gain + loss),
        error=float(np.mean(errors)),
        cost=float(np.mean(costs)),
        gain=slice_gain(sides, y, list(before), plain, robust),
        righted=min(righted(y, list(before), robust), righted(y, plain, robust)),
        price=float(np.mean(prices)),
        classes=len(np.unique(y)),
        exchange=exchange(y, list(before), robust),
    )


def class_correlation(a: Floats, b: Floats, y: Integers) -> float:
    """Return the mean over the classes of the correlation of ``a`` and ``b``, shapes (n,), within the class.

    A class with under 3 rows or with constant values counts as 0: no agreement has been seen.
    """
    found = []
    for c in np.unique(y):
        u, v = a[y == c], b[y == c]
        flat = len(u) < 3 or u.std() < 1e-9 or v.std() < 1e-9
        found.append(0.0 if flat else float(np.corrcoef(u, v)[0, 1]))
    return float(np.mean(found)) if found else 0.0


def _worst_gain(moved: Floats, hard: npt.NDArray[np.bool_], y: Integers, n_classes: int) -> float:
    """Return the smallest of the classes' mean gains on hard rows.

    XRM has no such figure: it decides by the worst environment on validation rows. Here classes with fewer
    than ``MIN_HARD_ROWS`` hard rows are pooled, and the gain of a pool with fewer than that counts as if the
    missing rows had gained nothing, so that a handful of rows neither shows nor hides a shortcut.
    """
    count = np.bincount(y[hard], minlength=n_classes)
    total = np.bincount(y[hard], moved[hard], minlength=n_classes)
    large = count >= MIN_HARD_ROWS
    parts = list(total[large] / count[large])
    if count[~large].sum() > 0:
        parts.append(float(total[~large].sum() / max(count[~large].sum(), MIN_HARD_ROWS)))
    return float(min(parts)) if parts else 0.0
