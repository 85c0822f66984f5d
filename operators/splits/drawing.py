"""A sample of the rows of all shards, which is the kernel's sample of the same rows in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from operators.arrays import Float32
from operators.base import FEATURES, ROW_ID, Executor, Resources, ShardReader
from operators.columns import vectors_to_numpy
from operators.hashing import Hashes, row_hashes
from operators.splits.hashing import Ints
from operators.splits.start import SAMPLE


@dataclass(frozen=True)
class Taking:
    """Rows that take part. Picklable.

    ``columns`` are read to tell, by ``keys_of``: a key >= 0 for each row of a table that does, else -1.
    """

    reader: ShardReader
    columns: tuple[str, ...]
    keys_of: Callable[[pa.Table], Ints]

    @property
    def shards(self) -> range:
        """Numbers of all shards."""
        return range(len(self.reader.shards))

    def read(self, shard: int) -> Keyed:
        """Rows of a shard that take part, without features."""
        table = self.reader.read(shard, self.columns)
        keys = self.keys_of(table)
        return Keyed(table[ROW_ID].to_numpy()[keys >= 0], keys[keys >= 0], np.flatnonzero(keys >= 0))

    def features(self, shard: int, places: Ints) -> Float32:
        """(m, d) features of the rows at some places of a shard."""
        return vectors_to_numpy(self.reader.read(shard, [FEATURES])[FEATURES])[places]


class Keyed(NamedTuple):
    """Row ids, keys and places in their shard."""

    row_ids: Ints
    keys: Ints
    places: Ints


class Drawn(NamedTuple):
    """A sample of rows, in the order of their ids.

    Attributes
    ----------
    X : (s, d) features.
    keys, row_ids : (s,).
    n : the number of rows that the sample is drawn from.
    """

    X: Float32
    keys: Ints
    n: int
    row_ids: Ints


def draw(executor: Executor, taking: Taking, seed: int, resources: Resources) -> Drawn:
    """Rows with the smallest hashes, at most 5,000, in the order of their ids: two passes over the keys."""
    smallest: Hashes = np.empty(0, np.uint64)
    n = 0
    for count, hashes in executor.map(partial(_hashes, taking, seed), taking.shards, resources=resources):
        n += count
        smallest = np.sort(np.concatenate([smallest, hashes]))[:SAMPLE]
    if not n:
        return Drawn(np.empty((0, 0), np.float32), np.empty(0, np.int64), 0, np.empty(0, np.int64))
    found = executor.map(partial(_below, taking, seed, int(smallest[-1])), taking.shards, resources=resources)
    pieces = [piece for piece in found if len(piece[0])]
    row_ids, keys, X = (np.concatenate(column) for column in zip(*pieces, strict=True))
    order = np.argsort(row_ids)
    return Drawn(X[order], keys[order], n, row_ids[order])


def _hashes(taking: Taking, seed: int, shard: int) -> tuple[int, Hashes]:
    hashes = row_hashes(taking.read(shard).row_ids, seed)
    if len(hashes) > SAMPLE:
        hashes = np.partition(hashes, SAMPLE - 1)
    return len(hashes), hashes[:SAMPLE]


def _below(taking: Taking, seed: int, last: int, shard: int) -> tuple[Ints, Ints, Float32]:
    rows = taking.read(shard)
    mine = row_hashes(rows.row_ids, seed) <= np.uint64(last)
    if not mine.any():
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 0), np.float32)
    return rows.row_ids[mine], rows.keys[mine], taking.features(shard, rows.places[mine])
