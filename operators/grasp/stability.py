"""Stability of the groups of a class: they are found again on part of its rows, and compared.

The figure measures how much the groups depend on the rows of the dataset, and what is lost where only drawn
rows are clustered and all others are placed by core samples, as each repeat does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.metrics import adjusted_rand_score

from operators.arrays import Index, Labels, Matrix
from operators.factored import FactoredGradients
from operators.grasp.class_model import Model, assign
from operators.groups.small_groups import to_groups
from operators.hashing import draw_rows

Infer = Callable[[Matrix | FactoredGradients], tuple[Model, Labels]]

CHECKED_ROWS = 10_000
"""Largest number of rows whose groups are compared."""
PART = 0.8
"""Share of these rows on which groups are found again."""
MAX_ROWS = 5_000
"""Largest number of rows on which groups are found again."""


def checked_rows(n_rows: int, seed: int) -> Index:
    """Return the positions, ascending, of the rows that are compared, at most ``CHECKED_ROWS``."""
    return draw_rows(np.arange(n_rows), CHECKED_ROWS, seed, "groups/stability")


def stability(
    gradients: Matrix | FactoredGradients, groups: Labels, infer: Infer, repeats: int, seed: int
) -> tuple[float, ...]:
    """Return the adjusted Rand index of ``groups`` with those found on part of the rows, for each repeat.

    A part is 80 % of the rows, at most 5,000: the grid is clustered on it, a cell is selected and small
    clusters are merged as in the whole; then all rows are placed by the core samples of the part. Noise
    counts as one more group.

    Parameters
    ----------
    gradients : the rows of :func:`checked_rows`.
    groups : (n,) their groups within the class.
    infer : finds groups of some rows: the model that places rows in clusters, and each cluster's group.
    repeats : number of parts.
    seed : seed of the draws.
    """
    found: list[float] = []
    for repeat in range(repeats if len(groups) > 2 else 0):
        size = min(MAX_ROWS, max(2, round(PART * len(groups))))
        part = draw_rows(np.arange(len(groups)), size, seed, f"groups/stability-{repeat}")
        model, group_of = infer(gradients[part])
        again = to_groups(assign(model, gradients), group_of)
        found.append(float(adjusted_rand_score(groups, again)))
    return tuple(found)
