"""Rows in memory as :mod:`operators.splits.kernel` sees them: by features or by a kernel matrix."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from operators.arrays import Float32, Float64, Int64, Mask
from operators.splits.features import BLOCK, aligned, blocks
from operators.splits.kernel import Centroids, Fit, ValidationRows, iterate, mmd_of
from operators.splits.selection import Selector


def project(phi: Float32, row_ids: Int64, direction: Float64, offset: float) -> Float64:
    """Compute the gain -2 <phi, direction> + offset of each row, (n,) float64.

    The result is the same to the bit in whichever shard a row lies, if it is called within
    ``limit_threads(1)``.
    """
    found = np.empty(len(phi))
    wide = aligned((BLOCK, phi.shape[1]), np.float64)
    wide[:] = 0
    for rows, places in blocks(row_ids):
        wide[places] = phi[rows]
        found[rows] = (wide @ direction)[places]
    found *= -2.0
    found += offset
    return found


def totals(phi: Float32, masks: npt.NDArray[np.bool_]) -> Float64:
    """Return the sums (k, width) of phi (n, width) under k masks (k, n), exact in float64 for features of a
    :class:`operators.splits.features.FeatureMap`.
    """
    found = np.zeros((len(masks), phi.shape[1]))
    for start in range(0, len(phi), BLOCK):
        rows = slice(start, start + BLOCK)
        found += masks[:, rows].astype(np.float64) @ phi[rows].astype(np.float64)
    return found


def scatter_of(phi: Float32, total: Float64) -> float:
    """Return the sum of |phi - mean|^2 over the rows; ``total`` (width,) is their sum."""
    mean = total / max(len(phi), 1)
    found = 0.0
    for start in range(0, len(phi), BLOCK):
        found += float(np.square(phi[start : start + BLOCK] - mean).sum())
    return found


class FeatureRows:
    """Rows in memory, given by explicit features phi (n, width)."""

    def __init__(self, phi: Float32, selector: Selector) -> None:
        self.phi, self.n = phi, len(phi)
        self._ids = np.arange(self.n)
        self._select = selector.select
        self.total = totals(phi, np.ones((1, self.n), bool))[0]
        self.scatter = scatter_of(phi, self.total)

    def inner(self, a: Float64, b: Float64) -> float:
        """Return <a, b> in the space of phi."""
        return float(a @ b)

    def choose(self, direction: Float64, offset: float) -> tuple[ValidationRows[Mask], ValidationRows[Mask]]:
        """Choose the validation rows of both labelings."""
        gain = project(self.phi, self._ids, direction, offset)
        masks = np.stack([self._select(value) for value in (gain, -gain)])
        first, second = totals(self.phi, masks)
        return ValidationRows(first, int(masks[0].sum()), masks[0]), ValidationRows(
            second, int(masks[1].sum()), masks[1]
        )

    def at(self, row: int) -> Float64:
        """Return phi of one row."""
        return np.asarray(self.phi[row], np.float64)

    def square_distances(self, row: int) -> Float64:
        """Return the squared distances (n,) of all rows to one row."""
        return np.asarray(np.square(self.phi - self.phi[row]).sum(axis=1, dtype=np.float64))


class GramRows:
    """Rows in memory, given by their kernel matrix K (n, n). A vector v (n,) stands for sum_i v_i
    phi(x_i).
    """

    def __init__(self, gram: Float64, selector: Selector) -> None:
        self.gram, self.n = gram, len(gram)
        self._select = selector.select
        self.total = np.ones(self.n)
        self.scatter = float(np.trace(gram) - gram.sum() / self.n)

    def inner(self, a: Float64, b: Float64) -> float:
        """Return <a, b> in the space of phi."""
        return float(a @ (self.gram @ b))

    def choose(self, direction: Float64, offset: float) -> tuple[ValidationRows[Mask], ValidationRows[Mask]]:
        """Choose the validation rows of both labelings."""
        gain = -2 * (self.gram @ direction) + offset
        first, second = (self._select(value) for value in (gain, -gain))
        return (
            ValidationRows(first.astype(np.float64), int(first.sum()), first),
            ValidationRows(second.astype(np.float64), int(second.sum()), second),
        )

    def at(self, row: int) -> Float64:
        """Return phi of one row as coefficients (n,)."""
        found = np.zeros(self.n)
        found[row] = 1
        return found

    def square_distances(self, row: int) -> Float64:
        """Return the squared distances (n,) of all rows to one row."""
        diagonal = np.diagonal(self.gram)
        return np.asarray(diagonal + diagonal[row] - 2 * self.gram[row], np.float64)


InMemory: TypeAlias = FeatureRows | GramRows


def starts(rows: InMemory, count: int, random: np.random.Generator) -> list[Centroids]:
    """Draw ``count`` pairs of rows as first centroids, the second by its squared distance to the first.

    This is k-means++ for two clusters. scikit-learn's ``kmeans_plusplus`` needs explicit features, which a
    kernel matrix does not have. Raises ValueError where distances are beyond float32.
    """
    found = []
    for _ in range(count):
        first = int(random.integers(rows.n))
        far = np.maximum(rows.square_distances(first), 0).astype(np.float64)
        weight = far.sum()
        if not np.isfinite(weight):
            raise ValueError(
                "distances of rows are beyond float32. Give the features in another unit: values between "
                "1e-30 and 1e30 if they are standardised, else between 1e-15 and 1e15."
            )
        second = int(random.choice(rows.n, p=far / weight if weight else None))
        found.append(Centroids(rows.at(first), rows.at(second)))
    return found


def best_start(
    rows: InMemory, n_init: int, max_iter: int, random: np.random.Generator
) -> tuple[Centroids, Fit[Mask], list[float]]:
    """Return the start that ends with the lowest objective, its fit, and the MMD of every start (n_init,)."""
    pairs = starts(rows, n_init, random)
    fits = [iterate(rows, pair, max_iter) for pair in pairs]
    best = int(np.argmax([fit.between[-1] for fit in fits]))
    return pairs[best], fits[best], [mmd_of(rows, fit.chosen) for fit in fits]
