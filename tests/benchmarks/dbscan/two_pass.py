"""The plain way to exact clusters in O(n) memory: two passes of blocked float32 products.

A peer to time against: no bound, no sample, no dropping, no care for rounding near eps, no border rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from operators.dbscan.tiles import count_true
from operators.disjoint_sets import DisjointSets

TILE = 1024


def two_pass(X: Any, eps: float, min_samples: int) -> Any:
    """(n,) labels of core samples within Euclidean eps; all other rows are -1."""
    n, near = len(X), _Near(X, eps)
    counts = np.zeros(n, np.int64)
    starts = range(0, n, TILE)
    for a in starts:
        for b in starts:
            counts[a : a + TILE] += count_true(near(a, b))
    cores, forest = counts >= min_samples, DisjointSets(n)
    for a in starts:
        for b in starts:
            inside = near(a, b) & cores[a : a + TILE, None] & cores[b : b + TILE]
            roots = forest.find(np.arange(a, min(a + TILE, n)))
            others = forest.find(np.arange(b, min(b + TILE, n)))
            apart = inside & (roots[:, None] != others)
            if apart.any():
                i, j = np.nonzero(apart)
                forest.union(a + i, b + j)
    return np.where(cores, forest.find(np.arange(n)), -1)


class _Near:
    """Tiles of pairs within eps: <x, y> - |y|^2 / 2 >= |x|^2 / 2 - eps^2 / 2."""

    def __init__(self, X: Any, eps: float) -> None:
        self._rows = torch.from_numpy(X)
        half = torch.einsum("ij,ij->i", self._rows, self._rows) / 2
        self._bias, self._least = -half, (half - eps * eps / 2).numpy()[:, None]
        self._room = torch.empty(TILE * TILE)

    def __call__(self, a: int, b: int) -> Any:
        left, right = self._rows[a : a + TILE], self._rows[b : b + TILE]
        out = self._room[: len(left) * len(right)].view(len(left), len(right))
        torch.addmm(self._bias[b : b + TILE], left, right.T, out=out)
        return out.numpy() >= self._least[a : a + TILE]
