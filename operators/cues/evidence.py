"""Evidence that a model leans on a shortcut, without group labels, and the gate that it opens.

Five measurements have to agree. Each one is mapped to [0, 1] by a ramp, and the gate is their product: one
that is missing shuts it. Each of the five is high on tables with a strong shortcut; honest tables fail at
least one, most of them several (tests/paper/REAL.md has the figures). Where a shortcut is spread over many
features, as in embeddings or principal components, no single feature agrees with the twins: then the other
four open the gate if they are strong. What cannot be told from data: whether an honest feature that looks
like a shortcut is one. The settings ``spurious`` and ``legitimate`` exist for that.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from operators.class_shares import class_factors
from operators.cues.draws import Ids, halves
from operators.cues.environments import Twins
from operators.cues.linear import Floats, Ints, fit_softmax, predict

# (value at which the gate is shut, value at which it is open)
RAMPS = {
    "agreement": (0.5, 0.6),
    "mistake_confidence": (0.28, 0.35),
    "crispness": (0.88, 0.91),
    "recovery": (0.45, 0.55),
    "error": (0.25, 0.20),
}
SPREAD_RAMPS = {
    "mistake_confidence": (0.30, 0.37),
    "crispness": (0.90, 0.93),
    "recovery": (0.5, 0.6),
    "error": (0.20, 0.15),
}
"""Ramps of a shortcut that no single feature carries, so that slices and twins need not agree."""
SLICE_PART = (0.5, 0.9, 0.5)
"""Agreement at which slices have no part in the weights, agreement at which it is largest, and this part."""
BOLD_RAMPS = {"recovery": (0.3, 0.5), "cost": (0.08, 0.06), "error": (0.30, 0.25)}
FREE_COST = 0.1
"""Loss of held-out balanced accuracy above which the other evidence has to be stronger."""
MIN_HARD_ROWS = 20
CLASS_STRENGTHS = (0.5, 0.0)
"""Strengths of class balance that are tried beside 1."""
MIN_CLASS_GAIN = 0.03
"""Rise of the worst class's held-out accuracy from which classes are balanced less than in full."""


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
        Loss of held-out balanced accuracy under the robust weights.

    """

    agreement: float
    mistake_confidence: float
    crispness: float
    recovery: float
    error: float
    cost: float

    def gate(self) -> float:
        """Return the trust in the robust weights, in [0, 1]: the product of the ramps.

        The larger one of a shortcut in single features and of one that is spread over many.
        """
        return float(max(np.prod(list(self.ramps(ramps).values())) for ramps in (RAMPS, SPREAD_RAMPS)))

    def bold_gate(self) -> float:
        """Return how far nothing speaks against balancing the slices, in [0, 1]."""
        return float(np.prod(list(self.ramps(BOLD_RAMPS).values())))

    def ramps(self, limits: dict[str, tuple[float, float]]) -> dict[str, float]:
        """Return every measurement mapped to [0, 1]: 0 at the first limit, 1 at the second.

        Weights that cost much accuracy need stronger evidence: the confidence of the mistakes counts less the
        part of the cost above ``FREE_COST``.
        """
        values = asdict(self)
        values["mistake_confidence"] -= max(self.cost - FREE_COST, 0.0)
        return {name: _ramp(values[name], shut, open_) for name, (shut, open_) in limits.items()}

    def weakest(self) -> str:
        """Return the name of the measurement that lowers the gate most."""
        ramps = self.ramps(RAMPS)
        return min(ramps, key=lambda name: ramps[name])


def slice_part(agreement: float) -> float:
    """Return the part of the slices in the robust weights, in [0, .5]; the twins have the rest.

    Slices count as far as they agree with the twins: honest features make slices, too.
    """
    none, full, largest = SLICE_PART
    return largest * _ramp(agreement, none, full)


def measure(
    Z: Floats,
    y: Ints,
    ids: Ids,
    twins: Twins,
    before: Floats,
    after: Floats,
    agreement: float,
    weights: Floats,
    l2: float,
) -> Evidence:
    """Measure the evidence on the sample.

    Parameters
    ----------
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    twins
        Trained twins; refits start from their models.
    before, after
        Held-out probabilities of the twins, shape (splits, n, C).
    agreement
        From ``class_correlation``.
    weights
        Weights to try, class balance included, shape (n,): those that give the twins' mistakes half of each
        class, whatever the number of classes.
    l2
        Ridge penalty of the refits: as many fits of the probe as there are splits.

    """
    C = before.shape[2]
    rows = np.arange(len(y))
    gains, losses, costs, confident, errors = [], [], [], [], []
    for s in range(len(before)):
        refit = _cross_fit(Z, y, ids, twins, s, weights, l2)
        right, was_right = refit.argmax(axis=1) == y, before[s].argmax(axis=1) == y
        moved = right.astype(float) - was_right
        hard = after[s].argmax(axis=1) != y
        gains.append(_worst_gain(moved, hard, y, C))
        losses.append(-class_mean(moved, y, ~hard, C))
        costs.append(-class_mean(moved, y, np.ones(len(y), bool), C))
        sure = ((C * before[s].max(axis=1) - 1) / max(C - 1, 1)) ** 2
        confident.append(class_mean(sure, y, ~was_right, C))
        errors.append(1.0 - class_mean(was_right.astype(float), y, np.ones(len(y), bool), C))
    gain, loss = max(float(np.mean(gains)), 0.0), max(float(np.mean(losses)), 0.001)
    crisp = np.mean([class_mean((2 * q[rows, y] - 1) ** 2, y, np.ones(len(y), bool), C) for q in after])
    return Evidence(
        agreement=agreement,
        mistake_confidence=float(np.mean(confident)),
        crispness=float(crisp),
        recovery=gain / (gain + loss),
        error=float(np.mean(errors)),
        cost=float(np.mean(costs)),
    )


def measure_class_strength(Z: Floats, y: Ints, ids: Ids, twins: Twins, before: Floats, l2: float) -> float:
    """Return how far classes should be balanced, from 0 to 1.

    In full, unless the worst class is better with less.

    Accuracy of the worst label x attribute group is at most that of the worst class, which held-out rows show
    without group labels. Less balance is chosen only where it raises the latter by more than chance.

    Parameters
    ----------
    Z, y, ids, twins, l2
        As for ``measure``.
    before
        Held-out probabilities of class-balanced models, shape (splits, n, C); the first split is used.

    """
    counts = np.bincount(y, minlength=before.shape[2])
    occurs = counts > 0
    balanced = _recalls(before[0], y)[occurs]
    worst = int(balanced.argmin())
    noise = np.sqrt(balanced[worst] * (1 - balanced[worst]) / counts[occurs][worst])
    best, strength = float(balanced[worst]) + max(MIN_CLASS_GAIN, 2.0 * float(noise)), 1.0
    for candidate in CLASS_STRENGTHS:
        w = class_factors(counts, strength=candidate)[y]
        recall = float(_recalls(_cross_fit(Z, y, ids, twins, 0, w, l2), y)[occurs].min())
        if recall > best:
            best, strength = recall, candidate
    return strength


def class_correlation(a: Floats, b: Floats, y: Ints) -> float:
    """Return the mean over the classes of the correlation of ``a`` and ``b``, shapes (n,), within the class.

    A class with under 3 rows or with constant values counts as 0: no agreement has been seen.
    """
    found = []
    for c in np.unique(y):
        u, v = a[y == c], b[y == c]
        flat = len(u) < 3 or u.std() < 1e-9 or v.std() < 1e-9
        found.append(0.0 if flat else float(np.corrcoef(u, v)[0, 1]))
    return float(np.mean(found)) if found else 0.0


def class_mean(values: Floats, y: Ints, mask: npt.NDArray[np.bool_], n_classes: int) -> float:
    """Return the mean over the classes of the mean of ``values`` in the masked rows; 0 if there are none."""
    count = np.bincount(y[mask], minlength=n_classes)
    total = np.bincount(y[mask], values[mask], minlength=n_classes)
    return float((total[count > 0] / count[count > 0]).mean()) if count.any() else 0.0


def _recalls(p: Floats, y: Ints) -> npt.NDArray[np.float64]:
    """Return the share of each class's rows that is predicted right, shape (C,); 0 without rows."""
    C = p.shape[1]
    right = np.bincount(y, p.argmax(axis=1) == y, minlength=C)
    return np.asarray(right / np.maximum(np.bincount(y, minlength=C), 1))


