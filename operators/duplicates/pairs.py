"""The pairs that a search has found, on disk: each row that has an older near row, ascending by row id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from operators.arrays import Float32, Ids
from operators.duplicates.minhash import Duplicates, oldest

PAIR = np.dtype([("row", np.int64), ("of", np.int64), ("similarity", np.float32)])

Pairs = npt.NDArray[Any]
"""Structured array of ``PAIR``."""


def write_pairs(path: Path, rows: Ids, others: Ids, similar: Float32) -> int:
    """Store pairs (p,) of row ids, unless there are none; return how many there are."""
    pairs = np.empty(len(rows), PAIR)
    pairs["row"], pairs["of"], pairs["similarity"] = rows, others, similar
    if len(pairs):
        np.save(path, np.sort(pairs, order="row"))
    return len(pairs)


class StoredPairs:
    """The pairs of all searches. One file at a time is open, however many there are."""

    def __init__(self, state: Path) -> None:
        """Take the files ``pairs-*`` of a state."""
        self._paths = sorted(state.glob("pairs-*"))

    def of_rows(self, ids: Ids) -> Duplicates:
        """Return the older near duplicates of rows (n,), ascending by their ids."""
        found = []
        for path in self._paths if len(ids) else []:
            pairs: Pairs = np.load(path, mmap_mode="r")
            if pairs[-1]["row"] < ids[0]:
                continue
            first, end = np.searchsorted(pairs["row"], [ids[0], ids[-1] + 1])
            part = np.array(pairs[first:end])
            found.append((part["row"], part["of"], part["similarity"]))
        return oldest(ids, found)
