"""Training rows, shard by shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from operators.arrays import Float64, Int64

BLOCK = 4096
"""Rows converted to float64 at a time."""


@dataclass(frozen=True)
class Rows:
    """Training rows with their labels and weights."""

    X: NDArray[np.float32]
    """(n, d)"""
    y: NDArray[np.int64]
    """(n,) class indices."""
    weight: Float64
    """(n,) non-negative; only the ratios count."""

    def __len__(self) -> int:
        return len(self.y)

    def take(self, places: slice | NDArray[np.int64]) -> Rows:
        """Return some of the rows."""
        return Rows(self.X[places], self.y[places], self.weight[places])


NO_ROWS = Rows(np.empty((0, 0), np.float32), np.empty(0, np.int64), np.empty(0))


class Shards(Protocol):
    """Anything that gives shard i's rows, as often as asked: a list of :class:`Rows`, a reader of files."""

    def __len__(self) -> int: ...
    def __getitem__(self, shard: int, /) -> Rows: ...


def join(parts: Sequence[Rows]) -> Rows:
    """Join the rows of several parts, one after the other."""
    # Parts without rows are left out: they may not know how wide their rows would be.
    parts = [part for part in parts if len(part)]
    if len(parts) <= 1:
        return parts[0] if parts else NO_ROWS
    return Rows(
        np.concatenate([part.X for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.weight for part in parts]),
    )


def blocks(rows: Rows) -> Iterator[tuple[Float64, Int64, Float64]]:
    """Yield features (m, d) in float64, labels and weights (m,), a bounded number of rows at a time.

    Blocks are counted from the first row, so that sums over them do not depend on who computes them.
    """
    for start in range(0, len(rows), BLOCK):
        part = rows.take(slice(start, start + BLOCK))
        yield part.X.astype(np.float64), part.y, part.weight
