"""Recall of an index and expected size of a graph, both exact on a sample of rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from operators.arrays import Float32, Ids, Matrix
from operators.neighbours.faiss_index import BLOCK, RECALL_PARAMETERS
from operators.neighbours.geometry import Geometry
from operators.neighbours.graph import Graph
from operators.neighbours.kernel import Reach, RowIndex

SAMPLE = 256
"""Rows whose true neighbours are found."""
LOW = 0.95
"""Recall below which a user is advised to raise a parameter."""
BYTES_PER_EDGE = 12


@dataclass(frozen=True, eq=False)
class Truth:
    """True edges of some rows.

    Attributes
    ----------
    sample : (s,) int64 positions of the rows, ascending.
    degrees : (s,) int64: how many neighbours each has.
    furthest : (s,) float32: distance of its furthest one; infinite where the radius alone says which count.
    n_rows : rows of the whole graph.
    """

    sample: Ids
    degrees: Ids
    furthest: Float32
    n_rows: int

    @classmethod
    def of_nearest(cls, sample: Ids, nearest: Float32, eps: float | None, n_rows: int) -> Truth:
        """Keep, of :func:`nearest_distances`, those within eps."""
        known = np.isfinite(nearest) if eps is None else nearest <= np.float32(eps)
        furthest = np.where(known, nearest, -np.inf).max(axis=1, initial=-np.inf)
        return cls(sample, known.sum(axis=1), furthest.astype(np.float32), n_rows)

    @property
    def mean_degree(self) -> float:
        """Mean number of neighbours."""
        return float(self.degrees.mean())

    @property
    def expected_edges(self) -> float:
        """Edges that the whole graph would have, by this sample."""
        return self.mean_degree * self.n_rows

    def share_found(self, found: Graph) -> float:
        """Return the share of the true edges among those found of the same rows; 1 if there are none to find.

        Of the nearest, any row as near as the furthest true one counts.
        """
        total = int(self.degrees.sum())
        hits = int(np.count_nonzero(found.distances <= np.repeat(self.furthest, found.degrees)))
        return hits / total if total else 1.0


def true_edges(X: Matrix, geometry: Geometry, reach: Reach, seed: int) -> Truth:
    """Compare a sample of min(n, 256) rows with all n, exactly, one block of rows after the other.

    Parameters
    ----------
    X : (n, p) rows, memory-mapped or not.
    geometry : how they compare.
    reach : which rows are neighbours.
    seed : draws the sample.
    """
    sample = draw(len(X), SAMPLE, seed)
    if reach.n_neighbors is None:
        degrees = np.zeros(len(sample), np.int64)
        for graph, _ in _by_block(X, geometry, reach, sample):
            degrees += graph.degrees
        return Truth(sample, degrees, np.full(len(sample), np.inf, np.float32), len(X))
    others = max(len(X) - 1, 1)  # no row has more neighbours, whatever the recipe asks for
    nearest = nearest_distances(X, geometry, sample, min(reach.n_neighbors, others))
    return Truth.of_nearest(sample, nearest, reach.eps, len(X))


def nearest_distances(X: Matrix, geometry: Geometry, sample: Ids, k: int) -> Float32:
    """Return the distances (s, k), float32, of sampled rows to their k nearest others, ascending, then
    infinite.
    """
    nearest = np.full((len(sample), k), np.inf, np.float32)
    for graph, n_rows in _by_block(X, geometry, Reach(n_neighbors=k), sample):
        fresh = np.full((len(sample), min(k, n_rows)), np.inf, np.float32)
        place = np.arange(len(graph.indices)) - np.repeat(graph.indptr[:-1], graph.degrees)
        fresh[graph.sources(), place] = graph.distances
        nearest = np.sort(np.hstack([nearest, fresh]), axis=1)[:, :k]
    return nearest


def draw(n: int, size: int, seed: int) -> Ids:
    """Draw positions (min(n, size),) at random, in ascending order."""
    return np.sort(np.random.default_rng(seed).choice(n, min(n, size), replace=False))


def check_size(truth: Truth, reach: Reach, limit: int) -> None:
    """Refuse a graph that would not fit.

    Raises
    ------
    ValueError
        It is expected to have more than ``limit`` edges.
    """
    expected = truth.expected_edges
    if expected <= limit:
        return
    radius = "" if reach.eps is None else f" within eps = {reach.eps:g}"
    if reach.eps is None:
        fix = "Give a smaller n_neighbors"
    else:
        fix = "Give n_neighbors, to keep only the nearest of them, lower eps"
    raise ValueError(
        f"the graph would have about {expected:.1e} edges ({expected * BYTES_PER_EDGE / 2**30:,.1f} GiB), "
        f"more than max_edges = {limit:.1e}: of a sample of {len(truth.sample)} rows each has "
        f"{truth.mean_degree:,.0f} of the other {truth.n_rows - 1:,} rows{radius} on average. {fix}, or "
        "raise max_edges. Clusters need no such graph: operators.dbscan.DBSCAN finds them without one."
    )


def advice(kind: str, share: float) -> str:
    """Return how to raise a recall of ``share``; an empty text where it is at least ``LOW``."""
    if share >= LOW:
        return ""
    return (
        f"the {kind} index finds only {share:.1%} of the true neighbours of a sample of rows, so small "
        f"clusters may be lost. Raise {RECALL_PARAMETERS[kind]}, or use index: flat, which finds all."
    )


def _by_block(X: Matrix, geometry: Geometry, reach: Reach, sample: Ids) -> Iterator[tuple[Graph, int]]:
    """Yield the exact neighbours of sampled rows among one block of rows after the other, and the block's
    size.
    """
    queries = X[sample]
    for start in range(0, len(X), BLOCK):
        block = X[start : start + BLOCK]
        flat = RowIndex.build(block, "flat", geometry, n_neighbors=reach.n_neighbors)
        own = np.where((sample >= start) & (sample < start + len(block)), sample - start, -1)
        yield flat.search(queries, reach, own), len(block)
