"""All pairs of a few rows at once: for these, what saves comparisons costs more than it saves."""

from __future__ import annotations

import numpy as np

from operators.dbscan.density import Density, Pairs
from operators.dbscan.tiles import Tiles, pieces

ROWS = 1024
PAIRS = 1 << 16
AT_ONCE = 256  # rows after which it shows whether there will be more pairs than that


def compare_all(tiles: Tiles) -> Density | None:
    """Counts and complete neighbourhoods at every level; None where they are not few."""
    everyone, top = np.arange(tiles.n), len(tiles.eps) - 1
    if tiles.n > ROWS:
        return None
    found: list[Pairs] = []
    n_found = 0
    for some in pieces(everyone, AT_ONCE):
        i, j, products = tiles.candidates(some, everyone, top, tiles.buffer(len(some) * tiles.n))
        n_found += len(i)
        if n_found * tiles.n > PAIRS * (some[-1] + 1):
            return None
        i = some[i]
        level = tiles.decide(i, j, products)
        use = np.flatnonzero((level <= top) & (i != j))
        found.append((i[use].astype(np.int32), j[use].astype(np.int32), level[use]))
    rows, cols, first = (np.concatenate(part) for part in zip(*found, strict=True))
    counts = np.bincount(first.astype(np.intp) * tiles.n + rows, minlength=(top + 1) * tiles.n)
    counts = np.cumsum(counts.reshape(top + 1, tiles.n), axis=0) + 1  # with itself: also a zero row
    return Density(np.full(tiles.n, top, np.int16), counts.astype(np.float64), (rows, cols, first))
