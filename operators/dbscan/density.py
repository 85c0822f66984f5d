"""Which rows are dense at which radius, without counting the neighbours of most rows.

Radii are levels, ascending; a row with ``goal`` neighbours at one level has them at all larger ones.
So each row has one number: the largest level at which it falls short, -1 if none. Most rows of a
large cluster meet the goal within a small random sample of rows and are done. The sample is then drawn
from what is left, in which smaller clusters weigh more, and so on. Only rows that samples no longer
settle are compared with all others (:mod:`operators.dbscan.search`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from operators.dbscan import tiles as t
from operators.dbscan.distances import Float64, Index
from operators.dbscan.tiles import Level, Side, Tiles, count_true, in_threads, pieces

SAMPLE_PER_GOAL = 5  # a row with a fifth of all rows around it meets the goal in the first sample
SMALLEST_SAMPLE = 64
GROWTH = 4  # of the sample from one round to the next: fewer rows are left to look at it
LARGEST_SAMPLE = 4  # times the first sample
STALLED = 0.2  # share of open rows lowered by a sample below which a larger one does not pay
AGAIN = 0.5  # share settled at all radii below which a second sample of that size does not pay
FEWEST_ROWS = 64  # of a tile, however large the sample
LARGEST_SHARE = 0.25  # share of all rows above which a sample does not pay

Pairs: TypeAlias = tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], Level]


@dataclass(eq=False)
class Density:
    """What is known of each row.

    Attributes
    ----------
    level : (n,) int16: largest level at which the row has fewer than ``goal`` neighbours, -1 if none.
    counts : (n_levels, n) float64: neighbours (or their weight) at each level; exact for levels
        <= ``level``, a lower bound or nothing above it.
    pairs : rows (ascending), neighbours, and first level of every neighbourhood at levels <= ``level``,
        but for the rows themselves; None where they were too many to keep.
    """

    level: Level
    counts: Float64
    pairs: Pairs | None


def settle_by_samples(tiles: Tiles, goal: float, level: Level, random: np.random.Generator) -> None:
    """Lower ``level`` where a random sample alone holds ``goal`` neighbours, in place."""
    size = max(SMALLEST_SAMPLE, int(SAMPLE_PER_GOAL * goal))
    largest = min(LARGEST_SAMPLE * size, int(LARGEST_SHARE * tiles.n))
    open_rows = np.flatnonzero(level >= 0)
    while len(open_rows) > size and size <= largest:
        # Half from the open rows for the clusters they form, half from all for the rims of settled ones.
        drawn = random.choice(tiles.n, size, replace=False)
        drawn[: size // 2] = random.choice(open_rows, size // 2, replace=False)
        sample = tiles.side(np.unique(drawn))

        def lowered(rows: Index, sample: Side = sample) -> Level:
            return _lowered(tiles, rows, sample, level[rows], goal)

        parts = in_threads(lowered, pieces(open_rows, max(FEWEST_ROWS, t.fitting(size))))
        new = np.concatenate(list(parts))
        moved, settled = np.mean(new < level[open_rows]), np.mean(new < 0)
        level[open_rows] = new
        if moved <= STALLED or (size == largest and settled <= AGAIN):
            return
        open_rows = open_rows[new >= 0]
        size = min(GROWTH * size, largest)


def _lowered(tiles: Tiles, rows: Index, sample: Side, level: Level, goal: float) -> Level:
    """Levels of ``rows`` after those at which ``sample`` holds ``goal`` certain neighbours."""
    room = tiles.buffer(len(rows) * len(sample.rows))
    products = tiles.products(rows, sample, room)
    short, met = np.full_like(level, -1), level + np.int16(1)
    while True:  # halving: a row that is done is asked again, and answers the same
        middle = np.minimum((short + met + 1) // 2, level).astype(np.int16)
        dense = count_true(tiles.near(products, tiles.at_least(rows, sample, middle, True), room)) >= goal
        met, short = np.where(dense, np.minimum(met, middle), met), np.where(dense, short, middle)
        if (met - short <= 1).all():
            return np.asarray(met - np.int16(1))
