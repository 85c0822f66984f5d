"""Statistics of a neighbour graph: density of rows, and near duplicates counted shard by shard."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from operators.arrays import Float32, Ids
from operators.dbscan.disjoint_sets import DisjointSets
from operators.neighbours.graph import Graph


def density(graph: Graph) -> npt.NDArray[np.float64]:
    """Return the density of rows around each row, relative to the mean.

    For a graph of all pairs within eps: neighbours, the row itself included (Rosenblatt 1956). For a graph
    of the k nearest: one over the distance to the furthest of them (Loftsgaarden and Quesenberry 1965,
    without the exponent p, as data seldom fill their p dimensions); zero distances count as the
    smallest positive one. For the k nearest within eps: neighbours over that distance, or over eps where
    there are fewer than k.

    Parameters
    ----------
    graph : n rows.

    Returns
    -------
    (n,) float64, mean 1. Its inverse, normalised, draws rows evenly over the space, not over the data.
    """
    reach = np.full(graph.n_rows, np.inf if graph.eps is None else float(graph.eps))
    if graph.n_neighbors is not None:
        full = graph.degrees == graph.n_neighbors if graph.eps is not None else graph.degrees > 0
        furthest = np.maximum.reduceat(np.append(graph.distances, np.float32(0)), graph.indptr[:-1])
        reach[full] = furthest[full]
    positive = reach[(reach > 0) & np.isfinite(reach)]
    reach = np.maximum(reach, positive.min(initial=np.inf) if len(positive) else 1.0)
    found = 1.0 / reach if graph.eps is None else (graph.degrees + 1.0) / reach
    total = float(found.sum())
    return found * (len(found) / total) if total > 0 else np.ones(len(found))


MOST_PAIRS = 5_000_000


@dataclass(frozen=True)
class DuplicateSets:
    """Sets of near-duplicate rows that a graph connects.

    Attributes
    ----------
    rows : rows with another one within the threshold.
    pairs : unordered pairs within it; a lower bound where the graph holds only the nearest of each row.
    n_sets : sets of rows connected by such pairs.
    sets : row ids (ascending) of the largest sets, larger ones first, of equal ones the first.
    complete : false where there were more than ``MOST_PAIRS`` edges, and sets may be larger.
    """

    rows: int
    pairs: int
    n_sets: int
    sets: tuple[Ids, ...]
    complete: bool


class DuplicateCounter:
    """Counts near duplicates as edges are added. Memory: 16 bytes an edge, of at most ``most_pairs``.

    Parameters
    ----------
    threshold : largest distance of two near duplicates, compared in float32.
    most_pairs : edges kept, from which sets are formed.
    """

    def __init__(self, threshold: float, most_pairs: int = MOST_PAIRS) -> None:
        self._threshold, self._most = np.float32(threshold), most_pairs
        self._rows = self._up = self._down = self._held = 0
        self._kept: list[tuple[Ids, Ids]] = []

    def add(self, row_ids: Ids, degrees: Ids, neighbours: Ids, distances: Float32) -> None:
        """Add some rows, each once in all.

        Parameters
        ----------
        row_ids, degrees : (n,) rows and how many neighbours each has.
        neighbours, distances : (e,) row ids of the neighbours, row after row, and how far they are.
        """
        near = distances <= self._threshold
        a, b = np.repeat(row_ids, degrees)[near], neighbours[near]
        self._rows += len(np.unique(a))
        self._up += int(np.count_nonzero(a < b))
        self._down += int(np.count_nonzero(a > b))
        some = slice(0, max(0, self._most - self._held))
        self._held += len(a[some])
        self._kept.append((a[some], b[some]))

    def result(self, largest: int = 5) -> DuplicateSets:
        """Return the duplicates found so far, with the ``largest`` largest sets."""
        pairs = max(self._up, self._down)
        complete = self._up + self._down == self._held
        if not self._held:
            return DuplicateSets(self._rows, pairs, 0, (), complete)
        a, b = (np.concatenate(part) for part in zip(*self._kept, strict=True))
        ids = np.unique(np.concatenate([a, b]))
        forest = DisjointSets(len(ids))
        forest.union(np.searchsorted(ids, a), np.searchsorted(ids, b))
        roots, sizes = np.unique(forest.find(np.arange(len(ids))), return_counts=True)
        first = roots[np.argsort(-sizes, kind="stable")[:largest]]
        of_row = forest.find(np.arange(len(ids)))
        sets = tuple(ids[of_row == root] for root in first)
        return DuplicateSets(self._rows, pairs, len(roots), sets, complete)
