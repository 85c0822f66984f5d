"""Exact and approximate neighbours of rows: an index proposes pairs in float32, float64 decides.

:class:`RowIndex` searches (:class:`Reach` says which rows are neighbours) and compares every proposed pair
again from the rows themselves, so an edge that is found is true whatever the index.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from operators.arrays import Float32, Float64, Ids, Matrix
from operators.neighbours.faiss_index import Index, Kind
from operators.neighbours.geometry import Geometry
from operators.neighbours.graph import Graph, gather
from operators.neighbours.repeats import first_copies

QUERIES = 1024
"""Rows that are looked up at once."""
FEWEST = 32
"""The least number where all rows may be near. Below about 20, FAISS does not use matrix products."""
PAIRS = 1 << 24
"""Candidates at once, if all rows are near: about 1 GiB."""
VALUES = 1 << 17
"""float64 entries gathered at once: they stay in the cache of a core."""
SPARE = 8
"""Rows asked for beyond the k nearest: the row itself, and some to see where equally far ones end."""
INDEX, GEOMETRY = "index.faiss", "geometry.npz"
FEWER, FIRST = "first_copies.faiss", "first_copies.npy"
"""Files in place of ``INDEX`` where rows are left out: the index, and the positions of its rows."""


@dataclass(frozen=True)
class Reach:
    """Definition of a neighbour: within ``eps``, among the ``n_neighbors`` nearest, or both.

    Raises
    ------
    ValueError
        Neither is given, or one is out of range.
    """

    eps: float | None = None
    n_neighbors: int | None = None

    def __post_init__(self) -> None:
        if self.eps is None and self.n_neighbors is None:
            raise ValueError("eps is None and n_neighbors is None; give one of them, or both")
        if self.eps is not None and not 0 <= self.eps < np.inf:
            raise ValueError(f"eps is {self.eps!r}; give a finite number of at least 0")
        if self.n_neighbors is not None and self.n_neighbors < 1:
            raise ValueError(f"n_neighbors is {self.n_neighbors!r}; give a whole number of at least 1")


@dataclass(frozen=True, eq=False)
class Found:
    """Pairs of a block: position of the query, of the row, and their exact measure."""

    rows: Ids
    cols: Ids
    measures: Float64

    def where(self, keep: Any) -> Found:
        """Return the pairs chosen, by mask or in a new order."""
        return Found(self.rows[keep], self.cols[keep], self.measures[keep])


@dataclass(frozen=True, eq=False)
class RowIndex:
    """Rows with an index over them.

    Every pair an index proposes is compared again in float64, from the rows themselves: an edge found is
    true, whatever the index, and its distance does not depend on how rows were cut into blocks. A flat index
    is asked for a little more than the radius, by the bound on its rounding error, so it misses none.

    Attributes
    ----------
    X, geometry, index : the rows, how they compare, and the index over them.
    first : positions of the rows in the index, ascending, if later copies of repeated rows are left out.
    n_neighbors : largest number of neighbours that such an index can give.
    """

    X: Matrix
    geometry: Geometry
    index: Index
    first: Ids | None = None
    n_neighbors: int = 0

    @classmethod
    def build(
        cls,
        X: Matrix,
        kind: Kind,
        geometry: Geometry,
        *,
        nprobe: int = 1,
        ef_search: int = 1,
        seed: int = 0,
        n_neighbors: int | None = None,
    ) -> RowIndex:
        """Index finite rows (n, p), n >= 1; float32 or float64, mapped into memory or not.

        ``n_neighbors`` is that of the searches; without it no repeated row is left out.
        """
        first = first_copies(X, geometry, n_neighbors + 1) if n_neighbors and kind == "flat" else None
        index = Index.build(kind, X, geometry, nprobe=nprobe, ef_search=ef_search, seed=seed, rows=first)
        return cls(X, geometry, index, first, n_neighbors or 0)

    def save(self, folder: Path) -> None:
        """Write index and geometry; the rows are the caller's to keep."""
        geometry = self.geometry
        values: dict[str, Any] = {
            "metric": geometry.metric,
            "centre": geometry.centre,
            "unit": geometry.unit,
        }
        if self.first is not None:
            np.save(folder / FIRST, self.first)
            values["n_neighbors"] = self.n_neighbors
        self.index.save(folder / (INDEX if self.first is None else FEWER))
        np.savez(folder / GEOMETRY, **values)

    @classmethod
    def load(cls, folder: Path, X: Matrix, kind: Kind, *, nprobe: int, ef_search: int) -> RowIndex:
        """Read what :meth:`save` wrote about the rows X."""
        with np.load(folder / GEOMETRY, allow_pickle=False) as stored:
            metric: Any = str(stored["metric"])
            geometry = Geometry(metric, stored["centre"], float(stored["unit"]))
            most = int(stored["n_neighbors"]) if "n_neighbors" in stored else 0
        first = np.asarray(np.load(folder / FIRST, mmap_mode="r", allow_pickle=False)) if most else None
        index = Index.load(kind, folder / (FEWER if most else INDEX), nprobe, ef_search)
        return cls(X, geometry, index, first, most)

    def search(self, queries: Matrix, reach: Reach, own: Ids | None = None) -> Graph:
        """Find the neighbours of ``queries`` among the rows.

        Parameters
        ----------
        queries : (m, p), as the rows are.
        reach : which rows are neighbours. Of rows equally far the lower positions come first.
        own : (m,), optional: position of each query among the rows, -1 for none; a row is not listed as
            its own neighbour.

        Returns
        -------
        Graph of m rows. Memory: the graph and one block of candidates.
        """
        if self.first is not None and (reach.n_neighbors is None or reach.n_neighbors > self.n_neighbors):
            return RowIndex.build(self.X, self.index.kind, self.geometry).search(queries, reach, own)
        own = np.full(len(queries), -1, np.int64) if own is None else np.asarray(own)
        pieces = self._pieces(queries, reach, own)
        return gather(pieces, len(self.X), reach.eps, reach.n_neighbors)

    def _pieces(self, queries: Matrix, reach: Reach, own: Ids) -> Iterator[tuple[Ids, Ids, Float32]]:
        step = min(QUERIES, max(FEWEST, PAIRS // len(self.X)))
        for start in range(0, len(queries), step):
            block = _Block(self, queries[start : start + step], own[start : start + step])
            if reach.n_neighbors is None:
                found = block.within(float(reach.eps or 0.0))
            else:
                found = block.nearest(reach.n_neighbors, reach.eps)
            found = found.where(np.lexsort((found.cols, found.rows)))
            distances = self.geometry.distances(found.measures).astype(np.float32)
            yield np.bincount(found.rows, minlength=block.size), found.cols, distances


class _Block:
    """Some queries: small enough to hold all their candidates."""

    def __init__(self, owner: RowIndex, queries: Matrix, own: Ids) -> None:
        self._X, self._geometry, self._index, self._first = owner.X, owner.geometry, owner.index, owner.first
        self._own, self.size = own, len(queries)
        self._exact = self._geometry.exact(queries)
        self._prepared = self._geometry.prepared(queries)
        self._error = self._geometry.error(self._prepared)

    def within(self, eps: float) -> Found:
        """Find all rows within eps."""
        limit = self._geometry.measure(eps)
        gap = float(self._geometry.gaps(limit)) + self._error
        found = self._measured(*self._index.within(self._prepared, gap))
        return found.where(found.measures <= limit)

    def nearest(self, k: int, eps: float | None) -> Found:
        """Find the k nearest rows, of rows equally far the first; only those within eps, if that is given."""
        exact = self._index.kind == "flat"
        waiting, asked, parts = np.arange(self.size), k + SPARE, []
        while len(waiting):
            (rows, cols), furthest = self._index.nearest(self._prepared[waiting], asked)
            cols = cols if self._first is None else self._first[cols]
            found = smallest(self._measured(waiting[rows], cols), k)
            last = np.zeros(self.size)
            np.maximum.at(last, found.rows, found.measures)
            # What the index did not return lies no nearer than the last row it did, but for rounding.
            open_ = exact & (self._geometry.gaps(last[waiting]) >= furthest - 2 * self._error)
            parts.append(found.where(~np.isin(found.rows, waiting[open_])))
            waiting, asked = waiting[open_], 4 * asked
        found = Found(*(np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])))
        return found if eps is None else found.where(found.measures <= self._geometry.measure(eps))

    def _measured(self, rows: Ids, cols: Ids) -> Found:
        """Return the exact measures of pairs, without a row's pair with itself, in the order of ``cols``."""
        other = np.flatnonzero(cols != self._own[rows])
        order = other[np.argsort(cols[other], kind="stable")]
        rows, cols = rows[order], cols[order]
        measures = np.empty(len(rows))
        step = max(1, VALUES // self._X.shape[1])
        for start in range(0, len(rows), step):
            some = slice(start, start + step)
            # A row near many queries comes many times in a run, and is prepared once.
            distinct, place = np.unique(cols[some], return_inverse=True)
            near = self._geometry.exact(self._X[distinct])[place]
            measures[some] = self._geometry.measures(self._exact[rows[some]], near)
        return Found(rows, cols, measures)


def smallest(found: Found, k: int) -> Found:
    """Keep the k pairs of each query with the smallest measures; of equal ones the lowest rows."""
    found = found.where(np.lexsort((found.cols, found.measures, found.rows)))
    starts = np.searchsorted(found.rows, found.rows, side="left")
    return found.where(np.arange(len(starts)) - starts < k)
