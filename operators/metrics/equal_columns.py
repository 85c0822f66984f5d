"""Columns that are equal, or opposite, in all rows: of these an importance is that of all together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

SAME, NEAR = 1e-8, 1e-2
"""Difference of a correlation from 1, and of the projections of equal columns, that rounding explains."""


def equal_blocks(
    X: npt.NDArray[np.float32], blocks: Mapping[str, Sequence[int]]
) -> dict[str, tuple[str, ...]]:
    """Return the blocks that say the same of all rows: the name of the first to those of the others.

    Each column of one is a column of the other but for scale and sign. Constant columns say nothing. Only
    blocks with neighbouring projections on one random direction are compared, so that many are no cost.

    Examples
    --------
    >>> X = np.array([[0, 1, 3], [1, 0, 3], [1, 0, 4]], np.float32)
    >>> equal_blocks(X, {"paid": [0], "age": [2], "unpaid": [1]})
    {'paid': ('unpaid',)}
    """
    spread = X.std(axis=0, dtype=np.float64)
    direction = np.random.default_rng(0).normal(size=len(X)).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # columns of such values are not compared
        projections = np.abs((direction - direction.mean()) @ X) / np.where(spread > 0, spread, np.inf)
    varying = {name: [p for p in positions if spread[p] > 0] for name, positions in blocks.items()}
    largest = {name: float(projections[own].max()) for name, own in varying.items() if own}
    groups: list[list[str]] = []
    for name in sorted(largest, key=largest.__getitem__):
        first = groups[-1][0] if groups else name
        near = first != name and np.isclose(largest[first], largest[name], rtol=NEAR, atol=NEAR)
        if near and _say_the_same(X, varying[first], varying[name]):
            groups[-1].append(name)
        else:
            groups.append([name])
    ordered = [sorted(group, key=[*blocks].index) for group in groups if len(group) > 1]
    return {first: tuple(others) for first, *others in ordered}


def _say_the_same(X: npt.NDArray[np.float32], one: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether each varying column of a block is one of the other but for scale and sign."""
    Z = X[:, [*one, *other]].astype(np.float64)
    Z -= Z.mean(axis=0)
    Z /= np.linalg.norm(Z, axis=0)
    alike = np.abs(Z[:, : len(one)].T @ Z[:, len(one) :]) > 1 - SAME
    return bool(alike.any(axis=0).all() and alike.any(axis=1).all())
