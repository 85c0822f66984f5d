"""Strata of rows within which labels are compared: the class, and whether a row breaks a known shortcut.

A rare value lies far from all others, and the label contradicts it where it breaks a shortcut: such rows look
damaged though they are not. Damaged rows break shortcuts, too, and those that break none have labels which
every model that leans on the shortcut predicts. So where shortcuts are known, rows that look damaged are
compared with rows of the same stratum, and with planted ones that are in it after the damage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from operators.arrays import Float32, Int64, Mask
from operators.outliers.linear import Scaler
from operators.outliers.planted import plant

Breaks = Callable[[Float32, Int64], Mask]
"""Tells of features (n, d) and class indices (n,) which rows break a known shortcut."""


@dataclass(frozen=True)
class Strata:
    """Stratum of each row, in the order of the evidence."""

    observed: Int64
    """(n,) of the rows as they are."""
    planted: tuple[Int64, ...]
    """(n,) of the same rows with each kind of damaged features."""


def strata_of(X: Float32, y: Int64, classes: Int64, breaks: Breaks | None, seed: int) -> Strata:
    """Return the strata of rows; all rows are in one where no shortcut is known.

    Parameters
    ----------
    X : (n, d) features.
    y : (n,) position of the class in ``classes``.
    classes : (C,) class index of each.
    breaks : tells which rows break a known shortcut; None where none is known.
    seed : of planted damage.
    """
    together = np.zeros(len(y), np.int64)
    in_one = Strata(together, (together, together))
    if breaks is None:
        return in_one
    labels, scaler = classes[y], Scaler.fit(X)
    broken = breaks(X, labels)
    if not broken.any():
        return in_one
    deviation = np.divide(1.0, scaler.inverse, out=np.zeros_like(scaler.inverse), where=scaler.inverse > 0)
    _, damaged = plant(scaler(X), y, len(classes), seed)
    planted = (breaks((Z * deviation + scaler.mean).astype(np.float32), labels) for Z in damaged)
    return Strata(2 * y + broken, tuple(2 * y + broken_then for broken_then in planted))
