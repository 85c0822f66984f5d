"""Probabilities of rows by models that have not seen them: each half of the rows is judged by the model of
the other half.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from operators.arrays import Floats, Integers
from operators.cues.limits import fit_limits
from operators.cues.models.draws import halves
from operators.cues.models.half_models import HalfModels
from operators.cues.models.linear import class_balance, fit_softmax, predict
from operators.cues.settings import CueSettings


def cross_fit_halves(
    Z: Floats,
    y: Integers,
    half: Integers,
    w: Floats,
    n_classes: int,
    *,
    l2: float,
    starts: Sequence[Floats | None] = (None, None),
) -> Floats:
    """Return probabilities (n, C) of models trained with ``w`` on the half that does not hold the row.

    Parameters
    ----------
    Z, y
        Standardised rows (n, d) and labels (n,).
    half
        Half of each row, 0 or 1, shape (n,).
    w
        Row weights, class balance included, shape (n,).
    n_classes
        C.
    l2
        Ridge penalty.
    starts
        Coefficients from which the model of each half starts; default zeros.

    """
    p = np.empty((len(y), n_classes))
    for h in (0, 1):
        part = half == h
        coef = fit_softmax(Z[part], y[part], w[part], n_classes, l2=l2, start=starts[h])
        p[~part] = predict(coef, Z[~part])
    return p


def cross_fit(
    Z: Floats, y: Integers, ids: Integers, models: HalfModels, split: int, w: Floats, l2: float
) -> Floats:
    """Return probabilities (n, C) as ``cross_fit_halves`` does, for a division into halves.

    Parameters
    ----------
    Z, y, ids
        Standardised rows (n, d), labels (n,), row ids (n,).
    models
        Models from which the fits start, with the same halves.
    split
        Which of their divisions into halves.
    w
        Row weights, class balance included, shape (n,).
    l2
        Ridge penalty.

    """
    half, starts = halves(ids, models.seed, split), models.coefficients[split]
    return cross_fit_halves(Z, y, half, w, starts.shape[-1], l2=l2, starts=starts)


def cross_fit_factor(
    Z: Floats, y: Integers, ids: Integers, models: HalfModels, factor: Floats, s: CueSettings
) -> list[Floats]:
    """Return the probabilities (n, C) for each division into halves of models trained with a robust factor.

    Parameters
    ----------
    Z, y, ids, models
        As for ``cross_fit``.
    factor
        Weight of each row relative to class balance, before the limits, shape (n,).
    s
        Limits of the weights and the ridge penalty.

    """
    C = models.coefficients.shape[-1]
    limits = fit_limits(factor, y, C, cap=s.cap, min_effective=s.min_effective)
    w = class_balance(y, C) * limits.apply(factor, y)
    return [cross_fit(Z, y, ids, models, split, w, s.l2) for split in range(len(models.coefficients))]
