"""Selection of the first rows of each stratum over shards. Only counts are exchanged, eight bits a round."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from operators.base import Executor, Resources
from operators.hashing import Hashes
from operators.splits.hashing import BINS, Ints, Search, histograms

Keyed: TypeAlias = Callable[[int], tuple[Ints, Hashes]]
"""Shard -> stratum (n,), -1 for none, and rank key (n,) uint64 of its rows."""


def find_ends(
    executor: Executor, shards: Sequence[int], keyed: Keyed, searches: Sequence[Search], resources: Resources
) -> list[int | Search]:
    """For each search the key below which exactly ``rank`` rows of its stratum are.

    Each round reads every shard's keys once. Where rows share the key at that rank there is no such key; then
    the search comes back with the shared key as ``low``, a negative ``shift``, and as ``rank`` how many of
    these rows it lacks.
    """
    found: dict[int, int | Search] = {}
    going = dict(enumerate(searches))
    while going:
        total = np.zeros((len(going), BINS), np.int64)
        for counts in executor.map(
            partial(_histograms, keyed, list(going.values())), shards, resources=resources
        ):
            total += counts
        results = {i: search.narrow(total[row]) for row, (i, search) in enumerate(going.items())}
        going = {i: r for i, r in results.items() if isinstance(r, Search) and r.shift >= 0}
        found |= {i: r for i, r in results.items() if i not in going}
    return [found[i] for i in range(len(searches))]


def _histograms(keyed: Keyed, searches: list[Search], shard: int) -> Ints:
    return histograms(*keyed(shard), searches)


def count_strata(
    executor: Executor, shards: Sequence[int], keys_of: Callable[[int], Ints], resources: Resources
) -> Counter[int]:
    """Rows of each stratum; -1 counts those in none."""
    sizes: Counter[int] = Counter()
    for found in executor.map(partial(_count, keys_of), shards, resources=resources):
        sizes.update(found)
    return sizes


def _count(keys_of: Callable[[int], Ints], shard: int) -> dict[int, int]:
    values, counts = np.unique(keys_of(shard), return_counts=True)
    return dict(zip(values.tolist(), counts.tolist(), strict=True))


def order_keys(values: npt.NDArray[np.float64]) -> Hashes:
    """uint64 keys in the order of finite float64 values; equal values have equal keys, 0 and -0 too."""
    bits = (values + 0.0).view(np.uint64)
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)
