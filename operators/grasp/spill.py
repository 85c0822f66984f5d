"""Rows of a class that lie in many shards, put down class by class so that any range can be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from operators.base import LABEL, ROW_ID, ShardReader
from operators.columns import vectors_to_numpy
from operators.dbscan.sharded.blocks import save_array
from operators.groups.state import Ids


def count_classes(shards: ShardReader, n_classes: int, shard: int) -> list[int]:
    """Rows of each class in a shard."""
    classes = shards.read(shard, [LABEL]).column(LABEL).to_numpy()
    counts: list[int] = np.bincount(classes, minlength=n_classes).tolist()
    return counts


def spill_shard(shards: ShardReader, column: str, folders: Mapping[int, Path], shard: int) -> int:
    """Write the rows of some classes, in row order, into their folders; columns of a row (0: no rows)."""
    table = shards.read(shard, [column, LABEL])
    n_features = 0
    for index, folder in folders.items():
        part = table.filter(pc.equal(table.column(LABEL), index))
        if part.num_rows:
            rows = np.ascontiguousarray(vectors_to_numpy(part.column(column)), np.float32)
            n_features = rows.shape[1]
            save_array(folder / f"shard-{shard}.npy", rows)
            save_array(folder / f"shard_ids-{shard}.npy", part.column(ROW_ID).to_numpy())
    return n_features


@dataclass(frozen=True)
class SpilledRows:
    """Rows of one class by their number within the class.

    Attributes
    ----------
    folder : where :func:`spill_shard` wrote them.
    parts : (shard, rows) of every shard that has some, in row order.
    """

    folder: Path
    parts: Sequence[tuple[int, int]]

    def __call__(self, start: int, stop: int) -> npt.NDArray[np.float32]:
        """Vectors of rows start .. stop - 1."""
        return np.concatenate(self._read("shard", start, stop))

    def ids(self, start: int, stop: int) -> Ids:
        """Row ids of rows start .. stop - 1."""
        return np.concatenate(self._read("shard_ids", start, stop))

    def _read(self, name: str, start: int, stop: int) -> list[npt.NDArray[np.generic]]:
        found, first = [], 0
        for shard, n_rows in self.parts:
            low, high = max(start - first, 0), min(stop - first, n_rows)
            if low < high:
                stored = np.load(self.folder / f"{name}-{shard}.npy", mmap_mode="r")
                found.append(np.asarray(stored[low:high]))
            first += n_rows
        return found
