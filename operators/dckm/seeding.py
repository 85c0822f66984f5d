"""k-means++ starts over shards (Arthur & Vassilvitskii 2007): a draw that needs no order of the rows.

The row with the smallest -log(u_i) / D_i^2 is a draw with probabilities proportional to D_i^2, as the least
of independent exponential times. The u_i are hashes of the row ids, so the draw does not depend on shards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from operators.arrays import Float64
from operators.dckm.moments import Coded
from operators.dckm.steps import Ids, nearest
from operators.hashing import row_hashes, uniform


class Candidate(NamedTuple):
    """The row of a shard that comes first."""

    time: float
    row_id: int
    row: Float64


def candidate(coded: Coded, row_ids: Ids, centres: Float64, seed: int) -> Candidate:
    """First row of a shard (n >= 1 rows) by its distance from the centres (k, d); k = 0: any row alike."""
    squares = nearest(coded, centres)[1] if len(centres) else np.ones(len(coded))
    with np.errstate(divide="ignore"):
        times = -np.log(uniform(row_hashes(row_ids, seed + len(centres), "dckm/k-means++"))) / squares
    first = int(times.argmin())
    return Candidate(float(times[first]), int(row_ids[first]), coded.Z[first].astype(np.float64))


def earlier(first: Candidate, second: Candidate) -> Candidate:
    """The first of two; of equals (rows that all lie on centres) the one with the smaller row id."""
    return min(first, second, key=lambda found: (found.time, found.row_id))
