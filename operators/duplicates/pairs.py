"""The pairs that a search has found, on disk: each row that has an older near row, ascending by row id.

A shard's pairs are one file, ``pairs-<first row>-<first row>-<pairs>.npy``; the files of several shards are
made one as shards come (:mod:`operators.duplicates.runs`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.arrays import Float32, Ids
from operators.base import OperatorError
from operators.duplicates.minhash import Duplicates, oldest
from operators.duplicates.runs import Run, choose_runs

PAIR = np.dtype([("row", np.int64), ("of", np.int64), ("similarity", np.float32)])
LARGEST = 2**22
"""Most pairs of files that are made one: 80 MiB."""
PAIRS, PARTLY = "pairs", "partly"

Pairs = npt.NDArray[Any]
"""Structured array of ``PAIR``."""
Kinds = npt.NDArray[np.int8]
KindOf = Callable[[Ids], Kinds]
"""Returns the kind (n,) of each row of some row ids (n,); a row of a negative kind is left out."""


def write_pairs(state: Path, first_row: int, rows: Ids, others: Ids, similar: Float32) -> int:
    """Store the pairs (p,) of row ids of a shard, unless there are none; return how many there are."""
    return write_some(state / Run(first_row, first_row, len(rows)).name(PAIRS), rows, others, similar)


def write_some(path: Path, rows: Ids, others: Ids, similar: Float32) -> int:
    """Store pairs (p,) of row ids in a file, unless there are none; return how many there are."""
    pairs = np.empty(len(rows), PAIR)
    pairs["row"], pairs["of"], pairs["similarity"] = rows, others, similar
    if len(pairs):
        np.save(path.with_name(f"{path.name}.npy"), np.sort(pairs, order="row"))
    return len(pairs)


def join_parts(state: Path, first_row: int, ids: Ids) -> int:
    """Store the oldest row of each of a shard's rows (n,) among ``partly-*``, what parts of a search found.

    Returns how many rows have one.
    """
    found = StoredPairs(state, PARTLY).of_rows(ids)
    rows = np.flatnonzero(found.of >= 0)
    return write_pairs(state, first_row, ids[rows], found.of[rows], found.similarity[rows])


def join_shards(state: Path) -> None:
    """Make files of pairs of like size one, and remove what parts of searches found."""
    for path in state.glob(f"{PARTLY}-*"):
        path.unlink()
    known = sorted(map(Run.of, state.glob(f"{PAIRS}-*")))
    for run in set(choose_runs([], known, LARGEST)) - set(known):
        parts = [state / f"{one.name(PAIRS)}.npy" for one in known if run.first <= one.first <= run.last]
        np.save(state / run.name(PAIRS), np.concatenate([_opened(path) for path in parts]))
        for path in parts:
            path.unlink()


class StoredPairs:
    """The pairs of all searches. One file at a time is open, however many there are."""

    def __init__(self, state: Path, kind: str = PAIRS) -> None:
        """Take the files of a kind of a state."""
        self._paths = sorted(state.glob(f"{kind}-*"))

    def of_rows(self, ids: Ids) -> Duplicates:
        """Return the older near duplicates of rows (n,), ascending by their ids."""
        found = []
        for path in self._paths if len(ids) else []:
            pairs = _opened(path)
            rows = pairs["row"]  # `np.searchsorted` would copy all of them, for each shard
            first, end = bisect_left(rows, ids[0]), bisect_right(rows, ids[-1])
            if first < end:
                part = np.array(pairs[first:end])
                found.append((part["row"], part["of"], part["similarity"]))
        return oldest(ids, found)


def _opened(path: Path) -> Pairs:
    """Return the pairs of a file, which are read as they are used. Raises OperatorError for another form."""
    try:
        pairs: Pairs = np.load(path, mmap_mode="r")
    except (ValueError, EOFError):
        pairs = np.empty(0)
    if pairs.dtype != PAIR or pairs.ndim != 1:
        raise OperatorError(
            f"operators.duplicates: {path} holds no pairs of rows: it is damaged or forged. Remove "
            f"{path.parent.parent}; the next run makes it anew."
        )
    return pairs
