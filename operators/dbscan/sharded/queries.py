"""Which rows of which block: the driver knows counts only, workers turn them into rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np

from operators.dbscan.distances import Index
from operators.dbscan.sharded.layout import Layout

Slices: TypeAlias = list[tuple[int, int, int]]
"""(block, start, stop): positions among those of the block's rows that a mask selects."""

Masked: TypeAlias = Callable[[int], Index]
"""Block number -> positions of its selected rows, ascending."""


def query_groups(counts: Sequence[int], size: int) -> list[Slices]:
    """Selected rows of all blocks, in order, in groups of at most ``size``."""
    ends = np.cumsum(counts)
    cuts = [*range(0, int(ends[-1]), size), int(ends[-1])]
    return [_between(counts, ends, start, stop) for start, stop in pairwise(cuts)]


def _between(counts: Sequence[int], ends: Index, start: int, stop: int) -> Slices:
    found = []
    for block in range(int(np.searchsorted(ends, start, side="right")), len(counts)):
        before = int(ends[block]) - counts[block]
        if before >= stop:
            break
        if counts[block]:
            found.append((block, max(start - before, 0), min(stop - before, counts[block])))
    return found


def group_rows(layout: Layout, masked: Masked, slices: Slices) -> Index:
    """Row numbers of a group, ascending."""
    parts = [masked(block)[start:stop] + block * layout.block_rows for block, start, stop in slices]
    return np.concatenate([*parts, np.empty(0, np.intp)])


def ranked_rows(layout: Layout, masked: Masked, counts: Sequence[int], ranks: Index) -> Index:
    """Row numbers of the selected rows with the given ranks among all selected rows."""
    ends = np.cumsum(counts)
    block = np.searchsorted(ends, ranks, side="right")
    parts = [np.empty(0, np.intp)]
    for b in np.unique(block).tolist():
        inside = ranks[block == b] - (ends[b] - counts[b])
        parts.append(masked(b)[inside] + b * layout.block_rows)
    return np.concatenate(parts)


def drawn(random: np.random.Generator, population: int, size: int) -> Index:
    """At most ``size`` distinct numbers below ``population``, ascending."""
    return np.sort(random.choice(population, min(size, population), replace=False)).astype(np.intp)
