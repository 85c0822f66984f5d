"""Places rows of a class by the core samples that its model keeps, shard by shard.

Where only drawn rows of a class are clustered, ``fit`` places all of its rows, so that groups are merged by
their numbers of rows in the dataset, and ``open`` reads labels as it does for other classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from operators.arrays import Labels
from operators.base import LABEL, ROW_ID, Context, OperatorError, ShardReader
from operators.columns import vectors_to_numpy
from operators.factored import unpack
from operators.factored.packed_rows import parts_of
from operators.grasp.class_model import FactoredModel, load_model
from operators.grasp.kernel import group_fields
from operators.grasp.params import GroupsParams
from operators.groups.small_groups import least_rows
from operators.groups.sorted_shards import Map, shards_in_order
from operators.groups.state import model_path, write_label_part, write_label_starts

Counts = npt.NDArray[np.intp]


def place(state: Path, column: str, index: int, rows: pa.Table) -> Labels:
    """Return the clusters (n,) of rows of a class by the model in ``state``; -1 for none.

    Raises
    ------
    OperatorError
        Factored gradients of other layers than those of ``fit``.
    """
    model, vectors = load_model(model_path(state, index)), vectors_to_numpy(rows.column(column))
    if not isinstance(model, FactoredModel):
        return model.assign(vectors)
    try:
        return model.assign(unpack(vectors, parts_of(model.cores)))
    except ValueError as error:
        raise OperatorError(
            f"operators.groups: {error}. The new rows come from another probe than the one that the state "
            f"{state} was fitted on, so the groups have to be fitted again."
        ) from error


def place_shards(
    context: Context, run: Map, column: str, counts: Mapping[int, Counts], n_clusters: Mapping[int, int]
) -> dict[int, Counts]:
    """Place all rows of some classes and store their labels.

    Parameters
    ----------
    run : runs tasks, one for each shard.
    counts : class -> its rows in every shard, in the order of the shards' first rows.
    n_clusters : class -> its clusters.

    Returns
    -------
    Class -> (n_clusters + 1,) rows placed in no cluster, and in each.
    """
    parts = {index: np.cumsum(sizes > 0) - 1 for index, sizes in counts.items()}
    jobs = [
        (shard, {index: int(parts[index][at]) for index, sizes in counts.items() if sizes[at]})
        for at, shard in enumerate(shards_in_order(context.shards))
    ]
    totals = {index: np.zeros(n_clusters[index] + 1, np.intp) for index in counts}
    starts: dict[int, list[int]] = {index: [] for index in counts}
    for found in run(partial(_place_shard, context.shards, context.state, column), jobs):
        for index, (first, part) in found.items():
            starts[index].append(first)
            totals[index][: len(part)] += part
    for index, firsts in starts.items():
        write_label_starts(context.state, index, firsts)
    return totals


def merge_placed(
    state: Path, params: GroupsParams, counts: Mapping[int, Counts], record: dict[str, Any]
) -> dict[str, Any]:
    """Return the record of a class with clusters merged by the rows placed in them; others as they are."""
    index = int(record["class"])
    if index not in counts:
        return record
    placed = counts[index]
    least = least_rows(int(placed.sum()), params.min_rows, params.min_share)
    fields = group_fields(load_model(model_path(state, index)), placed[1:], least)
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
    return record | plain | {"n_noise": int(placed[0])}


def _place_shard(
    shards: ShardReader, state: Path, column: str, job: tuple[int, Mapping[int, int]]
) -> dict[int, tuple[int, Counts]]:
    """Place and store the rows of a shard; first row id and counts of each class."""
    shard, parts = job
    if not parts:
        return {}
    table = shards.read(shard, [column, LABEL])
    found = {}
    for index, part in parts.items():
        rows = table.filter(pc.equal(table.column(LABEL), index))
        row_ids = rows.column(ROW_ID).to_numpy()
        labels = place(state, column, index, rows)
        write_label_part(state, index, part, row_ids, labels)
        found[index] = int(row_ids[0]), np.bincount(labels + 1)
    return found
