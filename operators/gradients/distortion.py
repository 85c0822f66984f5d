"""How far a projection moves the cosines that groups are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True)
class Distortion:
    """Absolute error of the centred cosine over pairs of rows of one class: mean and 99 % quantile."""

    mean: float
    p99: float
    pairs: int


def cosine_distortion(flat: Floats, projected: Floats, y: NDArray[np.integer]) -> Distortion:
    """Compare gradients (n, p) with what a projection made of them (n, dim), labels y (n,).

    All pairs of rows of one class, centred by the sample's class mean before and after, as GRASP compares
    them. Rows at their class mean have no direction and count with cosine 0.
    """
    errors = []
    for label in np.unique(y):
        before, after = (_cosines(part[y == label]) for part in (flat, projected))
        errors.append(np.abs(after - before)[np.triu_indices(len(before), k=1)])
    every = np.concatenate(errors)
    if not len(every):
        return Distortion(float("nan"), float("nan"), 0)
    return Distortion(float(every.mean()), float(np.quantile(every, 0.99)), len(every))


def _cosines(rows: Floats) -> NDArray[np.float64]:
    centred = rows.astype(np.float64)
    centred -= centred.mean(axis=0)
    norms = np.linalg.norm(centred, axis=1, keepdims=True)
    centred /= np.where(norms > 0, norms, 1)
    product: NDArray[np.float64] = centred @ centred.T
    return product
