"""Near duplicates among vectors: FAISS finds the near rows, the oldest of them counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from operators.base import FEATURES, ROW_ID, OperatorError, Resources, ShardReader
from operators.duplicates.minhash import COMPARED, NONE, Duplicates
from operators.neighbours.class_index import PartIndex, part_folder, read_rows, write_rows
from operators.neighbours.faiss_index import load_faiss
from operators.neighbours.geometry import Geometry
from operators.neighbours.kernel import RowIndex
from operators.neighbours.params import EVERY_CLASS, NeighboursParams

ROUNDING = 1e-6
"""Cosines of float32 vectors are this uncertain: equal vectors are near at any distance."""


def index_params(distance: float, resources: Resources) -> NeighboursParams:
    """Return the parameters of the index: so many rows within a distance; of equal ones, the oldest."""
    return NeighboursParams(
        space="x",
        per_class=False,
        metric="cosine",
        eps=max(distance, ROUNDING),
        n_neighbors=COMPARED,
        resources=resources,
    )


def store_vectors(reader: ShardReader, state: Path, params: NeighboursParams) -> int:
    """Store the vectors of all valid rows with an index over them; return how many there are.

    Raises OperatorError if FAISS is missing or vectors have different lengths.
    """
    try:
        load_faiss()
    except ImportError as error:
        raise OperatorError(str(error).replace("operators.neighbours", "operators.duplicates")) from None
    folder = part_folder(state, EVERY_CLASS)
    size = write_rows(reader, FEATURES, EVERY_CLASS, folder)
    if size:
        _, X = read_rows(folder)
        RowIndex.build(X, "flat", Geometry.of(X, params.metric)).save(folder)
    return size


def older_neighbours(opened: PartIndex, table: pa.Table) -> Duplicates:
    """Return the oldest near row of each row (n,) of a shard's table, if it is older than the row."""
    ids = table.column(ROW_ID).to_numpy()
    of, similarity = np.full(len(ids), NONE, np.int64), np.zeros(len(ids), np.float32)
    rows, others, distances = opened.look_up(table, np.arange(len(ids)))
    older = others < ids[rows]
    rows, others, distances = rows[older], others[older], distances[older]
    order = np.lexsort((others, rows))
    first = order[np.unique(rows[order], return_index=True)[1]]
    of[rows[first]], similarity[rows[first]] = others[first], 1.0 - distances[first]
    return Duplicates(of, similarity)
