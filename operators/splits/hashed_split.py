"""A random split that depends on the seed and the rows alone, with exact counts in every stratum.

Each row has a hash. The rows of a stratum with the smallest hashes are its validation part, the next ones its
test part. Radix selection finds the hash at which a part ends: a histogram of the hashes' highest bits gives
the bin that holds it, and the next round divides that bin. Histograms of shards are added, so no process ever
holds a column of the dataset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from operators.arrays import Int64
from operators.base import Executor, Resources
from operators.hashing import END, Hashes

BITS = 8
BINS = 1 << BITS
TRAIN, VALIDATION, TEST, DROPPED = range(4)
PARTS = ("train", "validation", "test", "dropped")
FOLD = "fold"
NO_FOLD = -1


def strata(y: npt.NDArray[np.integer], groups: npt.NDArray[np.integer]) -> Int64:
    """Return one key for each pair of class and group; the noise (-1) of each class is a stratum too."""
    keys: Int64 = (y.astype(np.int64) << 32) + groups.astype(np.int64) + 1
    return keys


@dataclass(frozen=True)
class Search:
    """Search for the hash below which exactly ``rank`` rows of a stratum lie.

    It lies in ``low`` to ``low + (BINS << shift)``, and ``rank`` counts the rows from ``low`` on. Start with
    ``Search(stratum, rank)`` and pass :func:`histograms` of all rows to :meth:`narrow` until it returns a
    number.
    """

    stratum: int
    rank: int
    low: int = 0
    shift: int = 64 - BITS

    def narrow(self, counts: Int64) -> Search | int:
        """Return the hash, or the search in the bin that holds it. ``counts`` (BINS,) is the histogram."""
        below = np.concatenate(([0], np.cumsum(counts)))
        place = int(np.searchsorted(below, self.rank))
        if below[place] == self.rank:
            return self.low + (place << self.shift)
        inside = place - 1
        low = self.low + (inside << self.shift)
        return Search(self.stratum, self.rank - int(below[inside]), low, self.shift - BITS)


def histograms(keys: Int64, hashes: Hashes, searches: Sequence[Search]) -> Int64:
    """Count the rows of one shard in each bin of each search: (len(searches), BINS)."""
    counts = np.zeros((len(searches), BINS), np.int64)
    order = np.argsort(keys, kind="stable")
    keys, hashes = keys[order], hashes[order]
    for index, search in enumerate(searches):
        first, last = np.searchsorted(keys, [search.stratum, search.stratum + 1])
        bins = (hashes[first:last] - np.uint64(search.low)) >> np.uint64(search.shift)
        # hashes below `low` wrap around to large bins
        counts[index] = np.bincount(bins[bins < BINS].astype(np.int64), minlength=BINS)
    return counts


def part_sizes(size: int, validation: float, test: float) -> tuple[int, int]:
    """Return a stratum's numbers of validation and test rows: the shares, rounded half to even."""
    n_validation = round(validation * size)
    return n_validation, min(round(test * size), size - n_validation)


def assign_parts(
    keys: Int64, hashes: Hashes, thresholds: Mapping[int, tuple[int, int]]
) -> npt.NDArray[np.int8]:
    """Return the index (n,) into :data:`PARTS` of each row.

    Parameters
    ----------
    keys, hashes : (n,) stratum and hash of each row.
    thresholds : two hashes for each stratum; validation takes the hashes below the first, test those from
        there to below the second.
    """
    names, place = np.unique(keys, return_inverse=True)
    parts = np.full(len(keys), TRAIN, np.int8)
    for part, which in ((TEST, 1), (VALIDATION, 0)):
        ends = [thresholds[name][which] for name in names.tolist()]
        limits = np.array([min(end, END - 1) for end in ends], np.uint64)
        whole = np.array([end == END for end in ends], bool)
        parts[(hashes < limits[place]) | whole[place]] = part
    return parts


KeyReader: TypeAlias = Callable[[int], tuple[Int64, Hashes]]
"""Function of a shard that returns the stratum (n,) of its rows, -1 for none, and their sort keys (n,)
uint64.
"""


def find_ends(
    executor: Executor,
    shards: Sequence[int],
    read_keys: KeyReader,
    searches: Sequence[Search],
    resources: Resources,
) -> list[int | Search]:
    """Find, for each search, the sort key below which exactly ``rank`` rows of its stratum lie.

    Each round reads every shard's keys once. There is no such key where several rows share the key at that
    rank. The search itself is then returned: ``low`` is the shared key, ``shift`` is negative, and ``rank``
    is the number of rows with that key that are still to be taken.
    """
    found: dict[int, int | Search] = {}
    going = dict(enumerate(searches))
    while going:
        total = np.zeros((len(going), BINS), np.int64)
        for counts in executor.map(
            partial(_histograms, read_keys, list(going.values())), shards, resources=resources
        ):
            total += counts
        results = {i: search.narrow(total[row]) for row, (i, search) in enumerate(going.items())}
        going = {i: r for i, r in results.items() if isinstance(r, Search) and r.shift >= 0}
        found |= {i: r for i, r in results.items() if i not in going}
    return [found[i] for i in range(len(searches))]


def _histograms(read_keys: KeyReader, searches: list[Search], shard: int) -> Int64:
    return histograms(*read_keys(shard), searches)


def count_strata(
    executor: Executor, shards: Sequence[int], keys_of: Callable[[int], Int64], resources: Resources
) -> Counter[int]:
    """Count the rows of each stratum over all shards; -1 counts the rows in none."""
    sizes: Counter[int] = Counter()
    for found in executor.map(partial(_count, keys_of), shards, resources=resources):
        sizes.update(found)
    return sizes


def _count(keys_of: Callable[[int], Int64], shard: int) -> dict[int, int]:
    values, counts = np.unique(keys_of(shard), return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))
