"""The index of one class (or of all rows) on disk: built once from shards, then searched shard by shard.

``split`` draws its landmarks from it. A Nystrom approximation (Williams & Seeger 2001) is as good as its
landmarks cover the space. Landmarks drawn uniformly follow the data and crowd where rows are many; drawn by
the inverse of the density they also reach where rows are few, which is where minorities are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa

from operators.arrays import Float32, Ids
from operators.base import LABEL, ROW_ID, OperatorError, ShardReader
from operators.bounded_json import read_json
from operators.columns import vectors_to_numpy
from operators.neighbours.faiss_index import threads
from operators.neighbours.geometry import Geometry
from operators.neighbours.graph import Graph, density
from operators.neighbours.kernel import Reach, RowIndex
from operators.neighbours.params import EVERY_CLASS, GRAPH, NeighboursParams
from operators.neighbours.recall import advice, check_size, true_edges

ROWS, ROW_IDS = "rows.npy", "row_ids.npy"
"""Files of a part: vectors, and row ids."""
CANDIDATES = 8
"""Rows whose density is looked up for each landmark."""


def part_folder(state: Path, part: int) -> Path:
    """Return the folder of a class's index, or of the one over all classes."""
    return state / ("all" if part == EVERY_CLASS else f"class-{part}")


def write_rows(shards: ShardReader, column: str, state: Path, parts: Sequence[int]) -> list[int]:
    """Copy the vectors of all ``parts``, each into a file of its own, in the order of the row ids.

    One pass over the labels, which are small and tell how many rows there are, and one over the vectors.
    Memory: one shard.

    Returns
    -------
    The parts that have rows; nothing is written for others.

    Raises
    ------
    OperatorError
        Vectors of different lengths.
    """
    ordered = sorted(shards.shards, key=lambda shard: shard.first_row)
    sizes = Counter[int]()
    for shard in ordered:
        sizes.update({part: len(rows) for part, rows in _rows_of(shards, shard.index, parts, []).items()})
    found = [part for part in parts if sizes[part]]
    done, width = Counter[int](), 0
    for shard in ordered:
        of_part = _rows_of(shards, shard.index, found, [column])
        for part, table in of_part.items():
            vectors = vectors_to_numpy(table.column(column))
            width = width or vectors.shape[1]
            _check_width(shard.path, column, vectors.shape[1], width)
            folder = part_folder(state, part)
            if not done[part]:
                folder.mkdir(parents=True, exist_ok=True)
                np.lib.format.open_memmap(folder / ROWS, "w+", np.float32, (sizes[part], width))
                np.lib.format.open_memmap(folder / ROW_IDS, "w+", np.int64, (sizes[part],))
            place = slice(done[part], done[part] + len(table))
            # Opened for each piece, because a process may hold fewer files open than there are classes.
            np.load(folder / ROWS, mmap_mode="r+")[place] = vectors
            np.load(folder / ROW_IDS, mmap_mode="r+")[place] = table.column(ROW_ID).to_numpy()
            done[part] += len(table)
    return found


def read_rows(folder: Path) -> tuple[Ids, Float32]:
    """Return the row ids, and the vectors, mapped into memory."""
    return np.load(folder / ROW_IDS, mmap_mode="r"), np.load(folder / ROWS, mmap_mode="r")


def _rows_of(
    shards: ShardReader, shard: int, parts: Sequence[int], columns: Sequence[str]
) -> dict[int, pa.Table]:
    """Return the rows of a shard that each of the parts has, without parts that have none there."""
    if EVERY_CLASS in parts:
        table = shards.read(shard, columns)
        return {EVERY_CLASS: table} if table.num_rows else {}
    table = shards.read(shard, [*columns, LABEL])
    classes = table.column(LABEL).to_numpy()
    present = np.intersect1d(classes, np.array(parts, np.int64)).tolist()
    return {part: table.take(np.flatnonzero(classes == part)) for part in present}


def _check_width(path: str, column: str, width: int, expected: int) -> None:
    if width != expected:
        raise OperatorError(
            f"{path}: its column {column!r} has vectors of {width} entries, those of earlier shards "
            f"{expected}. They come from different runs; run the operator that adds it again."
        )


class PartRecord(TypedDict):
    """Record of one class's index: its class and rows, and the recall and mean degree of a sample of them."""

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


def build_part(state: Path, params: NeighboursParams, seed: int, named: tuple[int, str]) -> PartRecord:
    """Store the index of one part, whose rows :func:`write_rows` wrote, and return its record."""
    part, name = named
    folder = part_folder(state, part)
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
            X,
            params.index,
            geometry,
            nprobe=params.nprobe,
            ef_search=params.ef_search,
            seed=seed,
            n_neighbors=reach.n_neighbors,
        )
        rows.save(folder)
        found = rows.search(X[truth.sample], reach, truth.sample)
    share = 1.0 if params.index == "flat" else truth.share_found(found)
    degree, text = truth.mean_degree, advice(params.index, share)
    return PartRecord(part=part, name=name, rows=len(X), recall=share, mean_neighbours=degree, advice=text)


