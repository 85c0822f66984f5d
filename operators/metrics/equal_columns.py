"""Columns that are equal, or opposite, in all rows: of these an importance is that of all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64

SAME, NEAR = 1e-8, 1e-2
"""Difference of a correlation from 1, and of the projections of equal columns, that rounding explains."""
DIRECTIONS = 4
"""Random directions on which the projections of two blocks have to be near, which is rare by chance."""


def equal_blocks(
    X: npt.NDArray[np.float32], blocks: Mapping[str, Sequence[int]]
) -> dict[str, tuple[str, ...]]:
    """Return the blocks that say the same of all rows: the name of the first to those of the others.

    Each column of one is a column of the other but for scale and sign. Constant columns say nothing. Only
    blocks whose projections on random directions are near are compared, so that many are no cost.

    Examples
    --------
    >>> X = np.array([[0, 1, 3], [1, 0, 3], [1, 0, 4]], np.float32)
    >>> equal_blocks(X, {"paid": [0], "age": [2], "unpaid": [1]})
    {'paid': ('unpaid',)}
    """
    spread = X.std(axis=0, dtype=np.float64)
    varying = {name: [p for p in positions if spread[p] > 0] for name, positions in blocks.items()}
    projections = _projections(X, spread)
    largest = {name: projections[:, own].max(axis=1) for name, own in varying.items() if own}
    firsts = np.full((len(largest), DIRECTIONS), np.inf)
    groups: list[list[str]] = []
    for name in sorted(largest, key=lambda one: float(largest[one][0])):
        known = (groups[g] for g in _near(firsts[: len(groups)], largest[name]))
        group = next((one for one in known if _say_the_same(X, varying[one[0]], varying[name])), None)
        if group is None:
            firsts[len(groups)] = largest[name]
            groups.append([name])
        else:
            group.append(name)
    ordered = [sorted(group, key=[*blocks].index) for group in groups if len(group) > 1]
    return {first: tuple(others) for first, *others in ordered}


def _projections(X: npt.NDArray[np.float32], spread: Float64) -> Float64:
    """Return the size of each standardised column's projection on each direction; about 1, of any rows."""
    directions = np.random.default_rng(0).normal(size=(DIRECTIONS, len(X))).astype(np.float32)
    directions -= directions.mean(axis=1, keepdims=True)
    with np.errstate(over="ignore", invalid="ignore"):  # columns of such values are not compared
        found = np.abs(directions @ X) / np.where(spread > 0, spread, np.inf) / np.sqrt(len(X))
    return np.where(np.isfinite(found), found, np.inf)


def _near(firsts: Float64, own: Float64) -> npt.NDArray[np.intp]:
    """Return the positions of the projections that rounding may tell from a block's own.

    They are in the order of the first direction, and none there is larger than the block's own.
    """
    slack = NEAR * (1 + own)
    start = int(np.searchsorted(firsts[:, 0], own[0] - slack[0]))
    with np.errstate(invalid="ignore"):
        return start + np.flatnonzero((np.abs(firsts[start:] - own) <= slack).all(axis=1))


def _say_the_same(X: npt.NDArray[np.float32], one: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether each varying column of a block is one of the other but for scale and sign."""
    Z = X[:, [*one, *other]].astype(np.float64)
    Z -= Z.mean(axis=0)
    Z /= np.linalg.norm(Z, axis=0)
    alike = np.abs(Z[:, : len(one)].T @ Z[:, len(one) :]) > 1 - SAME
    return bool(alike.any(axis=0).all() and alike.any(axis=1).all())
