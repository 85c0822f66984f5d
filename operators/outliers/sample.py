"""A bounded sample of rows, the same however the rows are cut into shards: one pass over the shards.

The sample is the rows with the smallest hashes of their ids. As the number of rows is known, each shard
returns only rows below a hash that slightly more than the bound are expected to be below; so the traffic is
bounded by the sample, not by the dataset.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pyarrow as pa

from operators.base import FEATURES, LABEL, ROW_ID, Executor, Resources, ShardReader
from operators.columns import vectors_to_numpy
from operators.hashing import END, row_hashes

SAMPLE = "outliers/sample"
MAX_VALUES = 20_000_000
"""Bound on the feature values of a sample: 80 MB."""
MIN_ROWS = 2_000
"""Rows of a sample however many features they have."""
COLUMNS = (ROW_ID, LABEL, FEATURES)


def gather_sample(
    shards: ShardReader, executor: Executor, *, max_rows: int, seed: int, resources: Resources
) -> pa.Table:
    """Draw at most ``max_rows`` of the valid rows, fewer where they have many features.

    Returns
    -------
    ``row_id``, ``y`` and ``x``, in the order of ``row_id``.
    """
    n_rows = sum(shard.n_rows for shard in shards.shards)
    work = partial(_drawn_rows, shards, n_rows, max_rows, seed)
    parts = list(executor.map(work, range(len(shards.shards)), resources=resources))
    parts = [part for part in parts if part.num_rows] or parts[:1]
    return _smallest(pa.concat_tables(parts), max_rows, seed).sort_by(ROW_ID)


def _drawn_rows(shards: ShardReader, n_rows: int, max_rows: int, seed: int, shard: int) -> pa.Table:
    """Return the rows of a shard that the sample can contain."""
    hashes = row_hashes(shards.read(shard, [LABEL])[ROW_ID].to_numpy(), seed, SAMPLE)
    if not (hashes <= _limit(max_rows, n_rows)).any():
        return shards.read(shard, [LABEL, FEATURES]).select(COLUMNS).slice(0, 0)
    table = shards.read(shard, [LABEL, FEATURES]).select(COLUMNS)
    size = _size(table, max_rows)
    return _smallest(table.filter(pa.array(hashes <= _limit(size, n_rows))), max_rows, seed)


def _limit(size: int, n_rows: int) -> np.uint64:
    """Return a hash below which at least ``size`` of ``n_rows`` rows are, but for a probability of 1e-9.

    The margin is six standard deviations of the number of rows below a hash. Where it does not suffice the
    sample is smaller, and still the same for other shards. Rows that are not valid make it smaller in
    proportion.
    """
    return np.uint64(min(END, int(END * (size + 6 * size**0.5) / max(n_rows, 1))) - 1)


def _size(table: pa.Table, max_rows: int) -> int:
    """Return the bound on the rows of a sample with this many features."""
    width: int = max(vectors_to_numpy(table[FEATURES].slice(0, 1)).shape[1], 1)
    return min(max_rows, max(MIN_ROWS, MAX_VALUES // width))


def _smallest(table: pa.Table, max_rows: int, seed: int) -> pa.Table:
    """Keep the rows with the smallest hashes."""
    if not table.num_rows:
        return table
    order = np.argsort(row_hashes(table[ROW_ID].to_numpy(), seed, SAMPLE), kind="stable")
    return table.take(pa.array(order[: _size(table, max_rows)]))
