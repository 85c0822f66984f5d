"""Stability of the groups of a class: they are found again on part of its rows, and compared.

The figure answers two questions: how much the groups depend on the rows that happened to be there, and what
is lost where only drawn rows are clustered and all others are placed by core samples. A repeat does exactly
the latter, with rows whose exact clusters are known.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.metrics import adjusted_rand_score

from operators.arrays import Index, Labels, Matrix
from operators.factored import FactoredGradients
from operators.grasp.class_model import Model, assign
from operators.groups.merging import to_groups
from operators.hashing import row_hashes

Infer = Callable[[Matrix | FactoredGradients], tuple[Model, Labels]]

CHECKED_ROWS = 10_000
PART = 0.8
MAX_ROWS = 5_000


def checked_rows(n_rows: int, seed: int) -> Index:
    """Return the positions, ascending, of the rows that are compared: all of up to 10,000, else so many."""
    return drawn(n_rows, CHECKED_ROWS, seed, "groups/stability")


def drawn(n_rows: int, size: int, seed: int, purpose: str) -> Index:
    """Draw ``size`` of ``n_rows`` positions by their hashes; return them ascending."""
    if n_rows <= size:
        return np.arange(n_rows)
    hashes = row_hashes(np.arange(n_rows), seed, purpose)
    return np.sort(np.argpartition(hashes, size)[:size])


def stability(
    gradients: Matrix | FactoredGradients, groups: Labels, infer: Infer, repeats: int, seed: int
) -> tuple[float, ...]:
    """Return the adjusted Rand index of ``groups`` with those found on part of the rows, for each repeat.

    A part is 80 % of the rows, at most 5,000: the grid is clustered on it, a cell is selected and small
    clusters are merged as in the whole; then all rows are placed by the core samples of the part. Noise
    counts as one more group. A class in one group without noise, twice, has 1.

    Parameters
    ----------
    gradients : the rows of :func:`checked_rows`.
    groups : (n,) their groups within the class.
    infer : finds groups of some rows: the model that places rows in clusters, and each cluster's group.
    repeats : number of parts.
    seed : of the draws.
    """
    found: list[float] = []
    for repeat in range(repeats if len(groups) > 2 else 0):
        size = min(MAX_ROWS, max(2, round(PART * len(groups))))
        model, group_of = infer(gradients[drawn(len(groups), size, seed, f"groups/stability-{repeat}")])
        again = to_groups(assign(model, gradients), group_of)
        found.append(float(adjusted_rand_score(groups, again)))
    return tuple(found)
