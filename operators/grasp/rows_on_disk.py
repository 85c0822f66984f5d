"""Rows of a class that lie in many shards, written class by class.

:func:`spill_shard` writes the rows of large classes so that :class:`SpilledRows` can read any range of
them; :func:`draw_classes` writes only the rows on which a class is clustered if ``fit_rows`` limits them.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from operators.array_files import save_array
from operators.arrays import Ids, Index
from operators.base import LABEL, ROW_ID, OperatorError, ShardReader
from operators.columns import vectors_to_numpy
from operators.grasp.params import GroupsParams
from operators.groups.base import describe_length_mismatch
from operators.groups.sorted_shards import Map, shards_in_order
from operators.hashing import END, draw_rows, row_hashes


def spill_shard(shards: ShardReader, column: str, folders: Mapping[int, Path], shard: int) -> int:
    """Write the rows of some classes, in row order, into their folders; return their width, 0 without
    rows.
    """
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
        """Read the vectors of rows start .. stop - 1."""
        return np.concatenate(self._read("shard", start, stop))

    def ids(self, start: int, stop: int) -> Ids:
        """Read the row ids of rows start .. stop - 1."""
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


Parts: TypeAlias = list[tuple[int, int]]
"""Shards with their numbers of rows of a class, in row order."""
PURPOSE = "groups/rows to cluster"


@dataclass(frozen=True)
class DrawnClass:
    """Stored rows of a class among which a draw lies.

    Attributes
    ----------
    folder, shards : folder of the files, and the shards that have one, in row order.
    n_rows : rows of the class.
    fit_rows, seed : size and seed of the draw.
    """

    folder: Path
    shards: tuple[int, ...]
    n_rows: int
    fit_rows: int
    seed: int

    def vectors(self) -> npt.NDArray[np.float32]:
        """Read the vectors (fit_rows, p) of the drawn rows, in the order of the rows."""
        ids = np.concatenate([np.load(self.folder / f"shard_ids-{shard}.npy") for shard in self.shards])
        parts = [np.load(self.folder / f"shard-{shard}.npy") for shard in self.shards]
        return np.concatenate([part for part in parts if len(part)])[
            drawn_rows(ids, self.fit_rows, self.seed)
        ]


def drawn_rows(row_ids: Ids, fit_rows: int, seed: int) -> Index:
    """Return the positions, ascending, of the ``fit_rows`` rows with the smallest hashes of their ids."""
    return draw_rows(row_ids, fit_rows, seed, PURPOSE)


def may_be_drawn(row_ids: Ids, n_rows: int, fit_rows: int, seed: int) -> Index:
    """Return the positions, ascending, of the rows of a shard that the draw from all ``n_rows`` may hold.

    The limit of their hashes keeps a few more than ``fit_rows`` rows in all. With a probability of 1e-9 it
    keeps fewer; the draw is then smaller, but still the same for any shards.
    """
    share = (fit_rows + 6 * fit_rows**0.5) / n_rows
    limit = np.uint64(min(END, int(END * share)) - 1)
    return np.flatnonzero(row_hashes(row_ids, seed, PURPOSE) <= limit)


def draw_classes(
    shards: ShardReader, run: Map, column: str, counts: Mapping[int, npt.NDArray[np.intp]], **how: Any
) -> dict[int, DrawnClass]:
    """Draw rows of every class that has more than ``fit_rows``, and write them to disk.

    Parameters
    ----------
    shards, column : what to read.
    run : runs tasks, one for each shard.
    counts : class -> its rows in every shard, in the order of their first rows.
    how : ``fit_rows``, ``seed``, and ``folder`` for scratch files, which all workers share.

    Raises
    ------
    OperatorError
        Vectors of different lengths.
    """
    fit_rows, seed, folder = how["fit_rows"], how["seed"], how["folder"]
    large = {i: sizes for i, sizes in counts.items() if sizes.sum() > fit_rows}
    folders = {i: folder / f"drawn-{i}" for i in large}
    for path in folders.values():
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
    order = shards_in_order(shards)
    jobs = [
        (shard, {i: int(sizes.sum()) for i, sizes in large.items() if sizes[at]})
        for at, shard in enumerate(order)
    ]
    write = partial(_write_candidates, shards, column, folders, fit_rows, seed)
    jobs = [job for job in jobs if job[1]]
    lengths = {n: job[0] for job, n in zip(jobs, run(write, jobs), strict=True) if n}
    if len(lengths) > 1:
        (some, _), (others, second) = list(lengths.items())[:2]
        path = next(shard.path for shard in shards.shards if shard.index == second)
        raise OperatorError(describe_length_mismatch(path, column, others, some))
    return {
        i: DrawnClass(folders[i], tuple(s for s, some in jobs if i in some), int(sizes.sum()), fit_rows, seed)
        for i, sizes in large.items()
    }


def _write_candidates(
    shards: ShardReader,
    column: str,
    folders: Mapping[int, Path],
    fit_rows: int,
    seed: int,
    job: tuple[int, Mapping[int, int]],
) -> int:
    """Write the rows of a shard that may be drawn; return their width, 0 without rows."""
    shard, classes = job
    table = shards.read(shard, [column, LABEL])
    n_features = 0
    for index, n_rows in classes.items():
        own = table.filter(pc.equal(table.column(LABEL), index))
        own = own.take(may_be_drawn(own.column(ROW_ID).to_numpy(), n_rows, fit_rows, seed))
        rows = np.ascontiguousarray(vectors_to_numpy(own.column(column)), np.float32)
        n_features = rows.shape[1] if len(rows) else n_features
        save_array(folders[index] / f"shard-{shard}.npy", rows)
        save_array(folders[index] / f"shard_ids-{shard}.npy", own.column(ROW_ID).to_numpy())
    return n_features


def large_classes(
    shards: ShardReader, counts: npt.NDArray[np.intp], params: GroupsParams
) -> dict[int, Parts]:
    """Return the classes to cluster in blocks, by :func:`operators.groups.sorted_shards.count_rows`."""
    if params.neighbours in ("ivf", "hnsw"):
        return {}  # an index is built by one worker
    sizes = counts.sum(axis=0)
    large = np.flatnonzero(sizes > params.block_rows).tolist()
    if (fit_rows := params.rows_to_fit()) is not None:  # a class of more is drawn from, and one worker's
        large = [i for i in large if sizes[i] <= fit_rows]
    order = shards_in_order(shards)
    return {i: [(s, n) for s, n in zip(order, counts[:, i].tolist(), strict=True) if n] for i in large}
