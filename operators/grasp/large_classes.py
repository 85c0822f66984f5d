"""Which classes are too large for one worker, and their way through blocks on disk."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from operators.base import Context, OperatorError, ShardReader
from operators.grasp.params import GroupsParams
from operators.grasp.state import class_record
from operators.groups.gather import other_lengths

Map: TypeAlias = Callable[..., Any]
Parts: TypeAlias = list[tuple[int, int]]


def count_rows(shards: ShardReader, run: Map, n_classes: int) -> npt.NDArray[np.intp]:
    """(n_shards, n_classes) rows of every class in every shard, in the order of the shards' first rows."""
    from operators.grasp.spill import count_classes

    counts = list(run(partial(count_classes, shards, n_classes), in_order(shards)))
    return np.array(counts, np.intp).reshape(-1, n_classes)


def in_order(shards: ShardReader) -> list[int]:
    """Shards by their first rows."""
    return [shard.index for shard in sorted(shards.shards, key=lambda shard: shard.first_row)]


def large_classes(
    shards: ShardReader, counts: npt.NDArray[np.intp], params: GroupsParams
) -> dict[int, Parts]:
    """Classes to cluster in blocks, by :func:`count_rows`: (shard, rows) of each, in row order."""
    if params.neighbours in ("ivf", "hnsw"):
        return {}  # an index is built by one worker
    sizes = counts.sum(axis=0)
    large = np.flatnonzero(sizes > params.block_rows).tolist()
    if params.fit_rows is not None:  # a class of more is drawn from, and one worker's
        large = [i for i in large if sizes[i] <= params.fit_rows]
    order = in_order(shards)
    return {i: [(s, n) for s, n in zip(order, counts[:, i].tolist(), strict=True) if n] for i in large}


def infer_in_blocks(
    context: Context, run: Map, column: str, params: GroupsParams, large: dict[int, tuple[str, Parts]]
) -> list[dict[str, Any]]:
    """Cluster the large classes, one after the other, each by many workers."""
    if not large:
        return []
    from operators.grasp.sharded import infer_class_in_blocks
    from operators.grasp.spill import SpilledRows, spill_shard

    folders = {i: context.state / f"blocks-{i}" for i in large}
    for folder in folders.values():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    shards = sorted({shard for _, parts in large.values() for shard, _ in parts})
    spill = partial(spill_shard, context.shards, column, folders)
    lengths = {n: shard for shard, n in zip(shards, run(spill, shards), strict=True)}
    if len(lengths) > 1:
        (some, _), (others, second) = list(lengths.items())[:2]
        paths = {shard.index: shard.path for shard in context.shards.shards}
        raise OperatorError(other_lengths(paths[second], column, others, some))
    records = []
    for i, (name, parts) in large.items():
        source = SpilledRows(folders[i], parts)
        selection = infer_class_in_blocks(run, source, context.state, i, params, context.seed)
        records.append(class_record(i, name, selection))
    return records
