"""Halves, flips and samples of rows, decided by a hash of the row id alone.

Every process sees the same draws, whatever the shards and batches in which it reads the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from operators.arrays import Float64, Integers
from operators.hashing import END, Hashes, row_hashes, uniform

MIN_CLASS_ROWS = 500
"""Rows of a class that are drawn although its share of the sample would be smaller, unless there are so many
classes that these would fill the sample."""


class Split(IntEnum):
    """Divisions of the rows into halves, each for a purpose of its own."""

    FIRST = 0
    """Of the twins, and of all models that are compared with theirs."""
    SECOND = 1
    """Of the twins once more."""
    TRADE_OFF = 2
    IMPORTANCE = 3
    WORDS = 4


def halves(ids: Integers, seed: int, split: int) -> npt.NDArray[np.int64]:
    """Return 0 or 1 per row, shape (n,): the half of the given ``Split`` to which the row belongs."""
    return (row_hashes(ids, seed, f"cues/half-{int(split)}") >> np.uint64(63)).astype(np.int64)


def flip_draws(ids: Integers, seed: int, split: int, step: int) -> Float64:
    """Return one number in (0, 1) per row, shape (n,), for the label flips of one round of one split."""
    return uniform(row_hashes(ids, seed, f"cues/flip-{split}-{step}"))


def sample_hashes(ids: Integers, seed: int) -> Hashes:
    """Return the hashes, shape (n,), by which rows are sampled: those with the smallest ones are drawn."""
    return row_hashes(ids, seed, "cues/sample")


def sample_quotas(counts: Sequence[int], max_rows: int) -> list[int]:
    """Return how many rows of each class are drawn.

    Parameters
    ----------
    counts
        Rows of each class in the dataset.
    max_rows
        Rows of the sample. A class gets its share of them. It gets at least 500, or all of its rows, or where
        classes are many the same number as each other one, so that the sample has fewer than twice
        ``max_rows`` rows unless there are more classes than that.

    """
    total = sum(counts)
    if total <= max_rows:
        return list(counts)
    least = min(MIN_CLASS_ROWS, max(max_rows // sum(n > 0 for n in counts), 1))
    return [max(max_rows * n // total, min(n, least)) for n in counts]


def candidate_limits(counts: Sequence[int], quotas: Sequence[int], slack: float) -> list[int]:
    """Return the hash per class up to which about ``slack`` times its quota of rows lie."""
    shares = [
        1.0 if quota >= n else slack * (quota + 100) / n for n, quota in zip(counts, quotas, strict=True)
    ]
    return [END - 1 if share >= 1 else int(share * END) for share in shares]


def exact_limits(candidates: Mapping[int, Hashes], quotas: Sequence[int]) -> list[int] | None:
    """Return the hash of the last row that is drawn of each class; None if a class has too few candidates.

    Parameters
    ----------
    candidates
        Class index to the hashes of all its rows up to its candidate limit.
    quotas
        Rows to draw of each class. A class without any gets the limit -1.

    """
    limits = []
    for index, quota in enumerate(quotas):
        hashes = candidates.get(index, np.empty(0, np.uint64))
        if len(hashes) < quota:
            return None
        limits.append(int(np.partition(hashes, quota - 1)[quota - 1]) if quota else -1)
    return limits


def draw_sample(y: npt.NDArray[np.integer], ids: Integers, max_rows: int, seed: int) -> npt.NDArray[np.intp]:
    """Return sorted numbers of the sampled rows of a table in memory: the same rows as over shards."""
    counts = np.bincount(y)
    quotas = sample_quotas(counts.tolist(), max_rows)
    hashes = sample_hashes(ids, seed)
    taken = []
    for index in np.flatnonzero(counts):
        rows = np.flatnonzero(y == index)
        taken.append(rows[np.argsort(hashes[rows], kind="stable")[: quotas[index]]])
    return np.sort(np.concatenate(taken)) if taken else np.empty(0, np.intp)
