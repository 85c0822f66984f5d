"""Principal components of gradients that are kept as factors, from their inner products alone."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import KernelPCA

from operators.factored import FactoredGradients

Float64: TypeAlias = NDArray[np.float64]
LOST = 1e-12
"""Share of the largest below which a squared norm is rounding."""


def directions(gradients: FactoredGradients, weights: Float64) -> Float64:
    """(n, n) inner products of the rows less their weighted mean, each divided by its length.

    A row equal to the mean has no direction: its products are zero. ``weights`` (n,) sum to more than 0.
    """
    products = gradients.products(gradients)
    toward = np.average(products, axis=1, weights=weights)
    products -= toward[:, None] + toward - np.average(toward, weights=weights)
    squares = np.diagonal(products).copy()
    squares[squares <= LOST * squares.max(initial=0.0)] = np.inf
    lengths = np.sqrt(squares)
    products /= lengths[:, None] * lengths
    return products


def plane_of_products(products: Float64, seed: int) -> tuple[Float64, Float64]:
    """First two principal components, (n, 2), and the shares of variance; zeros where there are none."""
    n = len(products)
    points, explained = np.zeros((n, 2)), np.zeros(2)
    means = products.mean(axis=0)
    variance = float(np.trace(products) - n * means.mean())
    if n < 2 or variance <= LOST * n:
        return points, explained
    analysis: Any = KernelPCA(min(2, n), kernel="precomputed", random_state=seed)
    found = analysis.fit_transform(products)
    points[:, : found.shape[1]] = found
    explained[: found.shape[1]] = analysis.eigenvalues_ / variance
    return points, explained
