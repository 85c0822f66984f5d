"""The plain way to exact clusters in O(n) memory: two passes of blocked float32 products.

A peer to time against: no bound, no sample, no dropping, and no care for rounding near eps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from operators.dbscan.forest import Forest
from operators.dbscan.tiles import count_true

TILE = 1024


def two_pass(X: Any, eps: float, min_samples: int) -> Any:
    """(n,) core flags and component roots of unit rows X within Euclidean eps."""
    n, rows = len(X), torch.from_numpy(X)
    room = torch.empty(TILE * TILE)
    least = 1 - eps * eps / 2
    counts = np.zeros(n, np.int64)
    starts = range(0, n, TILE)
    for a in starts:
        for b in starts:
            counts[a : a + TILE] += count_true(_product(rows, a, b, room) >= least)
    cores, forest = counts >= min_samples, Forest(n)
    for a in starts:
        for b in starts:
            near = _product(rows, a, b, room) >= least
            near &= cores[a : a + TILE, None] & cores[b : b + TILE]
            # One row of each component is enough: its neighbours hang together through it.
            roots = forest.find(np.arange(a, min(a + TILE, n)))
            others = forest.find(np.arange(b, min(b + TILE, n)))
            apart = near & (roots[:, None] != others)
            if apart.any():
                i, j = np.nonzero(apart)
                forest.union(a + i, b + j)
    return cores, forest.find(np.arange(n))


def _product(rows: Any, a: int, b: int, room: Any) -> Any:
    left, right = rows[a : a + TILE], rows[b : b + TILE]
    out = room[: len(left) * len(right)].view(len(left), len(right))
    return torch.mm(left, right.T, out=out).numpy()
