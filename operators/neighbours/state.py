"""Files in which ``neighbours`` keeps an index: its rows, their ids, and the index over them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from operators.base import LABEL, ROW_ID, OperatorError, ShardReader
from operators.columns import vectors_to_numpy
from operators.neighbours.graph import Float32, Ids

EVERY_CLASS = -1


def part_folder(state: Path, part: int) -> Path:
    """Folder of a class's index, or of the one over all classes."""
    return state / ("all" if part == EVERY_CLASS else f"class-{part}")


def write_rows(shards: ShardReader, column: str, part: int, folder: Path) -> int:
    """Copy a part's vectors shard by shard into one file, in the order of their row ids.

    Labels are read first: they are small, and tell how many rows there are and where. Memory: one shard.

    Returns
    -------
    How many rows there are; without any nothing is written.

    Raises
    ------
    OperatorError
        Vectors of different lengths.
    """
    ordered = sorted(shards.shards, key=lambda shard: shard.first_row)
    wanted = [_wanted(shards, shard.index, part) for shard in ordered]
    size = sum(len(rows) for rows in wanted)
    if not size:
        return 0
    folder.mkdir(parents=True, exist_ok=True)
    row_ids = np.empty(size, np.int64)
    X: np.memmap[Any, np.dtype[np.float32]] | None = None
    start = 0
    for shard, rows in zip(ordered, wanted, strict=True):
        if not len(rows):
            continue
        table = shards.read(shard.index, [column]).take(rows)
        vectors = vectors_to_numpy(table.column(column))
        if X is None:
            shape = (size, vectors.shape[1])
            X = np.lib.format.open_memmap(folder / "rows.npy", "w+", np.float32, shape)
        _check_width(shard.path, column, vectors.shape[1], X.shape[1])
        X[start : start + len(rows)] = vectors
        row_ids[start : start + len(rows)] = table.column(ROW_ID).to_numpy()
        start += len(rows)
    if X is not None:
        X.flush()
    np.save(folder / "row_ids.npy", row_ids)
    return size


def read_rows(folder: Path) -> tuple[Ids, Float32]:
    """Row ids, and the vectors, mapped into memory."""
    return np.load(folder / "row_ids.npy", mmap_mode="r"), np.load(folder / "rows.npy", mmap_mode="r")


def _wanted(shards: ShardReader, shard: int, part: int) -> Ids:
    """Positions, within a shard, of the rows of a part."""
    if part == EVERY_CLASS:
        return np.arange(shards.read(shard, []).num_rows)
    mask = pc.equal(shards.read(shard, [LABEL]).column(LABEL), part)
    return np.flatnonzero(mask.to_numpy())


def _check_width(path: str, column: str, width: int, expected: int) -> None:
    if width != expected:
        raise OperatorError(
            f"{path}: its column {column!r} has vectors of {width} entries, those of earlier shards "
            f"{expected}. They come from different runs; run the operator that adds it again."
        )
