"""Columns of all classes, sorted by class in one pass over the shards.

A class that is read from shards reads every shard that holds it. Where each of many classes lies in many
shards, that would read the whole dataset once for each class. Rows are then written once, a file for each
shard with its rows sorted by class, of which every class reads a slice.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from operators.arrays import Ids
from operators.base import LABEL, ROW_ID, OperatorError, ShardInfo, ShardReader
from operators.groups.base import column_to_numpy, describe_length_mismatch, gather_class
from operators.groups.kernel import Array

Map: TypeAlias = Callable[..., Any]
"""Runs a function for every item of a sequence, in tasks, and returns the results in order."""
Gather: TypeAlias = Callable[[int], tuple[Ids, dict[str, Array]]]
"""Returns the row ids and columns of a class, as :func:`operators.groups.base.gather_class` does."""
FOLDER = "sorted-shards"
READS = 2
"""How often shards may be read, on average, before their rows are sorted instead."""


def shards_in_order(shards: ShardReader) -> list[int]:
    """Return the indices of the shards in the order of their first rows."""
    return [shard.index for shard in sorted(shards.shards, key=lambda shard: shard.first_row)]


def count_classes(shards: ShardReader, n_classes: int, shard: int) -> list[int]:
    """Count the rows of each class in a shard."""
    classes = shards.read(shard, [LABEL]).column(LABEL).to_numpy()
    counts: list[int] = np.bincount(classes, minlength=n_classes).tolist()
    return counts


def count_rows(shards: ShardReader, run: Map, n_classes: int) -> npt.NDArray[np.intp]:
    """Count the rows (n_shards, n_classes) of every class in every shard, in the order of
    :func:`shards_in_order`.
    """
    counts = list(run(partial(count_classes, shards, n_classes), shards_in_order(shards)))
    return np.array(counts, np.intp).reshape(-1, n_classes)


def class_gatherer(
    shards: ShardReader, run: Map, columns: Sequence[str], counts: npt.NDArray[np.intp], state: Path
) -> Gather:
    """Return the function that reads a class, after sorting the shards in ``state`` if that reads less.

    The caller removes ``state / FOLDER`` when all classes are read (:func:`remove_sorted`).

    Parameters
    ----------
    columns : columns to read.
    counts : (n_shards, n_classes) of :func:`count_rows`; 0 for classes that are not to be read.
    """
    ordered = sorted(shards.shards, key=lambda shard: shard.first_row)
    if np.count_nonzero(counts) <= READS * len(counts):
        return partial(_gather_directly, shards, tuple(columns), ordered, counts > 0)
    remove_sorted(state)
    (state / FOLDER).mkdir(parents=True)
    wanted = np.asarray(counts.any(axis=0))
    sort = partial(_sort_shard, shards, tuple(columns), wanted, state / FOLDER)
    list(run(sort, [shard.index for shard in ordered]))
    return SortedShards(state / FOLDER, ordered, counts, tuple(columns)).gather


def remove_sorted(state: Path) -> None:
    """Remove the sorted rows, if there are any."""
    shutil.rmtree(state / FOLDER, ignore_errors=True)


@dataclass(frozen=True, eq=False)
class SortedShards:
    """Sorted rows on disk. It can be pickled.

    Attributes
    ----------
    folder : folder of the files, which all workers share.
    shards : the shards, in the order of their first rows.
    counts : (n_shards, n_classes) rows of each class in each file, one class after the other.
    columns : columns of the files beside the row ids.
    """

    folder: Path
    shards: Sequence[ShardInfo]
    counts: npt.NDArray[np.intp]
    columns: tuple[str, ...]

    def gather(self, index: int) -> tuple[Ids, dict[str, Array]]:
        """Read row ids, ascending, and columns of the class ``index``.

        Raises
        ------
        OperatorError
            Vectors of different lengths.
        """
        parts = [
            (shard.path, self._slice(shard, sizes, index))
            for shard, sizes in zip(self.shards, self.counts, strict=True)
            if sizes[index]
        ]
        if not parts:
            return np.empty(0, np.int64), {}
        for path, part in parts:
            for name, rows in part.items():
                first = parts[0][1][name]
                if rows.shape[1:] != first.shape[1:]:
                    raise OperatorError(describe_length_mismatch(path, name, rows.shape[1], first.shape[1]))
        found = {name: np.concatenate([part[name] for _, part in parts]) for name in parts[0][1]}
        return found.pop(ROW_ID), found

    def _slice(self, shard: ShardInfo, sizes: npt.NDArray[np.intp], index: int) -> dict[str, Array]:
        """Read row ids and columns of a class of one file; ``sizes`` (n_classes,) are its rows there."""
        with pa.memory_map(str(self.folder / f"{shard.index}.arrow")) as file:
            table = pa.ipc.open_file(file).read_all().slice(int(sizes[:index].sum()), int(sizes[index]))
            return {name: np.array(column_to_numpy(table[name])) for name in table.column_names}


def _gather_directly(
    shards: ShardReader,
    columns: Sequence[str],
    ordered: Sequence[ShardInfo],
    holds: npt.NDArray[np.bool_],
    index: int,
) -> tuple[Ids, dict[str, Array]]:
    """Read a class from the shards that hold it, by (n_shards, n_classes) ``holds``."""
    among = [shard for shard, has in zip(ordered, holds[:, index], strict=True) if has]
    return gather_class(shards, index, columns, among)


def _sort_shard(
    shards: ShardReader, columns: Sequence[str], wanted: npt.NDArray[np.bool_], folder: Path, shard: int
) -> None:
    """Write the rows of the ``wanted`` classes (n_classes,) of a shard, sorted by class, then by row."""
    table = shards.read(shard, [*dict.fromkeys((*columns, LABEL))])
    classes = table.column(LABEL).to_numpy()
    order = np.argsort(classes, kind="stable")
    table = table.take(order[wanted[classes[order]]]).select([*dict.fromkeys((ROW_ID, *columns))])
    temporary = folder / f".{uuid.uuid4().hex}"
    with pa.OSFile(str(temporary), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    os.replace(temporary, folder / f"{shard}.arrow")
