"""Near duplicates, where the recipe built a neighbour graph."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from engine.plan.model import Plan
from engine.report.words import count, percent
from operators.base import ROW_ID
from operators.neighbours.adaptor import NEIGHBOUR_DISTANCES, NEIGHBOUR_IDS, Neighbours
from operators.neighbours.graph_statistics import DuplicateCounter, DuplicateSets

LARGEST = 5
SHOWN = 3
"""Rows shown of a set."""


@dataclass(frozen=True)
class Place:
    """A row, its file and where it is in it (from 0)."""

    row_id: int
    path: str
    row: int


@dataclass(frozen=True)
class ShownSet:
    """How many rows a set has, and the first of them."""

    rows: int
    examples: list[Place]


@dataclass(frozen=True)
class Duplicates:
    """The section: a paragraph, and the largest sets."""

    summary: str
    sets: list[ShownSet]


def near_duplicates(plan: Plan) -> Duplicates | None:
    """Count and name near duplicates; None without the operator ``neighbours``. Reads one shard at a time."""
    operator = next((p.operator for p in plan.operators if isinstance(p.operator, Neighbours)), None)
    if operator is None:
        return None
    reader, counter = plan.reader(), DuplicateCounter(operator.params.duplicate_distance)
    for info in plan.shards:
        table = reader.read(info.index, [NEIGHBOUR_IDS, NEIGHBOUR_DISTANCES]).combine_chunks()
        if not table.num_rows:
            continue
        ids, distances = (table.column(name).chunk(0) for name in (NEIGHBOUR_IDS, NEIGHBOUR_DISTANCES))
        counter.add(
            table.column(ROW_ID).to_numpy(),
            np.asarray(ids.value_lengths().to_numpy(), np.int64),
            ids.flatten().to_numpy(),
            distances.flatten().to_numpy(),
        )
    found = counter.result(LARGEST)
    rows = sum(info.n_rows for info in plan.shards)
    return Duplicates(summary(operator, found, rows), [shown(plan, ids) for ids in found.sets])


def summary(operator: Neighbours, found: DuplicateSets, rows: int) -> str:
    """How many rows, pairs and sets, and what counts as near."""
    params = operator.params
    what = {"gradient": "gradients", "x": "features"}[params.space]
    unit = "Euclidean distance" if params.metric == "euclidean" else "cosine distance (1 - cos)"
    among = "of the same class" if params.per_class else "of any class"
    near = f"whose {what} are within {params.duplicate_distance:g} in {unit}"
    if not found.rows:
        return f"No two rows {among} are near duplicates, {near}."
    least = "" if params.n_neighbors is None and params.index == "flat" else "at least "
    larger = "" if found.complete else " or more"
    return (
        f"{count(found.rows, 'row')} ({percent(found.rows / max(rows, 1))}) have a near duplicate: another "
        f"row {among} {near}. They make {least}{count(found.pairs, 'pair')} and "
        f"{count(found.n_sets, 'set')}, the largest of {len(found.sets[0]):,}{larger} rows. A row whose "
        "duplicate is in another split flatters the scores there."
    )


def shown(plan: Plan, ids: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> ShownSet:
    """A set with where its first rows come from."""
    shards = sorted((info for info in plan.shards if info.n_rows), key=lambda info: info.first_row)
    firsts = [info.first_row for info in shards]
    examples = []
    for row_id in ids[:SHOWN].tolist():
        info = shards[bisect_right(firsts, row_id) - 1]
        (row,) = plan.reader().file_rows(info.index, [row_id - info.first_row])
        examples.append(Place(row_id, info.path, row))
    return ShownSet(len(ids), examples)
