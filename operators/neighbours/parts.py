"""The index of one class, or of all: built once from shards, then asked shard by shard."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, TypedDict

import numpy as np
import pyarrow as pa

from operators.base import ROW_ID, OperatorError, ShardReader
from operators.columns import vectors_to_numpy
from operators.neighbours.geometry import Geometry
from operators.neighbours.graph import Float32, Graph, Ids
from operators.neighbours.library import threads
from operators.neighbours.params import NeighboursParams
from operators.neighbours.recall import advice, check_size, true_edges
from operators.neighbours.search import Reach, RowIndex
from operators.neighbours.state import part_folder, read_rows, write_rows


class PartRecord(TypedDict):
    """What is known of an index: its class and rows, and recall and mean degree of a sample of them."""

    part: int
    name: str
    rows: int
    recall: float
    mean_neighbours: float
    advice: str


class Edges(NamedTuple):
    """Edges of a shard: (e,) position of the row in the shard, row id of the neighbour, and distance."""

    rows: Ids
    ids: Ids
    distances: Float32


def build_part(
    shards: ShardReader, state: Path, params: NeighboursParams, seed: int, named: tuple[int, str]
) -> PartRecord | None:
    """Store one part's rows and index; small values only come back, None where it has no rows."""
    part, name = named
    folder = part_folder(state, part)
    size = write_rows(shards, params.space, part, folder)
    if not size:
        return None
    _, X = read_rows(folder)
    reach = reach_of(params)
    with threads(int(params.resources.cpus)):
        geometry = Geometry.of(X, params.metric)
        truth = true_edges(X, geometry, reach, seed)
        try:
            check_size(truth, reach, params.max_edges)
        except ValueError as error:
            raise OperatorError(f"operators.neighbours: class {name}: {error}") from None
        rows = RowIndex.build(
            X, params.index, geometry, nprobe=params.nprobe, ef_search=params.ef_search, seed=seed
        )
        rows.save(folder)
        found = rows.search(X[truth.sample], reach, truth.sample)
    share = 1.0 if params.index == "flat" else truth.share_found(found)
    degree, text = truth.mean_degree, advice(params.index, share)
    return PartRecord(part=part, name=name, rows=size, recall=share, mean_neighbours=degree, advice=text)


class Part:
    """A part's index, opened: it answers in row ids."""

    def __init__(self, state: Path, part: int, params: NeighboursParams) -> None:
        self._folder, self._params = part_folder(state, part), params
        self._row_ids, X = read_rows(self._folder)
        self._rows = RowIndex.load(
            self._folder, X, params.index, nprobe=params.nprobe, ef_search=params.ef_search
        )

    def look_up(self, table: pa.Table, rows: Ids) -> Edges:
        """Edges of those rows of a shard's table, which must all be in the index."""
        some = table.take(rows)
        own = self.positions(some.column(ROW_ID).to_numpy())
        queries = vectors_to_numpy(some.column(self._params.space))
        with threads(int(self._params.resources.cpus)):
            graph = self._rows.search(queries, reach_of(self._params), own)
        return Edges(rows[graph.sources()], self._row_ids[graph.indices], graph.distances)

    def neighbours_of(self, positions: Ids) -> Graph:
        """Neighbours of rows of the part, by their positions in it."""
        with threads(int(self._params.resources.cpus)):
            return self._rows.search(self._rows.X[positions], reach_of(self._params), positions)

    def rows_at(self, positions: Ids) -> tuple[Ids, Float32]:
        """Row ids and vectors."""
        return np.array(self._row_ids[positions]), np.array(self._rows.X[positions], np.float32)

    def positions(self, row_ids: Ids) -> Ids:
        """Positions in the part of rows, which must all be there."""
        found = np.searchsorted(self._row_ids, row_ids)
        known = self._row_ids[np.minimum(found, len(self._row_ids) - 1)] == row_ids
        if not known.all():
            raise OperatorError(
                f"{self._folder}: holds no row_id {row_ids[~known][0]}. The index was built over other rows "
                "than these; run the operator `neighbours` again."
            )
        return found


def reach_of(params: NeighboursParams) -> Reach:
    """Which rows are neighbours."""
    return Reach(params.eps, params.n_neighbors)
