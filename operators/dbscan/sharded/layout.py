"""Where the blocks of one class lie on disk, and how they are read and written.

Rows are numbered 0 .. n - 1 in the order of their row ids and cut into blocks of fixed size, whatever
shards they came from. Every array is written under a temporary name and then renamed: a task that
dies is simply run again.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from operators.dbscan.distances import Float64, Index, Metric

Arrays = dict[str, npt.NDArray[Any]]


class Frame(NamedTuple):
    """What prepares a row on its own, once all rows have been seen; see ``distances.Points``."""

    metric: Metric
    centre: Float64
    unit: float


@dataclass(frozen=True, eq=False)
class Layout:
    """One class in blocks. Picklable.

    Attributes
    ----------
    folder : scratch folder that all workers share.
    n, n_features, block_rows : rows, columns, and rows of each block but the last.
    eps : radii, ascending, no repeats.
    least : min_samples, ascending, no repeats.
    frame : how rows are prepared.
    query_rows : rows that one task compares with all blocks.
    gpus : what a worker has; above 0 its GPU makes the products. The labels do not depend on it.
    """

    folder: Path
    n: int
    n_features: int
    block_rows: int
    eps: tuple[float, ...]
    least: tuple[int, ...]
    frame: Frame
    query_rows: int
    gpus: float = 0.0

    @property
    def blocks(self) -> range:
        """Block numbers."""
        return range(-(-self.n // self.block_rows))

    def rows(self, block: int) -> Index:
        """Row numbers of a block."""
        return np.arange(block * self.block_rows, min((block + 1) * self.block_rows, self.n))

    def save(self, name: str, key: int, array: npt.NDArray[Any]) -> None:
        """Store one array."""
        save_array(self.folder / f"{name}-{key}.npy", array)

    def load(self, name: str, key: int, *, mapped: bool = False) -> npt.NDArray[Any]:
        """Read what :meth:`save` stored; ``mapped`` reads pages as they are touched."""
        array: npt.NDArray[Any] = np.load(
            self.folder / f"{name}-{key}.npy", mmap_mode="r" if mapped else None
        )
        return array

    def pack(self, name: str, key: int, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Store several arrays."""
        save_array(self.folder / f"{name}-{key}.npz", arrays)

    def unpack(self, name: str, key: int) -> Arrays:
        """Read what :meth:`pack` stored."""
        with np.load(self.folder / f"{name}-{key}.npz") as stored:
            return dict(stored)


def save_array(path: Path, what: npt.NDArray[Any] | Mapping[str, npt.NDArray[Any]]) -> None:
    """Write one array (.npy) or several (.npz) in one step: there is never half a file of that name."""
    temporary = path.with_name(f".{uuid.uuid4().hex}{path.suffix}")
    with temporary.open("wb") as file:
        if isinstance(what, np.ndarray):
            np.save(file, what, allow_pickle=False)
        else:
            np.savez(file, **dict(what), allow_pickle=False)
    os.replace(temporary, path)