class PartIndex:
    """The index of one part, opened; its results are in row ids."""

    def __init__(self, state: Path, part: int, params: NeighboursParams) -> None:
        self._folder, self._params = part_folder(state, part), params
        self._row_ids, X = read_rows(self._folder)
        self._rows = RowIndex.load(
            self._folder, X, params.index, nprobe=params.nprobe, ef_search=params.ef_search
        )

    def look_up(self, table: pa.Table, rows: Ids) -> Edges:
        """Return the edges of those rows of a shard's table, which must all be in the index."""
        some = table.take(rows)
        own = self.positions(some.column(ROW_ID).to_numpy())
        queries = vectors_to_numpy(some.column(self._params.space))
        with threads(int(self._params.resources.cpus)):
            graph = self._rows.search(queries, reach_of(self._params), own)
        return Edges(rows[graph.sources()], self._row_ids[graph.indices], graph.distances)

    def neighbours_of(self, positions: Ids) -> Graph:
        """Return the neighbours of rows of the part, by their positions in it."""
        with threads(int(self._params.resources.cpus)):
            return self._rows.search(self._rows.X[positions], reach_of(self._params), positions)

    def rows_at(self, positions: Ids) -> tuple[Ids, Float32]:
        """Return the row ids and the vectors at some positions."""
        return np.array(self._row_ids[positions]), np.array(self._rows.X[positions], np.float32)

    def positions(self, row_ids: Ids) -> Ids:
        """Return the positions in the part of rows, which must all be there."""
        found = np.searchsorted(self._row_ids, row_ids)
        known = self._row_ids[np.minimum(found, len(self._row_ids) - 1)] == row_ids
        if not known.all():
            raise OperatorError(
                f"{self._folder}: holds no row_id {row_ids[~known][0]}. The index was built over other rows "
                "than these; run the operator `neighbours` again."
            )
        return found


def reach_of(params: NeighboursParams) -> Reach:
    """Return the definition of a neighbour by the parameters."""
    return Reach(params.eps, params.n_neighbors)


@dataclass(frozen=True, eq=False)
class Landmarks:
    """Chosen rows: (m,) int64 ``row_ids``, ascending, and their (m, p) float32 ``vectors``."""

    row_ids: Ids
    vectors: Float32


def choose_landmarks(state: Path, n_landmarks: int, random_state: int) -> Landmarks:
    """Draw landmarks among the stored vectors by the inverse of their density.

    Every class gets landmarks in proportion to its rows, at least one, so that there are more than
    ``n_landmarks`` where there are more classes. Densities are looked up for eight candidates per landmark,
    drawn at random: time and memory do not grow with the rows.

    Parameters
    ----------
    state : state folder of ``neighbours``.
    n_landmarks : how many to choose, >= 1; all rows where there are fewer.
    random_state : int, of both draws.

    Raises
    ------
    OperatorError
        ``state`` has no graph.
    """
    params, parts = _read(state)
    random = np.random.default_rng(random_state)
    rows = np.array([part["rows"] for part in parts])
    seats = seats_of(rows, n_landmarks)
    chosen: list[tuple[Ids, Float32]] = []
    for part, wanted in zip(parts, seats.tolist(), strict=True):
        opened = PartIndex(state, part["part"], params)
        size = min(part["rows"], CANDIDATES * wanted)
        candidates = np.sort(random.choice(part["rows"], size, replace=False))
        sparse = 1.0 / density(opened.neighbours_of(candidates))
        drawn = np.sort(random.choice(candidates, wanted, replace=False, p=sparse / sparse.sum()))
        chosen.append(opened.rows_at(drawn))
    row_ids, vectors = (np.concatenate(values) for values in zip(*chosen, strict=True))
    order = np.argsort(row_ids, kind="stable")
    return Landmarks(row_ids[order], vectors[order])


def seats_of(rows: Ids, n: int) -> Ids:
    """Divide n seats among classes by their ``rows`` (k,): at least one, and at most one for each row.

    Examples
    --------
    >>> seats_of(np.array([100, 100, 100]), 10).tolist(), seats_of(np.array([96, 2, 2]), 10).tolist()
    ([4, 3, 3], [8, 1, 1])
    """
    n = min(n, int(rows.sum()))
    seats = np.ones(len(rows), np.int64)
    for _ in range(n - len(rows)):
        # The class with the fewest seats for its rows gets the next one.
        seats[np.argmax(np.where(seats < rows, rows / (seats + 0.5), 0.0))] += 1
    return seats


def _read(state: Path) -> tuple[NeighboursParams, list[dict[str, Any]]]:
    path = state / GRAPH
    if not path.exists():
        raise OperatorError(f"{state}: holds no neighbour graph. Run the operator `neighbours` first.")
    record = read_json(path)
    return NeighboursParams(**record["params"]), record["parts"]
