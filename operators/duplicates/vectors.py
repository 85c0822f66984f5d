"""Near duplicates among vectors: FAISS compares a row with all older ones until it finds the oldest near one.

One folder for each shard holds the row ids of its vectors, ascending (``ids.npy``), and the vectors
(``rows.npy``). One task searches for the older rows of one shard, in blocks from the oldest row on, and
stores the pairs that it finds. The result is that of comparing all pairs, however many rows are near each
other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from operators.arrays import Float32, Float64, Ids
from operators.base import FEATURES, ROW_ID, OperatorError, ShardReader
from operators.columns import vectors_to_numpy
from operators.duplicates.pairs import write_pairs
from operators.neighbours.faiss_index import load_faiss, threads
from operators.neighbours.geometry import Geometry
from operators.neighbours.kernel import QUERIES, Reach, RowIndex

ROUNDING = 1e-6
"""Cosines of float32 vectors are this uncertain: equal vectors are near at any distance."""
FEWEST, MOST = 256, 8192
"""Older rows that are compared at once: few at first, as rows with many near ones find one among these."""


def store_vectors(reader: ShardReader, state: Path, shard: int) -> int:
    """Store the vectors of a shard's valid rows; return how many there are.

    Raises OperatorError if FAISS is missing.
    """
    try:
        load_faiss()
    except ImportError as error:
        raise OperatorError(str(error).replace("operators.neighbours", "operators.duplicates")) from None
    info = next(info for info in reader.shards if info.index == shard)
    table = reader.read(shard, [FEATURES])
    if table.num_rows:
        folder = _folder(state, info.first_row)
        folder.mkdir(exist_ok=True)
        np.save(folder / "ids.npy", table.column(ROW_ID).to_numpy())
        np.save(folder / "rows.npy", vectors_to_numpy(table.column(FEATURES)).astype(np.float32, copy=False))
    return int(table.num_rows)


def search_vectors(reader: ShardReader, state: Path, distance: float, cpus: int, shard: int) -> int:
    """Find the oldest near row of each row of a shard among older ones; return how many have one.

    They are stored as ``pairs-<first row>.npy``. Raises OperatorError if vectors have different lengths.
    """
    info = next(info for info in reader.shards if info.index == shard)
    own = _folder(state, info.first_row)
    if not own.exists():
        return 0
    ids, X = np.load(own / "ids.npy"), np.load(own / "rows.npy", mmap_mode="r")
    older = [folder for folder in sorted(state.glob("vectors-*")) if folder.name <= own.name]
    with threads(cpus):
        return write_pairs(
            state / f"pairs-{info.first_row:015d}.npy", *_oldest(ids, X, older, distance, info.path)
        )


def _folder(state: Path, first_row: int) -> Path:
    return state / f"vectors-{first_row:015d}"


def _oldest(ids: Ids, X: Float32, older: list[Path], distance: float, path: str) -> tuple[Ids, Ids, Float32]:
    """Return row ids of rows that have an older near one, those of the oldest, and their similarity."""
    of, apart = np.full(len(ids), -1, np.int64), np.zeros(len(ids))
    waiting = np.arange(len(ids))
    for other_ids, Y in _blocks(older):
        waiting = waiting[(of[waiting] < 0) & (ids[waiting] > other_ids[0])]
        if not len(waiting):
            break
        if Y.shape[1] != X.shape[1]:
            raise OperatorError(
                f"{path}: its features are vectors of {X.shape[1]} entries, those of the row {other_ids[0]} "
                f"have {Y.shape[1]}. They come from different runs; run the operator that adds them again."
            )
        index = RowIndex.build(Y, "flat", Geometry.of(Y, "cosine"))
        for start in range(0, len(waiting), QUERIES):
            some = waiting[start : start + QUERIES]
            rows, others, distances = _first_near(index, X[some], ids[some], other_ids, distance)
            of[some[rows]], apart[some[rows]] = other_ids[others], distances
    found = np.flatnonzero(of >= 0)
    return ids[found], of[found], (1.0 - apart[found]).astype(np.float32)


def _first_near(
    index: RowIndex, X: Float32, ids: Ids, other_ids: Ids, distance: float
) -> tuple[Ids, Ids, Float64]:
    """Return positions of rows with an older near one in the index, of the first of these, and distances."""
    graph = index.search(X, Reach(eps=max(distance, ROUNDING)))
    rows, others = graph.sources(), graph.indices
    is_older = np.flatnonzero(other_ids[others] < ids[rows])
    found, first = np.unique(rows[is_older], return_index=True)  # of a row, others ascend
    chosen = is_older[first]
    return found, others[chosen], graph.distances[chosen].astype(np.float64)


def _blocks(folders: list[Path]) -> Iterator[tuple[Ids, Float32]]:
    """Yield blocks of row ids and vectors, the oldest first."""
    size = FEWEST
    for folder in folders:
        ids = np.load(folder / "ids.npy", mmap_mode="r")
        X = np.load(folder / "rows.npy", mmap_mode="r")
        start = 0
        while start < len(ids):
            yield ids[start : start + size], X[start : start + size]
            start, size = start + size, min(2 * size, MOST)