def _worst_gain(moved: Floats, hard: npt.NDArray[np.bool_], y: Ints, n_classes: int) -> float:
    """Return the smallest class's gain on hard rows; classes with few of them are pooled."""
    count = np.bincount(y[hard], minlength=n_classes)
    total = np.bincount(y[hard], moved[hard], minlength=n_classes)
    large = count >= MIN_HARD_ROWS
    parts = list(total[large] / count[large])
    if count[~large].sum() > 0:
        parts.append(float(total[~large].sum() / max(count[~large].sum(), MIN_HARD_ROWS)))
    return float(min(parts)) if parts else 0.0


def _cross_fit(Z: Floats, y: Ints, ids: Ids, twins: Twins, split: int, w: Floats, l2: float) -> Floats:
    """Return probabilities (n, C) of models trained with ``w`` on the half that does not hold the row."""
    half = halves(ids, twins.seed, split)
    C = twins.before.shape[-1]
    p = np.empty((len(y), C))
    for h in (0, 1):
        part = half == h
        coef = fit_softmax(Z[part], y[part], w[part], C, l2=l2, start=twins.before[split, h])
        p[~part] = predict(coef, Z[~part])
    return p


def _ramp(value: float, shut: float, open_: float) -> float:
    """Return 0 at ``shut``, 1 at ``open_``, linear between; either may be the larger one."""
    return float(np.clip((value - shut) / (open_ - shut), 0.0, 1.0))
